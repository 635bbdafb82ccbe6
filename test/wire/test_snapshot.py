"""A table as a tree of retained topics: pgmqtt.snapshot_mapping, in order with the stream."""

import json
import re
import threading
import time

import psycopg2
import pytest

from harness.packets import PUBLISH
from harness.rawmqtt import RawClient
from harness.table_view import View, Writer

TOPIC = "coalesce(new.id, old.id)"


def in_order_after(server, sub, topic):
    """What comes to `sub` before a message published now, on the same way as rows: a table's."""
    server.psql(f"INSERT INTO marks VALUES ('{topic}/end')")
    packets = []
    while (packet := sub.message()).topic != f"{topic}/end":
        packets.append(packet)
    return packets


@pytest.fixture
def marked(server, sub, topic):
    """A table whose rows say how far the stream has come."""
    server.psql("""CREATE TABLE IF NOT EXISTS marks (topic text);
        DO $$BEGIN
            IF NOT EXISTS (SELECT FROM pgmqtt.mapping WHERE name = 'marks') THEN
                PERFORM pgmqtt.add_mapping('marks', 'marks', 'new.topic', operations => '{insert}');
            END IF;
        END$$""")
    return lambda: in_order_after(server, sub, topic)


def test_rows_are_published_in_the_end_of_the_transaction(server, sub, topic, name, marked):
    """Marked as such, once each, and as many as it says."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v text);
        INSERT INTO {name} VALUES (1, 'a'), (2, NULL);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$,
            $$jsonb_build_object('op', op, 'v', new.v, 'old', old IS NULL, 'xid', xid,
                                 'lsn', lsn, 'at', commit_ts)$$)""")
    assert marked() == []
    answer = server.psql(f"""BEGIN; SELECT pg_current_xact_id();
        SELECT pgmqtt.snapshot_mapping('{name}'); INSERT INTO {name} VALUES (3, 'c'); COMMIT""")
    xid, count = answer.splitlines()
    got = [(packet.topic, json.loads(packet.payload)) for packet in marked()]
    assert int(count) == 2
    assert [(where, said["op"], said["v"], said["old"]) for where, said in got] == [
        (f"{topic}/1", "SNAPSHOT", "a", True), (f"{topic}/2", "SNAPSHOT", None, True),
        (f"{topic}/3", "INSERT", "c", True)]
    assert {said["xid"] for _, said in got} == {int(xid)}, "lsn, xid and commit_ts are the transaction's"
    assert all(said["lsn"] and said["at"] for _, said in got)


