"""Sessions that outlive their connection: kept, resumed, shown, ended; over restarts and kills."""

import struct

import pytest

from harness.clients import MosquittoSub, mosquitto_pub
from harness.packets import (DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, frame,
                             publish_frame)
from harness.rawmqtt import Closed, RawClient

ADMINISTRATIVE_ACTION = 0x98
SERVER_BUSY = 0x89
ROWS = """SELECT (SELECT count(*) FROM pgmqtt.session), (SELECT count(*) FROM pgmqtt.session_subscription),
       (SELECT count(*) FROM pgmqtt.message WHERE message_id IN (SELECT message_id FROM pgmqtt.delivery)),
       (SELECT count(*) FROM pgmqtt.delivery),
       (SELECT count(*) FROM pgmqtt.received_packet)"""


def resume(port, client_id, version=5, expiry=3600, **options):
    """A client whose session stays, and whether it was there."""
    client = RawClient(port, version)
    if version == 5:
        options["properties"] = {"session_expiry_interval": expiry}
    connack = client.connect(client_id, clean=False, **options)
    assert connack.code == 0
    return client, connack.session_present


def subscribed(port, client_id, topic_filter, qos=1, **options):
    """A session that is subscribed and waits without its client."""
    client, present = resume(port, client_id, **options)
    assert not present
    assert client.subscribe(topic_filter, qos).codes == bytes([qos])
    client.disconnect()


def acknowledge(client, packet_type, packet_id):
    client.send(frame(packet_type, 2 if packet_type == PUBREL else 0, struct.pack(">H", packet_id)))


def take(client, count):
    """The next messages, acknowledged to the end; their payloads."""
    payloads, open_identifiers = [], set()
    while len(payloads) < count or open_identifiers:
        packet = client.receive()
        if packet.type == PUBREL:
            open_identifiers.remove(packet.packet_id)
            acknowledge(client, PUBCOMP, packet.packet_id)
            continue
        assert packet.type == PUBLISH, packet
        payloads.append(packet.payload.decode())
        if packet.qos == 1:
            client.puback(packet.packet_id)
        elif packet.qos == 2:
            open_identifiers.add(packet.packet_id)
            acknowledge(client, PUBREC, packet.packet_id)
    return payloads


def publish_2(client, topic, payload):
    packet_id = client.next_id()
    client.send(publish_frame(topic, payload, 2, packet_id=packet_id, version=client.version))
    assert client.expect(PUBREC).code < 0x80
    acknowledge(client, PUBREL, packet_id)
    assert client.expect(PUBCOMP).packet_id == packet_id


def publish_all(port, topic, payloads, qos=1):
    with RawClient(port) as client:
        client.connect()
        for payload in payloads:
            if qos == 2:
                publish_2(client, topic, payload)
            else:
                client.publish(topic, payload, qos)


def numbers(first, last):
    return [str(number) for number in range(first, last)]


@pytest.mark.protocol
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_missed_comes_in_order(broker, topic, version, qos):
    client_id = topic.replace("/", "-")
    subscribed(broker.mqtt_port, client_id, topic, qos, version=version)
    publish_all(broker.mqtt_port, topic, numbers(0, 50), qos)
    client, present = resume(broker.mqtt_port, client_id, version)
    with client:
        assert present
        assert take(client, 50) == numbers(0, 50)
        client.expect_nothing_before_ping()


@pytest.mark.protocol
def test_real_clients_resume(broker, topic):
    client_id = topic.replace("/", "-")
    options = ("-c", "-i", client_id, "-x", "3600")
    with MosquittoSub(broker.mqtt_port, topic, *options):
        pass
    for payload in numbers(0, 5):
        mosquitto_pub(broker.mqtt_port, topic, payload)
    with MosquittoSub(broker.mqtt_port, topic, *options) as sub:
        assert sub.inbox.payloads(5) == numbers(0, 5)


def restart(server, how):
    if how.startswith("kill"):
        server.kill9(everyone=how == "kill-all")
        server.start()
    else:
        server.restart(how)


