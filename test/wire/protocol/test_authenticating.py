"""AUTH and authentication methods (3.15, 4.12), as far as no method is offered."""

import pytest

from harness.packets import (AUTH, CONNACK, CONNECT, DISCONNECT, connect_body, encode_properties,
                             frame, publish_frame)

pytestmark = pytest.mark.protocol
NO_SUCH_METHOD = {"authentication_method": "NO-SUCH-METHOD", "authentication_data": b"\x00"}


@pytest.mark.stricter
def test_an_unknown_method_is_refused(connected, raw, topic):
    """With 0x8C or 0x87, and what follows is not processed."""
    watcher, client = connected(), raw(5)
    watcher.subscribe(topic)
    client.send(frame(CONNECT, 0, connect_body("", 5, properties=NO_SUCH_METHOD))
                + publish_frame(topic, "x"))
    packets = client.expect_closed()
    assert [(one.type, one.session_present) for one in packets] == [(CONNACK, False)]
    assert packets[0].code in (0x8C, 0x87)
    assert packets[0].properties.get("authentication_method", "NO-SUCH-METHOD") == "NO-SUCH-METHOD"
    watcher.expect_nothing_before_ping()


@pytest.mark.stricter
def test_a_refusal_tells_no_session_and_fits_the_client(lasting, raw, client_id):
    """Though there is a session, and much could be said."""
    lasting(5, client_id).leave()
    client = raw(5)
    client.send(frame(CONNECT, 0, connect_body(client_id, 5, clean=False, properties={
        **NO_SUCH_METHOD, "maximum_packet_size": 30})))
    packets = client.expect_closed()
    assert [one.type for one in packets] == [CONNACK]
    assert packets[0].code >= 0x80 and not packets[0].session_present
    assert len(packets[0].body) + 2 <= 30
    assert lasting(5, client_id).connack.session_present


@pytest.mark.stricter
def test_a_3_1_1_refusal_tells_no_session(lasting, raw, client_id):
    lasting(4, client_id).leave()
    client = raw(4)
    client.send(frame(CONNECT, 0, connect_body(client_id, 4, clean=False, username="no such role",
                                               password="x")))
    packets = client.expect_closed()
    assert [(one.type, one.session_present) for one in packets] == [(CONNACK, False)]
    assert packets[0].code in (4, 5)
    assert lasting(4, client_id).connack.session_present


@pytest.mark.stricter
def test_data_without_a_method_is_a_protocol_error(raw):
    client = raw(5)
    client.send(frame(CONNECT, 0, connect_body("", 5, properties={"authentication_data": b"x"})))
    packets = client.expect_closed()
    assert all(one.type == CONNACK and one.code in (0x81, 0x82) for one in packets)


def test_without_a_method_the_server_says_nothing_of_one(connected):
    client = connected(5)
    assert not {"authentication_method", "authentication_data"} & set(client.connack.properties)
    client.expect_nothing_before_ping()


@pytest.mark.parametrize("code", [0x00, 0x18, 0x19])
@pytest.mark.stricter
def test_auth_without_a_method_in_connect_ends_the_connection(connected, code):
    client = connected(5)
    client.send(frame(AUTH, 0, bytes([code]) + encode_properties(NO_SUCH_METHOD)))
    packets = client.expect_closed()
    assert [one.type for one in packets] == [DISCONNECT]
    assert packets[0].code in (0x82, 0x8C, 0x87)


@pytest.mark.stricter
def test_an_auth_code_that_is_not_listed_ends_the_connection(connected):
    client = connected(5)
    client.send(frame(AUTH, 0, b"\x01" + encode_properties(NO_SUCH_METHOD)))
    packets = client.expect_closed()
    assert [one.type for one in packets] == [DISCONNECT]
    assert packets[0].code in (0x81, 0x82)


def test_auth_does_not_exist_in_3_1_1(connected):
    client = connected(4)
    client.send(frame(AUTH, 0, b""))
    assert client.expect_closed() == []
