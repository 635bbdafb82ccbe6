"""DISCONNECT (3.14), keep alive (3.1.2), and errors (4.8, 4.13)."""

import time

import pytest

from harness.packets import DISCONNECT, PUBLISH, frame, publish_frame
from harness.rawmqtt import Closed

pytestmark = pytest.mark.protocol
# Section 3.14.2.1, the codes a server may send.
SERVER_CODES = {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94,
                0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2}
MISTAKES = {"malformed": b"\x36\x05\x00\x01a\x00\x01", "protocol error": b"\x20\x03\x00\x00\x00",
            "wildcard topic": publish_frame("a/#", "x"), "reserved type": b"\x00\x00",
            "alias too high": publish_frame("a", properties={"topic_alias": 65535}),
            "too large": b"\x30\xff\xff\xff\x7f", "DISCONNECT flags": b"\xe2\x00"}


@pytest.mark.stricter
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_disconnect_of_the_list_and_the_end(connected, mistake):
    client = connected(5)
    client.send(MISTAKES[mistake] + publish_frame("a", "behind it", 1, packet_id=9))
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == [DISCONNECT], "nothing after it"
    assert packets[0].code in SERVER_CODES - {0x00}
    assert "session_expiry_interval" not in packets[0].properties


@pytest.mark.parametrize("mistake", ["malformed", "protocol error", "reserved type"])
def test_a_mistake_ends_only_its_connection(connected, version, mistake):
    bystander, client = connected(version), connected(version)
    client.send(MISTAKES[mistake])
    client.expect_closed()
    bystander.expect_nothing_before_ping()


@pytest.mark.stricter
def test_disconnect_flags_are_0x81(connected, version):
    client = connected(version)
    client.send(frame(DISCONNECT, 1, b""))
    packets = client.expect_closed()
    assert [(one.type, one.code) for one in packets] == ([(DISCONNECT, 0x81)] if version == 5
                                                         else [])


def test_nothing_is_sent_after_the_clients_disconnect(connected, topic, version):
    """The publish behind DISCONNECT is neither processed nor answered."""
    watcher, client = connected(version), connected(version)
    watcher.subscribe(topic)
    client.send(frame(DISCONNECT, 0, b"") + publish_frame(topic, "x", 1, packet_id=1,
                                                          version=version))
    assert client.expect_closed() == []
    watcher.expect_nothing_before_ping()


@pytest.mark.parametrize("code", [0x01, 0x18, 0x8E, 0xFF])
@pytest.mark.stricter
def test_a_disconnect_code_the_client_may_not_send_is_an_error(connected, code):
    client = connected(5)
    client.send(frame(DISCONNECT, 0, bytes([code])))
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == [DISCONNECT]
    assert packets[0].code in (0x81, 0x82)


@pytest.mark.stricter
def test_a_session_expiry_may_not_be_raised_from_0(connected):
    client = connected(5)
    packets = client.leave(0, {"session_expiry_interval": 10})
    assert [(one.type, one.code) for one in packets] == [(DISCONNECT, 0x82)]


def test_silence_of_one_and_a_half_keep_alives_is_a_failure(connected, topic, version):
    """Not before 1 and not after 1.5 of them (and the timers' grain); the will comes."""
    watcher = connected(version)
    watcher.subscribe(topic)
    client = connected(version, keep_alive=2, will={"topic": topic, "payload": "gone"})
    start = time.monotonic()
    client.expect_closed(timeout=20)
    silence = time.monotonic() - start
    assert 2.0 < silence
    assert watcher.expect(PUBLISH).payload == b"gone"


@pytest.mark.stricter
def test_a_silent_client_is_not_kept_longer(connected, version):
    client = connected(version, keep_alive=2)
    start = time.monotonic()
    client.expect_closed(timeout=20)
    assert time.monotonic() - start < 3.9


def test_without_server_keep_alive_the_clients_value_holds(connected):
    client = connected(5, keep_alive=1)
    assert "server_keep_alive" not in client.connack.properties
    with pytest.raises(Closed):
        while client.receive(timeout=10):
            pass


def test_keep_alive_of_65535_is_taken(connected, version):
    client = connected(version, keep_alive=65535)
    client.expect_nothing_before_ping()


def test_deliveries_are_no_sign_of_life_of_the_receiver(connected, topic, version):
    """Keep alive counts what the client sends."""
    publisher, client = connected(version), connected(version, keep_alive=1)
    client.subscribe(topic)
    end = time.monotonic() + 10
    with pytest.raises(Closed):
        while time.monotonic() < end:
            publisher.publish(topic, "x", 1)
            try:
                client.receive(timeout=0.3)
                client.receive(timeout=0.3)
            except TimeoutError:
                pass