@pytest.mark.parametrize("how", ["fast", "immediate", "kill-postmaster", "kill-all"])
def test_a_session_survives_a_restart(new_server, topic, how):
    server = new_server().start()
    for qos in (1, 2):
        subscribed(server.mqtt_port, f"qos-{qos}", topic, qos)
    publish_all(server.mqtt_port, topic, numbers(0, 30), 2)
    restart(server, how)
    publish_all(server.mqtt_port, topic, numbers(30, 40), 2)
    for qos in (1, 2):
        client, present = resume(server.mqtt_port, f"qos-{qos}")
        with client:
            assert present
            assert take(client, 40) == numbers(0, 40)
            client.expect_nothing_before_ping()
    server.wait_for(lambda: server.psql(ROWS) == "2|2|0|0|0", "nothing is left of the queue")


@pytest.mark.parametrize("how", ["fast", "kill-all"])
def test_the_unacknowledged_come_again_with_their_identifiers(new_server, topic, how):
    server = new_server().start()
    client, _ = resume(server.mqtt_port, "one")
    client.subscribe(topic, 2)
    publish_all(server.mqtt_port, topic, ["a", "b"], 2)
    first, second = client.expect(PUBLISH), client.expect(PUBLISH)
    acknowledge(client, PUBREC, first.packet_id)
    assert client.expect(PUBREL).packet_id == first.packet_id
    restart(server, how)
    client.close()
    client, present = resume(server.mqtt_port, "one")
    with client:
        assert present
        again = sorted((client.receive() for _ in range(2)), key=lambda packet: packet.type)
        assert [(packet.type, packet.packet_id) for packet in again] == [
            (PUBLISH, second.packet_id), (PUBREL, first.packet_id)]
        assert again[0].dup and again[0].payload == b"b"
        acknowledge(client, PUBCOMP, first.packet_id)
        acknowledge(client, PUBREC, second.packet_id)
        assert client.expect(PUBREL).packet_id == second.packet_id
        acknowledge(client, PUBCOMP, second.packet_id)
        client.expect_nothing_before_ping()


def test_a_publish_of_qos_2_that_was_received_is_not_taken_twice(new_server, topic):
    server = new_server().start()
    subscribed(server.mqtt_port, "subscriber", topic)
    publisher, _ = resume(server.mqtt_port, "publisher")
    publisher.send(publish_frame(topic, "once", 2, packet_id=7))
    assert publisher.expect(PUBREC).packet_id == 7
    server.kill9(everyone=True)
    publisher.close()
    server.start()
    publisher, present = resume(server.mqtt_port, "publisher")
    with publisher:
        assert present
        publisher.send(publish_frame(topic, "once", 2, packet_id=7, dup=True))
        assert publisher.expect(PUBREC).packet_id == 7
        acknowledge(publisher, PUBREL, 7)
        assert publisher.expect(PUBCOMP).packet_id == 7
        publisher.send(publish_frame(topic, "next", 2, packet_id=7))
        assert publisher.expect(PUBREC).packet_id == 7
    client, _ = resume(server.mqtt_port, "subscriber")
    with client:
        assert take(client, 2) == ["once", "next"]
        client.expect_nothing_before_ping()


@pytest.mark.parametrize("worker", ["pgmqtt broker", "pgmqtt store"])
def test_a_session_survives_a_worker(new_server, topic, worker):
    server = new_server().start()
    subscribed(server.mqtt_port, "one", topic, 2)
    for round_number in range(3):
        publish_all(server.mqtt_port, topic, numbers(round_number * 10, round_number * 10 + 10), 2)
        before = server.worker_pid(worker)
        server.psql(f"SELECT pg_terminate_backend({before})")
        server.wait_for(lambda: server.worker_pid(worker) not in (None, before), f"{worker} again")
        server.wait_listening()
    client, present = resume(server.mqtt_port, "one")
    with client:
        assert present
        assert take(client, 30) == numbers(0, 30)
        client.expect_nothing_before_ping()


