"""Rows become messages: pgmqtt.add_mapping."""

import json

import pytest


def wait_until_decoded(server):
    """The slot has passed all that is committed now."""
    now = server.psql("SELECT pg_current_wal_flush_lsn()")
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pg_replication_slots WHERE plugin ="
                                        f" 'pgmqtt' AND confirmed_flush_lsn >= '{now}'") == "1",
                    "the slot follows")


def test_insert_update_delete(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}',
            $$'{topic}/' || lower(op) || '/' || coalesce(new.id, old.id)$$);
        INSERT INTO {name} VALUES (1, 'a');
        UPDATE {name} SET v = 'b' WHERE id = 1;
        DELETE FROM {name} WHERE id = 1;""")
    assert sub.json_message() == (f"{topic}/insert/1", {"id": 1, "v": "a"})
    assert sub.json_message() == (f"{topic}/update/1", {"id": 1, "v": "b"})
    deleted, old = sub.json_message()
    assert (deleted, old["id"]) == (f"{topic}/delete/1", 1)


def test_the_default_payload_is_typed_json(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int, n numeric, f float8, b boolean, t text, at timestamptz,
                             j jsonb, a int[], nothing text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$);
        INSERT INTO {name} VALUES (1, 12345678901234567890.5, 1.5, true, 'it''s', '2026-01-02T03:04Z',
                                   '{{"k": [1, null]}}', '{{1,NULL}}', NULL);""")
    packet = sub.message()
    row = json.loads(packet.payload)
    assert row.pop("at").startswith("2026-01-0")
    assert row == {"id": 1, "n": 12345678901234567890.5, "f": 1.5, "b": True, "t": "it's",
                   "j": {"k": [1, None]}, "a": [1, None], "nothing": None}
    assert b"12345678901234567890.5" in packet.payload, "numeric is exact"


def test_expressions_make_topic_and_payload(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (site text, celsius float8);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || new.site$$,
            payload => $$jsonb_build_object('f', new.celsius * 9 / 5 + 32)$$,
            filter => $$new.celsius > 0$$);
        INSERT INTO {name} VALUES ('cold', -5), ('unknown', NULL), ('warm', 20);""")
    assert sub.json_message() == (f"{topic}/warm", {"f": 68}), "the filter drops false and NULL"
    sub.expect_nothing_before_ping()


def test_operations_are_chosen(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$,
            operations => '{{delete}}');
        INSERT INTO {name} VALUES (1); DELETE FROM {name};""")
    assert sub.message().topic == f"{topic}/DELETE"


def test_order_is_commit_order_and_statement_order(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$, $$new.v::text$$);""")
    first, second = server.connect(autocommit=False), server.connect(autocommit=False)
    for value in (3, 4, 5):
        first.cursor().execute(f"INSERT INTO {name} VALUES ({value})")
    for value in (1, 2):
        second.cursor().execute(f"INSERT INTO {name} VALUES ({value})")
    second.commit()
    first.commit()
    assert [sub.message().payload for _ in range(5)] == [b"1", b"2", b"3", b"4", b"5"]
    for session in (first, second):
        session.close()


def test_a_retained_mapping_keeps_the_row_and_delete_clears_it(server, sub, raw, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}',
            $$'{topic}/' || coalesce(new.id, old.id)$$,
            payload => $$CASE WHEN op <> 'DELETE' THEN new.v END$$, retain => true);
        INSERT INTO {name} VALUES (1, 'kept'), (2, 'gone');
        DELETE FROM {name} WHERE id = 2;""")
    assert [sub.message().payload for _ in range(3)] == [b"kept", b"gone", b""]
    late = raw()
    late.connect()
    late.subscribe(f"{topic}/#")
    packet = late.expect(3)
    assert (packet.payload, packet.retain) == (b"kept", True)
    late.expect_nothing_before_ping()


