"""CONNECT: take-over, empty client ids, keep alive, DISCONNECT."""

import threading
import time

import pytest

from harness.packets import CONNACK, CONNECT, DISCONNECT, connect_body, frame
from harness.rawmqtt import Closed

pytestmark = pytest.mark.protocol
TAKEN_OVER = 0x8E


@pytest.mark.stricter
def test_take_over_ends_the_older_connection(raw):
    first, second = raw(), raw()
    first.connect("same")
    second.connect("same")
    packets = first.expect_closed()
    assert [(packet.type, packet.code) for packet in packets] == [(DISCONNECT, TAKEN_OVER)]
    second.expect_nothing_before_ping()


def test_take_over_of_a_3_1_1_client_is_silent(raw):
    first, second = raw(4), raw(5)
    first.connect("same 3.1.1")
    second.connect("same 3.1.1")
    assert first.expect_closed() == []
    second.expect_nothing_before_ping()


def test_empty_client_ids_get_ids_of_their_own(raw):
    clients = [raw() for _ in range(3)]
    assigned = [client.connect("").properties.get("assigned_client_identifier")
                for client in clients]
    assert all(assigned) and len(set(assigned)) == 3, assigned
    for client in clients:
        client.expect_nothing_before_ping()


def test_3_1_1_empty_client_id_wants_a_clean_session(raw):
    clean = raw(4)
    assert clean.connect("", clean=True).code == 0
    kept = raw(4)
    assert kept.connect("", clean=False).code == 2
    assert kept.expect_closed() == []


@pytest.mark.parametrize("client_id", ["x" * 128, "x" * 1024, "a/b", "+#", "a b", "\U0001f680",
                                       "'; drop table t"])
def test_unusual_client_ids_work(raw, client_id):
    client = raw()
    assert client.connect(client_id).code == 0
    client.expect_nothing_before_ping()


def test_mqtt_3_1_connects_with_a_long_id(raw):
    client = raw(3)
    assert client.connect("x" * 36).code == 0
    client.expect_nothing_before_ping()


def test_unknown_protocol_version_is_refused(raw):
    client = raw(5)
    client.send(frame(CONNECT, 0, b"\x00\x04MQTT\x09\x02\x00\x3c\x00\x00\x00"))
    packets = client.expect_closed()
    assert [(packet.type, packet.code) for packet in packets] in ([(CONNACK, 0x84)],
                                                                  [(CONNACK, 1)], [])


def test_keep_alive_is_enforced_at_one_and_a_half(raw):
    """A silent client with keep alive 1 s is closed, and not before 1 s."""
    client = raw()
    assert client.connect(keep_alive=1).code == 0
    start = time.monotonic()
    packets = client.expect_closed(timeout=30)
    assert time.monotonic() - start > 1.0
    assert [(packet.type, packet.code) for packet in packets] in ([(DISCONNECT, 0x8D)], [])


def test_any_packet_keeps_a_connection_alive(raw, topic):
    """PUBLISH counts as much as PINGREQ: 4 s of QoS 0 with keep alive 1 s."""
    client = raw()
    client.connect(keep_alive=1)
    stop = threading.Event()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        client.publish(topic, "x")
        stop.wait(0.5)
    client.expect_nothing_before_ping()


def test_keep_alive_0_is_never_closed(raw):
    client, witness = raw(), raw()
    client.connect(keep_alive=0)
    witness.connect(keep_alive=1)
    with pytest.raises(Closed):  # the witness shows that the timers have run
        while True:
            witness.receive(timeout=30)
    client.expect_nothing_before_ping()


def test_disconnect_closes(raw):
    client = raw()
    client.connect()
    client.send(frame(DISCONNECT, 0, b""))
    assert client.expect_closed() == []


@pytest.mark.stricter
def test_a_second_connect_is_a_protocol_error(raw):
    client = raw()
    client.connect("twice")
    client.send(frame(CONNECT, 0, connect_body("twice")))
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == [DISCONNECT]
    assert packets[0].code == 0x82


def test_connack_tells_the_limits(raw):
    """What is not offered is said, and what is said is in range."""
    properties = raw().connect("limits").properties
    assert properties.get("maximum_qos", 2) in (0, 1, 2)
    assert 1 <= properties.get("maximum_packet_size", 1) <= 268435455
    assert properties.get("receive_maximum", 1) >= 1