def test_a_predicate_chooses_rows(server, sub, topic, name, marked):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int);
        INSERT INTO {name} SELECT i, i % 3 FROM generate_series(1, 9) i;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$,
            filter => 'new.id > 3')""")
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}', 'new.v = 0 AND id < 9')") == "2"
    assert [packet.topic for packet in marked()] == [f"{topic}/6"], "the filter holds as well"
    for wrong, message in (("true) OR (true", "syntax"), ("new.nothing", "nothing"), ("1", "boolean")):
        with pytest.raises(RuntimeError, match=f"(?i){message}"):
            server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}', $${wrong}$$)")
    assert marked() == []


def test_what_is_rolled_back_is_not_published(new_server, topic):
    server = new_server(conf={"max_prepared_transactions": 2}).start()
    server.psql(f"""
        CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);
        SELECT pgmqtt.add_mapping('t', 't', $$'{topic}/' || {TOPIC} || '/' || op$$)""")
    take = "SELECT pgmqtt.snapshot_mapping('t', 'id = {}')"
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(f"{topic}/#", 0)
        server.psql(f"BEGIN; {take.format(1)}; ROLLBACK;"
                    f"BEGIN; SAVEPOINT s; {take.format(1)}; ROLLBACK TO s; {take.format(2)}; COMMIT")
        assert client.expect(PUBLISH).topic == f"{topic}/2/SNAPSHOT"
        server.psql(f"BEGIN; {take.format(1)}; PREPARE TRANSACTION 'no';"
                    f"BEGIN; {take.format(1)}; PREPARE TRANSACTION 'yes'")
        writer = server.connect()
        writer.cursor().execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            writer.cursor().execute("INSERT INTO t VALUES (3)")
        client.expect_nothing_before_ping()
        server.stop("fast")
        server.start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(f"{topic}/#", 0)
        server.psql("ROLLBACK PREPARED 'no'")
        server.psql("COMMIT PREPARED 'yes'")
        server.psql("INSERT INTO t VALUES (3)")
        assert client.expect(PUBLISH).topic == f"{topic}/1/SNAPSHOT"
        assert client.expect(PUBLISH).topic == f"{topic}/3/INSERT"


@pytest.mark.parametrize("partitioned", [False, True])
def test_snapshots_among_writers_lose_and_resurrect_nothing(new_server, topic, partitioned):
    """B14: whenever it is taken, whatever is committed meanwhile; the tree is the table."""
    server = new_server(conf={"pgmqtt.max_queued_messages": 2_000_000,
                              "pgmqtt.max_queued_bytes": "1GB"}).start()
    partitions = """PARTITION BY HASH (id);
        CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE t1 (n bigint, id bigint NOT NULL);
        ALTER TABLE t ATTACH PARTITION t1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)"""
    server.psql(f"""
        CREATE SEQUENCE keys; CREATE SEQUENCE age;
        CREATE TABLE t (id bigint PRIMARY KEY, n bigint) {partitions if partitioned else ''};
        INSERT INTO t SELECT nextval('keys'), nextval('age') FROM generate_series(1, 2000);
        SELECT pgmqtt.add_mapping('t', 't', $$'{topic}/' || {TOPIC}$$,
            $$CASE WHEN op <> 'DELETE' THEN jsonb_build_object('n', new.n, 'op', op) END$$,
            retain => true)""")
    assert server.psql("SELECT count(*) FROM pgmqtt.retained") == "0"
    view = View(server.mqtt_port, topic)
    writers = [Writer(server, "t", seed, 250) for seed in range(4)]
    taken = 0
    session = server.connect()
    while any(writer.is_alive() for writer in writers):
        with session.cursor() as cursor:
            part = "new.id % 2 = 0" if taken % 3 == 2 else None
            cursor.execute("SELECT pgmqtt.snapshot_mapping('t', %s)", (part,))
            taken += 1
        writers[0].join(0.2)
    for writer in writers:
        writer.join()
        assert writer.error is None
    assert taken > 2, "the writers wrote while snapshots were taken"
    server.psql(f"CREATE TABLE e (id int);"
                f"SELECT pgmqtt.add_mapping('e', 'e', $$'{topic}/end'$$, operations => '{{insert}}');"
                f"INSERT INTO e VALUES (1)")
    view.join(120)
    assert view.error is None and not view.is_alive()
    table = dict(map(int, line.split("|"))
                 for line in server.psql("SELECT id, n FROM t ORDER BY id").splitlines())
    assert len(table) > 100 and view.gone and view.ops["SNAPSHOT"] > 2000
    assert view.wrong == []
    assert view.rows == table
    retained = dict(map(int, line.split("|")) for line in server.psql(f"""
        SELECT substr(topic, {len(topic) + 2}), convert_from(payload, 'UTF8')::jsonb->>'n'
        FROM pgmqtt.retained WHERE topic LIKE '{topic}/%'
        AND topic <> '{topic}/end'""").splitlines())
    assert retained == table
    assert server.psql("SELECT count(*) FROM pgmqtt.dead_letter") == "0"


def test_a_snapshot_sees_what_was_committed_before_it_got_the_lock(server, sub, topic, name, marked):
    """In any isolation level; a statement's snapshot is taken before it waits for the lock."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int); INSERT INTO {name} VALUES (1, 0), (2, 0);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$, retain => true)""")
    for number, level in enumerate(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"), 1):
        taker, writer = server.connect(autocommit=False), server.connect(autocommit=False)
        taker.cursor().execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        taker.cursor().execute("SELECT 1 FROM pg_class LIMIT 1")
        writer.cursor().execute(f"UPDATE {name} SET v = {number} WHERE id = 1")
        waiting = threading.Thread(target=lambda one=taker: one.cursor().execute(
            f"SELECT pgmqtt.snapshot_mapping('{name}')"))
        waiting.start()
        server.wait_for(lambda: server.psql(
            f"SELECT count(*) FROM pg_locks WHERE relation = '{name}'::regclass AND NOT granted") == "1",
            "the snapshot waits for the writer")
        writer.commit()
        waiting.join()
        taker.commit()
        values = [json.loads(packet.payload)["v"] for packet in marked()
                  if packet.topic == f"{topic}/1"]
        assert values == [number, number], level
        taker.close()
        writer.close()


def test_own_changes_before_and_after_it_in_its_transaction(server, sub, topic, name, marked):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$, $$op$$);
        BEGIN; INSERT INTO {name} VALUES (2); DELETE FROM {name} WHERE id = 1;
        ALTER TABLE {name} ADD COLUMN extra text DEFAULT 'x';
        SELECT pgmqtt.snapshot_mapping('{name}'); DELETE FROM {name}; COMMIT""")
    assert [(packet.topic[-1], packet.payload) for packet in marked()] == [
        ("2", b"INSERT"), ("1", b"DELETE"), ("2", b"SNAPSHOT"), ("2", b"DELETE")]


def test_only_the_mapping_that_is_named_publishes(server, sub, topic, name, marked):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1);
        SELECT pgmqtt.add_mapping('{name}a', '{name}', $$'{topic}/a'$$);
        SELECT pgmqtt.add_mapping('{name}b', '{name}', $$'{topic}/b'$$);
        SELECT pgmqtt.snapshot_mapping('{name}b')""")
    assert [packet.topic for packet in marked()] == [f"{topic}/b"]


