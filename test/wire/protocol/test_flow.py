"""Receive Maximum (4.9) and Maximum Packet Size, both ways; what answers may carry."""

import pytest

from harness.packets import (CONNACK, CONNECT, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL,
                             SUBACK, UNSUBACK, connect_body, frame, publish_frame)

pytestmark = pytest.mark.protocol
TOO_LARGE, RECEIVE_MAXIMUM_EXCEEDED = 0x95, 0x93


def publish_all(publisher, topic, count, qos=1):
    for number in range(count):
        if qos == 1:
            publisher.publish(topic, str(number), 1)
        else:
            publisher.publish_twice_acknowledged(topic, str(number))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.stricter
def test_never_more_unacknowledged_than_the_receive_maximum(connected, topic, qos):
    """The window opens with each PUBACK or PUBCOMP, by one."""
    client = connected(5, properties={"receive_maximum": 2})
    client.subscribe(topic, qos)
    publish_all(connected(5), topic, 6, qos)
    window = client.until_ping()
    assert [one.payload for one in window] == [b"0", b"1"]
    for number in range(2, 6):
        packet = window.pop(0)
        if qos == 2:
            client.send_ack(PUBREC, packet.packet_id)
            client.expect(PUBREL)
            client.expect_nothing_before_ping()
            client.send_ack(PUBCOMP, packet.packet_id)
        else:
            client.send_ack(PUBACK, packet.packet_id)
        got = client.until_ping()
        assert [one.payload for one in got] == [str(number).encode()]
        window += got


def test_a_full_window_holds_back_nothing_else(connected, topic):
    """QoS 0, SUBACK, UNSUBACK, PUBACK and PINGRESP go on."""
    client = connected(5, properties={"receive_maximum": 1})
    client.subscribe(topic, 1)
    publish_all(connected(5), topic, 3)
    assert len(client.until_ping()) == 1
    assert client.subscribe(f"{topic}/other").type == SUBACK
    client.publish(f"{topic}/other", "0", 0)
    assert client.expect(PUBLISH).payload == b"0"
    assert client.publish(f"{topic}/elsewhere", "x", 1).type == PUBACK
    client.publish_twice_acknowledged(f"{topic}/elsewhere", "x")
    assert client.unsubscribe(f"{topic}/other").type == UNSUBACK
    client.expect_nothing_before_ping()


def test_without_receive_maximum_it_is_65535_or_the_servers_own(connected, topic):
    client = connected(5)
    client.subscribe(topic, 1)
    publish_all(connected(5), topic, 15)
    assert len(client.until_ping()) == 15


@pytest.mark.stricter
def test_resending_respects_the_new_receive_maximum(connected, lasting, topic, client_id):
    client = lasting(5, client_id, properties={"receive_maximum": 10})
    client.subscribe(topic, 1)
    publish_all(connected(5), topic, 5)
    assert len(client.until_ping()) == 5
    client.vanish()
    client = lasting(5, client_id, properties={"receive_maximum": 2})
    got = [client.expect(PUBLISH), client.expect(PUBLISH)]
    assert [(one.payload, one.dup) for one in got] == [(b"0", True), (b"1", True)]
    for number in (b"2", b"3", b"4"):
        client.expect_nothing_before_ping()
        client.send_ack(PUBACK, got.pop(0).packet_id)
        got.append(client.expect(PUBLISH))
        assert got[-1].payload == number and got[-1].dup


def test_a_receive_maximum_of_0_is_an_error(raw):
    client = raw(5)
    client.send(frame(CONNECT, 0, connect_body("", 5, properties={"receive_maximum": 0})))
    assert [one.code for one in client.expect_closed()] in ([0x82], [0x81], [])


@pytest.mark.stricter
def test_one_qos_2_publish_too_many_ends_the_connection(connected, topic):
    """With a DISCONNECT that the client can read, although it goes on sending."""
    client = connected(5)
    maximum = client.connack.properties["receive_maximum"]
    for packet_id in range(1, maximum + 1):
        client.send(publish_frame(topic, "x", 2, packet_id=packet_id))
    for _ in range(maximum):
        assert client.expect(PUBREC).code < 0x80
    client.send(publish_frame(topic, "x", 2, packet_id=maximum + 1)
                + publish_frame(topic, bytes(100000), 2, packet_id=maximum + 2))
    packets = client.expect_closed()
    assert [(one.type, one.code) for one in packets] == [(DISCONNECT, RECEIVE_MAXIMUM_EXCEEDED)]


def test_the_servers_window_is_wide_enough_for_what_it_says(connected, topic):
    client = connected(5)
    count = min(client.connack.properties.get("receive_maximum", 65535), 1000)
    client.send(b"".join(publish_frame(topic, "x", 1, packet_id=n) for n in range(1, count + 1)))
    assert [client.expect(PUBACK).packet_id for _ in range(count)] == list(range(1, count + 1))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.stricter
