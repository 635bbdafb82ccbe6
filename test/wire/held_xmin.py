"""A forgotten transaction while messages go through the queues of sessions that come and go.

    python3 test/wire/held_xmin.py [SECONDS] [MESSAGES_PER_SECOND]

QoS 1 publishes into ten persistent sessions that are away two thirds of the time, and into one that
never comes back, beside an idle REPEATABLE READ transaction. Prints the acknowledged rate and the size
of the pgmqtt tables; fails when a message is lost or out of order, when the last tenth is slower than
four fifths of the first, or when the tables grow. A measurement, for people: 600 s by default.
"""

import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.packets import CONNECT, SUBSCRIBE, connect_body, frame  # noqa: E402
from harness.server import Server  # noqa: E402

SESSIONS, PAYLOAD = 10, 64
SIZE = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c" \
       " WHERE relnamespace = 'pgmqtt'::regnamespace AND relkind = 'r'"


def dial(port, client_id, clean):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(frame(CONNECT, 0, connect_body(client_id, 4, clean)))
    while len(answer := connection.recv(4, socket.MSG_PEEK)) < 4:
        pass
    assert connection.recv(4)[3] == 0, answer
    return connection


def publish(topic, number, packet_id):
    payload = struct.pack(">Q", number).ljust(PAYLOAD, b".")
    return frame(3, 2, struct.pack(">H", len(topic)) + topic + struct.pack(">H", packet_id) + payload)


class Publisher(threading.Thread):
    """Sends to all sessions' topics in turn, at a steady rate, with at most 100 unacknowledged."""

    def __init__(self, port, rate, until):
        super().__init__(daemon=True)
        self.port, self.rate, self.until = port, rate, until
        self.acknowledged = 0

    def run(self):
        connection = dial(self.port, "publisher", True)
        started, sent, unread = time.monotonic(), 0, b""
        while (now := time.monotonic()) < self.until or self.acknowledged < sent:
            due = int((min(now, self.until) - started) * self.rate)
            packets = []
            while sent < due and sent - self.acknowledged < 100:
                topic = b"x/%d" % (sent % SESSIONS)
                packets.append(publish(topic, sent // SESSIONS, sent % 60000 + 1))
                sent += 1
            if packets:
                connection.sendall(b"".join(packets))
            if select.select([connection], [], [], 0.002)[0]:
                unread += connection.recv(1 << 16)
                self.acknowledged += len(unread) // 4
                unread = unread[len(unread) // 4 * 4:]
        self.sent = sent


class Session(threading.Thread):
    """There for a second, away for two, and in the end until it has everything."""

    def __init__(self, port, number, publisher):
        super().__init__(daemon=True)
        self.port, self.number, self.publisher = port, number, publisher
        self.topic = b"x/%d" % number
        self.next = 0  # number of the message to come
        self.fault = None

    def sent(self):
        return (self.publisher.sent + SESSIONS - 1 - self.number) // SESSIONS

    def connect(self):
        return dial(self.port, f"session-{self.topic.decode()}", False)

    def subscribe(self):
        connection = self.connect()
        connection.sendall(frame(SUBSCRIBE, 2, b"\0\1\0\3" + self.topic + b"\1"))
        assert len(connection.recv(5)) == 5
        connection.close()

    def take(self, unread):
        """Of whole packets the numbers, and the PUBACKs for them."""
        size = 2 + 2 + len(self.topic) + 2 + PAYLOAD
        answer = []
        while len(unread) >= size:
            at = 4 + len(self.topic)
            number = struct.unpack_from(">Q", unread, at + 2)[0]
            if number > self.next:
                self.fault = f"{self.topic}: {number} came, {self.next} did not"
            self.next = max(self.next, number + 1)
            answer.append(b"\x40\2" + unread[at:at + 2])
            unread = unread[size:]
        return b"".join(answer), unread

    def run(self):
        while self.fault is None:
            connection, unread = self.connect(), b""
            leave_at = time.monotonic() + 1
            last = not self.publisher.is_alive()
            while time.monotonic() < leave_at or (last and self.next < self.sent()):
                if select.select([connection], [], [], 0.05)[0]:
                    unread += connection.recv(1 << 18)
                    answer, unread = self.take(unread)
                    connection.sendall(answer)
            connection.close()
            if last:
                return
            time.sleep(2)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 5000.0
    with Server(conf={"pgmqtt.max_queued_messages": 20000}) as server:
        abandoned = dial(server.mqtt_port, "abandoned", False)
        abandoned.sendall(frame(SUBSCRIBE, 2, b"\0\1\0\3x/3\1"))
        abandoned.recv(5)
        abandoned.close()
        forgotten = server.connect(autocommit=False)
        cursor = forgotten.cursor()
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM pgmqtt.session")
        started = time.monotonic()
        publisher = Publisher(server.mqtt_port, rate, started + seconds)
        sessions = [Session(server.mqtt_port, number, publisher) for number in range(SESSIONS)]
        for session in sessions:
            session.subscribe()
        publisher.start()
        for session in sessions:
            session.start()
        rates, sizes = [], []
        for _ in range(10):
            before, began = publisher.acknowledged, time.monotonic()
            time.sleep(seconds / 10)
            rates.append((publisher.acknowledged - before) / (time.monotonic() - began))
            sizes.append(int(server.psql(SIZE)))
            print(f"{time.monotonic() - started:6.0f} s  {rates[-1]:8.0f} acknowledged/s "
                  f"{sizes[-1] / 1e6:8.1f} MB", flush=True)
        publisher.join()
        for session in sessions:
            session.join(60)
        held = server.psql("SELECT max(age(backend_xmin)) FROM pg_stat_activity")
        print(f"xmin held for {held} transactions, {publisher.sent} messages")
        for session in sessions:
            assert session.fault is None, session.fault
            assert session.next == session.sent(), f"{session.sent() - session.next} lost at the end"
        forgotten.rollback()
    assert rates[-1] >= 0.8 * rates[0], rates
    assert max(sizes[5:]) <= 1.5 * max(sizes[:5]), sizes


if __name__ == "__main__":
    main()
