"""What a changed row looks like as a message: unchanged TOAST, keys, partitions, DDL, TRUNCATE."""

import pytest

from test_mappings import wait_until_decoded

BIG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"  # does not compress


@pytest.fixture
def mapped(server, topic, name):
    """A table with a key and a big value, mapped to its rows' default payload."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, n int, big text);
        ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$);
        INSERT INTO {name} VALUES (1, 1, {BIG})""")
    return name


def test_an_unchanged_toasted_column_is_absent_not_null(server, sub, topic, mapped):
    assert len(sub.json_message()[1]["big"]) == 9600
    server.psql(f"UPDATE {mapped} SET n = 2")
    assert sub.json_message() == (f"{topic}/UPDATE", {"id": 1, "n": 2})
    server.psql(f"UPDATE {mapped} SET big = NULL")
    assert sub.json_message() == (f"{topic}/UPDATE", {"id": 1, "n": 2, "big": None})


def test_with_replica_identity_full_it_comes_from_the_old_row(server, sub, topic, mapped):
    sub.message()
    server.psql(f"ALTER TABLE {mapped} REPLICA IDENTITY FULL; UPDATE {mapped} SET n = 2")
    updated, row = sub.json_message()
    assert (updated, row["n"], len(row["big"])) == (f"{topic}/UPDATE", 2, 9600)


def test_expressions_can_ask_what_is_absent(server, sub, topic, mapped):
    sub.message()
    server.psql(f"""
        SELECT pgmqtt.drop_mapping('{mapped}');
        SELECT pgmqtt.add_mapping('{mapped}', '{mapped}', $$'{topic}/x'$$,
            payload => $$jsonb_build_array(new.big, absent)$$);
        UPDATE {mapped} SET n = 3""")
    assert sub.json_message() == (f"{topic}/x", [None, ["big"]])


def test_delete_shows_the_key_and_nothing_it_does_not_know(server, sub, topic, mapped):
    sub.message()
    server.psql(f"DELETE FROM {mapped}")
    assert sub.json_message() == (f"{topic}/DELETE", {"id": 1})


def test_old_is_there_when_the_key_changes(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$,
            payload => $$jsonb_build_array(old.id, new.id, new.v)$$, operations => '{{update}}');
        INSERT INTO {name} VALUES (1, 1);
        UPDATE {name} SET v = 2;
        UPDATE {name} SET id = 2""")
    assert sub.json_message()[1] == [None, 1, 2]
    assert sub.json_message()[1] == [1, 2, 2]


def test_partitions_publish_as_their_root(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int, part text, v text, PRIMARY KEY (id, part))
            PARTITION BY LIST (part);
        CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN ('a');
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$);
        CREATE TABLE {name}_b (v text, gone int, part text NOT NULL, id int NOT NULL);
        ALTER TABLE {name}_b DROP COLUMN gone;
        INSERT INTO {name}_b (v, part, id) VALUES ('before', 'b', 1);
        ALTER TABLE {name} ATTACH PARTITION {name}_b FOR VALUES IN ('b');
        INSERT INTO {name} VALUES (2, 'a', 'x'), (3, 'b', 'y');
        UPDATE {name} SET part = 'b' WHERE id = 2;
        ALTER TABLE {name} DETACH PARTITION {name}_b;
        INSERT INTO {name}_b (v, part, id) VALUES ('after', 'b', 9);
        INSERT INTO {name} VALUES (4, 'a', 'z')""")
    assert sub.json_message() == (f"{topic}/INSERT", {"id": 2, "part": "a", "v": "x"})
    assert sub.json_message() == (f"{topic}/INSERT", {"id": 3, "part": "b", "v": "y"})
    assert sub.json_message() == (f"{topic}/DELETE", {"id": 2, "part": "a"})
    assert sub.json_message() == (f"{topic}/INSERT", {"id": 2, "part": "b", "v": "x"})
    assert sub.json_message() == (f"{topic}/INSERT", {"id": 4, "part": "a", "v": "z"})


def test_rows_written_in_the_transaction_that_attaches_them(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int) PARTITION BY LIST (id);
        CREATE TABLE {name}_1 (id int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || new.id$$);
        INSERT INTO {name}_1 VALUES (1);
        TRUNCATE {name}_1;
        BEGIN;
        ALTER TABLE {name} ATTACH PARTITION {name}_1 FOR VALUES IN (1);
        INSERT INTO {name} VALUES (1);
        COMMIT""")
    assert sub.message().topic == f"{topic}/1"
    sub.expect_nothing_before_ping()


def test_truncate_is_one_message(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$,
            operations => '{{truncate}}');
        INSERT INTO {name} VALUES (1), (2);
        TRUNCATE {name}""")
    assert sub.message().topic == f"{topic}/TRUNCATE"
    sub.expect_nothing_before_ping()


