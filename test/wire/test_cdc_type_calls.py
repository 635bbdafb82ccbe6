"""B18: functions that nobody names, which the server calls because of a value's type: the owner of
a mapped table must not have one run with the rights of the mapping's owner."""

import pytest

from test_cdc_privileges import letters, status
from test_mappings import wait_until_decoded

EN = """CREATE TYPE {n}.en AS ENUM ('x');
CREATE FUNCTION {n}.evil({n}.en) RETURNS json LANGUAGE plpgsql AS $f$BEGIN
    RAISE LOG 'evil % of {n};', current_user; RETURN json_build_object('user', current_user); END$f$;
"""
CAST = "CREATE CAST ({n}.en AS json) WITH FUNCTION {n}.evil({n}.en);"
EVIL_DOMAIN = """CREATE FUNCTION {n}.evil(text) RETURNS boolean LANGUAGE plpgsql AS $f$BEGIN
    RAISE LOG 'evil % of {n};', current_user; RETURN true; END$f$;
CREATE DOMAIN {n}.dom AS text CHECK ({n}.evil(VALUE));
"""


@pytest.fixture
def app(server, name):
    """An ordinary role with a schema and a table of its own, which a superuser's mapping names."""
    server.psql(f"""CREATE ROLE {name}_app LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}_app;
        SET ROLE {name}_app; CREATE TABLE {name}.victim (id int PRIMARY KEY, v text)""")
    return lambda sql: server.psql(sql.replace("{n}", name), user=f"{name}_app")


def map_it(server, topic, name, payload=None):
    value = "NULL" if payload is None else f"$${payload}$$"
    server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}.victim',"
                f" $$'{topic}/' || coalesce(new.id, old.id)$$, {value})")


def assert_stopped(server, sub, name):
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert "now calls" in status(server, name), status(server, name)
    assert f"{name}.evil" in status(server, name)
    assert letters(server, name)[-1].startswith("42501")
    with pytest.raises(RuntimeError, match="now calls"):
        server.psql(f"SELECT * FROM pgmqtt.preview_mapping('{name}')")
    assert f"evil postgres of {name};" not in server.log_text(), "it was never run as the superuser"


PAYLOADS = {
    "default": None,
    "to_jsonb": "to_jsonb(new)",
    "row_to_json": "row_to_json(new)",
    "jsonb_build_object": "jsonb_build_object('row', new)",
    "json_agg": "(SELECT json_agg(r) FROM (SELECT new.*) r)",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_cast_to_json_of_a_new_column(server, sub, topic, name, app, payload):
    map_it(server, topic, name, payload)
    app("INSERT INTO {n}.victim VALUES (1, 'a')")
    assert sub.message().topic == f"{topic}/1", "the premise: it publishes"
    app(EN + CAST + "ALTER TABLE {n}.victim ADD e {n}.en; INSERT INTO {n}.victim VALUES (2, 'b', 'x')")
    assert_stopped(server, sub, name)
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}')")


