"""The recipes of README.md, as they stand there: each is read out of the manual and run (C06)."""

import re
from pathlib import Path

import pytest

from harness.packets import PUBACK, publish_frame

README = Path(__file__).resolve().parents[2] / "README.md"


def recipe(title):
    """The SQL under a heading of the recipes, as it stands."""
    found = re.search(rf"^\*\*{re.escape(title)}\.\*\*.*?^```sql\n(.*?)^```$", README.read_text(),
                      re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no recipe {title!r}"
    return found.group(1)


@pytest.fixture
def cook(server, raw, name):
    """Runs a recipe in a schema of its own and publishes; returns the codes."""
    def make(title, *messages, before=""):
        path = f"SET search_path = {name};"
        server.psql(f"CREATE SCHEMA IF NOT EXISTS {name}; {path} {before} {recipe(title)}")
        client = raw()
        client.connect()
        client.send(b"".join(publish_frame(topic, payload, 1, packet_id=number)
                             for number, (topic, payload) in enumerate(messages, 1)))
        codes = [client.expect(PUBACK).code for _ in messages]
        return codes, lambda sql: server.psql(path + sql)
    yield make
    server.psql(f"SELECT pgmqtt.drop_sink(name) FROM pgmqtt.sink WHERE search_path LIKE '{name}%'")


def test_json_array_to_many_rows(cook):
    codes, sql = cook("A JSON array to many rows",
                      ("meters/m1/bulk", '[{"t": 1700000000000, "kwh": 1.5}, {"t": 1700000060000, "kwh": 2}]'),
                      ("meters/m2/bulk", '[{"t": 1700000000000, "kwh": 1}, {"kwh": "much"}]'),
                      ("meters/m3/bulk", "[]"))
    assert codes[0] < 0x80 and codes[1] == 0x99 and codes[2] < 0x80  # all rows of a message or none
    assert sql("SELECT meter, extract(epoch FROM at)::bigint, kwh FROM meter_reading ORDER BY 2") == \
        "m1|1700000000|1.5\nm1|1700000060|2"


def test_upsert_of_the_last_value(cook):
    codes, sql = cook("The last value of each topic", ("state/a", "1"), ("state/b", "2"),
                      ("state/a", "3"), ("state/a", "4"))
    assert max(codes) < 0x80
    assert sql("SELECT topic, value FROM last_value ORDER BY 1") == "state/a|4\nstate/b|2"


def test_topic_levels_to_columns(cook):
    codes, sql = cook("Topic levels to columns", ("plants/p1/lines/l1/a/b/c", "x"))
    assert max(codes) < 0x80
    assert sql("SELECT plant, line, area, rest FROM line_event") == "p1|l1|a|b/c"


def test_times_and_defaults(cook):
    codes, sql = cook("Times, and keys that may be missing", ("gps/car", '{"ts": 1700000000123, "lat": 1.5}'),
                      ("gps/car", '{"iso": "2024-02-29T12:00:00Z", "lat": 2}'), ("gps/car", "{}"))
    assert max(codes) < 0x80
    assert sql("SET timezone = 'UTC'; SELECT at, lat FROM fix WHERE lat > 0 ORDER BY lat") == (
        "2023-11-14 22:13:20.123+00|1.5\n2024-02-29 12:00:00+00|2")
    assert sql("SELECT count(*) FROM fix WHERE lat = 0 AND at > now() - interval '1 h'") == "1"


def test_binary_stays_bytea(cook):
    payload = bytes(range(256))
    codes, sql = cook("Binary payloads", ("spBv1.0/group/DDATA/node/device", payload))
    assert max(codes) < 0x80
    assert sql("SELECT kind, node, device, encode(payload, 'hex') FROM sparkplug") == \
        f"DDATA|node|device|{payload.hex()}"


def test_call_of_a_procedure(cook):
    codes, sql = cook("Calling a procedure", ("doors/d1", "open"), ("doors/d2", "jammed"))
    assert codes[0] < 0x80 and codes[1] == 0x83
    assert sql("SELECT door, state FROM door") == "d1|open"


def test_delete_by_topic(cook):
    codes, sql = cook("Deleting by topic", ("parts/1/gone", ""), ("parts/2/gone", ""),
                      before="CREATE TABLE part (id text); INSERT INTO part VALUES ('1'), ('2'), ('3');")
    assert max(codes) < 0x80
    assert sql("SELECT id FROM part") == "3"


def test_partitioned_target(cook):
    codes, sql = cook("A partitioned table", ("logs/host/app", "line"))
    assert max(codes) < 0x80
    assert sql("SELECT host, line FROM log") == "host|line"


def test_foreign_key_lookup(cook):
    codes, sql = cook("Looking up a key", ("device/serial-1/temp", "21.5"),
                      ("device/serial-2/temp", "22"), ("device/stranger/temp", "1"))
    assert codes[0] < 0x80 and codes[1] < 0x80 and codes[2] == 0x83
    assert sql("SELECT serial, celsius FROM temp JOIN device ON device.id = device_id ORDER BY 1") == (
        "serial-1|21.5\nserial-2|22")
