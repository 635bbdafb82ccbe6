"""What a DBA may do to the tables of the extension: VACUUM FULL, REINDEX, CLUSTER, LOCK, TRUNCATE.

The queue's segments are also in test_queue_log.py.
"""

import re
import threading

import pytest

from harness.packets import (CONNECT, PUBACK, PUBLISH, SUBACK, connect_body, frame,
                             publish_frame)
from harness.rawmqtt import RawClient

TABLES = ["session", "session_subscription", "retained_message", "message_1", "queue_1", "outbox",
          "outbox_commit", "command"]
INDEXES = {"session": "session_pkey", "session_subscription": "session_subscription_session",
           "retained_message": "retained_message_topic_hash", "outbox": "outbox_pkey",
           "outbox_commit": "outbox_commit_pkey", "command": "command_pkey"}
EXPIRY = {"session_expiry_interval": 3600}


def resume(server, client_id, **options):
    client = RawClient(server.mqtt_port, timeout=30)
    connack = client.connect(client_id, clean=False, properties=EXPIRY, **options)
    assert connack.code == 0
    return client, connack.session_present


def away(server, client_id, *filters):
    client, _ = resume(server, client_id)
    for topic_filter in filters:
        client.send_subscribe(topic_filter, 1)
        while (packet := client.receive()).type != SUBACK:
            assert packet.type == PUBLISH  # of its queue
        assert packet.codes == b"\x01"
    client.leave()


def store(server, topic, number, retain=False):
    with RawClient(server.mqtt_port, timeout=30) as client:
        client.connect()
        client.send(publish_frame(topic, str(number), 1, packet_id=1, retain=retain))
        assert client.expect(PUBACK).code < 0x80


def take(server, client_id, count):
    client, present = resume(server, client_id)
    assert present
    taken = []
    with client:
        for _ in range(count):
            packet = client.expect(PUBLISH)
            taken.append(int(packet.payload))
            client.puback(packet.packet_id)
        client.leave()
    return taken


def retained(server, topic):
    with RawClient(server.mqtt_port, timeout=30) as client:
        client.connect()
        client.subscribe(topic, 0)
        return int(client.expect(PUBLISH).payload)


def use_all(server, topic, number):
    """A session, a subscription, a retained message, a queued one, a publish() and a command."""
    away(server, f"s{number}", f"{topic}/queued/#")
    store(server, f"{topic}/queued/one", number)
    store(server, f"{topic}/retained/{number}", number, retain=True)
    server.psql(f"SELECT pgmqtt.publish('{topic}/queued/sql', '{number + 100}', 1)")
    away(server, "passing")
    server.psql("SELECT pgmqtt.delete_session('passing')")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.command") == "0", "the command")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.outbox") == "0", "the outbox")


def rewritten(table):
    statements = [f"VACUUM FULL pgmqtt.{table}", f"REINDEX TABLE pgmqtt.{table}",
                  f"VACUUM FREEZE pgmqtt.{table}"]
    if table in INDEXES:
        statements.append(f"CLUSTER pgmqtt.{table} USING {INDEXES[table]}")
    return statements


def test_rewriting_each_table_is_not_noticed(new_server, topic):
    server = new_server().start()
    number = 0
    expected = []
    away(server, "first", f"{topic}/queued/#")
    willing, _ = resume(server, "willing", will={"topic": f"{topic}/queued/will", "payload": "555",
                                                 "qos": 1})
    for table in TABLES:
        for statement in rewritten(table):
            number += 1
            use_all(server, topic, number)
            server.psql(statement)
            expected += [number, number + 100]
    use_all(server, topic, 99)
    expected += [99, 199, 555]
    assert server.psql("SELECT count(*) FROM pgmqtt.session WHERE will_payload <> ''") == "1"
    server.kill9(everyone=True)
    willing.close()
    server.start()
    assert take(server, "first", len(expected)) == expected
    assert retained(server, f"{topic}/retained/1") == 1
    assert server.psql("SELECT count(*) FROM pgmqtt.sessions") == str(number + 3)
    assert "WARNING" not in server.log_text()


