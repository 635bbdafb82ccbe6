"""Whose rights a mapping has (B17, B18): its owner's, read only, and nobody else's by a trick."""

import re

import pytest

from test_mappings import wait_until_decoded


@pytest.fixture
def admin(server, name):
    """A role that may make mappings, and has nothing else."""
    role = f"{name}_admin"
    server.psql(f"CREATE ROLE {role} LOGIN; GRANT pgmqtt_admin TO {role};"
                f"CREATE TABLE {name} (id int PRIMARY KEY, v text DEFAULT 'v')")
    return role


def add(name, more=""):
    return f"SELECT pgmqtt.add_mapping('{name}', '{name}', {more})"


def status(server, name):
    return server.psql(f"SELECT status, message FROM pgmqtt.mappings WHERE name = '{name}'")


def letters(server, name):
    return server.psql("SELECT sqlstate, message FROM pgmqtt.dead_letter"
                       f" WHERE name = '{name}' ORDER BY id").splitlines()


def test_a_mapping_needs_select_on_its_table(server, admin, topic, name):
    """B18: pgmqtt_admin may call add_mapping(), and may still read only what it is granted."""
    with pytest.raises(RuntimeError, match="42501.*permission denied for table"):
        server.psql(add(name, f"$$'{topic}'$$"), user=admin)
    server.psql(f"GRANT SELECT (id) ON {name} TO {admin}")
    with pytest.raises(RuntimeError, match="42501"):
        server.psql(add(name, f"$$'{topic}'$$, $$new.id::text$$"), user=admin)
    server.psql(f"GRANT SELECT ON {name} TO {admin}")
    server.psql(add(name, f"$$'{topic}'$$"), user=admin)


def test_an_ordinary_role_makes_no_mapping(server, admin, topic, name):
    """B18"""
    server.psql(f"CREATE ROLE {name}_app LOGIN; GRANT SELECT ON {name} TO {name}_app")
    with pytest.raises(RuntimeError, match="42501"):
        server.psql(add(name, f"$$'{topic}'$$"), user=f"{name}_app")
    for write in ("INSERT INTO pgmqtt.mapping OVERRIDING SYSTEM VALUE SELECT * FROM pgmqtt.mapping",
                  "UPDATE pgmqtt.mapping SET owner = 'postgres'", "DELETE FROM pgmqtt.mapping"):
        for role in (f"{name}_app", admin):
            with pytest.raises(RuntimeError, match="42501"):
                server.psql(write, user=role)


