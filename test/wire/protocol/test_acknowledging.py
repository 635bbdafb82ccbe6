"""QoS 1 and 2 (4.3, 4.4): who says what, what is sent again, and when."""

import pytest

from harness.packets import (PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, publish_frame)

pytestmark = pytest.mark.protocol


def send(client, topic, payload, qos, packet_id, dup=False):
    client.send(publish_frame(topic, payload, qos, packet_id=packet_id, dup=dup,
                              version=client.version))


def test_each_qos_has_its_answer(connected, topic, version):
    client = connected(version)
    send(client, topic, "0", 0, 0)
    client.expect_nothing_before_ping()
    send(client, topic, "1", 1, 10)
    answer = client.expect(PUBACK)
    assert (answer.packet_id, answer.flags) == (10, 0)
    send(client, topic, "2", 2, 11)
    answer = client.expect(PUBREC)
    assert (answer.packet_id, answer.flags) == (11, 0)
    client.send_ack(PUBREL, 11)
    answer = client.expect(PUBCOMP)
    assert (answer.packet_id, answer.flags, answer.code) == (11, 0, 0)


def test_qos_3_ends_the_connection(connected, version):
    client = connected(version)
    send(client, "a", "x", 3, 1)
    assert [packet.code for packet in client.expect_closed()] == ([0x81] if version == 5 else [])


@pytest.mark.stricter
def test_dup_at_qos_0_ends_the_connection(connected, version):
    client = connected(version)
    send(client, "a", "x", 0, 0, dup=True)
    packets = client.expect_closed()
    assert [packet.code for packet in packets] in ([[0x81], [0x82]] if version == 5 else [[]])


def test_after_puback_the_identifier_is_a_new_message(connected, topic, version):
    """Whatever DUP says."""
    receiver, client = connected(version), connected(version)
    receiver.subscribe(topic, 1)
    for payload, dup in (("a", False), ("b", False), ("c", True)):
        send(client, topic, payload, 1, 5, dup)
        client.expect(PUBACK)
    assert [one.payload for one in receiver.messages(3)] == [b"a", b"b", b"c"]


@pytest.mark.stricter
def test_until_pubrel_a_repeated_publish_is_not_delivered_twice(connected, topic, version):
    receiver, client = connected(version), connected(version)
    receiver.subscribe(topic, 2)
    for dup in (False, True, True, True):
        send(client, topic, "once", 2, 5, dup)
        assert client.expect(PUBREC).packet_id == 5
    client.send_ack(PUBREL, 5)
    client.expect(PUBCOMP)
    assert receiver.messages(1)[0].payload == b"once"
    receiver.expect_nothing_before_ping()


def test_after_pubcomp_the_identifier_is_a_new_message(connected, topic, version):
    receiver, client = connected(version), connected(version)
    receiver.subscribe(topic, 2)
    for payload in ("a", "b"):
        send(client, topic, payload, 2, 5)
        client.expect(PUBREC)
        client.send_ack(PUBREL, 5)
        client.expect(PUBCOMP)
    assert [one.payload for one in receiver.messages(2)] == [b"a", b"b"]


def test_an_unfinished_qos_2_publish_is_recognized_after_reconnecting(connected, lasting, topic,
                                                                      version, client_id):
    receiver = connected(version)
    receiver.subscribe(topic, 2)
    client = lasting(version, client_id)
    send(client, topic, "once", 2, 5)
    client.expect(PUBREC)
    client.vanish()
    client = lasting(version, client_id)
    assert client.connack.session_present
    send(client, topic, "once", 2, 5, dup=True)
    assert client.expect(PUBREC).packet_id == 5
    client.send_ack(PUBREL, 5)
    client.expect(PUBCOMP)
    assert receiver.messages(1)[0].payload == b"once"
    receiver.expect_nothing_before_ping()


def test_pubrel_after_reconnecting_is_answered(lasting, topic, version, client_id):
    client = lasting(version, client_id)
    send(client, topic, "x", 2, 5)
    client.expect(PUBREC)
    client.vanish()
    client = lasting(version, client_id)
    client.send_ack(PUBREL, 5)
    answer = client.expect(PUBCOMP)
    assert (answer.packet_id, answer.code) == (5, 0)


