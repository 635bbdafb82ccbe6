"""The statement of a sink: what is computed for it, when it is planned, what it may do (C04, C08)."""

import threading

import pytest

from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import RawClient

LEVEL, PAYLOAD = "l" * 20_000, '"' + "p" * 500_000 + '"'
CONTENT_TYPE, CORRELATION, PROPERTY = "c" * 30_000, b"d" * 25_000, "u" * 35_000
SIZES = {  # of msg: bytes of this message's value
    "a": 20_000, "topic": 20_000, "payload": 500_000, "text": 500_000, "json": 500_000,
    "content_type": 30_000, "response_topic": 15_000, "correlation_data": 25_000,
    "user_properties": 35_000, "client_id": 18_000,
}
USED = "(SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name = 'pgmqtt msg')"


def add_sink(server, name, topic_filter, statement):
    server.psql(f"SELECT pgmqtt.add_sink('{name}', '{topic_filter}', $${statement}$$)")


def test_only_the_columns_that_are_mentioned_are_computed(server, raw, topic, name):
    """The values of msg have a memory context of their own, and the statement itself can see it."""
    server.psql(f"""CREATE TABLE {name} (what text, n int, used int);
        CREATE PROCEDURE {name}_p(v anyelement, what text) LANGUAGE sql AS $p$
            INSERT INTO {name} VALUES (what, 1, {USED}) $p$""")
    for column in [*SIZES, "qos", "received_at", "msg"]:
        add_sink(server, f"{name}_{column}", f"{topic}/{{a}}",
                 f"INSERT INTO {name} SELECT '{column}', count({column}), {USED} FROM msg")
    for column in ("qos", "payload"):
        add_sink(server, f"{name}_call_{column}", f"{topic}/{{a}}",
                 f"CALL {name}_p({column}, 'call {column}')")
    client = raw()
    client.connect("i" * 18_000)
    assert client.publish(f"{topic}/{LEVEL}", PAYLOAD, qos=1, properties={
        "content_type": CONTENT_TYPE, "response_topic": "r" * 15_000,
        "correlation_data": CORRELATION, "user_property": [("u", PROPERTY)]}).code < 0x80
    rows = [row.split("|") for row in server.psql(f"SELECT * FROM {name}").splitlines()]
    assert all(n == "1" for _, n, _ in rows)  # the premise: each of them has a value
    used = {what: int(used) for what, _, used in rows}
    least = used["qos"]
    assert least < 15_000
    assert used["received_at"] < least + 1000 and used["call qos"] < least + 1000
    for column, size in SIZES.items():
        assert size <= used[column] - least < size + 10_000, (column, used)
    assert 500_000 <= used["call payload"] - least < 510_000
    assert used["msg"] >= sum(SIZES.values())


def statistics(server):
    """How often the sink worker has analyzed, and planned, a statement."""
    lines = [line for line in server.log_text().splitlines() if "pgmqtt sink" in line]
    return tuple(sum(kind in line for line in lines)
                 for kind in ("PARSE ANALYSIS STATISTICS", "PLANNER STATISTICS"))


def test_the_statement_is_prepared_once_and_planned_again_after_ddl(new_server):
    server = new_server(conf={"autovacuum": "off", "log_parser_stats": "on",
                              "log_planner_stats": "on"}).start()
    server.psql("""CREATE TABLE t (v text);
        SELECT pgmqtt.add_sink('s', 'x', 'INSERT INTO t (v) SELECT text FROM msg')""")
    with RawClient(server.mqtt_port) as client:
        client.connect()

        def publish(count):
            for n in range(count):
                assert client.publish("x", str(n), qos=1).code < 0x80
            return statistics(server)

        first = publish(1)
        assert min(first) > 0  # the premise: the log has them
        assert publish(20) == first
        server.psql("ALTER TABLE t ADD COLUMN more int DEFAULT 7")
        after_ddl = publish(1)
        assert after_ddl[1] > first[1]
        assert publish(20) == after_ddl
    assert server.psql("SELECT count(*), sum(more) FROM t") == "42|294"


