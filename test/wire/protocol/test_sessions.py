"""Session state (3.1.2.4, 4.1): kept, resumed, replaced, expired."""

import threading

import pytest

from harness.packets import PUBLISH

pytestmark = pytest.mark.protocol


def test_subscriptions_and_messages_wait_for_the_client(connected, lasting, topic, version,
                                                        client_id):
    first = lasting(version, client_id)
    assert not first.connack.session_present
    first.subscribe(f"{topic}/1", 1)
    first.subscribe(f"{topic}/2", 2)
    first.leave()
    publisher = connected(version)
    publisher.publish(f"{topic}/1", "one", 1)
    publisher.publish_twice_acknowledged(f"{topic}/2", "two")
    again = lasting(version, client_id)
    assert again.connack.session_present
    got = again.messages(2)
    assert [(one.payload, one.qos, one.dup) for one in got] == [(b"one", 1, False),
                                                               (b"two", 2, False)]
    publisher.publish(f"{topic}/1", "live", 1)
    assert again.messages(1)[0].payload == b"live"


def test_a_failed_connection_keeps_the_session_too(connected, lasting, topic, version, client_id):
    first = lasting(version, client_id)
    first.subscribe(topic, 1)
    first.vanish()
    connected(version).publish(topic, "x", 1)
    again = lasting(version, client_id)
    assert again.connack.session_present
    assert again.messages(1)[0].payload == b"x"


def test_without_stored_state_the_session_is_new(lasting, version, client_id):
    assert not lasting(version, client_id).connack.session_present


def test_a_clean_start_throws_the_old_session_away(connected, lasting, topic, version, client_id):
    first = lasting(version, client_id)
    first.subscribe(topic, 1)
    first.leave()
    publisher = connected(version)
    publisher.publish(topic, "queued", 1)
    clean = connected(version, client_id)
    assert not clean.connack.session_present
    publisher.publish(topic, "live", 1)
    clean.expect_nothing_before_ping()


def test_a_clean_session_ends_with_its_connection(connected, lasting, topic, version, client_id):
    first = connected(version, client_id)
    first.subscribe(topic, 1)
    first.leave()
    connected(version).publish(topic, "x", 1)
    again = lasting(version, client_id)
    assert not again.connack.session_present
    again.expect_nothing_before_ping()


def test_a_clean_start_may_begin_a_lasting_session(connected, lasting, topic, client_id):
    """5.0: Clean Start says nothing of the end."""
    lasting(5, client_id, clean=True).leave()
    assert lasting(5, client_id).connack.session_present


def test_a_session_belongs_to_its_client_id(connected, lasting, topic, version, client_id):
    first = lasting(version, client_id)
    first.subscribe(topic, 1)
    first.leave()
    connected(version).publish(topic, "x", 1)
    for other in (client_id.upper(), client_id + " ", "x" + client_id):
        stranger = lasting(version, other)
        assert not stranger.connack.session_present
        stranger.expect_nothing_before_ping()
    assert lasting(version, client_id).messages(1)[0].payload == b"x"


def test_retained_messages_outlive_the_session(connected, topic, version, client_id):
    first = connected(version, client_id)
    first.publish(topic, "kept", 1, retain=True)
    first.leave()
    connected(version, client_id).leave()
    client = connected(version)
    client.subscribe(topic)
    assert client.expect(PUBLISH).payload == b"kept"


def test_a_session_expires_after_its_interval(lasting, client_id):
    """Kept at first, gone after 1 s away."""
    lasting(5, client_id, expiry=1).leave()
    assert lasting(5, client_id, expiry=1).connack.session_present
    lasting(5, client_id, expiry=1).leave()
    threading.Event().wait(1.6)  # the interval is what is tested
    assert not lasting(5, client_id, expiry=1).connack.session_present


def test_a_connected_session_does_not_expire(connected, lasting, topic, client_id):
    client = lasting(5, client_id, expiry=1)
    client.subscribe(topic, 1)
    threading.Event().wait(1.6)
    connected(5).publish(topic, "x", 1)
    assert client.messages(1)[0].payload == b"x"


def test_disconnect_may_change_the_interval(lasting, client_id):
    lasting(5, client_id).leave(0, {"session_expiry_interval": 0})
    first = lasting(5, client_id, expiry=1)
    assert not first.connack.session_present
    first.leave(0, {"session_expiry_interval": 300})
    threading.Event().wait(1.6)
    assert lasting(5, client_id).connack.session_present


def test_an_interval_of_0_ends_with_the_connection(connected, client_id):
    for properties in (None, {"session_expiry_interval": 0}):
        connected(5, client_id, clean=False, properties=properties).leave()
        again = connected(5, client_id, clean=False)
        assert not again.connack.session_present
        again.leave()


def test_the_longest_interval_never_expires(lasting, client_id):
    lasting(5, client_id, expiry=0xFFFFFFFF).leave()
    assert lasting(5, client_id, expiry=0xFFFFFFFF).connack.session_present


def test_a_take_over_keeps_the_session(connected, lasting, topic, version, client_id):
    first = lasting(version, client_id)
    first.subscribe(topic, 1)
    second = lasting(version, client_id)
    assert second.connack.session_present
    first.expect_closed()
    connected(version).publish(topic, "x", 1)
    assert second.messages(1)[0].payload == b"x"


def test_unsubscribing_lasts(connected, lasting, topic, version, client_id):
    first = lasting(version, client_id)
    first.subscribe(topic, 1)
    first.unsubscribe(topic)
    first.leave()
    connected(version).publish(topic, "x", 1)
    again = lasting(version, client_id)
    assert again.connack.session_present
    again.expect_nothing_before_ping()


def test_versions_share_sessions(connected, lasting, topic, client_id):
    first = lasting(4, client_id)
    first.subscribe(topic, 1)
    first.leave()
    connected(5).publish(topic, "x", 1)
    again = lasting(5, client_id)
    assert again.connack.session_present
    assert again.messages(1)[0].payload == b"x"


def test_expired_messages_leave_the_queue(connected, lasting, topic, client_id):
    """[MQTT-3.3.2-5], and [MQTT-3.3.2-6] of one that still lives."""
    first = lasting(5, client_id)
    first.subscribe(topic, 1)
    first.leave()
    publisher = connected(5)
    publisher.publish(topic, "short", 1, properties={"message_expiry_interval": 1})
    publisher.publish(topic, "long", 1, properties={"message_expiry_interval": 100})
    threading.Event().wait(2.1)
    packet = lasting(5, client_id).messages(1)[0]
    assert packet.payload == b"long"
    assert 90 <= packet.properties["message_expiry_interval"] <= 98
