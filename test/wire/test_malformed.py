"""Malformed input ends that client, with the right code, and nobody else feels it."""

import pytest

from harness.packets import (CONNECT, DISCONNECT, PINGREQ, PUBACK, PUBLISH, SUBSCRIBE, connect_body,
                             frame, publish_frame)
from harness.rawmqtt import RawClient

MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID, TOO_LARGE = 0x81, 0x82, 0x90, 0x95

AFTER_CONNECT = {  # what is sent, the reason codes that say it rightly
    "packet type 0": (b"\x00\x00", {MALFORMED, PROTOCOL_ERROR}),
    "PUBLISH with QoS 3": (b"\x36\x05\x00\x01a\x00\x01", {MALFORMED}),
    "PUBLISH with DUP and QoS 0": (publish_frame("a", "x", dup=True), {MALFORMED, PROTOCOL_ERROR}),
    "PUBLISH with packet id 0": (publish_frame("a", "x", qos=1, packet_id=0),
                                 {MALFORMED, PROTOCOL_ERROR}),
    "PUBLISH whose topic ends outside": (frame(PUBLISH, 0, b"\x00\x09a"), {MALFORMED}),
    "PUBLISH with NUL in the topic": (publish_frame("a\x00b", "x"), {MALFORMED, TOPIC_INVALID}),
    "PUBLISH with a surrogate": (frame(PUBLISH, 0, b"\x00\x03\xed\xa0\x80\x00"), {MALFORMED}),
    "PUBLISH with overlong UTF-8": (frame(PUBLISH, 0, b"\x00\x02\xc0\x80\x00"), {MALFORMED}),
    "PUBLISH with topic alias 0": (publish_frame("a", properties={"topic_alias": 0}),
                                   {MALFORMED, PROTOCOL_ERROR, 0x94}),
    "PUBLISH with no topic": (publish_frame("", "x"), {MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID}),
    "an unknown property": (frame(PUBLISH, 0, b"\x00\x01a\x02\x7f\x00"), {MALFORMED}),
    "a property twice": (frame(PUBLISH, 0, b"\x00\x01a\x04\x01\x01\x01\x01"),
                         {MALFORMED, PROTOCOL_ERROR}),
    "a property of another packet": (publish_frame("a", properties={"receive_maximum": 5}),
                                     {MALFORMED, PROTOCOL_ERROR}),
    "SUBSCRIBE with flags 0": (frame(SUBSCRIBE, 0, b"\x00\x01\x00\x00\x01a\x00"), {MALFORMED}),
    "SUBSCRIBE without a filter": (frame(SUBSCRIBE, 2, b"\x00\x01\x00"), {PROTOCOL_ERROR, MALFORMED}),
    "SUBSCRIBE with reserved option bits": (frame(SUBSCRIBE, 2, b"\x00\x01\x00\x00\x01a\xc0"),
                                            {MALFORMED, PROTOCOL_ERROR}),
    "SUBSCRIBE with packet id 0": (frame(SUBSCRIBE, 2, b"\x00\x00\x00\x00\x01a\x00"),
                                   {MALFORMED, PROTOCOL_ERROR}),
    "PUBACK with flags": (frame(PUBACK, 1, b"\x00\x01"), {MALFORMED}),
    "PINGREQ with a body": (frame(PINGREQ, 0, b"\x00"), {MALFORMED}),
    "remaining length of five bytes": (b"\x30\xff\xff\xff\xff\x01", {MALFORMED}),
    "CONNACK from a client": (b"\x20\x03\x00\x00\x00", {PROTOCOL_ERROR, MALFORMED}),
    "SUBACK from a client": (b"\x90\x04\x00\x01\x00\x00", {PROTOCOL_ERROR, MALFORMED}),
}
# mosquitto lets these pass, or closes without its reason.
LAX_REFERENCE = {"PINGREQ with a body", "PUBACK with flags", "PUBLISH with DUP and QoS 0",
                 "a property twice", "remaining length of five bytes", "CONNACK from a client",
                 "SUBACK from a client", "CONNECT that announces 256 MB"}


def cases(table):
    return [pytest.param(case, marks=pytest.mark.stricter if case in LAX_REFERENCE else ())
            for case in table]


BEFORE_CONNECT = {
    "PINGREQ first": frame(PINGREQ, 0, b""),
    "PUBLISH first": publish_frame("a", "x"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(64),
    "CONNECT with the reserved flag": frame(CONNECT, 0, b"\x00\x04MQTT\x05\x03\x00\x3c\x00\x00\x00"),
    "CONNECT with another protocol's name": frame(CONNECT, 0,
                                                  b"\x00\x04XQTT\x05\x02\x00\x3c\x00\x00\x00"),
    "CONNECT cut short": frame(CONNECT, 0, connect_body("abc")[:-2]),
    "CONNECT that announces 256 MB": b"\x10\xff\xff\xff\x7f\x00",
}


@pytest.mark.protocol
@pytest.mark.parametrize("case", cases(AFTER_CONNECT))
def test_a_malformed_packet_closes_with_its_code(raw, case):
    data, codes = AFTER_CONNECT[case]
    bystander, client = raw(), raw()
    bystander.connect()
    assert client.connect().code == 0
    client.send(data)
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == [DISCONNECT]
    assert packets[0].code in codes, hex(packets[0].code)
    bystander.expect_nothing_before_ping()


@pytest.mark.protocol
@pytest.mark.parametrize("case", cases(BEFORE_CONNECT))
def test_what_is_no_connect_is_closed(raw, case):
    """At once, with at most a CONNACK that refuses; nothing else is said to a stranger."""
    bystander, client = raw(), raw()
    bystander.connect()
    client.send(BEFORE_CONNECT[case])
    packets = client.expect_closed()
    assert all(packet.type == 2 and packet.code != 0 for packet in packets), packets
    bystander.expect_nothing_before_ping()


@pytest.mark.protocol
def test_3_1_1_is_closed_without_a_word(raw):
    client = raw(4)
    assert client.connect("old").code == 0
    client.send(b"\x36\x05\x00\x01a\x00\x01")
    assert client.expect_closed() == []


def test_one_malformed_client_is_one_log_line_at_most(server, raw):
    before = len(server.log_text().splitlines())
    client = raw()
    client.connect("noisy")
    client.send(b"\x30\xff\xff\xff\xff\x01" * 50)
    assert client.expect_closed()
    raw().connect("later")  # a turn later, so the line would be there
    lines = server.log_text().splitlines()[before:]
    assert len(lines) <= 1, "\n".join(lines)


def test_a_hostile_client_id_stays_on_its_log_line(server, raw):
    before = len(server.log_text().splitlines())
    client = raw()
    client.connect("x\n2026-01-01 00:00:00 UTC [1] FATAL:  forged \x1b[31m")
    client.send(b"\x30\xff\xff\xff\xff\x01")
    client.expect_closed()
    raw().connect("later")
    lines = server.log_text().splitlines()[before:]
    assert len(lines) <= 1 and not any("\x1b" in line for line in lines), lines


def test_a_packet_over_the_limit_is_0x95(new_server):
    server = new_server(conf={"pgmqtt.max_packet_size": "64kB"}).start()
    with RawClient(server.mqtt_port) as client:
        assert client.connect().properties["maximum_packet_size"] == 65536
        client.send(b"\x30\x80\x80\x08" + bytes(1000))  # announces 128 kB
        packets = client.expect_closed()
        assert [(packet.type, packet.code) for packet in packets] == [(DISCONNECT, TOO_LARGE)]
