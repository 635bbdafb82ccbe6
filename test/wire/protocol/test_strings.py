"""Section 1.5: UTF-8 strings, string pairs, variable byte integers."""

import pytest

from harness.packets import (CONNECT, DISCONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, connect_body,
                             encode_binary, frame, publish_frame)

pytestmark = pytest.mark.protocol
ILL_FORMED = {"surrogate": b"a\xed\xa0\x80", "overlong": b"\xc0\xaf", "cut short": b"a\xe2\x82",
              "beyond 10FFFF": b"\xf4\x90\x80\x80", "no UTF-8": b"\xff\xfe"}
NUL = b"a\x00b"
BOM = "\ufeff"


def properties(version):
    return b"\x00" if version == 5 else b""


def strings_after_connect(version, text):
    yield "topic", frame(PUBLISH, 0, encode_binary(text) + properties(version))
    yield "filter", frame(SUBSCRIBE, 2, b"\x00\x01" + properties(version) + encode_binary(text)
                          + b"\x00")
    yield "unsubscribed filter", frame(UNSUBSCRIBE, 2, b"\x00\x01" + properties(version)
                                       + encode_binary(text))
    if version == 5:
        for name in ("content_type", "response_topic"):
            yield name, publish_frame("a", properties={name: text})
        for pair in ((text, "b"), ("b", text)):
            yield "user property", publish_frame("a", properties={"user_property": [pair]})


def ends(client, version, said):
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == ([DISCONNECT] if version == 5 else []), said
    assert all(packet.code in (0x81, 0x82, 0x90, 0x8F) for packet in packets), packets


@pytest.mark.stricter
@pytest.mark.parametrize("fault", ILL_FORMED)
def test_ill_formed_utf8_ends_the_connection(connected, version, fault):
    for said, data in strings_after_connect(version, ILL_FORMED[fault]):
        client = connected(version)
        client.send(data)
        ends(client, version, said)


@pytest.mark.stricter
def test_nul_in_a_string_ends_the_connection(connected, version):
    for said, data in strings_after_connect(version, NUL):
        client = connected(version)
        client.send(data)
        ends(client, version, said)


@pytest.mark.parametrize("text", [ILL_FORMED["surrogate"], NUL], ids=["surrogate", "NUL"])
def test_ill_formed_strings_of_connect_are_refused(raw, version, text):
    will = {"topic": text, "payload": b""}
    for options in ({"client_id": text}, {"will": will}, {"username": text, "password": b""}):
        client = raw(version)
        client.send(frame(CONNECT, 0, connect_body(**{"client_id": "a", "version": version,
                                                      **options})))
        assert all(packet.code != 0 for packet in client.expect_closed()), options


def test_a_byte_order_mark_is_a_character_and_kept(connected, topic, version):
    client = connected(version)
    client.subscribe(f"{topic}/{BOM}x")
    client.subscribe(f"{topic}/end")
    client.publish(f"{topic}/x")  # another topic
    client.publish(f"{topic}/{BOM}x")
    assert client.expect(PUBLISH).topic == f"{topic}/{BOM}x"
    client.expect_nothing_before_ping()


def test_a_byte_order_mark_is_kept_in_properties(connected, topic):
    sent = {"content_type": f"{BOM}text", "user_property": [(f"{BOM}a", f"b{BOM}")]}
    client = connected()
    client.subscribe(topic)
    client.publish(topic, properties=sent)
    assert client.expect(PUBLISH).properties == sent


def test_unicode_topics_arrive_as_they_were(connected, topic, version):
    names = ["über/maß", "日本/東京", "\U0001f680/\U0010fffd", "e\u0301 not \u00e9", "a b"]
    client = connected(version)
    client.subscribe(f"{topic}/#")
    for name in names:
        client.publish(f"{topic}/{name}", name)
    got = [client.expect(PUBLISH) for _ in names]
    assert [(one.topic, one.payload.decode()) for one in got] == [(f"{topic}/{n}", n) for n in names]


@pytest.mark.parametrize("size", [0, 100, 127, 128, 129, 16383, 16384, 16400])
def test_lengths_are_sent_in_as_few_bytes_as_possible(connected, topic, size):
    """The remaining length and the property length, read from the bytes themselves."""
    client = connected()
    client.subscribe(topic)
    sent = {"content_type": "x" * size, "user_property": [("k", "v")]}
    client.publish(topic, properties=sent)
    wanted = publish_frame(topic, properties=sent)  # is as short as it can be
    got = b""
    while len(got) < len(wanted):
        got += client.socket.recv(65536)
    assert len(got) == len(wanted)
    assert got[:4] == wanted[:4], "the remaining length"