def test_what_is_too_large_is_not_sent_and_counts_as_sent(connected, topic, qos):
    """It takes no place in a window of 1, and what follows arrives."""
    client, publisher = connected(5, properties={"maximum_packet_size": 100,
                                                 "receive_maximum": 1}), connected(5)
    client.subscribe(topic, qos)
    for payload in (b"x" * 200, b"y" * 200, b"small"):
        if qos == 2:
            publisher.publish_twice_acknowledged(topic, payload)
        else:
            publisher.publish(topic, payload, qos)
    assert client.messages(1)[0].payload == b"small"
    client.expect_nothing_before_ping()


@pytest.mark.stricter
def test_the_limit_is_the_whole_packet(connected, topic, client_id):
    """A packet of exactly the maximum is sent, one byte more is not."""
    for payload in range(100, 104):
        size = len(publish_frame(topic, bytes(payload)))
        for limit, comes in ((size, True), (size - 1, False)):
            client = connected(5, client_id, properties={"maximum_packet_size": limit})
            client.subscribe(topic)
            client.publish(topic, bytes(payload))
            assert len(client.until_ping()) == comes


@pytest.mark.stricter
def test_what_waits_in_a_session_is_skipped_when_too_large(connected, lasting, topic, client_id):
    client = lasting(5, client_id)
    client.subscribe(topic, 1)
    client.leave()
    publisher = connected(5)
    publisher.publish(topic, b"x" * 200, 1)
    publisher.publish(topic, b"small", 1)
    client = lasting(5, client_id, properties={"maximum_packet_size": 100, "receive_maximum": 1})
    assert client.messages(1)[0].payload == b"small"
    client.expect_nothing_before_ping()


def test_a_maximum_packet_size_of_0_is_an_error(raw):
    client = raw(5)
    client.send(frame(CONNECT, 0, connect_body("", 5, properties={"maximum_packet_size": 0})))
    assert [one.code for one in client.expect_closed()] in ([0x82], [0x81], [])


@pytest.mark.stricter
def test_a_packet_above_the_servers_maximum_is_0x95(connected):
    client = connected(5)
    maximum = client.connack.properties["maximum_packet_size"]
    length = bytes([(maximum >> shift & 127) | (128 if shift < 21 else 0)
                    for shift in (0, 7, 14, 21)])
    client.send(b"\x30" + length + b"\x00\x01a")
    assert [(one.type, one.code) for one in client.expect_closed()] == [(DISCONNECT, TOO_LARGE)]


def refusals(client):
    """Makes the server refuse one of each; the answers."""
    client.send(publish_frame("$refused", "x", 1, packet_id=1))
    client.send(publish_frame("$refused", "x", 2, packet_id=2))
    client.send_ack(PUBREL, 77)
    client.send_ack(PUBREC, 78)
    answers = client.until_ping()
    answers += [client.unsubscribe("none"), client.subscribe("$share/g/fine")]
    return answers


@pytest.mark.stricter
def test_without_problem_information_answers_carry_none(connected):
    """[MQTT-3.1.2-29]; DISCONNECT and CONNACK may."""
    client = connected(5, properties={"request_problem_information": 0})
    answers = refusals(client)
    assert {one.type for one in answers} == {PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK}
    for one in answers:
        assert not {"reason_string", "user_property"} & set(one.properties), one


@pytest.mark.stricter
def test_answers_fit_the_clients_maximum_packet_size(connected):
    """What is optional is left out; a client of 60 bytes gets all its answers."""
    client = connected(5, properties={"maximum_packet_size": 60})
    answers = refusals(client)
    assert {one.type for one in answers} == {PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK}
    client.send(b"\x36\x05\x00\x01a\x00\x01")
    answers += client.expect_closed()
    assert answers[-1].type == DISCONNECT
    assert all(len(one.body) + 2 <= 60 for one in answers)


@pytest.mark.stricter
def test_answers_use_codes_of_their_lists(connected):
    """Sections 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.9.3, 3.11.3."""
    publish = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
    lists = {PUBACK: publish, PUBREC: publish, PUBREL: {0x00, 0x92}, PUBCOMP: {0x00, 0x92},
             SUBACK: {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
             UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}}
    client = connected(5)
    for one in refusals(client):
        codes = one.codes if one.type in (SUBACK, UNSUBACK) else bytes([one.code])
        assert codes and set(codes) <= lists[one.type], one


def test_an_accepted_publish_has_a_code_of_success(connected, topic):
    client = connected(5)
    for _ in range(2):
        assert client.publish(topic, "x", 1).code in (0x00, 0x10)
        assert client.publish_twice_acknowledged(topic, "x").code in (0x00, 0x10)
        client.subscribe(f"{topic}/other")
    assert client.connack.type == CONNACK and client.connack.code == 0
