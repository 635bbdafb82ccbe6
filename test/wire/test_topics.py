"""Wildcards and filters: what matches what, and what is refused."""

import pytest

pytestmark = pytest.mark.protocol

MATCHES = [  # filter, topic, whether it matches; section 4.7
    ("a/b", "a/b", True), ("a/b", "a/B", False), ("a/b", "a/b/c", False), ("a/+", "a/b", True),
    ("a/+", "a", False), ("a/+", "a/", True), ("a/+", "a/b/c", False), ("+/b", "a/b", True),
    ("+/+", "/b", True), ("+", "/b", False), ("/+", "/b", True), ("a/#", "a", True),
    ("a/#", "a/b/c", True), ("a/#", "ab", False), ("#", "a/b", True), ("a/+/c", "a//c", True),
    ("a//c", "a//c", True), ("a//c", "a/c", False), ("+/#", "a", True),
]


@pytest.mark.parametrize("topic_filter,name,matches", MATCHES,
                         ids=[f"{f} {t}" for f, t, _ in MATCHES])
def test_match(raw, topic, topic_filter, name, matches):
    client = raw()
    client.connect()
    assert client.subscribe(f"{topic}/{topic_filter}").codes == b"\x00"
    client.publish(f"{topic}/{name}", "x")
    if matches:
        assert client.expect(3).topic == f"{topic}/{name}"
    client.expect_nothing_before_ping()


@pytest.mark.parametrize("topic_filter", ["#", "+/broker/#", "+/#"])
def test_a_leading_wildcard_sees_no_dollar_topics(raw, topic, topic_filter):
    """Retained $SYS messages exist; they and the retained messages of other tests may come first."""
    client = raw()
    client.connect()
    client.send_subscribe(topic_filter)
    client.send_subscribe(topic)
    client.publish(topic, "x")
    while True:
        packet = client.receive()
        assert not packet.topic.startswith("$")
        if packet.topic == topic:
            return


@pytest.mark.parametrize("topic_filter", ["a#", "a/#/b", "a+", "+a/b", "", "#/"])
def test_a_wrong_filter_is_refused(raw, topic_filter):
    """5.0: 0x8F in the SUBACK, or the connection ends with a reason that names the fault."""
    client = raw()
    client.connect()
    try:
        suback = client.subscribe(topic_filter)
        assert suback.codes == b"\x8f"
    except AssertionError as other:
        assert "Packet(type=14" in str(other)


@pytest.mark.parametrize("name", ["a/+", "#", "a/#/b"])
def test_publishing_to_a_wildcard_ends_the_connection(raw, name):
    client = raw()
    client.connect()
    client.publish(name, "x")
    packets = client.expect_closed()
    assert [packet.type for packet in packets] == [14]
    assert packets[0].code in (0x81, 0x82, 0x90)


def test_overlapping_subscriptions_all_deliver_or_merge(raw, topic):
    """[MQTT-3.3.4-2]: at least once, at most once per matching subscription, the highest QoS."""
    client = raw()
    client.connect()
    client.subscribe(f"{topic}/+", 0)
    client.subscribe(f"{topic}/a", 1)
    client.publish(f"{topic}/a", "x", qos=0)
    client.publish(f"{topic}/end", "end", qos=0)
    seen = 0
    while True:
        packet = client.expect(3)
        if packet.topic.endswith("/end"):
            break
        seen += 1
    assert 1 <= seen <= 2


def test_a_new_subscription_replaces_the_same_filter(raw, topic):
    client = raw()
    client.connect()
    client.subscribe(topic, 0)
    assert client.subscribe(topic, 1).codes == b"\x01"
    other = raw()
    other.connect()
    other.publish(topic, "x", qos=1)
    packet = client.expect(3)
    assert packet.qos == 1
    client.puback(packet.packet_id)
    client.expect_nothing_before_ping()


def test_no_local(raw, topic):
    client = raw()
    client.connect()
    client.subscribe(topic, 0x04)
    client.publish(topic, "mine")
    client.expect_nothing_before_ping()
    other = raw()
    other.connect()
    other.publish(topic, "theirs")
    assert client.expect(3).payload == b"theirs"
