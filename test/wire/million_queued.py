"""A million messages of 1 KiB for ten sessions that are away.

    /usr/bin/python3 test/wire/million_queued.py [MESSAGES] [BYTES]

Queues them, 100,000 per session, and prints the rate, the broker's growth in memory (bar: 100 MB), how long
a restart takes until it listens (bar: 3 s; a clean one, and one after kill -9) and how fast they are
drained; fails when one is missing, wrong or out of order. A measurement, for people; takes some GB of disk.
"""

import re
import selectors
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from held_xmin import dial  # noqa: E402
from harness.packets import SUBSCRIBE, encode_binary, frame  # noqa: E402
from harness.server import Server  # noqa: E402

SESSIONS, WINDOW = 10, 1000
CONF = {"fsync": "on", "max_wal_size": "2GB", "shared_buffers": "128MB",
        "pgmqtt.max_queued_messages": 10_000_000, "pgmqtt.max_queued_bytes": "100GB",
        "pgmqtt.max_inflight": WINDOW}


def topic_of(session):
    return b"q/%d" % session


def payload_of(session, number, size):
    return struct.pack(">IQ", session, number).ljust(size, b".")


def resident(pid):
    """(resident, of that private) bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"{name}:\s+(\d+) kB", status).group(1)) * 1024
            for name in ("VmRSS", "RssAnon")]


def make_sessions(port):
    for session in range(SESSIONS):
        connection = dial(port, f"session-{session}", False)
        connection.sendall(frame(SUBSCRIBE, 2, b"\0\1" + encode_binary(topic_of(session)) + b"\1"))
        assert len(connection.recv(5)) == 5
        connection.close()


def queue(port, messages, size):
    """To each session in turn, at most WINDOW without their PUBACK."""
    connection = dial(port, "publisher", True)
    sent = acknowledged = 0
    unread = b""
    while acknowledged < messages:
        packets = []
        while sent < messages and sent - acknowledged < WINDOW:
            session, number = sent % SESSIONS, sent // SESSIONS
            packets.append(frame(3, 2, encode_binary(topic_of(session))
                                 + struct.pack(">H", sent % 60000 + 1)
                                 + payload_of(session, number, size)))
            sent += 1
        connection.sendall(b"".join(packets))
        unread += connection.recv(1 << 16)
        assert unread, "the broker closed the connection"
        acknowledged += len(unread) // 4
        unread = unread[len(unread) // 4 * 4:]
    connection.close()


class Drain:
    """One session that takes what is its own."""

    def __init__(self, port, session, size):
        self.session, self.size = session, size
        self.next = 0
        self.unread = b""
        self.connection = dial(port, f"session-{session}", False)
        self.length = len(frame(3, 2, encode_binary(topic_of(session)) + b"\0\1" + bytes(size)))

    def take(self):
        data = self.connection.recv(1 << 20)
        assert data, "the broker closed the connection"
        self.unread += data
        whole = len(self.unread) // self.length
        acknowledged = []
        for at in range(0, whole * self.length, self.length):
            end = at + self.length
            start = end - self.size
            number = struct.unpack_from(">Q", self.unread, start + 4)[0]
            assert self.unread[start:end] == payload_of(self.session, self.next, self.size), \
                f"session {self.session}: {number} came in place of {self.next}"
            self.next += 1
            acknowledged.append(b"\x40\2" + self.unread[start - 2:start])
        self.unread = self.unread[whole * self.length:]
        if acknowledged:
            self.connection.sendall(b"".join(acknowledged))


def drain(port, messages, size):
    selector = selectors.DefaultSelector()
    drains = [Drain(port, session, size) for session in range(SESSIONS)]
    for one in drains:
        selector.register(one.connection, selectors.EVENT_READ, one)
    while sum(one.next for one in drains) < messages:
        ready = selector.select(30)
        assert ready, f"nothing came for 30 s: {[one.next for one in drains]}"
        for key, _ in ready:
            key.data.take()
    for one in drains:
        one.connection.close()


def time_to_listen(server):
    """Seconds from the start of the postmaster until MQTT clients can connect."""
    started = time.monotonic()
    server.start(wait=False)
    server.wait_for(server.listening, "the broker listens", 600, every=0.005)
    return time.monotonic() - started


def main():
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    messages -= messages % SESSIONS
    with Server(conf=CONF) as server:
        port = server.mqtt_port
        make_sessions(port)
        queue(port, 10 * WINDOW, size)  # what buffers take
        server.wait_for(lambda: server.psql("SELECT queued FROM pgmqtt.stat_broker")
                        == str(10 * WINDOW), "the first are queued")
        drain(port, 10 * WINDOW, size)
        server.wait_for(lambda: server.psql("SELECT queued FROM pgmqtt.stat_broker") == "0",
                        "the first are taken")
        before = resident(server.worker_pid("pgmqtt broker"))
        started = time.monotonic()
        queue(port, messages, size)
        seconds = time.monotonic() - started
        after = resident(server.worker_pid("pgmqtt broker"))
        print(f"queued: {messages} in {seconds:.1f} s, {messages / seconds:.0f}/s")
        print(f"memory of the broker: {before[0] / 1e6:.1f} -> {after[0] / 1e6:.1f} MB resident, "
              f"{(after[0] - before[0]) / 1e6:.1f} MB more, {(after[1] - before[1]) / 1e6:.1f} MB of "
              f"its own (bar: 100)", flush=True)
        server.stop()
        print(f"clean restart to listening: {time_to_listen(server):.2f} s (bar: 3)", flush=True)
        server.wait_for(server.answers, "SQL is answered")
        loaded = resident(server.worker_pid("pgmqtt broker"))
        print(f"memory of the broker after it: {loaded[0] / 1e6:.1f} MB resident, "
              f"{loaded[1] / 1e6:.1f} MB of its own")
        server.psql("CHECKPOINT")
        server.kill9(everyone=True)
        print(f"restart to listening after kill -9: {time_to_listen(server):.2f} s", flush=True)
        server.wait_for(server.answers, "SQL is answered")
        started = time.monotonic()
        drain(port, messages, size)
        seconds = time.monotonic() - started
        print(f"drained and verified: {messages / seconds:.0f}/s")
        server.wait_for(lambda: server.psql("SELECT queued FROM pgmqtt.stat_broker") == "0",
                        "nothing is left")


if __name__ == "__main__":
    main()
