"""Sinks in trouble: what waits, what is given up, what goes on meanwhile."""

import time

import pytest

from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import RawClient

IMPLEMENTATION_ERROR = 0x83


@pytest.fixture
def sink(server, topic, name):
    """Makes table and sink `name`; further SQL may run before the sink is added."""
    def make(before="", statement=None, suffix="", **options):
        table = name + suffix
        named = "".join(f", {key} => '{value}'" for key, value in options.items())
        server.psql(f"""
            CREATE TABLE {table} (n int GENERATED ALWAYS AS IDENTITY, v text); {before}
            SELECT pgmqtt.add_sink('{table}', '{topic}/{suffix or "x"}', $$
                {statement or f'INSERT INTO {table} (v) SELECT text FROM msg'}$${named});""")
        return table
    return make


def send(client, topic, *payloads):
    client.send(b"".join(publish_frame(topic, payload, qos=1, packet_id=client.next_id())
                         for payload in payloads))


def codes(client, count):
    return [client.expect(PUBACK).code for _ in range(count)]


def values(server, table):
    return server.psql(f"SELECT string_agg(v, ' ' ORDER BY n) FROM {table}")


def status(server, table):
    return server.psql(f"SELECT status, message FROM pgmqtt.sinks WHERE name = '{table}'")


def connected(raw):
    client = raw()
    client.connect()
    return client


def raising(table, sqlstate, times):
    """A trigger that fails so often; sequences do not roll back."""
    return f"""
        CREATE SEQUENCE {table}_tries;
        CREATE FUNCTION {table}_f() RETURNS trigger LANGUAGE plpgsql AS $f$
        BEGIN
            IF NEW.v = 'bad' AND nextval('{table}_tries') <= {times} THEN
                RAISE 'not now' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NEW;
        END $f$;
        CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_f();"""


def test_while_one_table_is_locked_other_sinks_are_acknowledged(server, raw, topic, sink):
    locked, free = sink(suffix="locked"), sink(suffix="free")
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE {locked}")
    waiting, busy = connected(raw), connected(raw)
    send(waiting, f"{topic}/locked", *(str(n) for n in range(50)))
    slowest, end = 0, time.monotonic() + 3
    count = 0
    while time.monotonic() < end:
        start = time.monotonic()
        assert busy.publish(f"{topic}/free", str(count), qos=1).code < 0x80
        slowest = max(slowest, time.monotonic() - start)
        count += 1
    assert slowest < 1
    waiting.expect_nothing_before_ping()
    assert status(server, locked) in (  # it looks, and every fourth time it queues
        f'waiting|could not obtain lock on relation "{locked}"',
        "waiting|canceling statement due to lock timeout")
    locker.rollback()
    locker.close()
    assert max(codes(waiting, 50)) < 0x80
    assert values(server, locked) == " ".join(str(n) for n in range(50))
    assert server.psql(f"SELECT count(*) FROM {free}") == str(count)
    assert status(server, locked) == "active|"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "53100", "57014", "08006", "25006"])
def test_transient_errors_are_retried_and_lose_nothing(server, raw, topic, name, sink, sqlstate):
    table = sink(before=raising(name, sqlstate, 3))
    client = connected(raw)
    send(client, f"{topic}/x", "1", "bad", "3")
    assert max(codes(client, 3)) < 0x80
    assert values(server, table) == "1 bad 3"
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{table}'") == "0"


def test_on_error_retry_tries_again_and_keeps_the_order(server, raw, topic, name, sink):
    table = sink(before=raising(name, "P0001", 5), on_error="retry")
    client = connected(raw)
    send(client, f"{topic}/x", "1", "bad", "3")
    assert max(codes(client, 3)) < 0x80
    assert values(server, table) == "1 bad 3"


def test_on_error_retry_gives_up(server, raw, topic, name, sink):
    table = sink(before=raising(name, "P0001", 1000), on_error="retry")
    client = connected(raw)
    send(client, f"{topic}/x", "1", "bad", "3")
    first, second, third = codes(client, 3)
    assert first < 0x80 and second == IMPLEMENTATION_ERROR and third < 0x80
    assert values(server, table) == "1 3"
    assert server.psql("SELECT attempts, message FROM pgmqtt.dead_letter"
                       f" WHERE name = '{table}'") == "6|not now"


def test_a_table_that_is_gone_holds_its_messages_until_it_is_back(server, raw, topic, sink):
    table = sink()
    server.psql(f"ALTER TABLE {table} RENAME TO {table}_away")
    client = connected(raw)
    send(client, f"{topic}/x", "1", "2")
    server.wait_for(lambda: status(server, table).startswith("error|relation"), "status error")
    client.expect_nothing_before_ping()
    server.psql(f"ALTER TABLE {table}_away RENAME TO {table}")
    assert max(codes(client, 2)) < 0x80
    assert values(server, table) == "1 2"
    assert status(server, table) == "active|"


@pytest.mark.parametrize("end,reason", [
    ("pgmqtt.drop_sink('{}')", "was dropped"), ("pgmqtt.alter_sink('{}', false)", "is disabled")])
