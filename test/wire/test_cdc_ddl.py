"""DDL on mapped tables while rows are written (B10): nothing is lost, misread or stops the others."""

import json
import threading

import psycopg2
import pytest

from test_mappings import wait_until_decoded


class Writer:
    """Inserts numbers into a table's column `id`, one transaction each, until stopped."""

    def __init__(self, server, table, columns="id"):
        self.committed = []
        self._insert = f"INSERT INTO {table} ({columns}) VALUES (%s)"
        self._stop = threading.Event()
        self._connection = server.connect()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        cursor = self._connection.cursor()
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                cursor.execute(self._insert, (number,))
                self.committed.append(number)
            except psycopg2.errors.UndefinedTable:
                pass  # it has another name for a moment

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def wait_for(self, server, more):
        wanted = len(self.committed) + more
        server.wait_for(lambda: len(self.committed) >= wanted, f"{more} rows are written")


def end_of(server, sub, topic):
    """All messages up to one that is published after everything that is committed."""
    wait_until_decoded(server)
    server.psql(f"SELECT pgmqtt.publish('{topic}/end', 'end'::text, 1)")
    packets = []
    while (packet := sub.message()).topic != f"{topic}/end":
        packets.append(packet)
    return packets


def test_types_change_under_load(server, sub, topic, name):
    """B10: a column goes int -> bigint -> text -> int while rows are written; none is misread."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int DEFAULT 7, s text DEFAULT 'text');
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$)""")
    worker = server.worker_pid("pgmqtt cdc")
    with Writer(server, name) as writer:
        for _ in range(4):
            for kind in ("bigint", "text", "int"):
                writer.wait_for(server, 20)
                server.psql(f"ALTER TABLE {name} ALTER v DROP DEFAULT, ALTER v TYPE {kind} USING v::{kind},"
                            f" ALTER v SET DEFAULT '7'")
        writer.wait_for(server, 20)
    rows = [json.loads(packet.payload) for packet in end_of(server, sub, topic)]
    assert [row["id"] for row in rows] == writer.committed
    assert {(str(row["v"]), row["s"]) for row in rows} == {("7", "text")}
    assert server.worker_pid("pgmqtt cdc") == worker, "the worker was not hurt"


def test_ddl_waits_for_a_row_that_is_being_evaluated(server, sub, topic, name):
    """B10: a type change between two rows of a batch would have the second read as what it is not."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int); CREATE TABLE {name}_locked ();
        CREATE FUNCTION {name}_slow(id int) RETURNS text LANGUAGE plpgsql AS $f$BEGIN
            IF id = 1 THEN PERFORM pg_sleep(1); ELSE PERFORM FROM {name}_locked; END IF; RETURN '';
        END$f$;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$,
            $${name}_slow(new.id) || to_jsonb(new)::text$$);
        INSERT INTO {name} VALUES (1, 7), (2, 7)""")
    worker = server.worker_pid("pgmqtt cdc")
    server.wait_for(lambda: server.psql(f"SELECT wait_event FROM pg_stat_activity WHERE pid = {worker}")
                    == "PgSleep", "the first row is being evaluated", every=0.005)
    server.psql(f"ALTER TABLE {name} ALTER v TYPE text")
    assert [sub.json_message()[1] for _ in range(2)] == [{"id": 1, "v": 7}, {"id": 2, "v": 7}]
    server.psql(f"INSERT INTO {name} VALUES (3, 'seven')")
    assert sub.json_message()[1] == {"id": 3, "v": "seven"}
    assert server.worker_pid("pgmqtt cdc") == worker


def test_columns_come_and_go_under_load(server, sub, topic, name):
    """B10: ADD COLUMN with a default and DROP COLUMN; a row says what it had, and nothing else."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$)""")
    with Writer(server, name) as writer:
        for number in range(6):
            writer.wait_for(server, 15)
            server.psql(f"ALTER TABLE {name} ADD COLUMN extra int NOT NULL DEFAULT {number}")
            writer.wait_for(server, 15)
            server.psql(f"ALTER TABLE {name} DROP COLUMN extra")
    rows = [json.loads(packet.payload) for packet in end_of(server, sub, topic)]
    assert [row["id"] for row in rows] == writer.committed
    assert any("extra" in row for row in rows), "the premise: some were published with the column"
    assert all(row["extra"] is not None for row in rows if "extra" in row), \
        "the column was NOT NULL whenever it was there"


