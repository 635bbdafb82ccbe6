"""RETAIN (3.3.1.3): what is stored, replaced, cleared, sent to new subscriptions."""

import threading

import pytest

from harness.packets import PUBLISH

pytestmark = pytest.mark.protocol
RETAIN_AS_PUBLISHED, ONLY_IF_NEW, NEVER = 0x08, 0x10, 0x20


def found(client, topic_filter, options=0):
    """What a new subscription is sent at once: (topic, payload, retain)."""
    client.subscribe(topic_filter, options)
    packets = client.until_ping()
    client.unsubscribe(topic_filter)
    return sorted((one.topic, one.payload, one.retain) for one in packets)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_waits_for_subscribers(connected, topic, version, qos):
    """With its QoS, and RETAIN set."""
    client = connected(version)
    for payload in ("old", "new"):
        if qos == 2:
            client.publish_twice_acknowledged(topic, payload, retain=True)
        else:
            client.publish(topic, payload, qos, retain=True)
    client.subscribe(topic, 2)
    packet = client.messages(1)[0]
    assert (packet.payload, packet.qos, packet.retain, packet.dup) == (b"new", qos, True, False)
    client.expect_nothing_before_ping()


def test_each_matching_topic_sends_its_own(connected, topic, version):
    client = connected(version)
    for name in ("a", "a/b", "c"):
        client.publish(f"{topic}/{name}", name, 1, retain=True)
    assert found(client, f"{topic}/#") == [(f"{topic}/{n}", n.encode(), True)
                                           for n in ("a", "a/b", "c")]
    assert found(client, f"{topic}/+") == [(f"{topic}/{n}", n.encode(), True) for n in ("a", "c")]


def test_a_qos_0_message_replaces_the_stored_one(connected, topic, version):
    client = connected(version)
    client.publish(topic, "one", 1, retain=True)
    client.publish(topic, "zero", 0, retain=True)
    assert found(client, topic, 1) == [(topic, b"zero", True)]


def test_an_established_subscription_sees_no_flag(connected, topic, version):
    client = connected(version)
    client.subscribe(topic)
    client.publish(topic, "x", retain=True)
    assert client.expect(PUBLISH).retain is False


def test_retain_as_published_shows_the_flag_as_it_was(connected, topic):
    client = connected()
    client.subscribe(topic, RETAIN_AS_PUBLISHED)
    client.publish(topic, "x", retain=True)
    client.publish(topic, "y")
    assert [client.expect(PUBLISH).retain for _ in range(2)] == [True, False]


def test_an_empty_message_clears_and_is_delivered(connected, topic, version):
    client = connected(version)
    client.publish(topic, "x", 1, retain=True)
    assert found(client, topic) == [(topic, b"x", True)]
    client.subscribe(topic, 1)
    client.messages(1)
    connected(version).publish(topic, b"", 1, retain=True)
    packet = client.messages(1)[0]
    assert (packet.payload, packet.retain) == (b"", False)
    client.unsubscribe(topic)
    assert found(client, topic) == []


def test_an_empty_message_is_never_stored(connected, topic, version):
    client = connected(version)
    client.publish(topic, b"", 1, retain=True)
    assert found(client, topic) == []


def test_a_message_without_the_flag_leaves_the_stored_one(connected, topic, version):
    client = connected(version)
    client.publish(topic, "x", 1)
    assert found(client, topic) == []
    client.publish(topic, "kept", 1, retain=True)
    client.publish(topic, "passing", 1)
    client.publish(topic, b"", 1)
    assert found(client, topic) == [(topic, b"kept", True)]


def test_retain_handling_0_sends_each_time(connected, topic):
    client = connected()
    client.publish(topic, "x", 1, retain=True)
    for _ in range(2):
        client.subscribe(topic)
        assert client.expect(PUBLISH).payload == b"x"


def test_retain_handling_1_sends_to_a_new_subscription_only(connected, topic):
    client = connected()
    client.publish(topic, "x", 1, retain=True)
    client.subscribe(topic, ONLY_IF_NEW)
    assert client.expect(PUBLISH).payload == b"x"
    client.subscribe(topic, ONLY_IF_NEW | 1)
    client.expect_nothing_before_ping()


def test_retain_handling_1_knows_the_subscriptions_of_a_resumed_session(lasting, topic, client_id):
    client = lasting(5, client_id)
    client.publish(topic, "x", 1, retain=True)
    client.subscribe(topic, ONLY_IF_NEW)
    client.expect(PUBLISH)
    client.leave()
    again = lasting(5, client_id)
    again.subscribe(topic, ONLY_IF_NEW)
    again.expect_nothing_before_ping()


def test_retain_handling_2_sends_nothing(connected, topic):
    client = connected()
    client.publish(topic, "x", 1, retain=True)
    assert found(client, topic, NEVER) == []
    assert found(client, topic) == [(topic, b"x", True)]


def test_an_expired_retained_message_is_gone(connected, topic):
    client = connected()
    client.publish(topic, "x", 1, retain=True, properties={"message_expiry_interval": 1})
    assert found(client, topic) == [(topic, b"x", True)]
    threading.Event().wait(2.1)
    assert found(client, topic) == []


def test_the_remaining_expiry_of_a_retained_message_is_told(connected, topic):
    client = connected()
    client.publish(topic, "x", 1, retain=True, properties={"message_expiry_interval": 100})
    threading.Event().wait(1.1)
    client.subscribe(topic)
    assert 90 <= client.expect(PUBLISH).properties["message_expiry_interval"] <= 99


def test_retained_messages_keep_their_properties(connected, topic):
    properties = {"payload_format_indicator": 1, "content_type": "text/plain",
                  "response_topic": "a/b", "correlation_data": b"\x00\xff",
                  "user_property": [("b", "1"), ("a", "2"), ("b", "1")]}
    client = connected()
    client.publish(topic, "x", 1, retain=True, properties=properties)
    client.subscribe(topic)
    assert client.expect(PUBLISH).properties == properties
