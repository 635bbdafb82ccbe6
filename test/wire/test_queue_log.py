"""The queue as a log: segments rotate, are truncated and cleaned; hands of a DBA; durability."""

import pytest

from harness.packets import PUBACK, PUBLISH, publish_frame
from harness.rawmqtt import RawClient

MEGABYTE = 1 << 20
SIZE = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE i.inhparent IN ('pgmqtt.message'::regclass, 'pgmqtt.queue_log'::regclass)"""
QUEUED = "SELECT count(*) FROM pgmqtt.delivery"
LOGGED = "SELECT count(*) FROM pgmqtt.delivery WHERE logged"
# Segments with something in them, oldest first.
SEGMENTS = """SELECT regexp_replace(tableoid::regclass::text, '.*queue_', '') FROM pgmqtt.queue_log
    GROUP BY tableoid ORDER BY min(batch)"""


def resume(port, client_id):
    client = RawClient(port, timeout=30)
    connack = client.connect(client_id, clean=False, properties={"session_expiry_interval": 3600})
    assert connack.code == 0
    return client, connack.session_present


def subscribed(port, client_id, *filters, qos=1):
    client, present = resume(port, client_id)
    assert not present
    for topic_filter in filters:
        client.subscribe(topic_filter, qos)
    client.leave()


def fill(port, topic, numbers, size, window=100):
    """QoS 1 messages that begin with their number, a window at a time."""
    padding = b"." * (size - 8)
    numbers = list(numbers)
    with RawClient(port, timeout=60) as client:
        client.connect()
        for start in range(0, len(numbers), window):
            some = numbers[start:start + window]
            client.send(b"".join(
                publish_frame(topic, b"%08d" % number + padding, 1, packet_id=at, version=5)
                for at, number in enumerate(some, 1)))
            for at in range(1, len(some) + 1):
                answer = client.expect(PUBACK)
                assert (answer.packet_id, answer.code < 0x80) == (at, True)


def drain(port, client_id, count):
    """The numbers of the next messages."""
    client, present = resume(port, client_id)
    assert present
    taken = []
    with client:
        while len(taken) < count:
            packet = client.expect(PUBLISH)
            taken.append(int(packet.payload[:8]))
            client.puback(packet.packet_id)
        client.leave()
    return taken


def wait_stored_as(server, topic, logged):
    """Until the broker follows what was said of this topic, which a session of its own sees."""
    subscribed(server.mqtt_port, "probe", topic)

    def last_one():
        fill(server.mqtt_port, topic, [0], 10)
        return server.psql("""SELECT logged FROM pgmqtt.delivery JOIN pgmqtt.session USING (session_id)
            WHERE client_id = 'probe' ORDER BY sequence DESC LIMIT 1""")

    server.wait_for(lambda: last_one() == logged, f"messages are stored as logged = {logged}")
    server.psql("SELECT pgmqtt.delete_session('probe')")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.session WHERE client_id = 'probe'")
                    == "0", "the probe is gone")


def size_of(server):
    return int(server.psql(SIZE))


def wait_small(server, most=18 * MEGABYTE):
    server.wait_for(lambda: size_of(server) <= most, "the log is truncated")


BIG = {"pgmqtt.max_queued_bytes": "1GB"}


def test_a_long_queue_rotates_survives_and_is_truncated(new_server, topic):
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    fill(port, topic, range(6000), 10000)
    assert size_of(server) > 55 * MEGABYTE
    assert len(server.psql(SEGMENTS).split()) >= 3
    assert server.psql("SELECT queued, queued_bytes BETWEEN 60000000 AND 61000000, "
                       "oldest_queued_at < now() FROM pgmqtt.sessions") == "6000|t|t"
    assert drain(port, "away", 2500) == list(range(2500))
    server.restart()
    assert drain(port, "away", 1500) == list(range(2500, 4000))
    server.kill9(everyone=True)
    server.start()
    assert drain(port, "away", 2000) == list(range(4000, 6000))
    server.wait_for(lambda: server.psql(QUEUED) == "0", "nothing is queued")
    wait_small(server)
    assert "WARNING" not in server.log_text()


def test_who_looks_does_not_keep_the_log(new_server, topic):
    """An open transaction that has read the views has no lock on the segments."""
    server = new_server().start()
    subscribed(server.mqtt_port, "away", topic)
    fill(server.mqtt_port, topic, range(10), 100)
    looker = server.connect(autocommit=False)
    cursor = looker.cursor()
    cursor.execute("SELECT * FROM pgmqtt.sessions")
    cursor.execute("SELECT * FROM pgmqtt.delivery")
    assert server.psql("""SELECT count(*) FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation
        WHERE i.inhparent IN ('pgmqtt.message'::regclass, 'pgmqtt.queue_log'::regclass)""") == "0"
    looker.close()


def test_one_stuck_session_does_not_keep_the_log(new_server, topic):
    """The first message of everything is never taken: it moves, and the rest is truncated."""
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "stuck", f"{topic}/first")
    subscribed(port, "live", f"{topic}/rest")
    fill(port, f"{topic}/first", [7], 5000)
    for start in range(0, 15000, 3000):
        fill(port, f"{topic}/rest", range(start, start + 3000), 10000)
        assert drain(port, "live", 3000) == list(range(start, start + 3000))
    server.wait_for(lambda: size_of(server) < 100 * MEGABYTE, "the log is cleaned")
    assert server.psql("SELECT queued, queued_bytes > 5000 FROM pgmqtt.sessions "
                       "WHERE client_id = 'stuck'") == "1|t"
    server.restart()
    assert drain(port, "stuck", 1) == [7]


@pytest.mark.parametrize("how", ["VACUUM FULL", "CLUSTER"])
def test_a_rewritten_segment_is_read_again(new_server, topic, how):
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "one", topic)
    subscribed(port, "two", topic)
    fill(port, topic, range(100), 1000)
    assert drain(port, "one", 40) == list(range(40))
    if how == "CLUSTER":
        server.psql("CREATE INDEX by_payload ON pgmqtt.message_1 (md5(payload)); "
                    "CLUSTER pgmqtt.message_1 USING by_payload; DROP INDEX pgmqtt.by_payload")
    else:
        server.psql("VACUUM FULL pgmqtt.message_1; VACUUM FULL pgmqtt.queue_1")
    assert server.psql("SELECT count(oldest_queued_at) FROM pgmqtt.sessions") == "2"
    assert drain(port, "one", 60) == list(range(40, 100))
    fill(port, topic, range(100, 120), 1000)
    server.restart()  # the places in the log are still the old ones
    assert drain(port, "two", 120) == list(range(120))
    assert "WARNING" not in server.log_text()


def test_truncated_by_hand(new_server, topic):
    """What is gone is gone, with a line in the log; what comes is delivered."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    fill(port, topic, range(10), 100)
    server.psql("TRUNCATE pgmqtt.message_1")
    fill(port, topic, range(10, 20), 100)
    assert drain(port, "away", 10) == list(range(10, 20))
    assert server.log_text().count("is not in the store any more") == 1
    server.wait_for(lambda: server.psql(QUEUED) == "0", "nothing is queued")


