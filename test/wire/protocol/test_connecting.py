"""Sections 3.1 and 3.2: CONNECT and CONNACK."""

import string

import pytest

from harness.packets import (CONNACK, CONNECT, DISCONNECT, PINGREQ, PUBLISH, connect_body, frame,
                             publish_frame)

pytestmark = pytest.mark.protocol
NAMES = {4: b"\x00\x04MQTT", 5: b"\x00\x04MQTT"}


def refused(client):
    """The codes of the CONNACKs, at most one, before the connection is closed."""
    packets = client.expect_closed()
    assert len(packets) <= 1 and all(packet.type == CONNACK for packet in packets), packets
    assert all(packet.code and not packet.session_present for packet in packets), packets
    return [packet.code for packet in packets]


def head(version, flags=0x02, name=NAMES[4]):
    return name + bytes([version, flags]) + b"\x00\x3c" + (b"\x00" if version == 5 else b"")


def test_connack_comes_first_and_once(connected, raw, version):
    """Even when the packets behind CONNECT have answers of their own."""
    client = raw(version)
    client.send(frame(CONNECT, 0, connect_body("", version)) + frame(PINGREQ, 0, b""))
    answer = client.expect(CONNACK)
    assert (answer.code, answer.flags) == (0, 0)
    client.expect(13)
    client.expect_nothing_before_ping()


@pytest.mark.stricter
def test_a_second_connect_ends_the_connection(connected, version, client_id):
    client = connected(version, client_id)
    client.send(frame(CONNECT, 0, connect_body(client_id, version)))
    packets = client.expect_closed()
    assert [(one.type, one.code) for one in packets] == ([(DISCONNECT, 0x82)] if version == 5
                                                         else [])


def test_another_protocol_name_is_refused(raw, version):
    for name in (b"\x00\x04mqtt", b"\x00\x04MQTX", b"\x00\x06MQIsdp", b"\x00\x00", b"\x00\x03MQT"):
        client = raw(version)
        client.send(frame(CONNECT, 0, head(version, name=name) + b"\x00\x01a"))
        assert refused(client) in ([], [0x84], [1]), name


@pytest.mark.parametrize("level", [0, 2, 6, 127, 255])
def test_an_unknown_level_is_refused(raw, level):
    client = raw(4)
    client.send(frame(CONNECT, 0, head(level) + b"\x00\x01a"))
    assert refused(client) in ([1], [0x84])


def test_the_reserved_connect_flag_is_checked(raw, version):
    client = raw(version)
    client.send(frame(CONNECT, 0, head(version, flags=0x03) + b"\x00\x01a"))
    assert refused(client) in (([], [0x81], [0x82]) if version == 5 else ([],))


@pytest.mark.stricter
@pytest.mark.parametrize("fault", ["cut", "tail", "will QoS 3", "will QoS without will",
                                   "will retain without will", "no will topic"])
def test_a_connect_that_breaks_its_format_gets_no_acceptance(raw, version, fault):
    """3.1.1 closes without a word; 5.0 may say 0x81 or 0x82."""
    will = b"\x00\x01t\x00\x00" if version == 4 else b"\x00\x00\x01t\x00\x00"
    body = {"cut": head(version) + b"\x00\x09abc",
            "tail": head(version) + b"\x00\x01a" + b"behind it",
            "will QoS 3": head(version, flags=0x1E) + b"\x00\x01a" + will,
            "will QoS without will": head(version, flags=0x0A) + b"\x00\x01a",
            "will retain without will": head(version, flags=0x22) + b"\x00\x01a",
            "no will topic": head(version, flags=0x06) + b"\x00\x01a"}[fault]
    client = raw(version)
    client.send(frame(CONNECT, 0, body))
    assert refused(client) in (([], [0x81], [0x82]) if version == 5 else ([],))