@pytest.mark.stricter
def test_unknown_pubrel_is_answered_with_pubcomp(connected, version):
    client = connected(version)
    client.send_ack(PUBREL, 77)
    answer = client.expect(PUBCOMP)
    assert (answer.packet_id, answer.code) == (77, 0x92 if version == 5 else 0)


@pytest.mark.stricter
def test_unknown_pubrec_is_answered_with_0x92(connected):
    client = connected(5)
    client.send_ack(PUBREC, 77)
    answer = client.expect(PUBREL)
    assert (answer.packet_id, answer.flags, answer.code) == (77, 2, 0x92)


@pytest.mark.parametrize("qos", [1, 2])
def test_the_first_sending_is_new(connected, topic, version, qos):
    """A non-zero identifier not in use, DUP 0, whatever the publisher's DUP was."""
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, qos)
    for packet_id in range(1, 6):
        send(publisher, topic, "x", qos, packet_id, dup=True)
        publisher.expect(PUBACK if qos == 1 else PUBREC)
        if qos == 2:
            publisher.send_ack(PUBREL, packet_id)
            publisher.expect(PUBCOMP)
    got = [client.expect(PUBLISH) for _ in range(5)]
    assert all(one.qos == qos and not one.dup for one in got)
    assert len({one.packet_id for one in got} - {0}) == 5


def test_the_sender_of_qos_2_goes_its_way(connected, topic, version):
    """PUBREL with the identifier after PUBREC, and nothing again on the same connection."""
    client, publisher = connected(version), connected(version)
    client.subscribe(topic, 2)
    publisher.publish_twice_acknowledged(topic, "x")
    packet = client.expect(PUBLISH)
    client.expect_nothing_before_ping()
    client.send_ack(PUBREC, packet.packet_id)
    release = client.expect(PUBREL)
    assert (release.packet_id, release.flags) == (packet.packet_id, 2)
    client.expect_nothing_before_ping()
    client.send_ack(PUBREC, packet.packet_id)  # repeated by a client that lost its state
    assert client.expect(PUBREL).packet_id == packet.packet_id
    client.send_ack(PUBCOMP, packet.packet_id)
    client.expect_nothing_before_ping()


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_publishes_are_sent_again_on_reconnecting(connected, lasting, topic,
                                                                 version, qos, client_id):
    """With DUP, their identifiers, in their order; and at no other time."""
    client = lasting(version, client_id)
    client.subscribe(topic, qos)
    publisher = connected(version)
    for payload in ("a", "b", "c"):
        if qos == 1:
            publisher.publish(topic, payload, 1)
        else:
            publisher.publish_twice_acknowledged(topic, payload)
    first = [client.expect(PUBLISH) for _ in range(3)]
    client.expect_nothing_before_ping()
    client.vanish()
    client = lasting(version, client_id)
    again = [client.expect(PUBLISH) for _ in range(3)]
    assert [(one.packet_id, one.payload, one.qos) for one in again] \
        == [(one.packet_id, one.payload, one.qos) for one in first]
    assert all(one.dup for one in again) and not any(one.dup for one in first)
    for packet in again:
        client.accept(packet)
    client.expect_nothing_before_ping()
    client.leave()
    lasting(version, client_id).expect_nothing_before_ping()


def test_an_unanswered_pubrel_is_sent_again_and_not_the_publish(connected, lasting, topic, version,
                                                                client_id):
    client = lasting(version, client_id)
    client.subscribe(topic, 2)
    connected(version).publish_twice_acknowledged(topic, "x")
    packet = client.expect(PUBLISH)
    client.send_ack(PUBREC, packet.packet_id)
    client.expect(PUBREL)
    for _ in range(2):
        client.vanish()
        client = lasting(version, client_id)
        again = client.expect(PUBREL)
        assert (again.packet_id, again.flags) == (packet.packet_id, 2)
        client.expect_nothing_before_ping()
    client.send_ack(PUBCOMP, packet.packet_id)
    client.leave()
    lasting(version, client_id).expect_nothing_before_ping()