def test_a_column_that_was_not_there_yet_is_absent_not_null(server, sub, topic, name):
    """B10: the rows wait behind a lock, so both are evaluated when the column exists."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$);
        SELECT pgmqtt.add_mapping('{name}_n', '{name}', $$'{topic}/names'$$,
                                  $$coalesce(array_to_string(absent, ','), 'none')$$);
        BEGIN; INSERT INTO {name} VALUES (1);
        ALTER TABLE {name} ADD COLUMN late int DEFAULT 5;
        INSERT INTO {name} VALUES (2);
        INSERT INTO {name} VALUES (3, NULL); COMMIT""")
    packets = [sub.message() for _ in range(6)]
    rows = [json.loads(packet.payload) for packet in packets if packet.topic.endswith("row")]
    names = [packet.payload for packet in packets if packet.topic.endswith("names")]
    assert rows == [{"id": 1}, {"id": 2, "late": 5}, {"id": 3, "late": None}]
    assert names == [b"late", b"none", b"none"]


def test_renames_and_schema_moves_keep_the_mapping(server, sub, topic, name):
    """B10: RENAME TABLE, RENAME COLUMN and SET SCHEMA under load; the mapping follows the table."""
    server.psql(f"""
        CREATE SCHEMA {name}_s;
        CREATE TABLE {name} (id int PRIMARY KEY, v int DEFAULT 1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$, $$new.id::text$$)""")
    with Writer(server, name) as writer:
        for _ in range(3):
            writer.wait_for(server, 10)
            server.psql(f"ALTER TABLE {name} RENAME TO {name}_away;"
                        f"ALTER TABLE {name}_away RENAME v TO w; ALTER TABLE {name}_away RENAME w TO v;"
                        f"ALTER TABLE {name}_away SET SCHEMA {name}_s;"
                        f"ALTER TABLE {name}_s.{name}_away SET SCHEMA public;"
                        f"ALTER TABLE {name}_away RENAME TO {name}")
        writer.wait_for(server, 10)
    got = [int(packet.payload) for packet in end_of(server, sub, topic)]
    assert got == writer.committed
    assert server.psql(f"SELECT status FROM pgmqtt.mappings WHERE name = '{name}'") == "streaming"


@pytest.mark.parametrize("change", ["DROP COLUMN v", "RENAME v TO w"])
def test_a_lost_column_stops_that_mapping_only_under_load(server, sub, topic, name, change):
    """B10: a column that one of two mappings names is dropped, or renamed."""
    server.psql(f"""
        CREATE TABLE {name} (id int PRIMARY KEY, v int DEFAULT 1);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/v'$$, $$new.v::text$$);
        SELECT pgmqtt.add_mapping('{name}_id', '{name}', $$'{topic}/id'$$, $$new.id::text$$)""")
    with Writer(server, name) as writer:
        writer.wait_for(server, 20)
        server.psql(f"ALTER TABLE {name} {change}")
        writer.wait_for(server, 20)
    packets = end_of(server, sub, topic)
    ids = [int(packet.payload) for packet in packets if packet.topic == f"{topic}/id"]
    assert ids == writer.committed, "the other mapping misses nothing"
    status = server.psql(f"SELECT status, message FROM pgmqtt.mappings WHERE name = '{name}'")
    assert status == "error|column new.v does not exist"
    published = len(packets) - len(ids)
    letters = int(server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'"))
    assert published + letters == len(ids), "each row is published or a dead letter"


def test_a_table_made_anew_under_its_name_is_another_table(server, sub, topic, name):
    """B10: the mapping says that its table is gone, and does not take the new one."""
    create = f"CREATE TABLE {name} (id int PRIMARY KEY);"
    server.psql(f"{create} SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$);"
                f"INSERT INTO {name} VALUES (1)")
    assert sub.json_message()[1] == {"id": 1}
    server.psql(f"BEGIN; INSERT INTO {name} VALUES (2); DROP TABLE {name}; {create} COMMIT;"
                f"INSERT INTO {name} VALUES (3)")
    assert end_of(server, sub, topic) == []
    status = server.wait_for(lambda: server.psql(
        f"SELECT status, message FROM pgmqtt.mappings WHERE name = '{name}' AND status = 'error'"),
        "the mapping says so")
    assert "does not exist any more" in status
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}');"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$);"
                f"INSERT INTO {name} VALUES (4)")
    assert sub.json_message()[1] == {"id": 4}
