"""Shared subscriptions (4.8.2): for 5.0, and for 3.1.1 alike."""

import pytest

from harness.packets import DISCONNECT, PUBACK, PUBLISH, PUBREC, PUBREL

pytestmark = pytest.mark.protocol


@pytest.fixture
def share(topic):
    return f"$share/group/{topic}"


def publish_all(publisher, topic, count, qos=1):
    for number in range(count):
        if qos == 2:
            publisher.publish_twice_acknowledged(topic, str(number))
        else:
            publisher.publish(topic, str(number), qos)
    publisher.expect_nothing_before_ping()  # all are with the broker


def taken(members):
    """The payloads each member got and accepted."""
    shares = []
    for member in members:
        packets = member.until_ping()
        shares.append([member.accept(packet).payload for packet in packets])
    return shares


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member(connected, topic, share, version, qos):
    members = [connected(version) for _ in range(3)]
    for member in members:
        assert member.subscribe(share, qos).codes == bytes([qos])
    publish_all(connected(version), topic, 15, qos)
    shares = taken(members)
    assert sorted(int(one) for got in shares for one in got) == list(range(15))
    assert all(shares), "each has its part"


def test_each_group_and_each_own_subscription_gets_its_copy(connected, topic):
    client, other = connected(), connected()
    client.subscribe(f"$share/one/{topic}", 1)
    client.subscribe(topic, 1)
    other.subscribe(f"$share/two/{topic}", 1)
    publish_all(connected(), topic, 2)
    assert len(taken([client])[0]) == 4
    assert len(taken([other])[0]) == 2


def test_the_granted_qos_of_the_member_is_respected(connected, topic, share):
    members = [connected(), connected()]
    for qos, member in enumerate(members):
        member.subscribe(share, qos)
    publish_all(connected(), topic, 10)
    for qos, member in enumerate(members):
        packets = member.until_ping()
        assert packets and all(packet.qos == qos for packet in packets)


@pytest.mark.stricter
def test_retained_messages_are_not_sent_to_a_shared_subscription(connected, topic, share):
    client = connected()
    client.publish(topic, "kept", 1, retain=True)
    client.subscribe(share, 1)
    client.expect_nothing_before_ping()


@pytest.mark.stricter
def test_no_local_on_a_shared_subscription_is_a_protocol_error(connected, share):
    client = connected()
    client.send_subscribe(share, 0x04)
    assert [(one.type, one.code) for one in client.expect_closed()] == [(DISCONNECT, 0x82)]


@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share/g/",
                                          "$share//a", "$share/g+/a", "$share/#/a"])
@pytest.mark.stricter
def test_a_wrong_shared_filter_is_refused(connected, topic_filter):
    client = connected()
    client.send_subscribe(topic_filter)
    packet = client.receive()
    assert packet.type == DISCONNECT and packet.code in (0x81, 0x82, 0x8F) \
        or packet.codes == b"\x8f"


def test_unsubscribing_leaves_the_group(connected, topic, share):
    first, second = connected(), connected()
    for member in (first, second):
        member.subscribe(share, 1)
    assert first.unsubscribe(share).codes == b"\x00"
    publish_all(connected(), topic, 4)
    first.expect_nothing_before_ping()
    assert len(taken([second])[0]) == 4


@pytest.mark.stricter
def test_what_a_leaving_member_did_not_acknowledge_goes_to_another(connected, topic, share):
    """QoS 1, the session of the member ends."""
    worker, other = connected(), connected()
    worker.subscribe(share, 1)
    publish_all(connected(), topic, 5)
    assert len(worker.until_ping()) == 5
    other.subscribe(share, 1)
    worker.vanish()
    assert sorted(one.payload for one in other.messages(5)) == [b"0", b"1", b"2", b"3", b"4"]


def test_work_waits_while_all_members_are_away(connected, lasting, topic, share, version,
                                               client_id):
    member = lasting(version, client_id)
    member.subscribe(share, 1)
    member.leave()
    publish_all(connected(version), topic, 5)
    again = lasting(version, client_id)
    assert [one.payload for one in again.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.stricter
def test_a_member_that_is_there_is_preferred(connected, lasting, topic, share, client_id):
    away, present = lasting(5, client_id), connected()
    for member in (away, present):
        member.subscribe(share, 1)
    away.leave()
    publish_all(connected(), topic, 6)
    assert len(taken([present])[0]) == 6


@pytest.mark.stricter
def test_a_slow_member_starves_nobody(connected, topic, share):
    """Its window is full: the others get the rest."""
    slow = connected(5, properties={"receive_maximum": 1})
    quick = connected()
    for member in (slow, quick):
        member.subscribe(share, 1)
    publisher = connected()
    publish_all(publisher, topic, 1)
    publish_all(publisher, topic, 20)
    held = slow.until_ping()
    assert len(held) <= 1
    got = taken([quick])[0]
    assert len(got) + len(held) == 21


def test_qos_2_begun_with_a_member_is_completed_with_it(connected, lasting, topic, share,
                                                        client_id):
    member, other = lasting(5, client_id), connected()
    member.subscribe(share, 2)
    connected().publish_twice_acknowledged(topic, "x")
    packet = member.expect(PUBLISH)
    other.subscribe(share, 2)
    member.vanish()
    other.expect_nothing_before_ping()
    member = lasting(5, client_id)
    again = member.expect(PUBLISH)
    assert (again.packet_id, again.dup) == (packet.packet_id, True)
    member.send_ack(PUBREC, again.packet_id)
    assert member.expect(PUBREL).packet_id == packet.packet_id
    other.expect_nothing_before_ping()


def test_qos_2_of_a_member_whose_session_ended_goes_to_nobody(connected, topic, share):
    member, other = connected(), connected()
    member.subscribe(share, 2)
    connected().publish_twice_acknowledged(topic, "x")
    member.expect(PUBLISH)
    other.subscribe(share, 2)
    member.vanish()
    other.expect_nothing_before_ping()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_refuses_is_offered_to_nobody(connected, topic, share, qos):
    member, other = connected(), connected()
    member.subscribe(share, qos)
    publish_all(connected(), topic, 1, qos)
    packet = member.expect(PUBLISH)
    other.subscribe(share, qos)
    member.send_ack(PUBACK if qos == 1 else PUBREC, packet.packet_id, 0x83)
    member.expect_nothing_before_ping()
    other.expect_nothing_before_ping()
    member.vanish()
    other.expect_nothing_before_ping()


def test_subscription_identifiers_of_shared_subscriptions(connected, topic, share):
    client = connected()
    client.subscribe(share, 0, {"subscription_identifier": 7})
    client.publish(topic, "x")
    assert client.expect(PUBLISH).properties["subscription_identifier"] == [7]
