"""C01: kill -9 right after a PUBACK or PUBCOMP under load. What was acknowledged is a row.

SINK_CRASH_ROUNDS (6; 1000 in the long run) rounds with one server, CRASH_SEED repeats a run. Three
publishers of QoS 1 and one of QoS 2 keep their sessions and send again, with DUP, what was not
acknowledged: each is one row at the end, of QoS 1 by msg.message_key, of QoS 2 without.
"""

import os
import random

from harness.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, frame, publish_frame
from harness.rawmqtt import Closed, RawClient
from harness.server import Server

ROUNDS = int(os.environ.get("SINK_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.randrange(1, 10**6)
WINDOW = 20
NO_SUBSCRIBERS, IDENTIFIER_NOT_FOUND = 0x10, 0x92


class Publisher:
    """A session that outlives its connections, and what it has not been acknowledged."""

    def __init__(self, port, name, qos):
        self.port, self.name, self.qos = port, name, qos
        self.number = self.identifier = 0
        self.open = {}  # packet identifier: payload, in the order of sending
        self.released = set()  # PUBREC came: only PUBREL is sent again
        self.acknowledged = []  # since the last look at the rows
        self.client = None

    def connect(self):
        self.client = RawClient(self.port, timeout=30)
        assert self.client.connect(self.name, clean=False,
                                   properties={"session_expiry_interval": 3600}).code == 0
        for identifier, payload in self.open.items():
            if identifier in self.released:
                self.client.send(frame(PUBREL, 2, identifier.to_bytes(2, "big")))
            else:
                self.send(identifier, payload, True)

    def send(self, identifier, payload, dup=False):
        self.client.send(publish_frame(f"crash/{self.qos}", payload, self.qos, packet_id=identifier,
                                       dup=dup))

    def fill(self):
        while len(self.open) < WINDOW:
            self.identifier = self.identifier % 200 + 1  # used again soon
            if self.identifier in self.open:
                continue
            self.open[self.identifier] = f"{self.name} {self.number}"
            self.number += 1
            self.send(self.identifier, self.open[self.identifier])

    def step(self):
        """Until one more message is acknowledged."""
        while True:
            packet = self.client.receive(timeout=30)
            if packet.type == PUBREC:
                assert packet.code < 0x80, packet
                self.released.add(packet.packet_id)
                self.client.send(frame(PUBREL, 2, packet.packet_id.to_bytes(2, "big")))
                continue
            assert packet.type == (PUBACK if self.qos == 1 else PUBCOMP), packet
            # A PUBREL that comes again may find nothing to release: section 3.7.2.1.
            assert packet.code in (0, NO_SUBSCRIBERS, IDENTIFIER_NOT_FOUND), packet
            self.acknowledged.append(self.open.pop(packet.packet_id))
            self.released.discard(packet.packet_id)
            return

    def drain(self):
        """What the broker had still said before it died."""
        try:
            while True:
                self.step()
        except (Closed, OSError):
            self.client.close()


def test_what_was_acknowledged_is_a_row():
    """C01: after every kill, and once all is sent again each message is exactly one row."""
    with Server() as server:
        server.psql("""
            CREATE TABLE once (message_key text UNIQUE, v text); CREATE TABLE exact (v text);
            SELECT pgmqtt.add_sink('once', 'crash/1', $$ INSERT INTO once
                SELECT message_key, text FROM msg ON CONFLICT (message_key) DO NOTHING $$);
            SELECT pgmqtt.add_sink('exact', 'crash/2', 'INSERT INTO exact SELECT text FROM msg');""")
        dice = random.Random(SEED)
        publishers = [Publisher(server.mqtt_port, f"p{n}", 1) for n in range(3)]
        publishers.append(Publisher(server.mqtt_port, "q", 2))
        for number in range(ROUNDS):
            for publisher in publishers:
                publisher.connect()
            for _ in range(dice.randrange(1, 200)):
                for publisher in publishers:
                    publisher.fill()
                dice.choice(publishers).step()
            server.kill9(everyone=number % 2 == 0)
            for publisher in publishers:
                publisher.drain()
            server.start().wait_listening()
            check(server, publishers, number)
        for publisher in publishers:
            publisher.connect()
            while publisher.open:
                publisher.step()
            publisher.client.close()
        report(server, publishers)


def check(server, publishers, number):
    """What was acknowledged in this round; report() looks at all rows."""
    recent = [payload for publisher in publishers for payload in publisher.acknowledged]
    values = ", ".join(f"('{payload}')" for payload in recent)
    lost = recent and server.psql(f"VALUES {values} EXCEPT (SELECT v FROM once UNION ALL SELECT v FROM exact)")
    assert not lost, f"round {number}, CRASH_SEED={SEED}: {lost}"
    for publisher in publishers:
        publisher.acknowledged.clear()


def report(server, publishers):
    once = server.psql("SELECT v FROM once").splitlines()
    sent = {f"{publisher.name} {n}" for publisher in publishers[:3] for n in range(publisher.number)}
    assert len(sent) > ROUNDS
    assert len(once) == len(set(once)) and set(once) == sent, f"CRASH_SEED={SEED}"
    exact = server.psql("SELECT v FROM exact").splitlines()
    assert set(exact) == {f"q {n}" for n in range(publishers[3].number)}, f"CRASH_SEED={SEED}"
    assert len(exact) == len(set(exact)), f"CRASH_SEED={SEED}: QoS 2 twice"
    print(f"\n{ROUNDS} kills: {len(once)} messages of QoS 1 and {len(exact)} of QoS 2, one row each "
          f"(CRASH_SEED={SEED})")
