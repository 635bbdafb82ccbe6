"""What a crash must not lose: one server is filled, killed with SIGKILL, started, and asked."""

import os
import threading

import pytest

from harness.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, publish_frame
from harness.rawmqtt import RawClient
from harness.server import Server

IMAGE = os.urandom(1 << 20)
EVERLASTING = {"session_expiry_interval": 0xFFFFFFFF}


class Crashed:
    """A server after its crash, and what its clients knew before."""

    def __init__(self, server):
        self.server = server
        self.clients = []
        self.unacknowledged = []
        self.released = 0

    def connect(self, client_id="", clean=False, version=5, properties=EVERLASTING, **options):
        client = RawClient(self.server.mqtt_port, version)
        client.connack = client.connect(client_id, clean=clean, properties=properties, **options)
        assert client.connack.code == 0
        self.clients.append(client)
        return client

    def publisher(self):
        return self.connect(clean=True, properties=None)

    def fill(self):
        publisher = self.publisher()
        for name, qos in (("queued", 1), ("unacknowledged", 1), ("released", 2), ("expiring", 1)):
            client = self.connect(name)
            client.subscribe(f"crash/{name}", qos)
            if name in ("queued", "expiring"):
                client.leave()
        for number in range(5):
            publisher.publish("crash/queued", str(number), 1)
            publisher.publish("crash/unacknowledged", str(number), 1)
        publisher.publish("crash/expiring", "short", 1, properties={"message_expiry_interval": 1})
        publisher.publish("crash/expiring", "long", 1, properties={"message_expiry_interval": 900})
        publisher.publish_twice_acknowledged("crash/released", "x")
        unacknowledged, released = self.clients[2], self.clients[3]
        self.unacknowledged = [unacknowledged.expect(PUBLISH).packet_id for _ in range(5)]
        self.released = released.expect(PUBLISH).packet_id
        released.send_ack(PUBREC, self.released)
        released.expect(PUBREL)
        half = self.connect("half sent")
        half.send(publish_frame("crash/watched", "once", 2, packet_id=9))
        assert half.expect(PUBREC).code < 0x80
        self.connect("with a will", will={
            "topic": "crash/will", "payload": "gone", "retain": True, "qos": 1,
            "properties": {"will_delay_interval": 1}})
        publisher.publish("crash/image", IMAGE, 1, retain=True)
        publisher.publish("crash/old", "x", 1, retain=True,
                          properties={"message_expiry_interval": 1})


@pytest.fixture(scope="module")
def crashed():
    with Server(conf={"pgmqtt.max_packet_size": "2MB"}) as server:
        state = Crashed(server)
        state.fill()
        server.kill9(everyone=True)
        for client in state.clients:
            client.close()
        server.start()
        yield state
        for client in state.clients:
            client.close()


def test_stored_sessions_survive_kill_9(crashed):
    client = crashed.connect("queued")
    assert client.connack.session_present
    assert [one.payload for one in client.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]
    crashed.publisher().publish("crash/queued", "live", 1)
    assert client.messages(1)[0].payload == b"live"


def test_unacknowledged_messages_keep_their_identifiers(crashed):
    """They come again with DUP; a new message has an identifier of its own."""
    client = crashed.connect("unacknowledged")
    crashed.publisher().publish("crash/unacknowledged", "new", 1)
    got = [client.expect(PUBLISH) for _ in range(6)]
    assert [one.packet_id for one in got[:5]] == crashed.unacknowledged
    assert all(one.dup for one in got[:5])
    assert got[5].payload == b"new" and got[5].packet_id not in crashed.unacknowledged


def test_a_released_qos_2_message_is_not_published_again(crashed):
    client = crashed.connect("released")
    assert client.expect(PUBREL).packet_id == crashed.released
    client.expect_nothing_before_ping()
    client.send_ack(PUBCOMP, crashed.released)
    client.expect_nothing_before_ping()


def test_a_received_qos_2_message_is_known(crashed):
    """Repeated after the crash it gets its PUBREC and is not delivered again."""
    watcher, client = crashed.publisher(), crashed.connect("half sent")
    watcher.subscribe("crash/watched", 2)
    before = len(watcher.until_ping())
    assert client.connack.session_present
    client.send(publish_frame("crash/watched", "once", 2, packet_id=9, dup=True))
    assert client.expect(PUBREC).packet_id == 9
    client.send_ack(PUBREL, 9)
    assert client.expect(PUBCOMP).code == 0
    assert before + len(watcher.until_ping()) <= 1
    client.send(publish_frame("crash/watched", "end", 1, packet_id=10))
    assert client.expect(PUBACK).packet_id == 10


def test_expired_messages_do_not_come_back(crashed):
    threading.Event().wait(1.1)
    client = crashed.connect("expiring")
    packet = client.messages(1)[0]
    assert packet.payload == b"long"
    assert 0 < packet.properties["message_expiry_interval"] < 900
    client.subscribe("crash/old")
    client.expect_nothing_before_ping()


def test_a_stored_will_comes_after_a_restart(crashed):
    """It was due while the server was down."""
    client = crashed.publisher()
    client.subscribe("crash/will", 1)
    assert client.messages(1)[0].payload == b"gone"


def test_a_retained_image_is_the_same_bytes(crashed):
    client = crashed.publisher()
    client.subscribe("crash/image", 1)
    packet = client.messages(1)[0]
    assert packet.retain and packet.payload == IMAGE