def test_partitions_say_which_they_are(server, sub, topic, name):
    """B12: also of a sub-partition, and in preview_mapping()."""
    server.psql(f"""
        CREATE TABLE {name} (id int, part text) PARTITION BY LIST (part);
        CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN ('a');
        CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES IN ('b') PARTITION BY LIST (id);
        CREATE TABLE {name}_b1 PARTITION OF {name}_b FOR VALUES IN (1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || partition$$,
                                  operations => '{{insert}}');
        INSERT INTO {name} VALUES (1, 'a'), (1, 'b')""")
    assert [sub.message().topic for _ in range(2)] == [f"{topic}/{name}_a", f"{topic}/{name}_b1"]
    previewed = server.psql(f"SELECT topic FROM pgmqtt.preview_mapping('{name}') ORDER BY 1")
    assert previewed.split() == [f"{topic}/{name}_a", f"{topic}/{name}_b1"]


def test_truncate_of_partitions_says_which(server, sub, topic, name):
    """B12, B13: the topmost of what was emptied is named, once; a mapping of a leaf hears of it, too."""
    server.psql(f"""
        CREATE TABLE {name} (id int, part text) PARTITION BY LIST (part);
        CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN ('a');
        CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES IN ('b') PARTITION BY LIST (id);
        CREATE TABLE {name}_b1 PARTITION OF {name}_b FOR VALUES IN (1);
        CREATE TABLE {name}_b2 PARTITION OF {name}_b FOR VALUES IN (2);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/top/' || partition$$,
                                  operations => '{{truncate}}');
        SELECT pgmqtt.add_mapping('{name}_b1', '{name}_b1', $$'{topic}/leaf/' || partition$$,
                                  operations => '{{truncate}}');
        TRUNCATE {name}_a; TRUNCATE {name}_b; TRUNCATE {name}_b2, {name}_a; TRUNCATE {name}""")
    wait_until_decoded(server)
    got = [sub.message().topic.removeprefix(topic).replace(name, "table") for _ in range(7)]
    assert got[0] == "/top/table_a"
    assert sorted(got[1:3]) == ["/leaf/table_b1", "/top/table_b"]
    assert sorted(got[3:5]) == ["/top/table_a", "/top/table_b2"]
    assert sorted(got[5:7]) == ["/leaf/table_b1", "/top/table"]
    sub.expect_nothing_before_ping()


def test_truncate_cascade_is_one_message_per_table(server, sub, topic, name):
    """B13"""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        CREATE TABLE {name}_child (id int PRIMARY KEY, parent int REFERENCES {name});
        CREATE TABLE {name}_unmapped (parent int REFERENCES {name});
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op || '/parent'$$,
            operations => '{{truncate}}');
        SELECT pgmqtt.add_mapping('{name}c', '{name}_child', $$'{topic}/' || op || '/child'$$,
            operations => '{{truncate}}');
        INSERT INTO {name} VALUES (1); INSERT INTO {name}_child VALUES (1, 1);
        TRUNCATE {name} CASCADE""")
    assert sorted(sub.message().topic for _ in range(2)) == \
        [f"{topic}/TRUNCATE/child", f"{topic}/TRUNCATE/parent"]
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()


def test_chunks_in_a_schema_of_their_own_publish_as_the_root(server, sub, topic, name):
    """B12: children that are named like those of TimescaleDB are nothing special."""
    server.psql(f"""
        CREATE SCHEMA {name}_internal;
        CREATE TABLE {name} (at int NOT NULL, v int) PARTITION BY RANGE (at);
        CREATE TABLE {name}_internal._hyper_1_1_chunk PARTITION OF {name} FOR VALUES FROM (0) TO (10);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$, operations => '{{insert}}');
        INSERT INTO {name} VALUES (1, 1); INSERT INTO {name}_internal._hyper_1_1_chunk VALUES (2, 2)""")
    assert [sub.json_message()[1]["at"] for _ in range(2)] == [1, 2]


def test_ddl_between_writes(server, sub, topic, name):
    """Rows of one round of decoding, written under four shapes of the table."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$);
        BEGIN;
        INSERT INTO {name} VALUES (1, 10);
        ALTER TABLE {name} ADD COLUMN w text DEFAULT 'd';
        INSERT INTO {name} VALUES (2, 20, 'e');
        ALTER TABLE {name} ALTER v TYPE bigint;
        INSERT INTO {name} VALUES (3, 5000000000, 'f');
        ALTER TABLE {name} RENAME v TO value;
        ALTER TABLE {name} DROP COLUMN w;
        INSERT INTO {name} VALUES (4, 40);
        COMMIT""")
    rows = [sub.json_message()[1] for _ in range(4)]
    assert rows == [{"id": 1, "value": 10}, {"id": 2, "value": 20}, {"id": 3, "value": 5000000000},
                    {"id": 4, "value": 40}]


def test_a_mapping_that_lost_its_column_stops_alone_and_visibly(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/v'$$, $$new.v::text$$);
        SELECT pgmqtt.add_mapping('{name}b', '{name}', $$'{topic}/id'$$, $$new.id::text$$);
        ALTER TABLE {name} DROP COLUMN v;
        INSERT INTO {name} VALUES (1), (2)""")
    assert [sub.message().payload for _ in range(2)] == [b"1", b"2"]
    status = server.psql(f"SELECT status, message, errors FROM pgmqtt.mappings WHERE name = '{name}'")
    assert status == "error|column new.v does not exist|2"
    letters = server.psql(f"SELECT count(*), min(sqlstate) FROM pgmqtt.dead_letter"
                          f" WHERE name = '{name}'")
    assert letters == "1|42703", "one letter per transaction"
    server.psql(f"ALTER TABLE {name} ADD COLUMN v int DEFAULT 7; INSERT INTO {name} VALUES (3)")
    assert sorted(sub.message().payload for _ in range(2)) == [b"3", b"7"]
    assert server.psql(f"SELECT status FROM pgmqtt.mappings WHERE name = '{name}'") == "streaming"


