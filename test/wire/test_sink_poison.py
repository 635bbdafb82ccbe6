"""What a sink cannot store: the guilty alone, with SQLSTATE and bytes, and nothing stops (C02, C03)."""

import pytest

from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import RawClient

BAD_PAYLOAD, IMPLEMENTATION_ERROR = 0x99, 0x83

ZIGBEE = b'{"linkquality":102,"device":{"friendlyName":"lamp\\u0000","model":"LCT\\u0000"}}'
POISON = {  # payload: SQLSTATE as jsonb, as the integer in a, as the float8 in a; None: it is good
    b"": ("22P02", "22P02", "22P02"),
    b'{"a": ': ("22P02", "22P02", "22P02"),
    b'{"a": NaN}': ("22P02", "22P02", "22P02"),
    b'{"a": 1e400}': (None, "22P02", "22003"),
    b'{"a": 1e400000}': ("22003", "22P02", "22003"),
    b'{"a": "\\u0000"}': ("22P05", "22P05", "22P05"),
    b'{"a": "\\ud800"}': ("22P02", "22P02", "22P02"),
    b'{"a": "\xff"}': ("22021", "22021", "22021"),
    b"\x00": ("22021", "22021", "22021"),
    b'{"a": "hot"}': (None, "22P02", "22P02"),
    b'{"a": 99999999999}': (None, "22003", None),
    ZIGBEE: ("22P05", "22P05", "22P05"),
}
GOOD = b'{"a": 1}'
CASTS = {"jsonb": "convert_from(payload, 'UTF8')::jsonb",
         "int": "(convert_from(payload, 'UTF8')::json->>'a')::int",
         "float8": "(convert_from(payload, 'UTF8')::json->>'a')::float8"}


def letters(server, name):
    return server.psql("SELECT encode(payload, 'hex') || '|' || sqlstate || '|' || attempts"
                       f" FROM pgmqtt.dead_letter WHERE name = '{name}' ORDER BY id").split("\n")


@pytest.mark.parametrize("column", range(3), ids=list(CASTS))
def test_poison_among_good_messages(server, raw, topic, name, column):
    """C02: one batch of good and bad; each bad one is a dead letter with its bytes, in order."""
    kind, cast = list(CASTS.items())[column]
    server.psql(f"""CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, v {kind});
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$
            INSERT INTO {name} (v) SELECT {cast} FROM msg $$);""")
    payloads = [each for bad in POISON for each in (GOOD, bad)] + [GOOD]
    expected = [POISON.get(payload, (None,) * 3)[column] for payload in payloads]
    client = raw()
    client.connect()
    client.send(b"".join(publish_frame(f"{topic}/x", payload, 1, packet_id=number)
                         for number, payload in enumerate(payloads, 1)))
    codes = [client.expect(PUBACK).code for _ in payloads]
    assert [code == BAD_PAYLOAD for code in codes] == [state is not None for state in expected]
    assert all(code == BAD_PAYLOAD or code < 0x80 for code in codes)
    assert letters(server, name) == [
        f"{payload.hex()}|{state}|1" for payload, state in zip(payloads, expected) if state]
    assert server.psql(f"SELECT count(*) FROM {name}") == str(expected.count(None))


def test_json_and_text_are_null_where_they_cannot_be(server, raw, topic, name):
    """C02: a statement that asks for the columns json and text refuses nothing, payload has all bytes."""
    server.psql(f"""CREATE TABLE {name} (n int GENERATED ALWAYS AS IDENTITY, t text, j jsonb, p bytea);
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$
            INSERT INTO {name} (t, j, p) SELECT text, json, payload FROM msg $$);""")
    client = raw()
    client.connect()
    for payload in POISON:
        assert client.publish(f"{topic}/x", payload, qos=1).code < 0x80, payload
    assert server.psql(f"SELECT encode(p, 'hex') FROM {name} ORDER BY n").split("\n") == [
        payload.hex() for payload in POISON]
    assert server.psql(f"SELECT encode(p, 'hex') FROM {name} WHERE t IS NULL ORDER BY n") == \
        "7b2261223a2022ff227d\n00"
    assert server.psql(f"SELECT count(*) FROM {name} WHERE j IS NOT NULL") == str(
        sum(states[0] is None for states in POISON.values()))


def test_an_array_of_20_megabytes(new_server):
    """C02: stored whole when it is JSON, a dead letter with all its bytes when it is truncated."""
    server = new_server(conf={"pgmqtt.max_packet_size": "32MB"}).start()
    server.psql("""CREATE TABLE big (length int, sum bigint);
        SELECT pgmqtt.add_sink('big', 'x', $$
            INSERT INTO big SELECT jsonb_array_length(text::jsonb),
                (SELECT sum(v::int) FROM jsonb_array_elements_text(text::jsonb) v) FROM msg $$);""")
    payload = b"[" + b"1," * 10_000_000 + b"1]"
    with RawClient(server.mqtt_port, timeout=120) as client:
        client.connect()
        assert client.publish("x", payload, qos=1).code < 0x80
        assert client.publish("x", payload[:-1], qos=1).code == BAD_PAYLOAD
        assert client.publish("x", "[1,2]", qos=1).code < 0x80
    assert server.psql("SELECT * FROM big ORDER BY 1") == "2|3\n10000001|10000001"
    assert server.psql("SELECT sqlstate, length(payload), payload = convert_to("
                       "'[' || repeat('1,', 10000000) || '1', 'UTF8') FROM pgmqtt.dead_letter"
                       ) == f"22P02|{len(payload) - 1}|t"


