"""Wills (3.1.2.5, 3.1.3): when they come, when not, and what they carry."""

import time

import pytest

from harness.packets import CONNECT, DISCONNECT, PUBLISH, connect_body, frame

pytestmark = pytest.mark.protocol


@pytest.fixture
def watcher(connected, topic):
    client = connected(5)
    client.subscribe(topic, 2)
    return client


def will(topic, **options):
    return {"topic": topic, "payload": "will", **options}


def delayed(topic, seconds):
    return will(topic, properties={"will_delay_interval": seconds})


def test_it_comes_when_the_connection_breaks(connected, watcher, topic, version):
    connected(version, will=will(topic)).vanish()
    assert watcher.expect(PUBLISH).payload == b"will"
    watcher.expect_nothing_before_ping()


def test_it_comes_after_a_protocol_error(connected, watcher, topic, version):
    client = connected(version, will=will(topic))
    client.send(b"\x00\x00")
    client.expect_closed()
    assert watcher.expect(PUBLISH).payload == b"will"


def test_it_does_not_come_after_disconnect(connected, watcher, topic, version):
    connected(version, will=will(topic)).leave()
    watcher.expect_nothing_before_ping()


def test_disconnect_forgets_it_for_good(connected, lasting, watcher, topic, version, client_id):
    """Neither when the next connection, which has none, breaks."""
    connected(version, client_id, will=will(topic)).leave()
    connected(version, client_id).vanish()
    watcher.expect_nothing_before_ping()


def test_without_will_flag_nothing_comes(connected, watcher, version):
    connected(version).vanish()
    watcher.expect_nothing_before_ping()


def test_disconnect_0x04_asks_for_it(connected, watcher, topic):
    connected(5, will=will(topic)).leave(0x04)
    assert watcher.expect(PUBLISH).payload == b"will"


def test_a_published_will_is_forgotten(connected, lasting, watcher, topic, version, client_id):
    """It comes once; the resumed session has none unless its CONNECT says so."""
    lasting(version, client_id, will=will(topic)).vanish()
    assert watcher.expect(PUBLISH).payload == b"will"
    lasting(version, client_id).vanish()
    watcher.expect_nothing_before_ping()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_has_its_qos(connected, watcher, topic, version, qos):
    connected(version, will=will(topic, qos=qos)).vanish()
    assert watcher.messages(1)[0].qos == qos


@pytest.mark.parametrize("retain", [False, True])
def test_it_is_retained_as_it_asks(connected, watcher, topic, version, retain):
    connected(version, will=will(topic, retain=retain)).vanish()
    assert watcher.expect(PUBLISH).retain is False
    late = connected(version)
    late.subscribe(topic)
    if retain:
        packet = late.expect(PUBLISH)
        assert (packet.payload, packet.retain) == (b"will", True)
    late.expect_nothing_before_ping()


def test_an_empty_retained_will_clears(connected, watcher, topic, version):
    connected(version).publish(topic, "online", 1, retain=True)
    assert watcher.messages(1)[0].payload == b"online"
    connected(version, will={"topic": topic, "payload": b"", "retain": True}).vanish()
    assert watcher.expect(PUBLISH).payload == b""
    late = connected(version)
    late.subscribe(topic)
    late.expect_nothing_before_ping()


def test_it_carries_its_properties_in_order(connected, watcher, topic):
    properties = {"payload_format_indicator": 1, "content_type": "text/plain",
                  "response_topic": "answer/here", "correlation_data": b"\x00\xff",
                  "user_property": [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]}
    connected(5, will=will(topic, properties=properties)).vanish()
    assert watcher.expect(PUBLISH).properties == properties


def test_a_take_over_publishes_it(connected, watcher, topic, version, client_id):
    """A clean start ends the old session; so does any connection over one of expiry 0."""
    connected(version, client_id, will=will(topic))
    connected(version, client_id)
    assert watcher.expect(PUBLISH).payload == b"will"


@pytest.mark.stricter
def test_a_delay_longer_than_the_session_does_not_count(connected, watcher, topic):
    """Expiry 0: the session ends with the connection, and the will comes now."""
    connected(5, will=delayed(topic, 300)).vanish()
    assert watcher.expect(PUBLISH).payload == b"will"


@pytest.mark.stricter
def test_a_delay_is_waited_for_and_not_shortened(lasting, watcher, topic, client_id):
    client = lasting(5, client_id, will=delayed(topic, 2))
    start = time.monotonic()
    client.vanish()
    watcher.expect_nothing_before_ping()
    assert watcher.expect(PUBLISH).payload == b"will"
    assert 2.0 <= time.monotonic() - start < 3.5


def test_coming_back_within_the_delay_takes_it_back(lasting, watcher, topic, client_id):
    lasting(5, client_id, will=delayed(topic, 1)).vanish()
    lasting(5, client_id).expect_nothing_before_ping()
    with pytest.raises(TimeoutError):
        watcher.receive(timeout=2)


def test_the_end_of_the_session_publishes_it_before_its_delay(lasting, watcher, topic, client_id):
    start = time.monotonic()
    lasting(5, client_id, expiry=1, will=delayed(topic, 300)).vanish()
    assert watcher.expect(PUBLISH).payload == b"will"
    assert 1.0 <= time.monotonic() - start < 4


@pytest.mark.stricter
def test_a_clean_start_publishes_it_before_its_delay(connected, lasting, watcher, topic, client_id):
    lasting(5, client_id, will=delayed(topic, 300)).vanish()
    watcher.expect_nothing_before_ping()
    connected(5, client_id)
    assert watcher.expect(PUBLISH).payload == b"will"


def test_a_resuming_take_over_takes_a_delayed_one_back(lasting, watcher, topic, client_id):
    first = lasting(5, client_id, will=delayed(topic, 1))
    lasting(5, client_id)
    first.expect_closed()
    with pytest.raises(TimeoutError):
        watcher.receive(timeout=2)


def test_an_old_will_does_not_follow_the_new_online(lasting, connected, topic, client_id):
    """What a device that lost its network sees: its old will never comes after its new birth."""
    watcher = connected(5)
    watcher.subscribe(topic, 1)
    offline = {"topic": topic, "payload": "offline", "retain": True}
    old = connected(4, client_id, will=offline)
    new = connected(4, client_id, will=offline)
    new.publish(topic, "online", 1, retain=True)
    old.expect_closed()
    assert watcher.expect(PUBLISH).payload == b"offline"
    assert watcher.messages(1)[0].payload == b"online"
    watcher.expect_nothing_before_ping()
    late = connected(4)
    late.subscribe(topic)
    assert late.expect(PUBLISH).payload == b"online"


def test_a_refused_connect_has_no_will(raw, watcher, topic, version):
    client = raw(version)
    body = connect_body("x", version, will=will(topic))
    client.send(frame(CONNECT, 0, body + b"behind it"))
    client.expect_closed()
    watcher.expect_nothing_before_ping()


def test_a_broken_disconnect_does_not_take_it_back(connected, watcher, topic, version):
    client = connected(version, will=will(topic))
    client.send(frame(DISCONNECT, 1, b""))
    client.expect_closed()
    assert watcher.expect(PUBLISH).payload == b"will"
