"""Message order (4.6): of one publisher, per topic and QoS, live, queued and repeated."""

import pytest

from harness.packets import PUBACK, PUBLISH, PUBREC, PUBREL, publish_frame

pytestmark = pytest.mark.protocol


def numbers(packets):
    return [int(packet.payload) for packet in packets]


def send_all(client, topic, which, qos):
    for number in which:
        if qos == 2:
            client.publish_twice_acknowledged(topic, str(number))
        else:
            client.publish(topic, str(number), qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_live_messages_keep_their_order(connected, topic, version, qos):
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, qos)
    count = 15
    publisher.send(b"".join(publish_frame(topic, str(n), qos, packet_id=n, version=version)
                            for n in range(1, count + 1)))
    if qos == 2:
        for n in range(1, count + 1):
            assert publisher.expect(PUBREC).packet_id == n
        for n in range(1, count + 1):
            publisher.send_ack(PUBREL, n)
    assert numbers(client.messages(count)) == list(range(1, count + 1))


def test_acknowledgements_come_in_the_order_of_the_publishes(connected, topic, version):
    client = connected(version)
    client.send(b"".join(publish_frame(f"{topic}/{n % 3}", "x", 1, packet_id=n, version=version)
                         for n in range(15, 0, -1)))
    assert [client.expect(PUBACK).packet_id for _ in range(15)] == list(range(15, 0, -1))


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_queued_comes_before_what_is_live(connected, lasting, topic, version, qos,
                                                   client_id):
    client = lasting(version, client_id)
    client.subscribe(topic, qos)
    client.leave()
    publisher = connected(version)
    send_all(publisher, topic, range(50), qos)
    client = lasting(version, client_id)
    send_all(publisher, topic, range(50, 60), qos)
    assert numbers(client.messages(60)) == list(range(60))


def test_repeated_then_queued_then_live(connected, lasting, topic, client_id):
    """Through a window of 3, while the publisher goes on."""
    properties = {"receive_maximum": 3}
    client = lasting(5, client_id, properties=properties)
    client.subscribe(topic, 1)
    publisher = connected(5)
    send_all(publisher, topic, range(10), 1)
    assert numbers(client.until_ping()) == [0, 1, 2]
    client.vanish()
    send_all(publisher, topic, range(10, 20), 1)
    client = lasting(5, client_id, properties=properties)
    send_all(publisher, topic, range(20, 25), 1)
    got = client.messages(25)
    assert numbers(got) == list(range(25))
    assert [packet.dup for packet in got] == [True] * 3 + [False] * 22


def test_order_holds_over_many_reconnects(connected, lasting, topic, version, client_id):
    """Each connection acknowledges some and breaks; nothing new comes before something older."""
    client = lasting(version, client_id)
    client.subscribe(topic, 1)
    publisher = connected(version)
    send_all(publisher, topic, range(12), 1)
    first_seen = []
    for step in range(6):
        for packet in (client.expect(PUBLISH) for _ in range(12 - 2 * step)):
            if int(packet.payload) not in first_seen:
                first_seen.append(int(packet.payload))
            if int(packet.payload) < 2 * (step + 1):
                client.send_ack(PUBACK, packet.packet_id)
        client.vanish()
        client = lasting(version, client_id)
    assert first_seen == list(range(12))
    client.expect_nothing_before_ping()


def test_each_qos_keeps_its_order_when_mixed(connected, topic, version):
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, 2)
    for number in range(30):
        send_all(publisher, topic, [number], number % 3)
    got = client.messages(30)
    for qos in range(3):
        assert [n for n in numbers(got) if n % 3 == qos] == list(range(qos, 30, 3))
    assert all(packet.qos == int(packet.payload) % 3 for packet in got)


def test_pubrels_are_sent_in_the_order_of_the_pubrecs(connected, topic, version):
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, 2)
    send_all(publisher, topic, range(5), 2)
    ids = [client.expect(PUBLISH).packet_id for _ in range(5)]
    for packet_id in reversed(ids):
        client.send_ack(PUBREC, packet_id)
    assert [client.expect(PUBREL).packet_id for _ in ids] == ids[::-1]
