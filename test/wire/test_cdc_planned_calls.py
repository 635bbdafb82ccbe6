"""B18: functions that a table's owner attaches to his table (indexes, statistics, partition keys,
CHECKs, views, policies), which the planner evaluates for whoever reads it: not with the rights of a
mapping's owner."""

import json

import pytest

from test_cdc_privileges import letters, status
from test_cdc_type_calls import assert_stopped
from test_mappings import wait_until_decoded

EVIL = """CREATE FUNCTION {n}.evil(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $f$BEGIN
    RAISE LOG 'evil % of {n};', current_user; RETURN $1; END$f$;
"""

# What the owner of the table `t` does to it.
ATTACHED = {
    "index expression": "CREATE INDEX ON {t} ((v || {n}.evil('x')))",
    "index predicate": "CREATE INDEX ON {t} (id) WHERE v <> {n}.evil('x')",
    "statistics": "CREATE STATISTICS {t}_s ON (v || {n}.evil('x')), id FROM {t}",
}


@pytest.fixture
def app(server, name):
    """An ordinary role with a schema of its own."""
    server.psql(f"""CREATE ROLE {name}_app LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}_app;
        GRANT USAGE ON SCHEMA {name} TO PUBLIC""")
    return lambda sql: server.psql(sql.replace("{t}", "{n}.t").replace("{n}.t_s", "{n}.stat")
                                   .replace("{n}", name), user=f"{name}_app")


def runs_as(server, name, role="postgres"):
    """How often the owner's function was run with the rights of `role`."""
    return server.log_text().count(f"evil {role} of {name};")


def map_it(server, topic, name, payload="NULL", table="t"):
    server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}.{table}',"
                f" $$'{topic}/' || coalesce(new.id, old.id)$$, {payload})")


def assert_select_runs_it(server, name, sql):
    """The premise: for whoever reads the table the planner runs the function."""
    before = runs_as(server, name)
    server.psql(f"EXPLAIN {sql}")
    assert runs_as(server, name) > before
    return runs_as(server, name)


@pytest.mark.parametrize("attached", ATTACHED.values(), ids=ATTACHED.keys())
def test_a_snapshot_calls_nothing_of_the_table(server, sub, topic, name, app, attached):
    app(EVIL + "CREATE TABLE {t} (id int PRIMARY KEY, v text); INSERT INTO {t} VALUES (1, 'a'), (2, 'b');"
        + attached)
    map_it(server, topic, name)
    before = assert_select_runs_it(server, name, f"SELECT * FROM {name}.t")
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')") == "2"
    assert [sub.json_message() for _ in range(2)] == [
        (f"{topic}/1", {"id": 1, "v": "a"}), (f"{topic}/2", {"id": 2, "v": "b"})]
    assert runs_as(server, name) == before
    # With a predicate it is the caller's own query.
    server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}', 'true')")
    assert runs_as(server, name) > before
    assert len(sub.messages(2)) == 2


def test_a_snapshot_calls_nothing_of_partitions(server, sub, topic, name, app):
    """Also not of the partition key, and whatever the partitions' columns are like."""
    app(EVIL + """
        CREATE TABLE {t} (gone int, id int, v text, w int DEFAULT 7) PARTITION BY RANGE ((v || {n}.evil('x')));
        ALTER TABLE {t} DROP COLUMN gone;
        CREATE TABLE {n}.p1 PARTITION OF {t} FOR VALUES FROM ('a') TO ('m');
        CREATE TABLE {n}.p2 (w int, extra int, v text CHECK (v <> {n}.evil('y')), id int);
        ALTER TABLE {n}.p2 DROP COLUMN extra;
        ALTER TABLE {t} ATTACH PARTITION {n}.p2 FOR VALUES FROM ('m') TO ('z');
        CREATE INDEX ON {t} ((v || {n}.evil('x')));
        INSERT INTO {t} VALUES (1, 'b', 7), (2, 'n', 8)""")
    server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}.t', $$'{topic}/' || new.id || '/' || partition$$,"
                " operations => '{insert}')")
    before = assert_select_runs_it(server, name, f"SELECT * FROM {name}.t WHERE v > 'c'")
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')") == "2"
    assert sorted(sub.json_message() for _ in range(2)) == [
        (f"{topic}/1/{name}.p1", {"id": 1, "v": "b", "w": 7}),
        (f"{topic}/2/{name}.p2", {"id": 2, "v": "n", "w": 8})]
    app("INSERT INTO {t} VALUES (3, 'o')")
    assert sub.json_message() == (f"{topic}/3/{name}.p2", {"id": 3, "v": "o", "w": 7})
    assert runs_as(server, name) == before, "nor does publishing its changes"


