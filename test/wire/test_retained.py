"""Retained messages: set, found by a late subscriber, cleared, kept over a restart."""

import pytest

from harness.clients import Message, MosquittoSub, mosquitto_pub
from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import RawClient

RETAIN_AS_PUBLISHED = 0x08
ONLY_IF_NEW, NEVER = 0x10, 0x20


@pytest.mark.protocol
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_a_late_subscriber_gets_the_last_value(broker, topic, version):
    for value in ("old", "new"):
        mosquitto_pub(broker.mqtt_port, topic, value, version=version, retain=True)
    with MosquittoSub(broker.mqtt_port, topic, version=version) as sub:
        assert sub.inbox.get() == Message(topic, 1, True, "new")


@pytest.mark.protocol
@pytest.mark.stricter
def test_a_live_subscriber_sees_no_retain_flag_unless_asked(raw, topic):
    client = raw()
    client.connect()
    client.subscribe(topic, 0)
    client.publish(topic, "x", retain=True)
    assert client.expect(3).retain is False
    client.subscribe(topic, RETAIN_AS_PUBLISHED)
    assert client.expect(3).retain is True  # the stored one, again
    client.publish(topic, "y", retain=True)
    assert client.expect(3).retain is True


@pytest.mark.protocol
def test_retain_handling(raw, topic):
    client = raw()
    client.connect()
    client.publish(topic, "x", retain=True)
    client.subscribe(topic, NEVER)
    client.expect_nothing_before_ping()
    client.subscribe(topic, ONLY_IF_NEW)  # it is not new
    client.expect_nothing_before_ping()
    client.unsubscribe(topic)
    client.subscribe(topic, ONLY_IF_NEW)
    assert client.expect(3).payload == b"x"


@pytest.mark.protocol
def test_an_empty_payload_clears(broker, raw, topic):
    mosquitto_pub(broker.mqtt_port, topic, "x", retain=True)
    client = raw()
    client.connect()
    client.subscribe(topic)
    assert client.expect(3).payload == b"x"
    mosquitto_pub(broker.mqtt_port, topic, None, retain=True)
    assert client.expect(3).payload == b"", "a live subscriber is told"
    client.unsubscribe(topic)
    client.subscribe(topic)
    client.expect_nothing_before_ping()


@pytest.mark.protocol
def test_a_wildcard_finds_all(raw, topic):
    client = raw()
    client.connect()
    wanted = {f"{topic}/{n}/{m}" for n in range(20) for m in range(5)}
    for name in wanted:
        client.publish(name, name, qos=1, retain=True)
    client.subscribe(f"{topic}/+/#")
    assert {client.expect(3).topic for _ in wanted} == wanted
    client.expect_nothing_before_ping()


def test_retained_survives_a_restart(new_server, topic):
    server = new_server().start()
    payload = bytes(range(256)) * 100
    with RawClient(server.mqtt_port) as client:
        client.connect()
        assert client.publish(f"{topic}/kept", payload, qos=1, retain=True).code < 0x80
        client.publish(f"{topic}/cleared", "x", qos=1, retain=True)
        client.publish(f"{topic}/cleared", "", qos=1, retain=True)
    server.restart()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(f"{topic}/#")
        packet = client.expect(3)
        assert (packet.topic, packet.payload) == (f"{topic}/kept", payload)
        client.expect_nothing_before_ping()


def test_an_acknowledged_retained_message_survives_kill_9(new_server, topic):
    server = new_server().start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.publish(topic, "kept", qos=1, retain=True)
        server.kill9(everyone=True)
    server.start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(topic)
        assert client.expect(3).payload == b"kept"


def test_storing_one_does_not_read_the_others(new_server):
    """Whatever the planner believed when the table was small: storing is not quadratic."""
    own = new_server()
    own.start()
    client = RawClient(own.mqtt_port)
    client.connect()
    messages, batch = 3000, 100
    client.publish("r/0", b"x", 1, retain=True)
    own.psql("ANALYZE pgmqtt.retained_message")  # a table of one row: everything is planned anew
    for first in range(0, messages, batch):
        for number in range(first, first + batch):
            client.send(publish_frame(f"r/{number}", b"x", 1, retain=True,
                                      packet_id=number + 1, version=5))
        for _ in range(batch):
            assert client.expect(PUBACK).code < 0x80
    assert own.psql("SELECT count(*) FROM pgmqtt.retained_message") == str(messages)

    def read():  # rows, by the store worker only: the count above was a sequential scan
        return own.psql("SELECT n_live_tup, COALESCE(sum(idx_tup_read), 0) FROM pg_stat_user_tables"
                        " JOIN pg_stat_user_indexes USING (relid)"
                        " WHERE relid = 'pgmqtt.retained_message'::regclass GROUP BY 1").split("|")

    own.wait_for(lambda: read()[:1] == [str(messages)], "the statistics are there", 30)
    assert int(read()[1]) < messages
    client.close()