def test_sub_selects_read_what_the_owner_may_read(server, sub, admin, topic, name):
    """B18: at the creation, and again when a right is taken away."""
    server.psql(f"CREATE TABLE {name}_payroll (salary int); INSERT INTO {name}_payroll VALUES (4711);"
                f"GRANT SELECT ON {name} TO {admin}")
    steal = add(name, f"$$'{topic}/' || new.id$$, $$(SELECT salary::text FROM {name}_payroll)$$")
    with pytest.raises(RuntimeError, match="42501.*payroll"):
        server.psql(steal, user=admin)
    server.psql(f"GRANT SELECT ON {name}_payroll TO {admin}")
    server.psql(steal, user=admin)
    server.psql(f"INSERT INTO {name} VALUES (1)")
    assert sub.message().payload == b"4711"
    server.psql(f"REVOKE SELECT ON {name}_payroll FROM {admin}; INSERT INTO {name} VALUES (2)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert letters(server, name) == [f"42501|permission denied for table {name}_payroll"]


def test_revoked_select_stops_the_mapping(server, sub, admin, topic, name):
    """B18"""
    server.psql(f"GRANT SELECT ON {name} TO {admin}")
    server.psql(add(name, f"$$'{topic}'$$, $$new.v$$"), user=admin)
    server.psql(f"INSERT INTO {name} VALUES (1, 'granted')")
    assert sub.message().payload == b"granted"
    server.psql(f"REVOKE SELECT ON {name} FROM {admin}; INSERT INTO {name} VALUES (2, 'revoked')")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert status(server, name) == f"error|permission denied for table {name}"
    server.psql(f"GRANT SELECT ON {name} TO {admin}; INSERT INTO {name} VALUES (3, 'again')")
    assert sub.message().payload == b"again"


def test_a_mapping_whose_owner_is_gone_stops(server, sub, admin, topic, name):
    """B18: also where everybody may read the table."""
    server.psql(f"GRANT SELECT ON {name} TO PUBLIC")
    server.psql(add(name, f"$$'{topic}'$$, $$current_user::text$$"), user=admin)
    server.psql(f"INSERT INTO {name} VALUES (1)")
    assert sub.message().payload == admin.encode()
    server.psql(f"DROP ROLE {admin}; INSERT INTO {name} VALUES (2)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert status(server, name).startswith("error|the mapping's owner")
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}')")


def test_row_level_security_that_hides_rows_is_refused(server, sub, admin, topic, name):
    """B18: a policy for the owner of the mapping, at the creation and later."""
    server.psql(f"""
        GRANT SELECT ON {name} TO {admin};
        ALTER TABLE {name} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY mine ON {name} USING (v = current_user)""")
    with pytest.raises(RuntimeError, match="42501.*row-level security"):
        server.psql(add(name, f"$$'{topic}'$$"), user=admin)
    server.psql(f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY")
    server.psql(add(name, f"$$'{topic}'$$, $$new.v$$"), user=admin)
    server.psql(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; INSERT INTO {name} VALUES (1, 'hidden')")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert "row-level security" in status(server, name)
    # The table's owner and who has BYPASSRLS see all rows, and so may their mapping.
    server.psql(add(name, f"$$'{topic}'$$, $$new.v$$").replace(f"('{name}'", f"('{name}_owner'"))
    server.psql(f"INSERT INTO {name} VALUES (2, 'seen')")
    assert sub.message().payload == b"seen"


def test_a_preview_hides_no_rows_unsaid(server, admin, topic, name):
    """B18: it is the caller who reads the rows, and a policy may hold for him and not for the mapping."""
    server.psql(f"INSERT INTO {name} VALUES (1, 'seen'), (2, 'hidden'); GRANT SELECT ON {name} TO {admin};"
                f"ALTER ROLE {admin} BYPASSRLS; CREATE ROLE {name}_member LOGIN IN ROLE {admin}")
    server.psql(add(name, f"$$'{topic}/' || new.id$$, operations => '{{insert}}'"), user=admin)
    preview = f"SELECT count(*) FROM pgmqtt.preview_mapping('{name}'"
    assert server.psql(f"{preview})", user=f"{name}_member") == "2", "the premise: he may"
    server.psql(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {name} USING (v = 'seen')")
    for predicate in ("", ", 'new.id = 1'"):
        with pytest.raises(RuntimeError, match=f"(?s)42501.*hides rows from role \"{name}_member\".*HINT.*BYPASSRLS"):
            server.psql(f"{preview}{predicate})", user=f"{name}_member")
        assert server.psql(f"{preview}{predicate})", user=admin) == ("1" if predicate else "2")
    assert server.psql(f"{preview})") == "2"


WRITES = [
    ("INSERT INTO {name}_log VALUES (1)", "25006"),
    ("CREATE TEMP TABLE {name}_temp (v int)", "25006|42501"),
    ("PERFORM nextval('{name}_seq')", "25006"),
    ("PERFORM pgmqtt.publish('{topic}/written', 'x'::text)", "25006"),
    ("SET TRANSACTION READ WRITE", "25001"),
    ("PERFORM set_config('transaction_read_only', 'off', true)", "25001"),
    ("PERFORM set_config('role', 'postgres', false)", "42501"),
    ("PERFORM set_config('session_authorization', 'postgres', false)", "42501"),
    ("SET ROLE postgres", "42501"),
    ("RESET ROLE", "42501"),
    ("RESET SESSION AUTHORIZATION", "42501"),
    ("COMMIT", "2D000"),
]


@pytest.mark.parametrize("statement,sqlstate", WRITES)
@pytest.mark.parametrize("security", ["INVOKER", "DEFINER"])
def test_functions_in_expressions_cannot_write_or_become_somebody(server, sub, admin, topic, name,
                                                                  statement, sqlstate, security):
    """B18: of the mapping's owner, who tries; also as SECURITY DEFINER of a superuser."""
    body = statement.format(name=name, topic=topic)
    server.psql(f"""
        GRANT SELECT ON {name} TO {admin};
        CREATE TABLE {name}_log (v int); CREATE SEQUENCE {name}_seq;
        GRANT ALL ON {name}_log, {name}_seq TO {admin};
        CREATE FUNCTION {name}_f() RETURNS text LANGUAGE plpgsql SECURITY {security} AS $f$
            BEGIN {body}; RETURN 'done'; END $f$;
        {'' if security == 'DEFINER' else f'ALTER FUNCTION {name}_f() OWNER TO {admin}'}""")
    server.psql(add(name, f"$$'{topic}'$$, $${name}_f()$$"), user=admin)
    server.psql(f"INSERT INTO {name} VALUES (1)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    (letter,) = letters(server, name)
    assert re.match(sqlstate, letter), letter
    assert server.psql(f"SELECT count(*) FROM {name}_log") == "0"


def test_settings_that_an_expression_changes_end_with_it(server, sub, admin, topic, name):
    """B18: the next mapping is evaluated as if nothing had been set."""
    server.psql(f"""
        GRANT SELECT ON {name} TO {admin};
        SELECT pgmqtt.add_mapping('{name}_1', '{name}', $$'{topic}/1'$$,
            $$set_config('search_path', 'nowhere', false) || set_config('extra_float_digits', '-5', false) ||
              set_config('bytea_output', 'escape', false)$$);
        SELECT pgmqtt.add_mapping('{name}_2', '{name}', $$'{topic}/2'$$,
            $$current_setting('search_path') || ',' || current_setting('extra_float_digits') || ',' ||
              current_setting('bytea_output')$$)""")
    usual = server.psql("SELECT current_setting('search_path') || ',' ||"
                        " current_setting('extra_float_digits') || ',' || current_setting('bytea_output')")
    for row in (1, 2):
        server.psql(f"INSERT INTO {name} VALUES ({row})")
        assert sub.message().payload == b"nowhere-5escape", "the premise"
        assert sub.message().payload.decode() == usual


def test_advisory_locks_of_an_expression_end_with_its_batch(server, sub, topic, name):
    """B18: the session is the worker's, and it would hold them for ever."""
    server.psql(f"""CREATE TABLE {name} (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}'$$,
            $$(SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory') || pg_advisory_lock(4711)$$);
        INSERT INTO {name} VALUES (1)""")
    assert sub.message().payload == b"0"
    server.wait_for(lambda: server.psql("SELECT pg_try_advisory_lock(4711)") == "t", "it is free")
    server.psql(f"INSERT INTO {name} VALUES (2)")
    assert sub.message().payload == b"0"


def test_advisory_locks_of_a_sink_end_with_its_batch(server, raw, topic, name):
    """B18"""
    server.psql(f"SELECT pgmqtt.add_sink('{name}', '{topic}/in', 'SELECT pg_advisory_lock(4712) FROM msg')")
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/in", "x", 1).code < 0x80
    server.wait_for(lambda: server.psql("SELECT pg_try_advisory_lock(4712)") == "t", "it is free")


def test_a_function_that_fits_better_later_is_not_called(server, sub, admin, topic, name):
    """B18: somebody may create functions in a schema of the search_path: the trojan operator."""
    server.psql(f"""
        GRANT SELECT ON {name} TO {admin};
        CREATE ROLE {name}_mallory LOGIN;
        CREATE SCHEMA {name}_shared;
        GRANT USAGE, CREATE ON SCHEMA {name}_shared TO {admin}, {name}_mallory;
        CREATE TABLE {name}_loot (who text); GRANT SELECT ON {name}_loot TO PUBLIC;
        CREATE FUNCTION {name}_shared.label(anyelement) RETURNS text LANGUAGE sql
            AS $$SELECT 'label ' || $1::text$$""")
    server.psql(f"SET search_path = {name}_shared, public;"
                + add(name, f"$$'{topic}/' || new.id$$, $$label(new.id)$$"))
    server.psql(f"INSERT INTO {name} VALUES (1)")
    assert sub.message().payload == b"label 1"
    server.psql(f"""
        CREATE FUNCTION {name}_shared.label(int) RETURNS text LANGUAGE plpgsql IMMUTABLE
            AS $f$BEGIN RAISE LOG 'trojan % in {name}', current_user; RETURN 'trojan'; END$f$;
        CREATE FUNCTION {name}_shared.cat(text, int) RETURNS text LANGUAGE plpgsql IMMUTABLE
            AS $f$BEGIN RAISE LOG 'trojan % in {name}', current_user; RETURN 'trojan'; END$f$;
        CREATE OPERATOR {name}_shared.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = {name}_shared.cat)""",
                user=f"{name}_mallory")
    # What makes the server parse the expressions again: a change of the table, a new worker.
    server.psql(f"ALTER TABLE {name} ADD COLUMN w int; INSERT INTO {name} VALUES (2)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert "now calls" in status(server, name)
    before = server.worker_pid("pgmqtt cdc")
    server.psql(f"SELECT pg_terminate_backend({before})")
    server.wait_for(lambda: server.worker_pid("pgmqtt cdc") not in (None, before), "it is back")
    server.psql(f"INSERT INTO {name} VALUES (3)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert "now calls" in status(server, name)
    with pytest.raises(RuntimeError, match="now calls"):
        server.psql(f"SELECT * FROM pgmqtt.preview_mapping('{name}')")
    assert f"in {name}" not in server.log_text(), "it was never run"
    # Nothing holds back the others, and there is a way on.
    server.psql(f"SELECT pgmqtt.drop_mapping('{name}'); DROP SCHEMA {name}_shared CASCADE;"
                + add(name, f"$$'{topic}/' || new.id$$, $$new.v$$") + f"; INSERT INTO {name} VALUES (4)")
    assert sub.message().payload == b"v"


def test_a_function_that_somebody_else_made_anew_is_not_called(server, sub, admin, topic, name):
    """B18: nothing keeps a function that a mapping calls from being dropped; its name is free then."""
    server.psql(f"""
        GRANT SELECT ON {name} TO {admin}; CREATE ROLE {name}_mallory LOGIN; CREATE ROLE {name}_ann LOGIN;
        CREATE SCHEMA {name}_shared; GRANT USAGE, CREATE ON SCHEMA {name}_shared TO PUBLIC""")
    label = f"""CREATE OR REPLACE FUNCTION {name}_shared.label(int) RETURNS text LANGUAGE plpgsql AS
        $f$BEGIN RAISE LOG '% of {name};', current_user; RETURN '%'; END$f$"""
    server.psql(label.replace("'%'", "'ann'"), user=f"{name}_ann")
    server.psql(add(name, f"$$'{topic}/' || new.id$$, $${name}_shared.label(new.id)$$"))
    server.psql(f"INSERT INTO {name} VALUES (1)")
    assert sub.message().payload == b"ann"
    server.psql(label.replace("'%'", "'ann again'"), user=f"{name}_ann")
    server.psql(f"INSERT INTO {name} VALUES (2)")
    assert sub.message().payload == b"ann again", "whom the mapping's owner trusted may change it"
    server.psql(f"DROP FUNCTION {name}_shared.label", user=f"{name}_ann")
    server.psql(label.replace("'%'", "'mallory'"), user=f"{name}_mallory")
    ran = server.log_text().count(f"postgres of {name};")
    server.psql(f"INSERT INTO {name} VALUES (3)")
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
    assert "belonged to somebody else" in status(server, name)
    assert server.log_text().count(f"postgres of {name};") == ran > 0, "it was never run"
    server.psql(f"ALTER FUNCTION {name}_shared.label OWNER TO postgres; INSERT INTO {name} VALUES (4)")
    assert sub.message().payload == b"mallory", "who may act as the mapping's owner is trusted"


def test_a_type_change_may_call_other_functions_of_the_system(server, sub, topic, name):
    """Only functions outside of pg_catalog are held to what they were."""
    server.psql(f"CREATE TABLE {name} (id int PRIMARY KEY);"
                + add(name, f"$$'{topic}'$$, $$(new.id + 1)::text$$")
                + f"; ALTER TABLE {name} ALTER id TYPE bigint; INSERT INTO {name} VALUES (5000000000)")
    assert sub.message().payload == b"5000000001"


def test_names_like_ours_mean_nothing(server, sub, admin, topic, name):
    """B17: tables called as our catalog in other schemas; pgmqtt_ is a prefix like any other."""
    server.psql(f"CREATE ROLE {name}_app LOGIN; CREATE SCHEMA {name}_evil AUTHORIZATION {name}_app;"
                f"CREATE TABLE pgmqtt_{name} (id int PRIMARY KEY)")
    before = server.psql("SELECT count(*) FROM pgmqtt.mappings")
    server.psql(f"""
        CREATE TABLE {name}_evil.mapping (id int, name text, source regclass, topic text, payload text,
            filter text, operations text[], qos int, retain boolean, properties text, on_error text,
            owner regrole, search_path text, calls text[], enabled boolean);
        CREATE TABLE {name}_evil.outbox (topic text, payload text);
        CREATE TABLE {name}_evil.sink (name text);
        INSERT INTO {name}_evil.mapping VALUES (1, 'evil', 'pgmqtt_{name}', $$'{topic}/evil'$$, NULL, NULL,
            '{{insert}}', 1, false, NULL, 'skip', 'postgres', '', NULL, true);
        INSERT INTO {name}_evil.outbox VALUES ('{topic}/evil', 'x')""", user=f"{name}_app")
    assert server.psql("SELECT count(*) FROM pgmqtt.mappings") == before
    # Whoever has such a schema first in the search_path still means ours.
    server.psql(f"SET search_path = {name}_evil, public, pgmqtt;"
                f"SELECT pgmqtt.add_mapping('{name}', 'pgmqtt_{name}', $$'{topic}/ours'$$);"
                f"SELECT pgmqtt.publish('{topic}/sent', ''::text);"
                f"INSERT INTO pgmqtt_{name} VALUES (1)")
    assert {sub.message().topic, sub.message().topic} == {f"{topic}/ours", f"{topic}/sent"}
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()