def test_what_waits_for_a_sink_that_ends_is_a_dead_letter(server, raw, topic, sink, end, reason):
    table = sink()
    server.psql(f"ALTER TABLE {table} RENAME TO {table}_away")
    client = connected(raw)
    send(client, f"{topic}/x", "1", "2")
    server.wait_for(lambda: status(server, table).startswith("error"), "status error")
    server.psql(f"SELECT {end.format(table)}")
    assert codes(client, 2) == [IMPLEMENTATION_ERROR] * 2
    assert server.psql(
        "SELECT convert_from(payload, 'UTF8'), sqlstate, message FROM pgmqtt.dead_letter"
        f" WHERE name = '{table}' ORDER BY id") == "\n".join(
            f'{n}|55000|sink "{table}" {reason}' for n in (1, 2))


def test_a_disabled_sink_comes_back(server, raw, topic, sink):
    table = sink()
    server.psql(f"SELECT pgmqtt.alter_sink('{table}', false)")
    server.psql(f"SELECT pgmqtt.alter_sink('{table}', true)")
    assert connected(raw).publish(f"{topic}/x", "1", qos=1).code < 0x80
    assert values(server, table) == "1"


def test_a_message_for_two_sinks_waits_for_both(server, raw, topic, name, sink):
    table = sink()
    server.psql(f"""
        CREATE TABLE {name}_second (v int);
        SELECT pgmqtt.add_sink('{name}_second', '{topic}/+',
            'INSERT INTO {name}_second SELECT text::int FROM msg');
        ALTER TABLE {name}_second RENAME TO {name}_away;""")
    client = connected(raw)
    send(client, f"{topic}/x", "1")
    server.wait_for(lambda: status(server, f"{name}_second").startswith("error"), "status error")
    assert values(server, table) == "1"
    client.expect_nothing_before_ping()
    server.psql(f"ALTER TABLE {name}_away RENAME TO {name}_second")
    assert codes(client, 1)[0] < 0x80
    assert client.publish(f"{topic}/x", "no number", qos=1).code == 0x99
    assert values(server, table) == "1 no number"


def test_messages_survive_the_end_of_the_sink_worker(server, raw, topic, sink):
    table = sink()
    server.psql(f"ALTER TABLE {table} RENAME TO {table}_away")
    client = connected(raw)
    send(client, f"{topic}/x", "1", "2")
    server.wait_for(lambda: status(server, table).startswith("error"), "status error")
    pid = server.worker_pid("pgmqtt sink")
    server.psql(f"SELECT pg_terminate_backend({pid})")
    server.psql(f"ALTER TABLE {table}_away RENAME TO {table}")
    assert max(codes(client, 2)) < 0x80
    assert server.worker_pid("pgmqtt sink") != pid
    assert values(server, table) == "1 2"


def test_types_that_change_while_messages_flow_blame_no_message(server, raw, topic, name, sink):
    table = sink(before=raising(name, "P0001", 0))
    client = connected(raw)
    for value in range(3):
        assert client.publish(f"{topic}/x", str(value), qos=1).code < 0x80
        server.psql(f"ALTER TABLE {table} ALTER v TYPE {('varchar', 'char(9)', 'text')[value]}")
    assert server.psql(f"SELECT count(*) FROM {table}") == "3"


def test_a_reason_string_says_what_was_wrong(server, raw, topic, name):
    server.psql(f"""CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', 'INSERT INTO {name} SELECT text::int FROM msg')
        """)
    ack = connected(raw).publish(f"{topic}/x", "hot", qos=1)
    assert ack.code == 0x99
    assert ack.properties["reason_string"] == 'invalid input syntax for type integer: "hot"'


def test_what_the_database_cannot_say(new_server):
    """A LATIN1 database: UTF-8 is converted; a topic without a representation is a dead letter."""
    server = new_server(create_extension=False, conf={"pgmqtt.database": "latin"})
    server.start()
    server.psql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    server.psql("CREATE EXTENSION pgmqtt", database="latin")
    server.psql("""CREATE TABLE seen (a text, t text, j jsonb, p jsonb);
        SELECT pgmqtt.add_sink('s', 'x/{a}',
            'INSERT INTO seen SELECT a, text, json, user_properties FROM msg')""", database="latin")
    server.wait_listening()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        for topic, payload, name in (("x/é", '{"ü": 1}', "ß"), ("x/1", '{"€": 1}', "€"),
                                     ("x/€", "lost", "")):
            client.publish(topic, payload, qos=1, properties={"user_property": [(name, "v")]})
    assert server.psql("SELECT convert_to(a, 'UTF8'), convert_to(t, 'UTF8') IS NULL, j IS NULL,"
                       " p IS NULL FROM seen", database="latin") == (
        "\\xc3a9|f|f|f\n\\x31|t|t|t")
    assert server.psql("SELECT topic IS NULL, sqlstate, convert_from(payload, 'LATIN1')"
                       " FROM pgmqtt.dead_letter", database="latin") == "t|22P05|lost"