def test_a_dropped_table_does_not_stop_the_others(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        CREATE TABLE {name}_b (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/a'$$);
        SELECT pgmqtt.add_mapping('{name}_b', '{name}_b', $$'{topic}/b'$$);
        BEGIN;
        INSERT INTO {name} VALUES (1);
        DROP TABLE {name};
        INSERT INTO {name}_b VALUES (1);
        COMMIT;
        CREATE TABLE {name} (id int PRIMARY KEY);
        INSERT INTO {name} VALUES (2);""")
    assert sub.message().topic == f"{topic}/b"
    sub.expect_nothing_before_ping()
    status = server.psql(f"SELECT status, message FROM pgmqtt.mappings WHERE name = '{name}'")
    assert status.startswith("error|the source table")
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}')")


def test_names_that_need_quotes(server, sub, topic, name):
    server.psql(f"""
        CREATE SCHEMA "S {name}";
        CREATE TABLE "S {name}"."T'x" ("A b" int PRIMARY KEY, "new" text);
        SELECT pgmqtt.add_mapping('{name}', '"S {name}"."T''x"',
            $$'{topic}/' || coalesce(new."A b", old."A b")$$);
        INSERT INTO "S {name}"."T'x" VALUES (5, 'n')""")
    assert sub.json_message() == (f"{topic}/5", {"A b": 5, "new": "n"})


def test_sub_selects_see_the_row_and_the_present(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int);
        CREATE TABLE {name}_names (id int, label text);
        INSERT INTO {name}_names VALUES (1, 'one');
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$,
            payload => $$(SELECT label FROM {name}_names n WHERE n.id = new.id) || '/' ||
                         (SELECT count(*) FROM {name} WHERE v = new.v)$$);
        INSERT INTO {name} VALUES (1, 1);""")
    assert sub.message().payload == b"one/1"


def test_op_lsn_xid_commit_ts(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, xid bigint DEFAULT pg_current_xact_id()::text::bigint,
                             at timestamptz DEFAULT now());
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$,
            payload => $$jsonb_build_array(xid = new.xid, commit_ts >= new.at,
                                           lsn <= pg_current_wal_flush_lsn(), op)$$);
        INSERT INTO {name} VALUES (1)""")
    assert sub.json_message()[1] == [True, True, True, "INSERT"]


def test_properties(server, raw, topic, name):
    client = raw()
    client.connect()
    client.subscribe(f"{topic}/#", 1)
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$,
            properties => $$jsonb_build_object('content_type', 'application/json',
                'user_properties', jsonb_build_object('xid', xid::text))$$);
        INSERT INTO {name} VALUES (1)""")
    packet = client.expect(3)
    assert "application/json" in str(packet.properties) and "xid" in str(packet.properties)


