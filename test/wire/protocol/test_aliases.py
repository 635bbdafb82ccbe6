"""Topic aliases (3.3.2.3.4), both ways."""

import pytest

from harness.packets import DISCONNECT, PUBLISH

pytestmark = pytest.mark.protocol
INVALID = 0x94


class Aliases:
    """What a client must remember of one connection, and the rules it may hold the server to."""

    def __init__(self, maximum):
        self.maximum, self.topics = maximum, {}

    def topic(self, packet):
        alias = packet.properties.get("topic_alias")
        if alias is None:
            assert packet.topic
            return packet.topic
        assert 1 <= alias <= self.maximum
        if packet.topic:
            self.topics[alias] = packet.topic
        return self.topics[alias]


def test_every_alias_up_to_the_maximum_is_taken(connected, topic):
    client, receiver = connected(), connected()
    receiver.subscribe(f"{topic}/#")
    aliases = range(1, client.connack.properties["topic_alias_maximum"] + 1)
    for alias in aliases:
        client.publish(f"{topic}/{alias}", "set", properties={"topic_alias": alias})
    for alias in aliases:
        client.publish("", "used", properties={"topic_alias": alias})
    got = [receiver.expect(PUBLISH) for _ in range(2 * len(aliases))]
    assert [one.topic for one in got] == [f"{topic}/{alias}" for alias in aliases] * 2


def test_an_alias_may_be_set_anew(connected, topic):
    client = connected()
    client.subscribe(f"{topic}/#")
    for name in ("a", "", "b", ""):
        client.publish(f"{topic}/{name}" if name else "", "x", properties={"topic_alias": 1})
    assert [client.expect(PUBLISH).topic[-1] for _ in range(4)] == ["a", "a", "b", "b"]


@pytest.mark.stricter
def test_alias_0_and_those_above_the_maximum_end_the_connection(connected, topic):
    maximum = connected().connack.properties["topic_alias_maximum"]
    for alias in (0, maximum + 1, 65535):
        client = connected()
        client.publish(topic, "x", properties={"topic_alias": alias})
        packets = client.expect_closed()
        assert [one.type for one in packets] == [DISCONNECT]
        assert packets[0].code in (INVALID, 0x82, 0x81)


def test_an_alias_nobody_set_ends_the_connection(connected):
    client = connected()
    client.publish("", "x", properties={"topic_alias": 1})
    assert [one.code for one in client.expect_closed()] in ([0x82], [INVALID], [0x81])


def test_aliases_are_of_their_connection_only(lasting, topic, client_id):
    client = lasting(5, client_id)
    client.publish(topic, "x", 1, properties={"topic_alias": 1})
    client.vanish()
    client = lasting(5, client_id)
    assert client.connack.session_present
    client.publish("", "x", properties={"topic_alias": 1})
    assert [one.code for one in client.expect_closed()] in ([0x82], [INVALID], [0x81])


@pytest.mark.parametrize("properties", [None, {"topic_alias_maximum": 0}])
def test_a_client_without_aliases_gets_none(connected, topic, properties):
    client = connected(5, properties=properties)
    client.subscribe(f"{topic}/#", 1)
    publisher = connected()
    for number in range(20):
        publisher.publish(f"{topic}/long/enough/to/pay/{number % 3}", "x", 1,
                          properties={"topic_alias": number % 3 + 1})
    for packet in client.messages(20):
        assert packet.topic and "topic_alias" not in packet.properties


@pytest.mark.stricter
@pytest.mark.parametrize("maximum", [1, 3, 65535])
def test_aliases_to_a_client_keep_to_its_maximum(connected, topic, maximum):
    client, publisher = connected(5, properties={"topic_alias_maximum": maximum}), connected()
    client.subscribe(f"{topic}/#", 1)
    names = [f"{topic}/long/enough/to/pay/{number % 5}" for number in range(40)]
    for name in names:
        publisher.publish(name, "x", 1)
    aliases = Aliases(maximum)
    assert [aliases.topic(packet) for packet in client.messages(40)] == names
    assert aliases.topics or maximum < 5, "there were some"


def test_aliases_begin_anew_with_a_connection(connected, lasting, topic, client_id):
    """What is sent again, and what waited, is told with its topic."""
    properties = {"topic_alias_maximum": 10}
    client, publisher = lasting(5, client_id, properties=properties), connected()
    client.subscribe(f"{topic}/#", 1)
    name = f"{topic}/long/enough/to/pay"
    for _ in range(3):
        publisher.publish(name, "x", 1)
    first = Aliases(10)
    assert [first.topic(client.expect(PUBLISH)) for _ in range(3)] == [name] * 3
    client.vanish()
    publisher.publish(name, "x", 1)
    client = lasting(5, client_id, properties=properties)
    again = Aliases(10)
    assert [again.topic(packet) for packet in client.messages(4)] == [name] * 4
