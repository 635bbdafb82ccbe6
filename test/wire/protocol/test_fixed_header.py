"""Chapter 2: reserved flags, packet identifiers, the property length that is always there."""

import struct

import pytest

from harness.packets import (AUTH, CONNACK, DISCONNECT, PINGREQ, PINGRESP, PUBACK, PUBCOMP, PUBLISH,
                             PUBREC, PUBREL, SUBACK, SUBSCRIBE, UNSUBACK, UNSUBSCRIBE, connect_body,
                             encode_binary, frame, publish_frame)

pytestmark = pytest.mark.protocol
IDENTIFIED = struct.pack(">H", 1)
FLAGGED = {"PUBACK": (PUBACK, 0, IDENTIFIED), "PUBREC": (PUBREC, 0, IDENTIFIED),
           "PUBREL": (PUBREL, 2, IDENTIFIED), "PUBCOMP": (PUBCOMP, 0, IDENTIFIED),
           "SUBSCRIBE": (SUBSCRIBE, 2, None), "UNSUBSCRIBE": (UNSUBSCRIBE, 2, None),
           "PINGREQ": (PINGREQ, 0, b""), "DISCONNECT": (DISCONNECT, 0, b"")}


def body_of(packet_type, body, version):
    if body is not None:
        return body
    return (IDENTIFIED + (b"\x00" if version == 5 else b"") + encode_binary("a")
            + (b"\x00" if packet_type == SUBSCRIBE else b""))


@pytest.mark.stricter
@pytest.mark.parametrize("name", FLAGGED)
def test_reserved_flags_end_the_connection(connected, version, name):
    packet_type, right, body = FLAGGED[name]
    for flags in {0, 1, 2, 3, 8, 15} - {right}:
        client = connected(version)
        client.send(frame(packet_type, flags, body_of(packet_type, body, version)))
        packets = client.expect_closed()
        assert [(one.type, one.code) for one in packets] == ([(DISCONNECT, 0x81)] if version == 5
                                                             else []), flags


@pytest.mark.stricter
@pytest.mark.parametrize("flags", [1, 2, 4, 8])
def test_reserved_flags_of_auth_end_the_connection(connected, flags):
    client = connected()
    client.send(frame(AUTH, flags, b""))
    assert [(one.type, one.code) for one in client.expect_closed()] == [(DISCONNECT, 0x81)]


@pytest.mark.parametrize("flags", [1, 2, 8])
def test_reserved_flags_of_connect_are_refused(raw, version, flags):
    client = raw(version)
    client.send(frame(1, flags, connect_body("flags", version)))
    assert all(packet.code != 0 for packet in client.expect_closed())


@pytest.mark.parametrize("name", ["SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH 1", "PUBLISH 2"])
def test_packet_identifier_0_ends_the_connection(connected, version, name):
    client = connected(version)
    if name.startswith("PUBLISH"):
        client.send(publish_frame("a", "x", int(name[-1]), packet_id=0, version=version))
    else:
        packet_type = FLAGGED[name][0]
        client.send(frame(packet_type, 2, b"\x00\x00" + body_of(packet_type, None, version)[2:]))
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == ([DISCONNECT] if version == 5 else [])
    assert all(packet.code in (0x81, 0x82) for packet in packets)


def test_answers_repeat_the_identifier(connected, topic, version):
    client = connected(version)
    for packet_id in (1, 7, 0x1234, 65535):
        client._next_id = packet_id - 1
        assert client.subscribe(topic, 1).packet_id == packet_id
        client._next_id = packet_id - 1
        assert client.unsubscribe(topic).packet_id == packet_id
        client._next_id = packet_id - 1
        assert client.publish(topic, "x", 1).packet_id == packet_id


def test_a_qos_0_publish_has_no_identifier(connected, topic, version):
    """After the topic (and the properties) the payload begins at once, in both directions."""
    client = connected(version)
    client.subscribe(topic)
    client.send(publish_frame(topic, b"\x00\x05payload", version=version))
    packet = client.expect(PUBLISH)
    assert packet.body == encode_binary(topic) + (b"\x00" if version == 5 else b"") \
        + b"\x00\x05payload"


def test_the_property_length_is_there_without_properties(connected, topic):
    client = connected()
    assert client.connack.type == CONNACK and len(client.connack.body) >= 3
    suback = client.subscribe(topic)
    assert suback.type == SUBACK and suback.body == struct.pack(">H", suback.packet_id) + b"\x00\x00"
    client.publish(topic)
    assert client.expect(PUBLISH).body == encode_binary(topic) + b"\x00"
    unsuback = client.unsubscribe(topic)
    assert unsuback.type == UNSUBACK
    assert unsuback.body == struct.pack(">H", unsuback.packet_id) + b"\x00\x00"


def test_pingreq_is_answered(connected, version):
    client = connected(version)
    for _ in range(3):
        client.send(frame(PINGREQ, 0, b""))
    for _ in range(3):
        answer = client.expect(PINGRESP)
        assert (answer.flags, answer.body) == (0, b"")