def test_messages_that_others_write_publish_nothing(server, sub, topic, name, marked):
    """pg_logical_emit_message() is for everybody, and so is what it can copy out of the WAL."""
    server.psql(f"""
        CREATE ROLE {name}_user LOGIN; GRANT SELECT ON pg_class TO {name}_user;
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$);
        SELECT pg_create_logical_replication_slot('{name}', 'test_decoding');
        SELECT pgmqtt.snapshot_mapping('{name}')""")
    assert len(marked()) == 1
    genuine = server.psql(f"""SELECT data FROM pg_logical_slot_get_binary_changes('{name}', NULL, NULL,
        'force-binary', 'true') WHERE position('pgmqtt.snapshot'::bytea in data) > 0""")
    server.psql(f"SELECT pg_drop_replication_slot('{name}')")
    # message: transactional: 1 prefix: pgmqtt.snapshot, sz: N content: ...
    head, content = bytes.fromhex(genuine[2:]).split(b" content:", 1)
    assert b"prefix: pgmqtt.snapshot" in head and len(content) > 40
    with pytest.raises(RuntimeError, match="permission denied"):
        server.psql("SELECT key FROM pgmqtt.snapshot_key", user=f"{name}_user")
    for forged in (content, b"", bytes(39), bytes(200), content[:41], b"\xff" * 4000):
        for transactional in ("true", "false"):
            server.psql(f"SELECT pg_logical_emit_message({transactional}, 'pgmqtt.snapshot',"
                        f" '\\x{forged.hex()}'::bytea)", user=f"{name}_user")
    assert marked() == []
    assert "pgmqtt ignores a logical decoding message" in server.log_tail(200)