def test_views_show_sessions(new_server):
    server = new_server().start()
    port = server.mqtt_port
    sessions = """SELECT client_id, username, connected, disconnected_at IS NULL, subscriptions, queued,
        queued_bytes, oldest_queued_at > created_at, expires_at - disconnected_at
        FROM pgmqtt.sessions ORDER BY 1"""
    subscribed(port, "away", "a/+", expiry=60)
    publish_all(port, "a/b", ["12345", "67890"])
    here, _ = resume(port, "here", expiry=0xFFFFFFFF)
    here.subscribe("c/#", 2 | 4 | 8, {"subscription_identifier": 5})
    server.wait_for(lambda: server.psql(sessions).splitlines() == [
        "away||f|f|1|2|16|t|00:01:00", "here||t|t|1|0|0||"], "sessions")
    assert server.psql("SELECT * FROM pgmqtt.subscriptions ORDER BY 1").splitlines() == [
        "away|a/+|1|f|f|0||", "here|c/#|2|t|t|0|5|"]
    assert server.psql("""BEGIN; UPDATE pgmqtt.session_subscription SET filter = '$share/group/a/+'
        WHERE subscription_id = 0; SELECT filter, share_group FROM pgmqtt.subscriptions
        WHERE client_id = 'away'; ROLLBACK""") == "a/+|group"
    for role in ("pgmqtt_monitor", "pg_monitor", "pgmqtt_admin"):
        assert server.psql(f"SET ROLE {role}; SELECT count(*) FROM pgmqtt.sessions s "
                           "JOIN pgmqtt.subscriptions USING (client_id)") == "2"
    here.unsubscribe("c/#")
    server.wait_for(lambda: server.psql("SELECT client_id FROM pgmqtt.subscriptions") == "away",
                    "unsubscribed")
    here.close()


def test_sessions_end(new_server):
    """By their expiry, by a clean start, by their client."""
    server = new_server().start()
    port = server.mqtt_port
    for client_id, expiry in (("short", 1), ("cleaned", 3600), ("leaves", 3600)):
        subscribed(port, client_id, "#", expiry=expiry)
    publish_all(port, "x", numbers(0, 10))
    with RawClient(port) as client:
        assert client.connect("cleaned", clean=True).session_present is False
    client, present = resume(port, "leaves", expiry=3600)
    assert present
    client.send(frame(DISCONNECT, 0, b"\0\x05\x11\0\0\0\0"))  # Session Expiry Interval 0
    server.wait_for(lambda: server.psql(ROWS) == "0|0|0|0|0", "all have ended")
    client.close()
    for client_id in ("short", "cleaned", "leaves"):
        client, present = resume(port, client_id)
        assert not present
        client.close()


def test_delete_session(new_server):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", "#")
    here, _ = resume(port, "here")
    here.subscribe("#", 1)
    publish_all(port, "x", ["1"])
    server.wait_for(lambda: server.psql(ROWS) == "2|2|1|2|0", "two sessions")
    server.psql("BEGIN; SELECT pgmqtt.delete_session('away'); ROLLBACK;")
    server.psql("SET ROLE pgmqtt_admin; SELECT pgmqtt.delete_session('away');"
                "SELECT pgmqtt.delete_session('nobody'); SELECT pgmqtt.delete_session('here')")
    server.wait_for(lambda: server.psql(ROWS) == "0|0|0|0|0", "no session")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.command") == "0", "no command")
    assert [packet.code for packet in here.expect_closed() if packet.type == DISCONNECT] \
        == [ADMINISTRATIVE_ACTION]
    client, present = resume(port, "away")
    assert not present
    client.close()


def test_disconnect(new_server):
    server = new_server().start()
    port = server.mqtt_port
    client, _ = resume(port, "one")
    server.psql("BEGIN; SELECT pgmqtt.disconnect('one'); ROLLBACK;")
    client.expect_nothing_before_ping()
    for call, code in (("'one'", ADMINISTRATIVE_ACTION), (f"'one', {SERVER_BUSY}", SERVER_BUSY)):
        server.psql(f"SET ROLE pgmqtt_admin; SELECT pgmqtt.disconnect({call})")
        assert [packet.code for packet in client.expect_closed()] == [code]
        client, present = resume(port, "one")
        assert present
    client.close()
    with pytest.raises(RuntimeError, match="22023.*reason 0 is not a reason"):
        server.psql("SELECT pgmqtt.disconnect('one', 0)")
    with pytest.raises(RuntimeError, match="42501"):
        server.psql("CREATE ROLE nobody; SET ROLE nobody; SELECT pgmqtt.disconnect('one')")


