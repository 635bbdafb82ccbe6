"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (3.8 to 3.11) and matching (4.7)."""

import pytest

from harness.packets import (DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBSCRIBE,
                             UNSUBSCRIBE, encode_binary, frame, publish_frame)

pytestmark = pytest.mark.protocol
NO_LOCAL, RETAIN_HANDLING_3 = 0x04, 0x30


def ended(client):
    """The connection is ended; in 5.0 with a DISCONNECT of the malformed kind."""
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == ([DISCONNECT] if client.version == 5 else [])
    assert all(packet.code in (0x81, 0x82) for packet in packets)


def empty(version):
    return b"\x00\x01" + (b"\x00" if version == 5 else b"")


def test_codes_are_the_granted_qos_in_order(connected, topic, version):
    client = connected(version)
    suback = client.subscribe_all(*[(f"{topic}/{n}", qos) for n, qos in enumerate([2, 0, 1, 2, 0])])
    assert suback.codes == bytes([2, 0, 1, 2, 0])
    unsuback = client.unsubscribe(f"{topic}/0", f"{topic}/none", f"{topic}/4")
    assert unsuback.codes == (b"\x00\x11\x00" if version == 5 else b"")


def test_several_filters_act_like_several_packets(connected, topic, version):
    client = connected(version)
    client.publish(f"{topic}/b", "kept", 1, retain=True)
    assert client.subscribe_all((f"{topic}/a", 0), (f"{topic}/b", 1)).codes == b"\x00\x01"
    assert client.messages(1)[0].retain
    for name in ("a", "b"):
        client.publish(f"{topic}/{name}", name, 0)
    assert [one.payload for one in client.messages(2)] == [b"a", b"b"]
    client.unsubscribe(f"{topic}/a", f"{topic}/b")
    for name in ("a", "b"):
        client.publish(f"{topic}/{name}", name, 0)
    client.expect_nothing_before_ping()


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_delivered_qos_is_the_lower(connected, topic, version, published, granted):
    client, publisher = connected(version), connected(version)
    assert client.subscribe(topic, granted).codes == bytes([granted])
    if published == 2:
        publisher.publish_twice_acknowledged(topic, "x")
    else:
        publisher.publish(topic, "x", published)
    assert client.messages(1)[0].qos == min(published, granted)
    client.expect_nothing_before_ping()


def test_the_same_filter_replaces_the_subscription(connected, topic, version):
    """Its QoS is the new one, messages come once, the retained message comes again."""
    client = connected(version)
    client.publish(topic, "kept", 1, retain=True)
    client.subscribe(topic, 0)
    assert client.messages(1)[0].qos == 0
    client.subscribe(topic, 1)
    again = client.messages(1)[0]
    assert (again.qos, again.retain, again.payload) == (1, True, b"kept")
    connected(version).publish(topic, "once", 1)
    assert client.messages(1)[0].payload == b"once"
    client.expect_nothing_before_ping()


def test_replacing_interrupts_no_flow(connected, topic, version):
    """While a publisher goes on, a subscription is replaced twenty times: nothing is lost."""
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, 1)
    got = []
    for number in range(20):
        publisher.publish(topic, str(number), 1)
        client.send_subscribe(topic, number % 2)
    client.send(frame(12, 0, b""))
    while (packet := client.receive()).type != 13:
        if packet.type == PUBLISH:
            got.append(int(client.accept(packet).payload))
    assert got == list(range(20))


def test_overlapping_subscriptions_deliver_the_highest_qos(connected, topic, version):
    client, publisher = connected(version), connected(version)
    client.subscribe_all((f"{topic}/#", 0), (f"{topic}/a", 2), (f"{topic}/+", 1))
    publisher.publish_twice_acknowledged(f"{topic}/a", "x")
    publisher.publish(f"{topic}/end", "end", 0)
    qos = []
    while (packet := client.messages(1)[0]).payload == b"x":
        qos.append(packet.qos)
    assert max(qos) == 2 and len(qos) <= 3


@pytest.mark.parametrize("options", [0x03, 0x04, 0x40, 0x80])
def test_wrong_options_end_a_3_1_1_connection(connected, options):
    client = connected(4)
    client.send_subscribe("a", options)
    ended(client)


@pytest.mark.stricter
@pytest.mark.parametrize("options", [0x03, RETAIN_HANDLING_3, 0x40, 0x80, 0xC0])
def test_wrong_options_end_a_5_0_connection(connected, options):
    client = connected(5)
    client.send_subscribe("a", options)
    ended(client)


def test_a_packet_without_filters_ends_the_connection(connected, version):
    for packet_type in (SUBSCRIBE, UNSUBSCRIBE):
        client = connected(version)
        client.send(frame(packet_type, 2, empty(version)))
        ended(client)