def test_a_row_that_fails_is_a_dead_letter_and_the_others_go_on(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$, $$(10 / new.v)::text$$);
        INSERT INTO {name} VALUES (1), (0), (2);""")
    assert [sub.message().payload for _ in range(2)] == [b"10", b"5"]
    letter = server.wait_for(lambda: server.psql(
        f"SELECT source, sqlstate FROM pgmqtt.dead_letter WHERE name = '{name}'"), "a dead letter")
    assert letter == "mapping|22012"


@pytest.mark.parametrize("topic_expression,options,message", [
    ("new.nothing", "", "nothing"), ("'a' ||", "", "syntax"), ("1", "", "text|type"),
    ("'a'", ", filter => '1'", "bool"), ("'a'", ", qos => 3", "qos"),
    ("'a'", ", operations => '{upsert}'", "operation|upsert"),
    ("'a'", ", on_error => 'ignore'", "on_error|ignore"),
    ("'a'); DROP TABLE x; --", "", "syntax"),
])
def test_a_wrong_mapping_is_refused_at_creation(server, name, topic_expression, options, message):
    server.psql(f"CREATE TABLE {name} (v int)")
    with pytest.raises(RuntimeError, match=f"(?i)ERROR.*({message})"):
        server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}', $${topic_expression}$${options})")
    assert server.psql(f"SELECT count(*) FROM pgmqtt.mappings WHERE name = '{name}'") == "0"


def test_drop_and_disable_stop_publishing(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$, $$new.v$$);
        INSERT INTO {name} VALUES ('on');""")
    assert sub.message().payload == b"on"
    server.psql(f"SELECT pgmqtt.alter_mapping('{name}', false); INSERT INTO {name} VALUES ('off')")
    wait_until_decoded(server)
    server.psql(f"SELECT pgmqtt.alter_mapping('{name}', true); INSERT INTO {name} VALUES ('again')")
    assert sub.message().payload == b"again"
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}'); INSERT INTO {name} VALUES ('dropped');"
                f"SELECT pgmqtt.publish('{topic}/end', 'end'::text)")
    assert sub.message().payload == b"end"


def test_a_transaction_of_100000_rows_is_complete(server, sub, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/r'$$, $$new.v::text$$, qos => 0);
        INSERT INTO {name} SELECT generate_series(1, 100000);""")
    for n in range(1, 100001):
        assert sub.message().payload == str(n).encode()


def test_mapped_rows_survive_kill_9(new_server, topic, name):
    """Committed, the server killed at once: published after the restart, if not before."""
    from harness.rawmqtt import RawClient

    server = new_server().start()
    server.psql(f"CREATE TABLE {name} (v text PRIMARY KEY);"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}',"
                f"$$'{topic}/' || new.v$$, retain => true)")
    server.psql(f"INSERT INTO {name} SELECT generate_series(1, 100)::text")
    server.kill9(everyone=True)
    server.start()
    wanted = {f"{topic}/{n}" for n in range(1, 101)}
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(f"{topic}/#")
        got = set()
        while got != wanted:
            got.add(client.expect(3).topic)


def test_one_row_in_a_hundred_fails_and_wal_does_not_pile_up(server, sub, topic, name):
    """B11: counted, kept with its LSN and what was known of it; the slot follows."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || CASE WHEN new.id % 100 = 1 THEN 'a+'
            ELSE 'row' END$$, $$(1000 / (new.id % 100))::text$$);
        INSERT INTO {name} SELECT generate_series(1, 1000)""")
    wait_until_decoded(server)
    assert len(sub.messages(980)) == 980
    sub.expect_nothing_before_ping()
    counted = server.psql(f"SELECT status, published, errors FROM pgmqtt.mappings WHERE name = '{name}'")
    assert counted == "streaming|980|20"
    letters = server.psql(f"SELECT sqlstate, count(*), count(lsn), count(topic), min(lsn) = max(lsn)"
                          f" FROM pgmqtt.dead_letter WHERE name = '{name}' GROUP BY 1 ORDER BY 1")
    # Division by zero is found before there is a payload; a bad topic leaves both to be looked at.
    assert letters.splitlines() == ["22012|10|10|10|t", "22023|10|10|10|t"]


def test_what_cannot_be_a_topic_or_a_payload(server, sub, topic, name):
    """B11: too long, too big, no text; each row on its own, the next one is published."""
    server.psql(f"""
        CREATE TABLE {name} (t text, p text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', 'new.t', 'new.p', properties =>
            $$CASE WHEN new.p = 'p' THEN '{{"unknown": 1}}' WHEN new.p = 'q' THEN '[]' END::jsonb$$);
        INSERT INTO {name} VALUES (repeat('x', 70000), ''), ('{topic}/#', ''), ('{topic}/+/a', ''), ('$SYS', ''),
            ('$share/g/x', ''), ('', ''), (NULL, ''), ('{topic}/big', repeat('x', 2000000)), ('{topic}/a', 'p'),
            ('{topic}/a', 'q'), ('{topic}/good', 'good')""")
    assert sub.message().topic == f"{topic}/good"
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'") == "10"
    sub.expect_nothing_before_ping()