def test_a_row_that_fails_is_a_dead_letter(server, sub, topic, name, marked):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1), (0), (2);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$, $$(10 / new.id)::text$$)""")
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')") == "3"
    assert [packet.payload for packet in marked()] == [b"10", b"5"]
    assert server.psql(f"SELECT sqlstate, lsn IS NOT NULL FROM pgmqtt.dead_letter"
                       f" WHERE name = '{name}'") == "22012|t"


def test_errors_say_what_to_do(server, name):
    server.psql(f"""CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'a'$$);
        SELECT pgmqtt.alter_mapping('{name}', false)""")
    take = f"SELECT pgmqtt.snapshot_mapping('{name}')"
    for sql, message in (
            ("SELECT pgmqtt.snapshot_mapping('nothing')", "does not exist[^$]*HINT"),
            ("SELECT pgmqtt.snapshot_mapping(NULL)", "must not be NULL"),
            (take, f"is off[^$]*HINT.*alter_mapping"),
            (f"BEGIN; SELECT pgmqtt.alter_mapping('{name}', true); {take}",
             "not in force yet[^$]*HINT.*COMMIT"),
            (f"SELECT pgmqtt.alter_mapping('{name}', true); BEGIN READ ONLY; {take}", "read-only"),
            (f"ALTER TABLE {name} RENAME TO {name}_x; DROP TABLE {name}_x; {take}",
             "does not exist any more")):
        with pytest.raises(RuntimeError, match=f"(?s)ERROR.*{message}"):
            server.psql(sql)
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}')")


def test_without_a_stream_it_is_an_error(new_server):
    server = new_server(conf={"wal_level": "replica"}).start()
    server.psql("CREATE TABLE t (id int PRIMARY KEY); SELECT pgmqtt.add_mapping('t', 't', $$'a'$$)")
    with pytest.raises(RuntimeError, match="(?s)wal_level is replica.*HINT"):
        server.psql("SELECT pgmqtt.snapshot_mapping('t')")


def test_a_snapshot_waits_for_nobody_who_waits_for_it(new_server):
    """While the slot waits for a transaction: one that is not of its own would wait for itself."""
    server = new_server().start()
    server.psql("CREATE TABLE t (id int PRIMARY KEY)")
    blocker = server.connect(autocommit=False)
    blocker.cursor().execute("INSERT INTO t VALUES (1)")
    adder = server.connect()
    threading.Timer(0.3, adder.cancel).start()
    adder.cursor().execute("SELECT pgmqtt.add_mapping('t', 't', $$'a'$$)")
    server.wait_for(lambda: "waits for" in server.psql("SELECT message FROM pgmqtt.mappings"),
                    "the slot waits")
    with pytest.raises(psycopg2.Error, match="transaction of its own"):
        blocker.cursor().execute("SELECT pgmqtt.snapshot_mapping('t')")
    blocker.rollback()
    assert server.psql("SELECT pgmqtt.snapshot_mapping('t')") == "0"


def test_who_may(server, sub, topic, name, marked):
    """As alter_mapping: the owner's table is read by the owner; a predicate is the caller's."""
    server.psql(f"""
        CREATE ROLE {name}_admin LOGIN; GRANT pgmqtt_admin TO {name}_admin; CREATE ROLE {name}_nobody LOGIN;
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || current_user$$)""")
    take = f"SELECT pgmqtt.snapshot_mapping('{name}'"
    with pytest.raises(RuntimeError, match="permission denied for function"):
        server.psql(f"{take})", user=f"{name}_nobody")
    with pytest.raises(RuntimeError, match="permission denied for table"):
        server.psql(f"{take}, 'true')", user=f"{name}_admin")
    assert server.psql(f"{take})", user=f"{name}_admin") == "1"
    assert [packet.topic for packet in marked()] == [f"{topic}/postgres"]
    server.psql(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; GRANT SELECT ON {name} TO {name}_admin")
    with pytest.raises(RuntimeError, match="row-level security"):
        server.psql(f"{take}, 'true')", user=f"{name}_admin")


def test_large_rows_and_toasted_values_come_whole(server, sub, topic, name, marked):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, gone text, v text, w text);
        INSERT INTO {name} SELECT i, 'x', (SELECT string_agg(md5(j::text), '') FROM
            generate_series(i, i + 5000) j), repeat('w', 100000) FROM generate_series(1, 3) i;
        ALTER TABLE {name} DROP COLUMN gone;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$);
        SELECT pgmqtt.snapshot_mapping('{name}')""")
    for packet in marked():
        row = json.loads(packet.payload)
        assert set(row) == {"id", "v", "w"} and row["w"] == "w" * 100000
        assert server.psql(f"SELECT md5(v) = md5($${row['v']}$$) FROM {name} WHERE id = {row['id']}") == "t"