@pytest.mark.parametrize("topic_filter", ["a/#/b", "a#", "#a", "a+", "+a/b", ""])
def test_a_wrong_filter_is_granted_to_nobody(connected, version, topic_filter):
    client = connected(version)
    client.send_subscribe(topic_filter)
    packet = client.receive() if version == 5 else None
    if packet is not None and packet.type != DISCONNECT:
        assert packet.codes == b"\x8f"
        return
    assert client.expect_closed() == []


def test_no_local_is_about_the_own_messages(connected, topic):
    client, other = connected(5), connected(5)
    client.subscribe(topic, NO_LOCAL | 1)
    client.publish(topic, "mine", 1)
    client.expect_nothing_before_ping()
    other.publish(topic, "theirs", 1)
    assert client.messages(1)[0].payload == b"theirs"


def test_unsubscribing_compares_character_by_character(connected, topic, version):
    client = connected(version)
    client.subscribe(f"{topic}/+/a", 0)
    others = [f"{topic}/b/a", f"{topic}/+/A", f"{topic}/+/a/", f"{topic}/#", f"{topic}/+/a "]
    assert client.unsubscribe(*others).codes in (b"", b"\x11" * 5)
    client.publish(f"{topic}/b/a", "x")
    assert client.expect(PUBLISH).payload == b"x"
    client.unsubscribe(f"{topic}/+/a")
    client.publish(f"{topic}/b/a", "x")
    client.expect_nothing_before_ping()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_under_way_is_completed_after_unsubscribing(connected, topic, version, qos):
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, qos)
    if qos == 1:
        publisher.publish(topic, "x", 1)
    else:
        publisher.publish_twice_acknowledged(topic, "x")
    packet = client.expect(PUBLISH)
    client.unsubscribe(topic)
    publisher.publish(topic, "new", 1)
    if qos == 1:
        client.send_ack(PUBACK, packet.packet_id)
    else:
        client.send_ack(PUBREC, packet.packet_id)
        assert client.expect(PUBREL).packet_id == packet.packet_id
        client.send_ack(PUBCOMP, packet.packet_id)
    client.expect_nothing_before_ping()


def test_unsubscribing_from_nothing_is_answered(connected, topic, version):
    assert connected(version).unsubscribe(topic).codes == (b"\x11" if version == 5 else b"")


@pytest.mark.parametrize("name", ["a/#", "+", "a/+/b", "", "a/\x00"])
def test_a_wrong_topic_name_ends_the_connection(connected, version, name):
    client = connected(version)
    client.send(publish_frame(name, "x", 0, version=version))
    packets = client.expect_closed()
    assert [one.type for one in packets] == ([DISCONNECT] if version == 5 else [])
    assert all(one.code in (0x81, 0x82, 0x90) for one in packets)


def test_a_topic_arrives_only_where_a_filter_matches(connected, topic, version):
    """And as it was sent: nothing is normalized, no character is equal to another."""
    names = ["a", "A", "a/", "/a", "a//b", "a/b", "\u00e9", "e\u0301", " a"]
    client = connected(version)
    for name in names:
        client.subscribe(f"{topic}/{name}")
        for other in names:
            client.publish(f"{topic}/{other}", other)
        got = client.until_ping()
        assert [one.topic for one in got] == [f"{topic}/{name}"], name
        client.unsubscribe(f"{topic}/{name}")


@pytest.mark.stricter
def test_a_topic_of_65535_bytes(connected, topic, version):
    """As a filter and as a topic; 1,000 levels and one."""
    for filler in ("x", "x" * 64 + "/"):
        name = f"{topic}/" + (filler * 65535)[:65535 - len(topic) - 1]
        assert len(name.encode()) == 65535
        client = connected(version)
        assert client.subscribe(name, 1).codes == b"\x01"
        client.publish(name, "x", 0)
        assert client.messages(1)[0].topic == name
        client.unsubscribe(name)


@pytest.mark.stricter
def test_a_topic_of_1000_levels(connected, topic, version):
    client = connected(version)
    levels = "/".join(["l"] * 998)
    client.subscribe(f"{topic}/{levels}", 0)
    client.subscribe(f"{topic}/+/#", 0)
    client.publish(f"{topic}/{levels}", "x", 0)
    client.publish(f"{topic}/end", "x", 0)
    got = client.until_ping()
    assert {one.topic for one in got} == {f"{topic}/{levels}", f"{topic}/end"}


def test_a_message_goes_to_each_session_with_a_match(connected, lasting, topic, version, client_id):
    """Connected or not."""
    away = lasting(version, client_id)
    away.subscribe(topic, 1)
    away.leave()
    receivers = [connected(version) for _ in range(3)]
    for receiver in receivers:
        receiver.subscribe(topic, 1)
    connected(version).publish(topic, "x", 1)
    for receiver in [*receivers, lasting(version, client_id)]:
        assert receiver.messages(1)[0].payload == b"x"


def test_a_filter_that_ends_outside_its_packet(connected, version):
    client = connected(version)
    client.send(frame(SUBSCRIBE, 2, empty(version) + encode_binary("abc")[:-1]))
    ended(client)