CONSTRAINTS = {"exists": "23505", "orphan": "23503", "toolong": "23514", "none": "23502",
               "mauve": "22P02", "nowhere": "23514", "raise": "P0001"}


def test_each_constraint_makes_one_dead_letter(server, raw, topic, name):
    """C03: unique, foreign key, CHECK, NOT NULL, enum, partition missing, trigger RAISE."""
    server.psql(f"""
        CREATE TYPE {name}_colour AS ENUM ('red', 'blue');
        CREATE TABLE {name}_parent (id int PRIMARY KEY); INSERT INTO {name}_parent VALUES (1);
        CREATE TABLE {name} (id text, parent int REFERENCES {name}_parent,
            colour {name}_colour NOT NULL, part int, UNIQUE (id, part),
            CONSTRAINT short CHECK (length(id) < 7 OR id = 'nowhere')) PARTITION BY LIST (part);
        CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES IN (1);
        INSERT INTO {name} VALUES ('exists', 1, 'red', 1);
        CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS
            $f$ BEGIN IF NEW.id = 'raise' THEN RAISE 'no'; END IF; RETURN NEW; END $f$;
        CREATE TRIGGER t BEFORE INSERT ON {name}_1 FOR EACH ROW EXECUTE FUNCTION {name}_f();
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{id}}', $$
            INSERT INTO {name} SELECT id, CASE id WHEN 'orphan' THEN 2 ELSE 1 END,
                CASE id WHEN 'none' THEN NULL WHEN 'mauve' THEN text ELSE 'red' END::{name}_colour,
                CASE id WHEN 'nowhere' THEN 2 ELSE 1 END FROM msg $$);""")
    ids = [each for bad in CONSTRAINTS for each in (f"ok{len(bad)}{bad[0]}", bad)] + ["last"]
    client = raw()
    client.connect()
    client.send(b"".join(publish_frame(f"{topic}/{each}", each, 1, packet_id=number)
                         for number, each in enumerate(ids, 1)))
    codes = {each: client.expect(PUBACK).code for each in ids}
    for each, code in codes.items():
        state = CONSTRAINTS.get(each)
        wanted = BAD_PAYLOAD if state == "22P02" else IMPLEMENTATION_ERROR
        assert code == wanted if state else code < 0x80, each
    assert letters(server, name) == [f"{each.encode().hex()}|{state}|1"
                                     for each, state in CONSTRAINTS.items()]
    assert server.psql(f"SELECT count(*) FROM {name}") == str(len(ids) - len(CONSTRAINTS) + 1)


def test_a_deadlock_is_the_users_to_win(server, raw, topic, name):
    """C03: the sink gives way and tries again; the user's transaction is not the victim."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int); INSERT INTO {name} VALUES (1, 0), (2, 0);
        CREATE FUNCTION {name}_f() RETURNS void LANGUAGE sql AS $f$
            UPDATE {name} SET v = v + 1 WHERE id = 2; UPDATE {name} SET v = v + 1 WHERE id = 1 $f$;
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', 'SELECT {name}_f() FROM msg');""")
    user = server.connect(autocommit=False)
    cursor = user.cursor()
    cursor.execute(f"UPDATE {name} SET v = 10 WHERE id = 1")
    client = raw()
    client.connect()
    client.send(publish_frame(f"{topic}/x", "", 1, packet_id=1))
    server.wait_for(lambda: server.psql(
        f"SELECT retries > 0 FROM pgmqtt.sinks WHERE name = '{name}'") == "t", "the sink met the lock")
    cursor.execute(f"UPDATE {name} SET v = 10 WHERE id = 2")
    user.commit()
    user.close()
    assert client.expect(PUBACK).code < 0x80
    assert server.psql(f"SELECT v FROM {name} ORDER BY id") == "11\n11"


def test_a_slow_trigger_delays_no_keep_alive_and_no_topic(server, raw, topic, name):
    """C03: a trigger that takes 3 s."""
    server.psql(f"""CREATE TABLE {name} (v text);
        CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS
            $f$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $f$;
        CREATE TRIGGER t BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_f();
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', 'INSERT INTO {name} SELECT text FROM msg');""")
    client, other = raw(), raw()
    client.connect()
    other.connect()
    other.subscribe(f"{topic}/free", 1)
    client.send(publish_frame(f"{topic}/x", "1", 1, packet_id=1))
    server.wait_for(lambda: server.psql(
        "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'pgmqtt sink'"
        " AND wait_event = 'PgSleep'"), "the trigger sleeps")
    for _ in range(20):
        client.expect_nothing_before_ping()
        other.publish(f"{topic}/free", "x", qos=0)
        assert other.expect(3).payload == b"x"
    assert client.expect(PUBACK).code < 0x80