def test_a_snapshot_has_what_old_rows_do_not(server, sub, topic, name, app):
    """Columns that came later with a default, dropped ones, values out of line and compressed."""
    app("""CREATE TABLE {t} (id int PRIMARY KEY, gone text, big text, packed text);
        ALTER TABLE {t} ALTER big SET STORAGE EXTERNAL, ALTER gone SET STORAGE EXTERNAL;
        INSERT INTO {t} VALUES (1, repeat('g', 9000), repeat('b', 9000), repeat('p', 2500));
        ALTER TABLE {t} DROP COLUMN gone; ALTER TABLE {t} ADD later int DEFAULT 5, ADD none text;
        INSERT INTO {t} VALUES (2, 'b', NULL, 6, '')""")
    map_it(server, topic, name)
    whole = "SELECT json_agg(to_jsonb(t) ORDER BY id) FROM {}.t".format(name)
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')") == "2"
    assert [sub.json_message()[1] for _ in range(2)] == json.loads(server.psql(whole))


def test_a_foreign_partition_is_refused(server, name, app):
    """Its changes are not published, and reading it would be the work of its server's user mapping."""
    server.psql(f"""CREATE EXTENSION IF NOT EXISTS file_fdw; CREATE SERVER {name}_s FOREIGN DATA WRAPPER file_fdw;
        CREATE TABLE {name}.t (id int) PARTITION BY LIST (id);
        CREATE FOREIGN TABLE {name}.f PARTITION OF {name}.t FOR VALUES IN (1)
            SERVER {name}_s OPTIONS (filename '/nothing')""")
    server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}.t', $$'x'$$, operations => '{{insert}}')")
    with pytest.raises(RuntimeError, match="(?s)foreign table.*HINT.*predicate"):
        server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')")
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}'); DROP TABLE {name}.t; DROP SERVER {name}_s")


# --- sub-selects

LOOK_UP = "$$(SELECT max(o.v) FROM {n}.t o WHERE o.id = new.id AND o.v > 'A')$$"
SUB_SELECTS = ATTACHED | {
    "partition's check": """CREATE TABLE {n}.p (id int, v text, CHECK (v <> {n}.evil('y')));
        ALTER TABLE {t} ATTACH PARTITION {n}.p FOR VALUES FROM (100) TO (200)""",
    "partition's index": """CREATE TABLE {n}.p PARTITION OF {t} FOR VALUES FROM (100) TO (200);
        CREATE INDEX ON {n}.p ((v || {n}.evil('x')))""",
    "sub-partition's key": """CREATE TABLE {n}.p PARTITION OF {t} FOR VALUES FROM (100) TO (200)
        PARTITION BY RANGE ((v || {n}.evil('x')))""",
    "view": "CREATE VIEW {n}.w AS SELECT id, v || {n}.evil('x') AS v FROM {t};"
            "ALTER TABLE {t} RENAME TO u; ALTER VIEW {n}.w RENAME TO t; GRANT SELECT ON {t} TO PUBLIC",
}


def other(app, partitioned):
    app("CREATE TABLE {n}.victim (id int PRIMARY KEY);" +
        ("""CREATE TABLE {t} (id int, v text) PARTITION BY RANGE (id);
            CREATE TABLE {n}.p0 PARTITION OF {t} FOR VALUES FROM (0) TO (100);""" if partitioned
         else "CREATE TABLE {t} (id int PRIMARY KEY, v text);")
        + "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c');" + EVIL)


@pytest.mark.parametrize("attached", SUB_SELECTS)
def test_what_a_table_of_a_sub_select_gets_later_stops_the_mapping(server, sub, topic, name, app, attached):
    other(app, "partition" in attached)
    map_it(server, topic, name, LOOK_UP.replace("{n}", name), "victim")
    app("INSERT INTO {n}.victim VALUES (1)")
    assert sub.message().payload == b"a"
    before = runs_as(server, name)
    app(SUB_SELECTS[attached] + "; INSERT INTO {n}.victim VALUES (2)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert f"now calls {name}.evil" in status(server, name)
    assert letters(server, name)[-1].startswith("42501")
    with pytest.raises(RuntimeError, match="now calls"):
        server.psql(f"SELECT * FROM pgmqtt.preview_mapping('{name}')")
    assert runs_as(server, name) == before, "it was never run as the superuser"


def test_a_policy_that_a_table_of_a_sub_select_gets_later(server, sub, topic, name, app):
    """Of a mapping whose owner it holds for."""
    other(app, False)
    server.psql(f"CREATE ROLE {name}_admin LOGIN; GRANT pgmqtt_admin TO {name}_admin")
    app("GRANT SELECT ON {t}, {n}.victim TO {n}_admin")
    server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}.victim', $$'{topic}/' || new.id$$,"
                f"{LOOK_UP.replace('{n}', name)}, operations => '{{insert}}')", user=f"{name}_admin")
    app("INSERT INTO {n}.victim VALUES (1)")
    assert sub.message().payload == b"a"
    app("CREATE POLICY p ON {t} USING ({n}.evil(v) = v); ALTER TABLE {t} ENABLE ROW LEVEL SECURITY;"
        "INSERT INTO {n}.victim VALUES (2)")
    assert_stopped(server, sub, name)
    assert runs_as(server, name, f"{name}_admin") == 0


