"""pgmqtt.clear_retained(): gone from the broker's memory and from its table, and everybody hears."""

import threading

import psycopg2
import pytest

from harness.rawmqtt import RawClient


def retained(server, topic):
    return server.psql(f"SELECT count(*) FROM pgmqtt.retained WHERE topic LIKE '{topic}%'")


def test_what_matches_is_cleared_and_subscribers_are_told(server, raw, sub, topic):
    publisher = raw()
    publisher.connect()
    for name in ("a", "a/b", "a/b/c", "x/b"):
        publisher.publish(f"{topic}/{name}", "v", qos=1, retain=True)
    assert len(sub.messages(4)) == 4 and retained(server, topic) == "4"
    assert server.psql(f"SELECT pgmqtt.clear_retained('{topic}/+/b')") == "2"
    assert retained(server, topic) == "2", "it is stored when it is said"
    told = {(packet.topic, packet.payload) for packet in sub.messages(2)}
    assert told == {(f"{topic}/a/b", b""), (f"{topic}/x/b", b"")}
    late = raw()
    late.connect()
    late.subscribe(f"{topic}/#")
    assert {packet.topic for packet in late.until_ping()} == {f"{topic}/a", f"{topic}/a/b/c"}
    assert server.psql(f"SELECT pgmqtt.clear_retained('{topic}/#')") == "2"
    assert server.psql(f"SELECT pgmqtt.clear_retained('{topic}/#')") == "0"


def test_cleared_stays_cleared_over_a_crash(new_server):
    server = new_server().start()
    server.psql("SELECT pgmqtt.publish('a/' || i, 'v'::text, 1, true) FROM generate_series(1, 10) i")
    server.wait_for(lambda: retained(server, "a/") == "10", "they are stored")
    assert server.psql("SELECT pgmqtt.clear_retained('a/#')") == "10"
    server.kill9(everyone=True)
    server.start()
    assert retained(server, "a/") == "0"
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("a/#")
        assert client.until_ping() == []


def test_many_are_cleared_while_others_are_served(new_server):
    """More than fit a turn; a subscriber gets an empty message for each, one in flight at a time."""
    server = new_server().start()
    count = 30000
    server.psql(f"SELECT pgmqtt.publish('a/' || i, 'v'::text, 0, true) FROM generate_series(1, {count}) i")
    server.wait_for(lambda: retained(server, "a/") == str(count), "they are stored", 60)
    cleared = []
    clearing = threading.Thread(
        target=lambda: cleared.append(server.psql("SELECT pgmqtt.clear_retained('+/+')")))
    with RawClient(server.mqtt_port, timeout=60) as client:
        client.connect()
        client.subscribe("a/#", 0x20)  # nothing of what is there
        clearing.start()
        told = 0
        while told < count:
            packets = client.until_ping()
            assert all(packet.payload == b"" for packet in packets)
            told += len(packets)
    clearing.join()
    assert cleared == [str(count)]
    assert retained(server, "a/") == "0"


def test_errors(server, name, topic):
    server.psql(f"CREATE ROLE {name}_user LOGIN")
    for sql, user, message in (
            ("SELECT pgmqtt.clear_retained('a/#/b')", "postgres", "not a valid MQTT topic filter"),
            ("SELECT pgmqtt.clear_retained('')", "postgres", "not a valid MQTT topic filter"),
            ("SELECT pgmqtt.clear_retained('$share/g/a')", "postgres", "not a valid MQTT topic filter"),
            ("BEGIN READ ONLY; SELECT pgmqtt.clear_retained('a')", "postgres", "read-only"),
            ("SELECT pgmqtt.clear_retained('a')", f"{name}_user", "permission denied")):
        with pytest.raises(RuntimeError, match=message):
            server.psql(sql, user=user)
    assert server.psql("SELECT pgmqtt.clear_retained(NULL) IS NULL") == "t"
    long_filter = f"{topic}/" + "x" * 60000
    assert server.psql(f"SELECT pgmqtt.clear_retained('{long_filter}')") == "0"


def test_it_waits_as_long_as_the_table_is_locked_and_can_be_cancelled(new_server):
    server = new_server().start()
    server.psql("SELECT pgmqtt.publish('a', 'v'::text, 1, true)")
    server.wait_for(lambda: retained(server, "a") == "1", "it is stored")
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.retained_message IN SHARE MODE")
    patient, cleared = server.connect(), []

    def clear():
        with patient.cursor() as cursor:
            cursor.execute("SELECT pgmqtt.clear_retained('#')")
            cleared.extend(cursor.fetchone())

    clearing = threading.Thread(target=clear)
    clearing.start()
    server.wait_for(lambda: server.psql("SELECT retained FROM pgmqtt.stat_broker") == "0",
                    "the broker has cleared it")
    waited = ("SELECT now() - query_start > interval '7 s' FROM pg_stat_activity"
              f" WHERE pid = {patient.get_backend_pid()} AND state = 'active'")
    server.wait_for(lambda: server.psql(waited) == "t", "it waits longer than a broker may be silent")
    locker.rollback()
    clearing.join(30)
    assert cleared == [1] and retained(server, "a") == "0"

    server.psql("SELECT pgmqtt.publish('a', 'v'::text, 1, true)")
    server.wait_for(lambda: retained(server, "a") == "1", "it is stored again")
    locker.cursor().execute("LOCK TABLE pgmqtt.retained_message IN SHARE MODE")
    with pytest.raises(psycopg2.errors.QueryCanceled), patient.cursor() as cursor:
        cursor.execute("SET statement_timeout = '300ms'; SELECT pgmqtt.clear_retained('#')")
    locker.rollback()
    server.wait_for(lambda: retained(server, "a") == "0", "what is begun is cleared all the same")