def test_an_index_is_refused_with_a_hint(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    server.psql("CREATE INDEX mine ON pgmqtt.message_1 (message_id)")
    with RawClient(port) as client:
        client.connect()
        client.send(publish_frame(topic, "%08d" % 1, 1, packet_id=1))
        server.wait_for(lambda: "has an index or a trigger" in server.log_text(), "a line")
        server.psql("DROP INDEX pgmqtt.mine")
        assert client.expect(PUBACK).packet_id == 1
    assert server.log_text().count("pgmqtt store could not write") == 1
    assert drain(port, "away", 1) == [1]


def test_a_lock_on_a_segment_is_passed_by(new_server, topic):
    """Of a DBA who looks closely, on the active segment: another one is taken."""
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    fill(port, topic, range(100), 100)
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.message_1, pgmqtt.queue_1 IN SHARE MODE")
    fill(port, topic, range(100, 200), 100)
    assert server.psql(SEGMENTS).split() == ["1", "2"]
    locker.rollback()
    locker.close()
    assert drain(port, "away", 200) == list(range(200))
    assert "could not write" not in server.log_text()


def test_who_locks_all_of_it_is_named(new_server, topic):
    """Acknowledgements wait; the log says once for whom. QoS 0 goes on."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", f"{topic}/queued")
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.message")
    pid = locker.info.backend_pid
    with RawClient(port, timeout=20) as publisher, RawClient(port) as watcher:
        publisher.connect()
        watcher.connect()
        watcher.subscribe(f"{topic}/live")
        publisher.send(publish_frame(f"{topic}/queued", "%08d" % 1, 1, packet_id=1))
        server.wait_for(lambda: f"Process {pid} holds AccessExclusiveLock on pgmqtt.message" in
                        server.log_text(), "the holder is named")
        watcher.publish(f"{topic}/live", "x", 0)
        assert watcher.expect(PUBLISH).payload == b"x"
        publisher.expect_nothing_before_ping()
        locker.rollback()
        assert publisher.expect(PUBACK).packet_id == 1
    locker.close()
    assert server.log_text().count("pgmqtt store could not write") == 1
    assert drain(port, "away", 1) == [1]


def test_a_missing_segment_is_named(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    server.psql("ALTER TABLE pgmqtt.message_1 RENAME TO mine")
    with RawClient(port, timeout=20) as publisher:
        publisher.connect()
        publisher.send(publish_frame(topic, "%08d" % 1, 1, packet_id=1))
        server.wait_for(lambda: 'table "pgmqtt.message_1" of the extension is missing' in
                        server.log_text(), "a line")
        server.psql("ALTER TABLE pgmqtt.mine RENAME TO message_1")
        assert publisher.expect(PUBACK).packet_id == 1
    assert drain(port, "away", 1) == [1]


def test_a_reader_of_the_oldest_segment_delays_only_its_truncation(new_server, topic):
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    reader = server.connect(autocommit=False)
    reader.cursor().execute("SELECT count(*) FROM pgmqtt.message_1")
    for start in range(0, 6000, 2000):
        fill(port, topic, range(start, start + 2000), 10000)
        assert drain(port, "away", 2000) == list(range(start, start + 2000))
    assert size_of(server) > 40 * MEGABYTE
    assert server.psql("SELECT count(*) FROM pgmqtt.message_1") != "0"
    reader.rollback()
    reader.close()
    wait_small(server, 36 * MEGABYTE)
    assert "WARNING" not in server.log_text()


def test_a_held_snapshot_does_not_make_it_grow(new_server, topic):
    server = new_server(conf=BIG).start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    holder = server.connect(autocommit=False)
    holder.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.cursor().execute("SELECT 1")
    largest = 0
    for start in range(0, 12000, 2000):
        fill(port, topic, range(start, start + 2000), 10000)
        assert drain(port, "away", 2000) == list(range(start, start + 2000))
        largest = max(largest, size_of(server))
    assert largest < 60 * MEGABYTE, "120 MB went through"
    holder.close()


def test_messages_are_stored_once_for_all(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    for number in range(5):
        subscribed(port, f"s{number}", topic)
    fill(port, topic, range(10), 100)
    assert server.psql("SELECT count(*) FROM pgmqtt.message") == "10"
    assert server.psql(QUEUED) == "50"


def test_the_store_worker_restarts_alone(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    taken = []
    for start in range(0, 1000, 200):
        fill(port, topic, range(start, start + 200), 200)
        before = server.worker_pid("pgmqtt store")
        server.psql(f"SELECT pg_terminate_backend({before})")
        taken += drain(port, "away", 150)
        server.wait_for(lambda: server.worker_pid("pgmqtt store") not in (None, before), "store")
    taken += drain(port, "away", 250)
    assert taken == list(range(1000))
    server.wait_for(lambda: server.psql(QUEUED) == "0", "nothing is queued")


# ---- durability ----

def test_unlogged_survives_a_clean_restart_only(new_server, topic):
    server = new_server(conf={"pgmqtt.durability": "unlogged"}).start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    fill(port, topic, range(100), 100)
    assert (server.psql(QUEUED), server.psql(LOGGED)) == ("100", "0")
    server.restart()
    assert drain(port, "away", 50) == list(range(50))
    server.kill9(everyone=True)
    server.start()
    assert server.psql(QUEUED) == "0"
    client, present = resume(port, "away")
    with client:
        assert present, "the session is durable in any case"
        client.expect_nothing_before_ping()
        client.leave()
    fill(port, topic, range(100, 110), 100)
    assert drain(port, "away", 10) == list(range(100, 110))


def test_one_message_at_a_time_waits_for_no_tick(new_server, topic):
    """Paced after a burst of 1,000, these would take five minutes."""
    server = new_server(conf={"pgmqtt.tick": "1s"}).start()
    subscribed(server.mqtt_port, "away", topic)
    fill(server.mqtt_port, topic, range(1300), 10, window=1)
    assert server.psql(QUEUED) == "1300"


def test_switching_by_reload_loses_nothing(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic)
    for start, durability, logged in ((0, "unlogged", "f"), (10, "durable", "t"), (20, "async", "t"),
                                      (30, "unlogged", "f")):
        server.configure(pgmqtt__durability=durability)
        server.reload()
        wait_stored_as(server, "probe", logged)
        fill(port, topic, range(start, start + 10), 100)
    assert (server.psql(QUEUED), server.psql(LOGGED)) == ("40", "20")
    server.restart()
    assert drain(port, "away", 40) == list(range(40))


def test_a_rule_for_some_topics(new_server, topic):
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", f"{topic}/#")
    server.psql(f"SELECT pgmqtt.set_durability('{topic}/fast/#', 'unlogged'),"
                " pgmqtt.set_durability('fast/#', 'unlogged')")
    wait_stored_as(server, "fast/probe", "f")
    fill(port, f"{topic}/fast/one", range(10), 100)
    fill(port, f"{topic}/safe", range(10, 20), 100)
    assert server.psql("SELECT count(*) FILTER (WHERE logged), count(*) FROM pgmqtt.delivery") == "10|20"
    server.psql(f"SELECT pgmqtt.set_durability('{topic}/fast/#', NULL),"
                " pgmqtt.set_durability('fast/#', NULL)")
    wait_stored_as(server, "fast/probe", "t")
    fill(port, f"{topic}/fast/one", range(20, 30), 100)
    assert server.psql(LOGGED) == "20"
    assert drain(port, "away", 30) == list(range(30))


def test_a_rule_is_in_force_when_it_is_committed_or_says_that_it_is_not(new_server, topic):
    server = new_server(conf={"pgmqtt.durability": "unlogged"}).start()
    subscribed(server.mqtt_port, "away", topic)
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE pgmqtt.sink")  # the broker reads it along with the rules
    connection = server.connect()
    connection.cursor().execute(f"SELECT pgmqtt.set_durability('{topic}', 'durable')")
    assert "the change is committed, but not in force yet" in connection.notices[-1]
    locker.rollback()
    connection.cursor().execute(f"SELECT pgmqtt.set_durability('{topic}', 'unlogged')")
    connection.cursor().execute(f"SELECT pgmqtt.set_durability('{topic}', 'durable')")
    fill(server.mqtt_port, topic, range(10), 10)
    assert server.psql(LOGGED) == "10"


@pytest.mark.parametrize("arguments, message", [
    ("NULL, 'async'", "22004.*filter must not be null"),
    ("'a/#/b', 'async'", "22023.*invalid topic filter"),
    ("'$share/g/a', 'async'", "22023.*shared subscription"),
    ("'a', 'fast'", "22023.*durability must be"),
    ("'never/added', NULL", "42704.*has no durability of its own")])
def test_wrong_rules_are_refused(server, arguments, message):
    with pytest.raises(RuntimeError, match=f"(?s){message}"):
        server.psql(f"SELECT pgmqtt.set_durability({arguments})")


def test_who_may_set_durability(server):
    with pytest.raises(RuntimeError, match="42501"):
        server.psql("SET ROLE pg_read_all_data; SELECT pgmqtt.set_durability('a', 'async')")
    server.psql("SET ROLE pgmqtt_admin; SELECT pgmqtt.set_durability('a', 'async'); "
                "SELECT pgmqtt.set_durability('a', 'durable'); "
                "SELECT pgmqtt.set_durability('a', NULL)")


def test_exactly_once_survives_with_the_log(new_server, topic):
    """PUBREL outstanding across a restart: the identifier is known, and released."""
    server = new_server().start()
    port = server.mqtt_port
    subscribed(port, "away", topic, qos=2)
    publisher, _ = resume(port, "publisher")
    publisher.send(publish_frame(topic, "%08d" % 1, 2, packet_id=9))
    assert publisher.receive().packet_id == 9
    assert server.psql("SELECT packet_id FROM pgmqtt.received_packet") == "9"
    publisher.close()
    server.restart()
    publisher, present = resume(port, "publisher")
    assert present
    publisher.send(publish_frame(topic, "%08d" % 1, 2, packet_id=9))
    assert publisher.receive().packet_id == 9
    publisher.send_ack(6, 9)
    assert publisher.receive().packet_id == 9
    publisher.leave()
    assert server.psql(QUEUED) == "1"
    assert server.psql("SELECT count(*) FROM pgmqtt.received_packet") == "0"