def test_lsn_and_seq_number_the_changes(server, raw, topic, name):
    """Per change one pair that only grows: single rows, COPY, savepoints, two tables, TRUNCATE."""
    client = raw()
    client.connect()
    client.subscribe(f"{topic}/#", 1)
    numbers = """$$jsonb_build_object('user_properties',
        jsonb_build_object('lsn', (lsn - '0/0')::text, 'seq', seq::text))$$"""
    server.psql(f"CREATE TABLE {name} (v int); CREATE TABLE {name}_b (v int);"
                + "".join(f"SELECT pgmqtt.add_mapping('{table}', '{table}', $$'{topic}/x'$$, $$'x'$$,"
                          f" properties => {numbers}, operations => '{{insert,truncate}}');"
                          for table in (name, f"{name}_b")))
    server.psql(f"INSERT INTO {name} VALUES (1);"
                f"BEGIN; INSERT INTO {name} VALUES (2); SAVEPOINT s; INSERT INTO {name}_b VALUES (3);"
                f"RELEASE s; INSERT INTO {name} SELECT generate_series(1, 10);"
                f"COPY {name}_b FROM STDIN;\n" + "".join(f"{n}\n" for n in range(1000)) + "\\.\n"
                f"TRUNCATE {name}, {name}_b; COMMIT; INSERT INTO {name} VALUES (5)")
    pairs = []
    for packet in client.messages(1 + 2 + 10 + 1000 + 2 + 1):
        said = dict(packet.properties["user_property"])
        pairs.append((int(said["lsn"]), int(said["seq"])))
    assert pairs == sorted(set(pairs))
    assert len({lsn for lsn, _ in pairs}) == 3


def test_savepoints_and_rollbacks_publish_what_was_committed(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$, $$new.v::text$$);
        BEGIN; INSERT INTO {name} VALUES (1); SAVEPOINT a; INSERT INTO {name} VALUES (2);
        ROLLBACK TO a; INSERT INTO {name} VALUES (3); COMMIT;
        BEGIN; INSERT INTO {name} VALUES (4); ROLLBACK;
        SET synchronous_commit = off; INSERT INTO {name} VALUES (5);""")
    assert [sub.message().payload for _ in range(3)] == [b"1", b"3", b"5"]


def test_bad_topics_are_dead_letters(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (t text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', 'new.t');
        INSERT INTO {name} VALUES ('{topic}/+'), (''), (NULL), ('$SYS/x'), (repeat('x', 65536)),
            ('{topic}/good')""")
    assert sub.message().topic == f"{topic}/good"
    assert server.psql(f"SELECT string_agg(left(message, 17), '|' ORDER BY id) FROM"
                       f" pgmqtt.dead_letter WHERE name = '{name}'") == \
        "topic contains a |topic is empty|topic is NULL|topic begins with|topic of 65536 by"


def test_a_commit_that_ends_with_its_page_is_no_trouble(server, sub, topic, name):
    """The next record's place is then behind a page header that is not written yet."""
    page, header, probe = 8192, 24, 304
    server.psql(f"CREATE TABLE {name} (v text);"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$, $$new.v$$)")
    cursor = server.connect().cursor()

    def position():
        cursor.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
        return cursor.fetchone()[0]

    def insert(length):
        before = position()
        cursor.execute(f"INSERT INTO {name} VALUES (repeat('x', %s))", (length,))
        assert sub.message().payload == b"x" * length
        return position() - before

    def ends_with_a_page():
        size = insert(probe)
        left = page - position() % page
        if size < left < 1500:
            insert(probe + left - size)
        return position() % page == header

    worker = server.worker_pid("pgmqtt cdc")
    server.wait_for(ends_with_a_page, "a commit ends with its page", 60)
    insert(probe)
    assert server.worker_pid("pgmqtt cdc") == worker


def test_on_conflict_into_unmapped_tables_does_not_stop_the_stream(server, sub, topic, name):
    """Their rows are skipped undecoded; the records that confirm them must be in step with that."""
    server.psql(f"CREATE TABLE {name} (v text); CREATE TABLE {name}_other (k int PRIMARY KEY, v text);"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/x'$$, $$new.v$$)")
    for n in range(5):  # the first lets the decoder know the table, the second is skipped
        server.psql(f"INSERT INTO {name}_other VALUES ({n}, 'a') ON CONFLICT DO NOTHING")
        server.psql(f"INSERT INTO {name}_other VALUES ({n}, 'b')"
                    " ON CONFLICT (k) DO UPDATE SET v = excluded.v")
    server.psql(f"INSERT INTO {name} VALUES ('after')")
    assert sub.message().payload == b"after"