def test_an_update_of_the_key_moves_the_retained_message(server, raw, sub, topic, name, marked):
    """Also with the whole old row, and of columns that are not the key where it is known."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, site text);
        CREATE TABLE {name}f (id int PRIMARY KEY, site text);
        ALTER TABLE {name}f REPLICA IDENTITY FULL;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/k/' || {TOPIC}$$, retain => true,
            properties => $$jsonb_build_object('content_type', op)$$);
        SELECT pgmqtt.add_mapping('{name}f', '{name}f',
            $$'{topic}/f/' || coalesce(new.site, old.site) || '/' || {TOPIC}$$, retain => true);
        INSERT INTO {name} VALUES (1, 'a'); INSERT INTO {name}f VALUES (1, 'a');
        UPDATE {name} SET id = 2; UPDATE {name}f SET site = 'b'; UPDATE {name}f SET id = 1""")
    packets = marked()
    got = [(packet.topic[len(topic) + 1:], len(packet.payload) > 0) for packet in packets]
    assert got == [("k/1", True), ("f/a/1", True), ("k/2", True), ("k/1", False),
                   ("f/b/1", True), ("f/a/1", False), ("f/b/1", True)]
    assert [packet.properties["content_type"] for packet in packets if "/k/" in packet.topic] == [
        "INSERT", "UPDATE", "UPDATE"], "the empty one has the properties of its change"
    late = raw()
    late.connect()
    late.subscribe(f"{topic}/+/#")
    seen = sorted(packet.topic for packet in late.until_ping() if packet.topic[-3:] != "end")
    assert seen == [f"{topic}/f/b/1", f"{topic}/k/2"]


def test_a_delete_clears_the_retained_message(server, raw, sub, topic, name, marked):
    """B15."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1), (2);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || {TOPIC}$$, retain => true);
        SELECT pgmqtt.snapshot_mapping('{name}')""")
    assert [bool(packet.payload) for packet in marked()] == [True, True]
    server.psql(f"DELETE FROM {name} WHERE id = 1")
    assert [(packet.topic, packet.payload) for packet in marked()] == [(f"{topic}/1", b"")]
    late = raw()
    late.connect()
    late.subscribe(f"{topic}/#")
    assert [packet.topic for packet in late.until_ping()] == [f"{topic}/2"]


@pytest.mark.parametrize("table,topic_of,error", [
    ("(id int)", "old.id", "does not say which row"),
    ("(id int PRIMARY KEY)", "old.id", None),
    ("(id int PRIMARY KEY); ALTER TABLE {0} REPLICA IDENTITY NOTHING", "old.id", "does not say which row"),
    ("(id int PRIMARY KEY, site text)", "old.site", "does not tell column \"site\""),
    ("(id int PRIMARY KEY, site text)", "coalesce(new.site, old.site)", "does not tell column \"site\""),
    ("(id int PRIMARY KEY, site text); ALTER TABLE {0} REPLICA IDENTITY FULL", "old.site", None),
    ("(id int PRIMARY KEY, site text NOT NULL UNIQUE);"
     " ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_site_key", "old.site", None),
    ("(id int PRIMARY KEY) PARTITION BY HASH (id);"
     "CREATE TABLE {0}p PARTITION OF {0} FOR VALUES WITH (MODULUS 1, REMAINDER 0)", "old.id", None),
    ("(id int PRIMARY KEY) PARTITION BY HASH (id);"
     "CREATE TABLE {0}p PARTITION OF {0} FOR VALUES WITH (MODULUS 1, REMAINDER 0);"
     "ALTER TABLE {0}p REPLICA IDENTITY NOTHING", "old.id", "{0}p.* does not say which row"),
])
def test_what_a_delete_cannot_clear_is_an_error_at_creation(server, name, table, topic_of, error):
    """B15."""
    server.psql(f"CREATE TABLE {name} " + table.format(name))
    add = f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'x/' || {topic_of}$$, retain => true"
    if error is None:
        server.psql(f"{add})")
        return
    with pytest.raises(RuntimeError, match="(?s)ERROR.*" + error.format(name) + ".*HINT"):
        server.psql(f"{add})")
    server.psql(f"{add}, operations => '{{insert,update}}')")