def test_the_difference_of_a_range_that_the_planner_estimates_with(server, sub, topic, name, app):
    """A column of a sub-select's table becomes one of a type whose owner says how to subtract."""
    app("""CREATE TABLE {n}.victim (id int PRIMARY KEY); CREATE TABLE {t} (r int4range);
        INSERT INTO {t} SELECT int4range(i, i + 10) FROM generate_series(1, 300) i""")
    select = f"SELECT count(*)::text FROM {name}.t o WHERE o.r && '[1,5)'"
    map_it(server, topic, name, f"$$({select})$$", "victim")
    app("INSERT INTO {n}.victim VALUES (1)")
    assert sub.message().payload == b"4"
    app("""CREATE FUNCTION {n}.evil_diff(int, int) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $f$BEGIN
            RAISE LOG 'evil % of {n};', current_user; RETURN $1 - $2; END$f$;
        CREATE TYPE {n}.er AS RANGE (subtype = int, subtype_diff = {n}.evil_diff);
        ALTER TABLE {t} ALTER r TYPE {n}.er USING {n}.er(lower(r), upper(r)); ANALYZE {t}""")
    before = assert_select_runs_it(server, name, select)
    app("INSERT INTO {n}.victim VALUES (2)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert f"now calls {name}.evil_diff" in status(server, name)
    assert runs_as(server, name) == before


WAITING = """CREATE TABLE {n}_other (v int);
    CREATE FUNCTION {n}_wait(wait boolean) RETURNS text LANGUAGE plpgsql {volatility} AS $f$BEGIN
        IF NOT wait THEN RETURN ''; END IF;
        PERFORM pg_advisory_lock_shared(4714);
        WHILE NOT pg_try_advisory_lock_shared(4715) LOOP PERFORM pg_sleep(0.01); END LOOP;
        PERFORM count(*) FROM {n}_other;  -- a lock: what others changed is heard of
        PERFORM {n}.other(); RETURN ''; END$f$;
    CREATE FUNCTION {n}.other() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'"""


@pytest.mark.parametrize("volatility,wait", [
    ("VOLATILE", "new.id = 2"), ("IMMUTABLE", "true"), ("IMMUTABLE SECURITY DEFINER", "true")],
    ids=["evaluated", "planned", "planned as its owner"])
def test_an_index_that_is_made_meanwhile(server, sub, topic, name, app, volatility, wait):
    """Between two rows of a batch; while the planner is at work, which runs what is IMMUTABLE."""
    other(app, False)
    server.psql(WAITING.replace("{n}", name).replace("{volatility}", volatility)
                + f"; GRANT SELECT ON {name}_other TO {name}_app; ALTER FUNCTION {name}_wait OWNER TO {name}_app")
    map_it(server, topic, name, f"$${name}_wait({wait}) || (SELECT max(o.v) FROM {name}.t o WHERE o.id = new.id)$$",
           "victim")
    with server.connect().cursor() as gate:
        gate.execute("SELECT pg_advisory_lock(4715)")
        app("INSERT INTO {n}.victim VALUES (2), (3)")
        server.wait_for(lambda: server.psql("SELECT pg_try_advisory_xact_lock(4714)") == "f", "it waits")
        app(ATTACHED["index expression"])
        gate.execute("SELECT pg_advisory_unlock(4715)")
    before = runs_as(server, name)
    if volatility == "VOLATILE":
        assert sub.message().payload == b"b", "the premise: it was planned before"
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert f"now calls {name}.evil" in letters(server, name)[-1]
    assert runs_as(server, name) == before


def test_what_a_sub_select_reads_when_the_mapping_is_made_is_called(server, sub, topic, name, app):
    """And what functions of the mapping's owner call is his; C functions and his own tables' are exempt."""
    other(app, False)
    app(ATTACHED["index expression"])
    server.psql(f"""CREATE TABLE {name}_own (id int PRIMARY KEY, v text);
        CREATE FUNCTION {name}_inner(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
        CREATE FUNCTION {name}_f(text) RETURNS text LANGUAGE plpgsql IMMUTABLE
            AS 'BEGIN RETURN {name}_inner($1); END';
        CREATE FUNCTION {name}_rows(int) RETURNS SETOF text LANGUAGE sql STABLE
            AS $f$SELECT v || {name}_inner('!') FROM {name}.t WHERE id = $1$f$""")
    map_it(server, topic, name, f"""$$(SELECT max(o.v) FROM {name}.t o WHERE o.id = new.id) || {name}_f('+') ||
        (SELECT string_agg(r, '') FROM {name}_rows(new.id) r) || (SELECT count(*) FROM {name}_own)$$""", "victim")
    calls = server.psql(f"SELECT calls FROM pgmqtt.mapping WHERE name = '{name}'")
    assert f"{name}.evil" in calls and f"{name}_inner" not in calls
    app("INSERT INTO {n}.victim VALUES (1)")
    assert sub.message().payload == b"a+a!0"
    server.psql(f"CREATE INDEX ON {name}_own ((v || {name}_inner('x')))")
    app("CREATE INDEX ON {t} (lower(v)); INSERT INTO {n}.victim VALUES (2)")
    assert sub.message().payload == b"b+b!0"
    assert status(server, name) == "streaming|"