def test_ddl_in_the_middle_of_a_stream_loses_and_doubles_nothing(server, raw, topic, name):
    """C08: with a full window on its way, so that each change meets a batch."""
    server.psql(f"CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, v int)")
    add_sink(server, name, f"{topic}/x", f"INSERT INTO {name} (v) SELECT text::int FROM msg")
    client = raw()
    window = min(50, client.connect().properties["receive_maximum"])
    changes, failed, acknowledged = [], [], threading.Semaphore(0)

    def change():
        session = server.connect()
        try:
            cursor = session.cursor()
            while len(changes) < 10:
                assert acknowledged.acquire(timeout=60)
                number = len(changes)
                cursor.execute(f"ALTER TABLE {name} ADD COLUMN c{number} int DEFAULT {number}")
                cursor.execute(f"ALTER TABLE {name} ALTER v TYPE {('bigint', 'int')[number % 2]}")
                cursor.execute(f"ALTER TABLE {name} DROP COLUMN c{number}")
                changes.append(number)
        except Exception as error:  # shown by the test, which runs in another thread
            failed.append(error)
        finally:
            session.close()

    thread = threading.Thread(target=change)
    thread.start()
    sent = done = 0
    try:
        while thread.is_alive() or done < sent:
            while thread.is_alive() and sent - done < window:
                client.send(publish_frame(f"{topic}/x", str(sent), 1, packet_id=client.next_id()))
                sent += 1
            if done < sent:
                assert client.expect(PUBACK, timeout=30).code < 0x80
                done += 1
            if done % window == 0:
                acknowledged.release()
    finally:
        thread.join()
    assert not failed
    assert server.psql(f"SELECT count(*), count(DISTINCT v), bool_and(v = place) FROM "
                       f"(SELECT v, row_number() OVER (ORDER BY n) - 1 AS place FROM {name}) AS r"
                       ) == f"{sent}|{sent}|t"
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'") == "0"


def test_a_column_that_is_gone_holds_the_messages_until_it_is_back(server, raw, topic, name):
    server.psql(f"CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, v text)")
    add_sink(server, name, f"{topic}/x", f"INSERT INTO {name} (v) SELECT text FROM msg")
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/x", "0", qos=1).code < 0x80
    server.psql(f"ALTER TABLE {name} DROP COLUMN v")
    client.send(b"".join(publish_frame(f"{topic}/x", str(n), 1, packet_id=client.next_id())
                         for n in (1, 2)))
    status = f"SELECT status, message FROM pgmqtt.sinks WHERE name = '{name}'"
    server.wait_for(lambda: server.psql(status) == (
        f'error|column "v" of relation "{name}" does not exist'), "the sink says what is missing")
    client.expect_nothing_before_ping()
    server.psql(f"ALTER TABLE {name} ADD COLUMN v text")
    assert all(client.expect(PUBACK, timeout=40).code < 0x80 for _ in range(2))
    assert server.psql(f"SELECT v FROM {name} WHERE v IS NOT NULL ORDER BY n") == "1\n2"
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'") == "0"


def test_a_column_that_only_rows_miss_makes_dead_letters_for_redrive(server, raw, topic, name):
    """The statement itself works; its trigger reads what is gone."""
    server.psql(f"""
        CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, v text, extra text DEFAULT 'e');
        CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS
            $f$ BEGIN NEW.v := NEW.v || NEW.extra; RETURN NEW; END $f$;
        CREATE TRIGGER t BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_f()""")
    add_sink(server, name, f"{topic}/x", f"INSERT INTO {name} (v) SELECT text FROM msg")
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/x", "0", qos=1).code < 0x80
    server.psql(f"ALTER TABLE {name} DROP COLUMN extra")
    for payload in ("1", "2"):
        assert client.publish(f"{topic}/x", payload, qos=1).code == 0x83
    letters = (f"SELECT convert_from(payload, 'UTF8'), sqlstate FROM pgmqtt.dead_letter"
               f" WHERE name = '{name}' ORDER BY id")
    assert server.psql(letters) == "1|42703\n2|42703"
    server.psql(f"ALTER TABLE {name} ADD COLUMN extra text DEFAULT 'f'")
    assert server.psql(f"SELECT pgmqtt.redrive('{name}')") == "2"
    assert server.psql(letters) == ""
    assert server.psql(f"SELECT v FROM {name} ORDER BY n") == "0e\n1f\n2f"