def test_a_committed_snapshot_survives_kill_9(new_server, topic):
    """Published after the restart, if not before, and known as what snapshot_mapping() wrote."""
    server = new_server(conf={"max_prepared_transactions": 1}).start()
    server.psql(f"""
        CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 5000);
        SELECT pgmqtt.add_mapping('t', 't', $$'{topic}/' || {TOPIC}$$, retain => true);
        SELECT pgmqtt.snapshot_mapping('t', 'id <= 2500');
        BEGIN; SELECT pgmqtt.snapshot_mapping('t', 'id > 2500'); PREPARE TRANSACTION 'half'""")
    server.kill9(everyone=True)
    server.start()
    server.psql("COMMIT PREPARED 'half'")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.retained") == "5000",
                    "every row is retained", 60)
    assert "pgmqtt ignores" not in server.log_text()


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="utf8") as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read())[1])


def test_a_large_table_is_bounded_in_memory(new_server, topic):
    """Neither the backend nor the cdc worker holds what is under way: 400,000 rows of 500 bytes."""
    rows = 400_000
    server = new_server(conf={"max_wal_size": "2GB"}).start()
    server.psql(f"""
        CREATE TABLE t (id int PRIMARY KEY, v text);
        INSERT INTO t SELECT i, repeat(md5(i::text), 15) FROM generate_series(1, {rows}) i;
        SELECT pgmqtt.add_mapping('t', 't', $$'{topic}/x'$$, $$new.id::text$$, qos => 0)""")
    session = server.connect()
    with session.cursor() as cursor:
        cursor.execute("SELECT pgmqtt.snapshot_mapping('t', 'id = 0')")
        pids = {"backend": session.get_backend_pid(), "cdc": server.worker_pid("pgmqtt cdc")}
        before = {name: resident_kb(pid) for name, pid in pids.items()}
        peak = dict(before)
        started = time.monotonic()
        taking = threading.Thread(target=cursor.execute,
                                  args=("SELECT pgmqtt.snapshot_mapping('t')",))
        taking.start()
        committed = None
        while server.psql("SELECT published FROM pgmqtt.stat_cdc") != str(rows):
            if committed is None and not taking.is_alive():
                committed = time.monotonic()
            for name, pid in pids.items():
                peak[name] = max(peak[name], resident_kb(pid))
            assert time.monotonic() - started < 120, "all is published"
        taking.join()
        assert cursor.fetchone() == (rows,)
    grown = {name: (peak[name] - before[name]) // 1024 for name in pids}
    print(f"\n{rows} rows: writers held up for {(committed or started) - started:.2f} s, all published"
          f" after {time.monotonic() - started:.2f} s; grown by {grown} MB")
    assert grown["backend"] < 32 and grown["cdc"] < 150


def test_rows_say_their_partition_and_their_place(server, sub, topic, name, marked):
    """partition and seq are as in changes: seq grows, and is the same when the rows come again."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES FROM (0) TO (100);
        CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES FROM (100) TO (1000);
        INSERT INTO {name} SELECT generate_series(0, 999);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || partition$$,
            $$jsonb_build_object('id', new.id, 'seq', seq)$$);
        BEGIN; SELECT pgmqtt.snapshot_mapping('{name}');
        UPDATE {name} SET id = id WHERE id = 5; COMMIT""")
    packets = marked()
    rows = [json.loads(packet.payload) for packet in packets]
    assert sorted(row["id"] for row in rows[:-1]) == list(range(1000)) and rows[-1]["id"] == 5
    assert all(packet.topic == f"{topic}/{name}_{'a' if row['id'] < 100 else 'b'}"
               for packet, row in zip(packets, rows))
    places = [row["seq"] for row in rows]
    assert places == sorted(set(places))