SHAPES = {
    "array": "ALTER TABLE {n}.victim ADD e {n}.en[]; INSERT INTO {n}.victim VALUES (2, 'b', '{x}')",
    "composite": "CREATE TYPE {n}.comp AS (i int, e {n}.en); ALTER TABLE {n}.victim ADD e {n}.comp;"
                 "INSERT INTO {n}.victim VALUES (2, 'b', '(1,x)')",
    "domain": "CREATE DOMAIN {n}.d AS {n}.en; ALTER TABLE {n}.victim ADD e {n}.d;"
              "INSERT INTO {n}.victim VALUES (2, 'b', 'x')",
    "field added to a type in use":
        "CREATE TYPE {n}.comp AS (i int); ALTER TABLE {n}.victim ADD e {n}.comp;"
        "ALTER TYPE {n}.comp ADD ATTRIBUTE e {n}.en; INSERT INTO {n}.victim VALUES (2, 'b', '(1,x)')",
    "array of composites": "CREATE TYPE {n}.comp AS (e {n}.en); ALTER TABLE {n}.victim ADD e {n}.comp[];"
                           "INSERT INTO {n}.victim VALUES (2, 'b', ARRAY[ROW('x')::{n}.comp])",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_cast_to_json_inside_of_a_column(server, sub, topic, name, app, shape):
    map_it(server, topic, name)
    app(EN + CAST + shape)
    assert_stopped(server, sub, name)


def test_a_cast_that_is_made_later(server, sub, topic, name, app):
    """The table does not change; the worker has evaluated rows of it before."""
    app(EN + "ALTER TABLE {n}.victim ADD e {n}.en")
    map_it(server, topic, name)
    app("INSERT INTO {n}.victim VALUES (1, 'a', 'x')")
    assert b'"e": "x"' in sub.message().payload, "the premise: no cast"
    app(CAST + "INSERT INTO {n}.victim VALUES (2, 'b', 'x')")
    assert_stopped(server, sub, name)
    app("DROP CAST ({n}.en AS json); INSERT INTO {n}.victim VALUES (3, 'c', 'x')")
    assert sub.message().topic == f"{topic}/3", "without it the mapping goes on"


def test_a_cast_that_is_made_while_the_row_is_evaluated(server, sub, topic, name, app):
    """Between the beginning of the evaluation and the moment in which the cast is looked for."""
    app(EN + "ALTER TABLE {n}.victim ADD e {n}.en")
    server.psql(f"""CREATE TABLE {name}_gate (evaluating int); CREATE TABLE {name}_other (v int);
        CREATE FUNCTION {name}_wait() RETURNS text LANGUAGE plpgsql AS $f$BEGIN
            PERFORM pg_advisory_lock_shared(4713);
            WHILE (SELECT count(*) FROM {name}_gate) = 0 LOOP PERFORM pg_sleep(0.01); END LOOP;
            PERFORM count(*) FROM {name}_other;  -- a lock: what others changed is heard of
            RETURN 'waited '; END$f$""")
    map_it(server, topic, name, f"{name}_wait() || to_jsonb(new)::text")
    app("INSERT INTO {n}.victim VALUES (1, 'a', 'x')")
    server.wait_for(lambda: server.psql("SELECT pg_try_advisory_xact_lock(4713)") == "f", "it is evaluated")
    app(CAST)
    server.psql(f"INSERT INTO {name}_gate VALUES (1)")
    assert_stopped(server, sub, name)
    app("DROP CAST ({n}.en AS json); INSERT INTO {n}.victim VALUES (3, 'c', 'x')")
    assert sub.message().payload.startswith(b"waited {"), "the premise: what it calls may be called"


def test_a_snapshot_of_rows_from_before_the_cast(server, sub, topic, name, app):
    app(EN + "ALTER TABLE {n}.victim ADD e {n}.en")
    map_it(server, topic, name)
    app("INSERT INTO {n}.victim VALUES (1, 'a', 'x')")
    sub.message()
    app(CAST)
    assert server.psql(f"SELECT pgmqtt.snapshot_mapping('{name}')") == "1"
    assert_stopped(server, sub, name)


def test_rows_from_before_the_cast_that_are_evaluated_after_it(server, sub, topic, name, app):
    """One transaction writes the row and changes the type: it is evaluated with what is there then."""
    map_it(server, topic, name)
    session = server.connect(user=f"{name}_app", autocommit=False)
    session.cursor().execute((f"INSERT INTO {name}.victim VALUES (1, 'x'); " + EN + CAST + """
        ALTER TABLE {n}.victim ALTER v TYPE {n}.en USING v::{n}.en""").replace("{n}", name))
    session.commit()
    assert_stopped(server, sub, name)


@pytest.mark.parametrize("payload", ["jsonb_build_object('a', new.v)", "json_build_array(new.v)",
                                     "to_json(new.v)", "array_to_json(ARRAY[new.v])"])
def test_a_column_whose_type_becomes_one_with_a_cast(server, sub, topic, name, app, payload):
    map_it(server, topic, name, payload)
    app("INSERT INTO {n}.victim VALUES (1, 'x')")
    sub.message()
    app(EN + CAST + "ALTER TABLE {n}.victim ALTER v TYPE {n}.en USING v::{n}.en;"
        "INSERT INTO {n}.victim VALUES (2, 'x')")
    assert_stopped(server, sub, name)


def test_a_table_that_a_sub_select_reads(server, sub, topic, name, app):
    app("CREATE TABLE {n}.other (v text); INSERT INTO {n}.other VALUES ('x')")
    map_it(server, topic, name, f"(SELECT json_agg(o) FROM {name}.other o)")
    app("INSERT INTO {n}.victim VALUES (1, 'x')")
    assert b'"v":"x"' in sub.message().payload
    app(EN + CAST + "ALTER TABLE {n}.other ALTER v TYPE {n}.en USING v::{n}.en;"
        "INSERT INTO {n}.victim VALUES (2, 'x')")
    assert_stopped(server, sub, name)


def test_a_check_of_a_domain_that_values_are_converted_to(server, sub, topic, name, app):
    """A row from before the ALTER TABLE is converted to the new type, by the mapping's owner."""
    map_it(server, topic, name, "new.v::text")
    app(EVIL_DOMAIN)
    session = server.connect(user=f"{name}_app", autocommit=False)
    session.cursor().execute(f"INSERT INTO {name}.victim VALUES (1, 'x');"
                             f"ALTER TABLE {name}.victim ALTER v TYPE {name}.dom")
    session.commit()
    assert_stopped(server, sub, name)


def test_a_check_that_a_domain_gets_later(server, sub, topic, name, app):
    app("CREATE DOMAIN {n}.dom AS text; ALTER TABLE {n}.victim ADD d {n}.dom")
    map_it(server, topic, name, f"(new.v::{name}.dom)::text")
    app("INSERT INTO {n}.victim VALUES (1, 'x')")
    assert sub.message().payload == b"x"
    app("""CREATE FUNCTION {n}.evil(text) RETURNS boolean LANGUAGE plpgsql AS $f$BEGIN
            RAISE LOG 'evil % of {n};', current_user; RETURN true; END$f$;
        ALTER DOMAIN {n}.dom ADD CHECK ({n}.evil(VALUE)); INSERT INTO {n}.victim VALUES (2, 'x')""")
    assert_stopped(server, sub, name)


def test_a_literal_that_takes_the_type_of_a_column(server, sub, topic, name, app):
    """The parser calls the input function, which calls the CHECK."""
    app("ALTER TABLE {n}.victim ADD tags text[]")
    map_it(server, topic, name, "(new.tags = '{b}')::text")
    app("INSERT INTO {n}.victim VALUES (1, 'a', '{b}')")
    assert sub.message().payload == b"true"
    app(EVIL_DOMAIN + "ALTER TABLE {n}.victim ALTER tags TYPE {n}.dom[]; INSERT INTO {n}.victim VALUES (2)")
    assert_stopped(server, sub, name)


def test_what_is_there_when_the_mapping_is_made_is_called(server, sub, topic, name, app):
    """The owner of the mapping could see it; and other types of the table are nobody's concern."""
    app(EN + CAST + "ALTER TABLE {n}.victim ADD e {n}.en")
    map_it(server, topic, name)
    assert f"{name}.evil" in server.psql(f"SELECT calls FROM pgmqtt.mapping WHERE name = '{name}'")
    app("INSERT INTO {n}.victim VALUES (1, 'a', 'x')")
    assert b'{"user": "postgres"}' in sub.message().payload
    app("CREATE TYPE {n}.mood AS ENUM ('good'); CREATE DOMAIN {n}.short AS text CHECK (length(VALUE) < 9);"
        "CREATE TYPE {n}.span AS RANGE (subtype = int); CREATE TYPE {n}.pair AS (m {n}.mood, s {n}.short);"
        "ALTER TABLE {n}.victim ADD m {n}.mood, ADD s {n}.short, ADD r {n}.span, ADD p {n}.pair[];"
        "INSERT INTO {n}.victim VALUES (2, 'b', 'x', 'good', 'short', '[1,2)', ARRAY[('good', 'p')::{n}.pair])")
    assert b'"m": "good"' in sub.message().payload
    assert status(server, name) == "streaming|"
