"""Every type on the wire (B01): typed JSON, exact, NULL is null; insert, update and delete.

What each value looks like as JSON is compared in sql/mapping_types.sql, value by value; here is what only
the decoded row and a client can show.
"""

import json
from datetime import datetime, timezone
from decimal import Decimal

import pytest

from harness.rawmqtt import RawClient

# column, type, value as SQL, what JSON says
VALUES = [
    ("e", "{name}_mood", "'happy'", "happy"),
    ("n", "numeric(38,10)", "12345678901234567890.0123456789", Decimal("12345678901234567890.0123456789")),
    ("free", "numeric", "1e-30", Decimal("1e-30")),
    ("wide", "numeric", "(repeat('9', 2000) || '.5')::numeric", Decimal("9" * 2000 + ".5")),
    ("nan", "numeric", "'NaN'", "NaN"),
    ("inf", "numeric", "'-Infinity'", "-Infinity"),
    ("f8", "float8", "0.1", Decimal("0.1")),
    ("f8nan", "float8", "'NaN'", "NaN"),
    ("f4", "real", "0.1", Decimal("0.1")),
    ("i8", "bigint", "9223372036854775807", 9223372036854775807),
    ("b", "boolean", "false", False),
    ("t", "text", r"E'quote \" back \\ tab \t end \u20ac'", 'quote " back \\ tab \t end \u20ac'),
    ("empty", "text", "''", ""),
    ("c", "char(5)", "'ab'", "ab   "),
    ("at", "timestamptz", "'2026-01-02 03:04:05.678901+00'", "2026-01-02T03:04:05.678901+00:00"),
    ("never", "timestamptz", "'infinity'", "infinity"),
    ("ever", "timestamp", "'-infinity'", "-infinity"),
    ("d", "date", "'infinity'", "infinity"),
    ("bc", "date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("span", "interval", "'1 year 2 days 03:04:05.000006'", "1 year 2 days 03:04:05.000006"),
    ("ta", "text[]", "'{{a,NULL,\"b c\",\"\"}}'", ["a", None, "b c", ""]),
    ("ia", "int[][]", "'{{{{1,2}},{{3,NULL}}}}'", [[1, 2], [3, None]]),
    ("none", "int[]", "'{{}}'", []),
    ("j", "json", "'{{\"z\": 1, \"a\": [1.10, null]}}'", {"z": 1, "a": [Decimal("1.10"), None]}),
    ("jb", "jsonb", "'{{\"z\": {{\"deep\": [true, null]}}}}'", {"z": {"deep": [True, None]}}),
    ("jnull", "jsonb", "'null'", None),
    ("raw", "bytea", r"'\x00ff10'", "\\x00ff10"),
    ("u", "uuid", "'6b3c1f9e-0000-4000-8000-000000000001'", "6b3c1f9e-0000-4000-8000-000000000001"),
    ("r", "int4range", "'[1,5)'", "[1,5)"),
    ("r0", "tstzrange", "'empty'", "empty"),
    ("mr", "int4multirange", "'{{[1,3),[5,7)}}'", "{[1,3),[5,7)}"),
    ("p", "{name}_pair", "(7, NULL)", {"a": 7, "b": None}),
    ("pa", "{name}_pair[]", "ARRAY[(1,'x')::{name}_pair, NULL]", [{"a": 1, "b": "x"}, None]),
    ("pct", "{name}_percent", "42", 42),
    ("bx", "box", "'((0,0),(1,1))'", "(1,1),(0,0)"),
    ("tv", "tsvector", "'a:1 b:2'", "'a':1 'b':2"),
    ("ip", "inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("bits", "bit(3)", "B'101'", "101"),
    ("mac", "macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("m", "money", "12.34", "$12.34"),
]


@pytest.fixture
def typed(server, topic, name):
    """A table with a column of each type, all of the old row in the WAL, mapped."""
    def fill(text):
        return text.replace("{name}", name).replace("{{", "{").replace("}}", "}")

    columns = ", ".join(f"{column} {fill(kind)}" for column, kind, _, _ in VALUES)
    values = ", ".join(fill(value) for _, _, value, _ in VALUES)
    server.psql(f"""
        CREATE TYPE {name}_mood AS ENUM ('sad', 'happy');
        CREATE TYPE {name}_pair AS (a int, b text);
        CREATE DOMAIN {name}_percent AS int CHECK (VALUE BETWEEN 0 AND 100);
        CREATE TABLE {name} (id int PRIMARY KEY, doubled int GENERATED ALWAYS AS (id * 2) STORED,
            {columns});
        ALTER TABLE {name} REPLICA IDENTITY FULL;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$,
            $$jsonb_build_object('new', to_jsonb(new), 'old', to_jsonb(old))$$)""")
    return f"INSERT INTO {name} VALUES (1, DEFAULT, {values})"


def read(packet):
    return packet.topic.rpartition("/")[2], json.loads(packet.payload, parse_float=Decimal)


def test_every_type_is_exact_in_insert_update_and_delete(server, sub, typed, name):
    """B01"""
    wanted = {column: value for column, _, _, value in VALUES} | {"id": 1, "doubled": 2}
    server.psql(f"{typed}; UPDATE {name} SET id = 2; DELETE FROM {name}")

    def check(row, wanted):
        # A different offset, or locale of money, is the same value.
        row["at"] = datetime.fromisoformat(row["at"]).astimezone(timezone.utc).isoformat()
        row["m"] = "$" + row["m"].lstrip("$")
        assert row == wanted

    op, inserted = read(sub.message())
    assert (op, inserted["old"]) == ("INSERT", None)
    check(inserted["new"], wanted)
    op, updated = read(sub.message())
    assert op == "UPDATE"
    check(updated["old"], wanted)
    check(updated["new"], wanted | {"id": 2, "doubled": 4})
    op, deleted = read(sub.message())
    assert (op, deleted["new"]) == ("DELETE", None)
    check(deleted["old"], wanted | {"id": 2, "doubled": 4})


def test_null_is_null_in_every_type(server, sub, typed, name):
    """B01: never the word NULL, an empty string or a missing key."""
    server.psql(f"INSERT INTO {name} (id) VALUES (1); DELETE FROM {name}")
    _, inserted = read(sub.message())
    _, deleted = read(sub.message())
    wanted = {column: None for column, _, _, _ in VALUES} | {"id": 1, "doubled": 2}
    assert (inserted["new"], deleted["old"]) == (wanted, wanted)


def test_columns_as_text_payloads_are_exact(server, sub, topic, name):
    """B01: an expression sees the value itself: bytea goes out as bytes, numeric keeps its scale."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, raw bytea, n numeric, f float8, at timestamptz);
        SELECT pgmqtt.add_mapping('{name}_1', '{name}', $$'{topic}/raw'$$, $$new.raw$$);
        SELECT pgmqtt.add_mapping('{name}_2', '{name}', $$'{topic}/n'$$, $$new.n::text$$);
        SELECT pgmqtt.add_mapping('{name}_3', '{name}', $$'{topic}/f'$$, $$new.f::text$$);
        SELECT pgmqtt.add_mapping('{name}_4', '{name}', $$'{topic}/at'$$,
            $$(extract(epoch FROM new.at))::text$$);
        INSERT INTO {name} VALUES (1, '\\x00ff00', 1.500, 0.1 + 0.2::float8, '2026-01-02 03:04:05.678901Z')""")
    got = dict((packet.topic.rpartition("/")[2], packet.payload) for packet in sub.messages(4))
    assert got == {"raw": b"\x00\xff\x00", "n": b"1.500", "f": b"0.30000000000000004",
                   "at": b"1767323045.678901"}


def test_key_and_old_as_the_identity_allows(server, sub, topic, name):
    """B01: op, the key and old, in each of the three operations under the default identity."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || coalesce(new.id, old.id)$$,
            $$jsonb_build_array(op, new, old, absent)$$);
        INSERT INTO {name} VALUES (1, 'a'); UPDATE {name} SET v = 'b'; UPDATE {name} SET id = 2;
        DELETE FROM {name}""")
    assert [sub.json_message() for _ in range(4)] == [
        (f"{topic}/1", ["INSERT", {"id": 1, "v": "a"}, None, None]),
        (f"{topic}/1", ["UPDATE", {"id": 1, "v": "b"}, None, None]),
        (f"{topic}/2", ["UPDATE", {"id": 2, "v": "b"}, {"id": 1, "v": None}, None]),
        (f"{topic}/2", ["DELETE", None, {"id": 2, "v": None}, ["v"]])]


def test_encodings_of_the_database_do_not_show(new_server):
    """B01, B09: a LATIN1 database speaks UTF-8 on the wire, in topic, text and jsonb."""
    server = new_server(conf={"pgmqtt.database": "latin"}, create_extension=False).start()
    server.psql("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    server.psql("SET client_encoding = 'UTF8'; CREATE EXTENSION pgmqtt;"
                "CREATE TABLE t (id int PRIMARY KEY, v text);"
                "SELECT pgmqtt.add_mapping('row', 't', $$'r/' || new.v$$);"
                "SELECT pgmqtt.add_mapping('text', 't', $$'t/' || new.v$$, $$new.v$$,"
                " properties => $$jsonb_build_object('content_type', new.v)$$)", database="latin")
    server.wait_listening()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("#", 0)
        server.psql("SET client_encoding = 'UTF8'; INSERT INTO t VALUES (1, 'gr\u00fcn\u00df');"
                    "SELECT pgmqtt.publish('p/gr\u00fcn', 'gr\u00fcn'::text);"
                    "SELECT pgmqtt.publish('p/gr\u00fcn', jsonb_build_object('gr\u00fcn', 1))", database="latin")
        got = {}
        for packet in client.messages(4):
            got.setdefault(packet.topic, []).append(packet)
    green = "gr\u00fcn\u00df"
    assert json.loads(got[f"r/{green}"][0].payload) == {"id": 1, "v": green}
    assert got[f"t/{green}"][0].payload == green.encode()
    assert got[f"t/{green}"][0].properties["content_type"] == green
    assert [packet.payload for packet in got["p/gr\u00fcn"]] == ["gr\u00fcn".encode(), '{"gr\u00fcn": 1}'.encode()]