def test_a_locked_table_withholds_acknowledgements(new_server, topic):
    """Of what is queued; QoS 0 and a publisher whom no session concerns go on."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", f"{topic}/queued")
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.message")
    with RawClient(port) as publisher, RawClient(port) as watcher:
        publisher.connect()
        watcher.connect()
        watcher.subscribe(f"{topic}/live")
        for number in range(1, 21):
            publisher.send(publish_frame(f"{topic}/queued", str(number), 1, packet_id=number))
        store = f"pid = {server.worker_pid('pgmqtt store')}"
        server.wait_for(lambda: server.psql(
            f"SELECT count(*) FROM pg_stat_activity WHERE {store} AND wait_event_type = 'Lock'")
            == "1", "the store waits for the lock")
        for number in range(100):
            watcher.publish(f"{topic}/live", str(number), 0)
            assert watcher.expect(PUBLISH).payload.decode() == str(number)
        assert watcher.publish(f"{topic}/other", "x", 1).code < 0x80
        publisher.expect_nothing_before_ping()
        locker.rollback()
        assert [publisher.expect(PUBACK).packet_id for _ in range(20)] == list(range(1, 21))
    locker.close()
    client, _ = resume(port, "away")
    with client:
        assert take(client, 20) == numbers(1, 21)


def test_a_cancelled_store_tries_again(new_server, topic):
    """An ERROR while it writes: one line in the log, no acknowledgement lost."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.message")
    store = server.worker_pid("pgmqtt store")
    with RawClient(port) as publisher:
        publisher.connect()
        publisher.send(publish_frame(topic, "1", 1, packet_id=1))
        waiting = f"""SELECT count(*) FROM pg_stat_activity
            WHERE pid = {store} AND wait_event_type = 'Lock'"""
        for _ in range(3):
            server.wait_for(lambda: server.psql(waiting) == "1", "the store waits for the lock")
            server.psql(f"SELECT pg_cancel_backend({store})")
            server.wait_for(lambda: server.psql(waiting) == "0", "it was cancelled")
        locker.rollback()
        assert publisher.expect(PUBACK).packet_id == 1
    locker.close()
    assert server.worker_pid("pgmqtt store") == store
    assert server.log_text().count("pgmqtt store could not write") == 1
    assert server.log_text().count("pgmqtt store can write again") == 1
    client, _ = resume(port, "away")
    with client:
        assert take(client, 1) == ["1"]


def test_a_new_broker_waits_for_what_the_old_one_sent(new_server, topic):
    """The store hangs in a lock with the old broker's batch when the new broker starts."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    publish_all(port, topic, numbers(0, 5))
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.message IN SHARE MODE")  # may be read
    with RawClient(port) as publisher:
        publisher.connect()
        publisher.send(publish_frame(topic, "5", 1, packet_id=1))
        server.wait_for(lambda: server.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgmqtt store' "
            "AND wait_event_type = 'Lock'") == "1", "the store waits for the lock")
        before = server.worker_pid("pgmqtt broker")
        server.psql(f"SELECT pg_terminate_backend({before})")
        with pytest.raises((Closed, TimeoutError)):
            while True:
                publisher.receive(20)
    server.wait_for(lambda: server.worker_pid("pgmqtt broker") not in (None, before), "new broker")
    assert not server.listening()
    locker.rollback()
    locker.close()
    server.wait_listening()
    publish_all(port, topic, numbers(6, 10))
    client, present = resume(port, "away")
    with client:
        assert present
        got = take(client, 9)
        if "5" in got:  # it was not acknowledged: both are right
            got += take(client, 1)
        assert got in (numbers(0, 10), numbers(0, 5) + numbers(6, 10))
        client.expect_nothing_before_ping()