@pytest.mark.parametrize("table", TABLES)
def test_truncated(new_server, topic, table):
    """What was in it may be gone; nobody falls over, and what comes is kept."""
    server = new_server().start()
    away(server, "first", f"{topic}/queued/#")
    use_all(server, topic, 1)
    workers = [server.worker_pid(f"pgmqtt {name}") for name in ("broker", "store")]
    server.psql(f"TRUNCATE pgmqtt.{table}")
    use_all(server, topic, 2)
    assert workers == [server.worker_pid(f"pgmqtt {name}") for name in ("broker", "store")]
    server.restart()
    # Who was there may have to begin anew.
    away(server, "first", f"{topic}/queued/#")
    away(server, "second", f"{topic}/queued/#")
    use_all(server, topic, 3)
    assert take(server, "second", 2) == [3, 103]
    assert retained(server, f"{topic}/retained/2") == 2
    server.restart()
    assert retained(server, f"{topic}/retained/3") == 3
    lines = server.log_text().splitlines()
    assert not [line for line in lines if re.search("pgmqtt .*(could not|ERROR|stopped)", line)]


def in_use(server, topic, table):
    """Something that needs the table, under way; returns what to wait for."""
    client = RawClient(server.mqtt_port, timeout=40)
    if table == "session":
        client.send(connect_frame("new"))
        return client, lambda: client.receive()
    client.connect("busy", clean=False, properties=EXPIRY)
    if table == "session_subscription":
        client.send_subscribe(f"{topic}/more", 1)
    else:
        client.send(publish_frame(f"{topic}/queued/one", "7", 1, packet_id=9,
                                  retain=table == "retained_message"))
    return client, lambda: client.receive()


def connect_frame(client_id):
    return frame(CONNECT, 0, connect_body(client_id, 5, clean=False, properties=EXPIRY))


@pytest.mark.parametrize("table", ["session", "session_subscription", "retained_message"])
def test_a_lock_is_waited_for_and_named(new_server, topic, table):
    """Acknowledgements of what the table holds wait, one line says for whom, QoS 0 goes on."""
    server = new_server().start()
    away(server, "first", f"{topic}/queued/#")
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE pgmqtt.{table}")
    pid = locker.info.backend_pid
    client, answer = in_use(server, topic, table)
    server.wait_for(lambda: f"Process {pid} holds AccessExclusiveLock on pgmqtt.{table}"
                    in server.log_text(), "the holder is named")
    with RawClient(server.mqtt_port) as watcher:
        watcher.connect()
        watcher.subscribe(f"{topic}/live")
        watcher.publish(f"{topic}/live", "x", 0)
        assert watcher.expect(PUBLISH).payload == b"x"
    locker.close()
    assert answer() is not None
    client.close()
    assert server.log_text().count("pgmqtt store could not write") == 1
    server.wait_for(lambda: "pgmqtt store can write again" in server.log_text(), "a line")


@pytest.mark.parametrize("table", ["outbox", "command"])
def test_a_lock_on_what_sql_says_delays_only_that(new_server, topic, table):
    server = new_server().start()
    away(server, "first", f"{topic}/queued/#")
    publisher = RawClient(server.mqtt_port, timeout=3)
    publisher.connect()
    sender = server.connect(autocommit=False)
    sender.cursor().execute(f"SELECT pgmqtt.publish('{topic}/queued/sql', '107', 1)")
    sender.cursor().execute("SELECT pgmqtt.delete_session('nobody')")
    locker = server.connect(autocommit=False)
    lock = threading.Thread(target=lambda: locker.cursor().execute(f"LOCK TABLE pgmqtt.{table}"))
    lock.start()
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1",
                    "the locker waits for the sender")
    commit = threading.Thread(target=sender.commit)  # waits until the commands are carried out
    commit.start()
    lock.join()  # before the store worker, which has something to read now
    for number in range(200):
        publisher.send(publish_frame(f"{topic}/queued/one", str(number), 1, packet_id=1))
        assert publisher.expect(PUBACK).packet_id == 1
    holder = f"Process {locker.info.backend_pid} holds AccessExclusiveLock on pgmqtt.{table}"
    server.wait_for(lambda: holder in server.log_text(), "the holder is named")
    locker.close()
    commit.join()
    sender.close()
    publisher.close()
    assert sorted(take(server, "first", 201)) == sorted([*range(200), 107])
    assert server.log_text().count("WARNING") == 1