def test_a_new_message_takes_no_identifier_in_use(connected, lasting, topic, version, client_id):
    client = lasting(version, client_id)
    client.subscribe(topic, 1)
    publisher = connected(version)
    for number in range(5):
        publisher.publish(topic, f"old {number}", 1)
    used = {client.expect(PUBLISH).packet_id for _ in range(5)}
    client.vanish()
    client = lasting(version, client_id)
    publisher.publish(topic, "new", 1)
    got = [client.expect(PUBLISH) for _ in range(6)]
    assert {one.packet_id for one in got[:5]} == used
    assert got[5].payload == b"new" and got[5].packet_id not in used


@pytest.mark.parametrize("qos", [1, 2])
def test_an_error_counts_as_acknowledged(connected, lasting, topic, client_id, qos):
    """PUBACK or PUBREC of 0x80 and above: no PUBREL, no repetition, the identifier is free."""
    client = lasting(5, client_id)
    client.subscribe(topic, qos)
    publisher = connected(5)
    if qos == 1:
        publisher.publish(topic, "x", 1)
    else:
        publisher.publish_twice_acknowledged(topic, "x")
    client.send_ack(PUBACK if qos == 1 else PUBREC, client.expect(PUBLISH).packet_id, 0x83)
    client.expect_nothing_before_ping()
    client.vanish()
    again = lasting(5, client_id)
    assert again.connack.session_present
    again.expect_nothing_before_ping()


@pytest.mark.stricter
def test_qos_2_goes_on_though_the_message_expired(connected, lasting, topic, client_id, raw):
    """Sent once, it is repeated after its expiry, and the handshake ends as always."""
    client = lasting(5, client_id)
    client.subscribe(topic, 2)
    publisher = connected(5)
    publisher.publish_twice_acknowledged(topic, "x", properties={"message_expiry_interval": 1})
    first = client.expect(PUBLISH)
    client.vanish()
    publisher.timeout = 2
    with pytest.raises(TimeoutError):
        publisher.receive()  # two seconds: it has expired now
    client = lasting(5, client_id)
    again = client.expect(PUBLISH)
    assert (again.packet_id, again.dup) == (first.packet_id, True)
    client.accept(again)
    client.expect_nothing_before_ping()


def test_the_receiver_goes_on_though_the_message_expired(connected, topic):
    client, receiver = connected(5), connected(5)
    receiver.subscribe(topic, 2)
    client.send(publish_frame(topic, "x", 2, packet_id=5,
                              properties={"message_expiry_interval": 1}))
    client.expect(PUBREC)
    client.timeout = 1.5
    with pytest.raises(TimeoutError):
        client.receive()
    client.send_ack(PUBREL, 5)
    assert client.expect(PUBCOMP).code == 0


@pytest.mark.stricter
def test_a_refused_qos_2_publish_frees_its_identifier(connected, topic):
    """A PUBREC of 0x80 and above is the end: the next PUBLISH with it is a new message."""
    client, receiver = connected(5), connected(5)
    receiver.subscribe(topic, 2)
    send(client, "$refused", "x", 2, 5)
    assert client.expect(PUBREC).code >= 0x80
    send(client, topic, "new", 2, 5)
    assert client.expect(PUBREC).code < 0x80
    client.send_ack(PUBREL, 5)
    client.expect(PUBCOMP)
    assert receiver.messages(1)[0].payload == b"new"


@pytest.mark.stricter
def test_many_qos_2_of_a_3_1_1_publisher_are_all_taken(connected, topic):
    """It knows no Receive Maximum: 200 PUBLISH before the first PUBREL."""
    receiver, client = connected(5), connected(4)
    receiver.subscribe(topic, 2)
    numbers = range(1, 201)
    client.send(b"".join(publish_frame(topic, str(n), 2, packet_id=n, version=4) for n in numbers))
    completed = []
    while len(completed) < 200:
        answer = client.receive()
        if answer.type == PUBREC:
            client.send_ack(PUBREL, answer.packet_id)
        else:
            assert answer.type == PUBCOMP
            completed.append(answer.packet_id)
    assert sorted(completed) == list(numbers)
    assert [int(one.payload) for one in receiver.messages(200)] == list(numbers)