@pytest.mark.stricter
def test_a_3_1_1_password_without_a_user_name_is_refused(raw):
    client = raw(4)
    client.send(frame(CONNECT, 0, head(4, flags=0x42) + b"\x00\x01a" + b"\x00\x01p"))
    assert refused(client) == []


def test_client_ids_of_1_to_23_letters_and_digits(connected, version):
    alphabet = string.digits + string.ascii_letters
    for client_id in [alphabet[at:at + 23] for at in range(0, 62, 23)] + ["Z", "0"]:
        connected(version, client_id).expect_nothing_before_ping()


def test_an_empty_client_id_gets_one_that_nobody_has(connected):
    clients = [connected(5, "") for _ in range(4)]
    names = [client.connack.properties["assigned_client_identifier"] for client in clients]
    assert all(names) and len(set(names)) == 4
    for client in clients:
        client.expect_nothing_before_ping()


@pytest.mark.stricter
def test_an_assigned_client_id_is_one_like_any_other(connected, lasting, topic):
    first = lasting(5, "", clean=True)
    name = first.connack.properties["assigned_client_identifier"]
    first.subscribe(topic, 1)
    first.leave()
    again = lasting(5, name)
    assert again.connack.session_present
    assert "assigned_client_identifier" not in again.connack.properties
    connected(5).publish(topic, "x", qos=1)
    assert again.messages(1)[0].payload == b"x"


def test_an_empty_client_id_of_3_1_1_is_a_client_of_its_own(connected, topic):
    first, second = connected(4, ""), connected(4, "")
    first.subscribe(topic)
    second.publish(topic, "x")
    assert first.expect(PUBLISH).payload == b"x"
    second.expect_nothing_before_ping()


def test_an_empty_client_id_without_clean_session_is_0x02(raw):
    client = raw(4)
    client.send(frame(CONNECT, 0, connect_body("", 4, clean=False)))
    assert refused(client) == [2]


@pytest.mark.stricter
def test_the_same_client_id_closes_the_older_connection(connected, version, client_id):
    first = connected(version, client_id)
    second = connected(version, client_id)
    packets = first.expect_closed()
    assert [one.code for one in packets] in ([[0x8E]] if version == 5 else [[]])
    second.expect_nothing_before_ping()


@pytest.mark.stricter
def test_nothing_behind_a_refused_connect_is_processed(connected, raw, topic, version):
    watcher = connected(version)
    watcher.subscribe(topic)
    client = raw(version)
    client.send(frame(CONNECT, 0, head(9) + b"\x00\x01a") + publish_frame(topic, version=version))
    assert len(refused(client)) == 1
    watcher.expect_nothing_before_ping()


def test_connack_has_no_reserved_flags(lasting, version, client_id):
    for present in (0, 1):
        client = lasting(version, client_id)
        assert client.connack.body[0] == present
        client.leave()


def test_connack_never_precedes_a_disconnect(raw):
    """A connection that was not accepted hears no DISCONNECT."""
    client = raw(5)
    client.send(b"\xf1\x00")
    assert all(packet.type == CONNACK for packet in client.expect_closed())


def test_connack_states_no_maximum_qos_of_2(connected):
    """[3.2.2.3.4]: 0 or 1, or nothing when 2 works."""
    assert connected(5).connack.properties.get("maximum_qos", 0) in (0, 1)


@pytest.mark.stricter
def test_response_information_only_when_asked_for(connected):
    for asked in ({}, {"request_response_information": 0}):
        assert "response_information" not in connected(5, properties=asked).connack.properties


def test_connack_fits_the_clients_maximum_packet_size(raw, client_id):
    """What may be left out is; a CONNACK that is too large all the same is not sent."""
    client = raw(5)
    client.send(frame(CONNECT, 0, connect_body(client_id, 5, keep_alive=0, properties={
        "maximum_packet_size": 64})))
    connack = client.expect(CONNACK)
    assert connack.code == 0 and len(connack.body) + 2 <= 64
