"""PUBLISH properties (3.3.2): what is passed on, subscription identifiers, response topics."""

import pytest

from harness.packets import DISCONNECT, PUBLISH, publish_frame

pytestmark = pytest.mark.protocol
ALL = {"payload_format_indicator": 1, "content_type": "text/plain; \u00fc",
       "response_topic": "answer/\u00fc", "correlation_data": bytes(range(256)),
       "user_property": [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("a", "2"), ("\u00fc", "\u6771")]}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_properties_arrive_unchanged_and_in_order(connected, topic, qos):
    client, publisher = connected(), connected()
    client.subscribe(topic, 2)
    if qos == 2:
        publisher.publish_twice_acknowledged(topic, "x", properties=ALL)
    else:
        publisher.publish(topic, "x", qos, properties=ALL)
    assert client.messages(1)[0].properties == ALL


def test_properties_wait_in_a_session_unchanged(connected, lasting, topic, client_id):
    client = lasting(5, client_id)
    client.subscribe(topic, 1)
    client.leave()
    connected().publish(topic, "x", 1, properties=ALL)
    assert lasting(5, client_id).messages(1)[0].properties == ALL


@pytest.mark.parametrize("value", [0, 1])
def test_the_payload_format_indicator_is_passed_on(connected, topic, value):
    client = connected()
    client.subscribe(topic)
    client.publish(topic, "x", properties={"payload_format_indicator": value})
    assert client.expect(PUBLISH).properties == {"payload_format_indicator": value}


def test_a_thousand_user_properties(connected, topic):
    pairs = [(f"name {n % 7}", str(n)) for n in range(1000)]
    client = connected()
    client.subscribe(topic)
    client.publish(topic, "x", properties={"user_property": pairs})
    assert client.expect(PUBLISH).properties["user_property"] == pairs


@pytest.mark.stricter
@pytest.mark.parametrize("response", ["a/+", "#", "a/#"])
def test_a_response_topic_with_wildcards_ends_the_connection(connected, topic, response):
    client = connected()
    client.publish(topic, "x", properties={"response_topic": response})
    packets = client.expect_closed()
    assert [one.type for one in packets] == [DISCONNECT]
    assert packets[0].code in (0x81, 0x82, 0x90)


def test_a_3_1_1_subscriber_gets_the_payload_alone(connected, topic):
    client = connected(4)
    client.subscribe(topic)
    connected(5).publish(topic, "x", properties=ALL)
    packet = client.expect(PUBLISH)
    assert (packet.topic, packet.payload) == (topic, b"x")


def test_identifiers_of_all_matching_subscriptions(connected, topic):
    """One copy carries all of them; several copies carry theirs."""
    client = connected()
    for number, topic_filter in enumerate((f"{topic}/#", f"{topic}/a", f"{topic}/+", "unrelated"), 1):
        client.subscribe(topic_filter, 0, {"subscription_identifier": number * 1000})
    client.publish(f"{topic}/a", "x")
    got = client.until_ping()
    told = [number for one in got for number in one.properties["subscription_identifier"]]
    assert sorted(told) == [1000, 2000, 3000]
    assert len(got) in (1, 3)


def test_an_identifier_is_of_its_subscription_only(connected, topic):
    client, other = connected(), connected()
    client.subscribe(topic, 0, {"subscription_identifier": 268435455})
    other.subscribe(topic)
    client.publish(topic, "x")
    assert client.expect(PUBLISH).properties == {"subscription_identifier": [268435455]}
    assert other.expect(PUBLISH).properties == {}
    client.subscribe(topic)  # replaced by one without
    client.publish(topic, "x")
    assert client.expect(PUBLISH).properties == {}


@pytest.mark.stricter
def test_an_identifier_in_a_clients_publish_is_an_error(connected, topic):
    client = connected()
    client.publish(topic, "x", properties={"subscription_identifier": 1})
    packets = client.expect_closed()
    assert [one.type for one in packets] == [DISCONNECT]
    assert packets[0].code in (0x81, 0x82)


def test_identifier_0_of_a_subscription_is_an_error(connected, topic):
    client = connected()
    client.send_subscribe(topic, 0, {"subscription_identifier": 0})
    assert [one.code for one in client.expect_closed()] in ([0x81], [0x82])


def test_the_forwarded_expiry_never_exceeds_what_was_received(connected, topic):
    client = connected()
    client.subscribe(topic)
    client.publish(topic, "x", properties={"message_expiry_interval": 100})
    assert client.expect(PUBLISH).properties["message_expiry_interval"] in (99, 100)


@pytest.mark.stricter
def test_a_publish_that_may_not_be_is_told_and_the_client_stays(connected, topic):
    """5.0: a reason of 0x80 or above; before, it is acknowledged as usual."""
    for version in (4, 5):
        client = connected(version)
        assert client.publish("$SYS/forbidden", "x", 1).code == (0 if version == 4 else 0x87)
        client.expect_nothing_before_ping()


def test_a_payload_of_a_mebibyte_is_the_same_bytes(connected, topic, version):
    """As large as the server takes: the payload and its header are one packet."""
    payload = bytes(range(256)) * 4090  # 1,047,040 bytes, below 1 MiB with its header
    client = connected(version)
    client.subscribe(topic, 1)
    client.send(publish_frame(topic, payload, 1, packet_id=1, version=version))
    packets = [client.receive(), client.receive()]
    assert sorted(packet.type for packet in packets) == [3, 4]
    assert next(packet for packet in packets if packet.type == PUBLISH).payload == payload
