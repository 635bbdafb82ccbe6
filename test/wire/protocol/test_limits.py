"""A server with small limits says so, and keeps its clients."""

import pytest

from harness.packets import DISCONNECT, PUBLISH
from harness.rawmqtt import RawClient
from harness.server import Server

LIMITS = {"pgmqtt.max_subscriptions": 3, "pgmqtt.max_retained": 2, "pgmqtt.max_keep_alive": "30s",
          "pgmqtt.max_queued_messages": 5, "pgmqtt.max_packet_size": "64kB"}
QUOTA_EXCEEDED = 0x97


@pytest.fixture(scope="module")
def small():
    with Server(conf=LIMITS) as server:
        yield server


@pytest.fixture
def client(small):
    """client(version=5, client_id="", **connect) on the small server."""
    opened = []

    def connect(version=5, client_id="", **options):
        one = RawClient(small.mqtt_port, version)
        opened.append(one)
        one.connack = one.connect(client_id, **options)
        assert one.connack.code == 0
        return one

    yield connect
    for one in opened:
        one.close()


def test_a_3_1_1_subscription_over_the_limit_is_0x80(client, topic):
    one = client(4)
    filters = [(f"{topic}/{n}", n % 3) for n in range(4)]
    assert one.subscribe_all(*filters).codes == bytes([0, 1, 2, 0x80])
    one.expect_nothing_before_ping()


def test_a_5_0_subscription_over_the_limit_is_0x97(client, topic):
    one = client()
    filters = [(f"{topic}/{n}", n % 3) for n in range(4)]
    assert one.subscribe_all(*filters).codes == bytes([0, 1, 2, QUOTA_EXCEEDED])
    one.unsubscribe(f"{topic}/0")
    assert one.subscribe(f"{topic}/3").codes == b"\x00"


def test_a_retained_message_over_the_limit_is_0x97(client, topic):
    one = client()
    codes = [one.publish(f"{topic}/{n}", "x", 1, retain=True).code for n in range(3)]
    assert codes[2] == QUOTA_EXCEEDED and max(codes[:2]) < 0x80
    for n in range(2):
        assert one.publish(f"{topic}/{n}", b"", 1, retain=True).code < 0x80


@pytest.mark.parametrize("asked,told", [(29, None), (30, None), (31, 30), (65535, 30), (0, 30)])
def test_a_longer_keep_alive_is_cut_and_told(client, asked, told):
    one = client(5, keep_alive=asked)
    assert one.connack.properties.get("server_keep_alive") == told


def test_a_full_queue_drops_its_oldest(client, topic):
    lasting = {"session_expiry_interval": 100}
    one = client(5, "full queue", clean=False, properties=lasting)
    one.subscribe(topic, 1)
    one.leave()
    publisher = client()
    for number in range(8):
        assert publisher.publish(topic, str(number), 1).code < 0x80
    one = client(5, "full queue", clean=False, properties=lasting)
    assert [packet.payload for packet in one.messages(5)] == [b"3", b"4", b"5", b"6", b"7"]
    one.expect_nothing_before_ping()


def test_a_packet_over_the_limit_is_0x95_and_its_sender_knew(client, topic):
    one, watcher = client(), client()
    watcher.subscribe(topic)
    assert one.connack.properties["maximum_packet_size"] == 65536
    one.publish(topic, bytes(60000))
    assert len(watcher.expect(PUBLISH).payload) == 60000
    one.publish(topic, bytes(65536))
    assert [(last.type, last.code) for last in one.expect_closed()] == [(DISCONNECT, 0x95)]
    watcher.expect_nothing_before_ping()