FORBIDDEN = [
    "SET ROLE postgres", "SET ROLE NONE", "RESET ROLE", "SET SESSION AUTHORIZATION postgres",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT set_config('session_authorization', 'postgres', false)",
    "CREATE TEMP TABLE hidden (v text)", "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "CREATE TABLE {0}_closed.t (v text)", "CREATE FUNCTION {0}_closed.f() RETURNS int LANGUAGE sql"
    " AS 'SELECT 1'", "SELECT * FROM {0}_closed.secret",
    "SET session_replication_role = replica", "COPY {0}.seen TO PROGRAM 'cat'", "CREATE ROLE {0}_more SUPERUSER",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_a_statement_becomes_nobody_and_leaves_nothing_behind(server, raw, topic, name, sql):
    """C04: it runs as its owner in a security-restricted operation."""
    server.psql(f"""
        CREATE SCHEMA {name}_closed; CREATE TABLE {name}_closed.secret (v text);
        CREATE ROLE {name} IN ROLE pgmqtt_admin; CREATE SCHEMA {name} AUTHORIZATION {name};
        SET ROLE {name}; CREATE TABLE {name}.seen (who text, state text);
        CREATE FUNCTION {name}.try(sql text) RETURNS text LANGUAGE plpgsql AS $f$
        BEGIN EXECUTE sql; RETURN 'done'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $f$;
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$ INSERT INTO {name}.seen
            SELECT current_user, {name}.try(text) FROM msg $$);""")
    client = raw()
    client.connect()
    # The premise: what its owner may do, it does.
    for statement, state in ((f"CREATE TABLE {name}.mine (v text)", "done"),
                             (sql.format(name), "42501"), ("SELECT 1", "done")):
        assert client.publish(f"{topic}/x", statement, qos=1).code < 0x80
        assert server.psql(f"SELECT * FROM {name}.seen") == f"{name}|{state}"
        server.psql(f"TRUNCATE {name}.seen")
    assert server.psql(f"SELECT relowner::regrole FROM pg_class WHERE oid = '{name}.mine'::regclass"
                       ) == name


def test_settings_that_a_statement_changes_end_with_it(server, raw, topic, name):
    """Those of the transaction, too: what bounds the waiting for locks comes back for the next."""
    server.psql(f"CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, v text)")
    settings = ("lock_timeout", "work_mem", "search_path", "statement_timeout")
    seen = " || ' ' || ".join(f"current_setting('{setting}')" for setting in settings)
    add_sink(server, name, f"{topic}/see", f"INSERT INTO {name} (v) SELECT {seen} FROM msg")
    add_sink(server, f"{name}_set", f"{topic}/set", "SELECT set_config('lock_timeout', '1h', false),"
             " set_config('work_mem', '77MB', false), set_config('search_path', 'x', false),"
             " set_config('statement_timeout', '1h', false), set_config('lock_timeout', '2h', true)"
             " FROM msg")
    client = raw()
    client.connect()
    for last in ("see", "set", "see"):
        assert client.publish(f"{topic}/{last}", "", qos=1).code < 0x80
    before, after = server.psql(f"SELECT v FROM {name} ORDER BY n").split("\n")
    assert before == after and before.startswith("25ms ")
