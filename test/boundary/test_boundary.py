"""The boundary between C++ and the server (src/pg), provoked through a test module.

The module is preloaded in place of pgmqtt on a private server: it has the same shared memory, hooks
and worker class, and functions that raise and throw where pgmqtt would rather not.
"""

import os
import random
import shutil
import sys
import time
from pathlib import Path

import psycopg2
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.server import Server  # noqa: E402
from harness.waiting import wait_for  # noqa: E402

MODULE = Path(__file__).resolve().parents[2] / "build" / "boundary" / "pgmqtt_boundary.so"
FUNCTIONS = """
    destructors(int) RETURNS int
    throw(text) RETURNS void
    destroyed() RETURNS int
    exception_across_guard() RETURNS bool
    subtransaction(text) RETURNS text
    act_as(regrole, bool) RETURNS text
    timestamp(timestamptz) RETURNS timestamptz
    unix_microseconds(timestamptz) RETURNS bigint
    from_utf8(bytea) RETURNS text
    to_utf8(text) RETURNS bytea
    events() RETURNS text
    mark(int) RETURNS void
    watch(oid[]) RETURNS void
    require_preload() RETURNS void
    run_rounds(bigint) RETURNS void
    get_stuck() RETURNS void
    survived() RETURNS text
    exchange(bigint) RETURNS void
    exchanged() RETURNS text
"""
CREATE_FUNCTIONS = "".join(
    f"CREATE FUNCTION boundary_{line.strip()} LANGUAGE c STRICT AS "
    f"'pgmqtt_boundary', 'boundary_{line.strip().split('(')[0]}';\n"
    for line in FUNCTIONS.strip().splitlines())


@pytest.fixture(scope="module", autouse=True)
def plain_tree():
    """pgmqtt itself is not needed: not built, not installed."""
    before = os.environ.get("PGMQTT_TEST_PLAIN")
    os.environ["PGMQTT_TEST_PLAIN"] = "1"
    yield
    if before is None:
        del os.environ["PGMQTT_TEST_PLAIN"]


def new_server(**options):
    conf = {"shared_preload_libraries": "pgmqtt_boundary", "max_prepared_transactions": 5}
    conf.update(options.pop("conf", {}))
    server = Server(conf=conf, create_extension=False, **options)
    target = server.tree.lib / MODULE.name
    if not target.exists() or target.stat().st_mtime < MODULE.stat().st_mtime:
        shutil.copy(MODULE, target)
        target.chmod(0o755)
    return server


@pytest.fixture(scope="module")
def server(plain_tree):
    with new_server() as running:
        running.psql(CREATE_FUNCTIONS + "CREATE TABLE boundary_rows (a int CHECK (a > 0))")
        yield running


@pytest.fixture
def sql(server):
    connection = server.connect()
    cursor = connection.cursor()

    def run(text, *values):
        cursor.execute(text, values or None)
        return cursor.fetchone()[0] if cursor.description else None

    yield run
    connection.close()


def numbers(sql, function):
    return [int(number) for number in sql(f"SELECT boundary_{function}()").split()]


# ---- guard ----

def test_an_error_in_a_guard_runs_every_destructor(sql):
    assert sql("SELECT boundary_destructors(1000)") == 3000


@pytest.mark.parametrize("kind, state, message", [
    ("guarded", "22012", "boundary division"), ("raised", "0A000", "ours"),
    ("memory", "53200", "out of memory"), ("runtime", "XX000", "runtime: 100%s"),
    ("number", "XX000", "unknown C++ exception")])
def test_an_exception_becomes_an_error(sql, kind, state, message):
    for _ in range(20):
        with pytest.raises(psycopg2.Error) as raised:
            sql("SELECT boundary_throw(%s)", kind)
        assert raised.value.pgcode == state
        assert raised.value.diag.message_primary == message
    assert sql("SELECT boundary_destroyed()") == (4 if kind == "guarded" else 1)


def test_detail_hint_and_context_survive(sql):
    with pytest.raises(psycopg2.Error) as raised:
        sql("DO $$ BEGIN PERFORM boundary_throw('guarded'); END $$")
    diag = raised.value.diag
    assert (diag.message_detail, diag.message_hint) == ("of nothing", "do not")
    assert diag.context.startswith("in a test\n")
    assert diag.context.count("inline_code_block") == 1, "callbacks ran twice"


def test_a_long_text_is_cut(sql):
    with pytest.raises(psycopg2.Error) as raised:
        sql("SELECT boundary_throw('long')")
    assert 1_000_000 < len(raised.value.diag.message_primary) <= 1024 * 1024


def test_an_exception_crosses_a_guard(sql):
    for _ in range(100):
        assert sql("SELECT boundary_exception_across_guard()")
    with pytest.raises(psycopg2.errors.DivisionByZero):
        sql("SELECT 1/0")
    assert sql("SELECT 1") == 1


# ---- subtransaction, act_as ----

@pytest.mark.parametrize("how, result, rows", [
    ("fine", "released", [1, 2, 3]), ("error", "22012", [1, 3]), ("constraint", "23514", [1, 3]),
    ("exception", "out", [1, 3])])
def test_a_subtransaction_rolls_back_alone(sql, how, result, rows):
    sql("TRUNCATE boundary_rows")
    assert sql("SELECT boundary_subtransaction(%s)", how) == result
    assert sql("SELECT array_agg(a ORDER BY a) FROM boundary_rows") == rows


def test_acting_as_a_role_ends_with_the_scope_or_the_error(sql):
    sql("DROP ROLE IF EXISTS boundary_actor")
    sql("CREATE ROLE boundary_actor")
    sql("SET search_path = public")
    after = "postgres public"
    inside = "boundary_actor boundary, pg_temp"
    assert sql("SELECT boundary_act_as('boundary_actor', false)") == f"{inside}; {after}"
    assert sql("SELECT boundary_act_as('boundary_actor', true)") == f"failed; {inside}; {after}"
    assert sql("SELECT current_user") == "postgres"


# ---- values ----

@pytest.mark.parametrize("time", [
    "1970-01-01 00:00:00+00", "2026-10-01 12:34:56.789012+00", "1900-02-03 04:05:06.000007+00",
    "infinity", "-infinity"])
def test_timestamps_are_the_same_both_ways(sql, time):
    assert sql("SELECT boundary_timestamp(%s) = %s::timestamptz", time, time)


def test_timestamps_count_from_the_unix_epoch(sql):
    assert sql("SELECT boundary_unix_microseconds('1970-01-01 00:00:01+00')") == 1_000_000
    assert sql("SELECT boundary_unix_microseconds('infinity')") == 2**63 - 1
    assert sql("SELECT boundary_unix_microseconds('294276-12-31 23:59:59+00')") == 2**63 - 1


def test_text_is_converted_to_and_from_utf8(server):
    server.psql("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    server.psql(CREATE_FUNCTIONS, "latin1")
    for database in ("postgres", "latin1"):
        connection = server.connect(database)
        connection.set_client_encoding("UTF8")
        cursor = connection.cursor()
        cursor.execute("SELECT boundary_from_utf8(%s), boundary_to_utf8('Käse'), "
                       "boundary_from_utf8(''), boundary_to_utf8('')", ("Käse".encode(),))
        text, utf8, nothing, nothing_either = cursor.fetchone()
        assert (text, bytes(utf8)) == ("Käse", "Käse".encode())
        assert (nothing, bytes(nothing_either)) == ("", b"")
        for bad in (b"\xff", b"a\0b"):
            with pytest.raises(psycopg2.Error) as raised:
                cursor.execute("SELECT boundary_from_utf8(%s)", (bad,))
            assert raised.value.pgcode == "22021"
        connection.close()
    with pytest.raises(RuntimeError, match="22P05"):
        server.psql("SELECT boundary_from_utf8('\\xe282ac')", "latin1")  # the euro sign


# ---- events at commit ----

def events_of(server, *statements):
    """What a transaction of these statements adds to configuration, outbox and changes."""
    connection = server.connect(autocommit=False)
    cursor = connection.cursor()

    def read():
        other.execute("SELECT boundary_events()")
        return [int(number) for number in other.fetchone()[0].split()]

    watcher = server.connect()
    other = watcher.cursor()
    before = read()
    for statement in statements[:-1]:
        cursor.execute(statement)
    assert read() == before, "told before the end"
    if statements[-1].endswith("PREPARED 'p'"):
        connection.rollback()
        connection.autocommit = True
    cursor.execute(statements[-1])
    after = read()
    connection.close()
    watcher.close()
    return [new - old for old, new in zip(before, after)]


def test_events_fire_at_commit_only(server):
    assert events_of(server, "SELECT boundary_mark(0)", "COMMIT") == [1, 0, 0]
    assert events_of(server, "SELECT boundary_mark(1)", "SELECT boundary_mark(1)", "COMMIT") \
        == [0, 1, 0]
    assert events_of(server, "SELECT boundary_mark(1)", "ROLLBACK") == [0, 0, 0]
    assert events_of(server, "SELECT 1", "COMMIT") == [0, 0, 0]


def test_events_of_a_prepared_transaction_fire_when_it_is_committed(server):
    assert events_of(server, "CREATE TEMP TABLE IF NOT EXISTS t (a int)", "COMMIT") == [0, 0, 0]
    assert events_of(server, "SELECT boundary_mark(1)", "INSERT INTO boundary_rows VALUES (1)",
                     "PREPARE TRANSACTION 'p'") == [0, 0, 0]
    assert events_of(server, "SELECT 1", "COMMIT PREPARED 'p'")[1] == 1


def test_changes_of_watched_relations_are_told(server, sql):
    sql("DROP TABLE IF EXISTS watched, other, parent CASCADE")
    sql("CREATE TABLE watched (a int)")
    sql("CREATE TABLE other (a int)")
    sql("CREATE TABLE parent (a int) PARTITION BY LIST (a)")
    sql("CREATE TABLE child PARTITION OF parent FOR VALUES IN (1)")
    assert events_of(server, "INSERT INTO watched VALUES (1)", "COMMIT") == [0, 0, 0]
    sql("SELECT boundary_watch(ARRAY['watched'::regclass, 'child'::regclass]::oid[])")
    try:
        assert events_of(server, "INSERT INTO watched VALUES (1)", "COMMIT") == [0, 0, 1]
        assert events_of(server, "UPDATE watched SET a = 2", "COMMIT") == [0, 0, 1]
        assert events_of(server, "TRUNCATE watched", "COMMIT") == [0, 0, 1]
        assert events_of(server, "INSERT INTO parent VALUES (1)", "COMMIT") == [0, 0, 1]
        assert events_of(server, "DELETE FROM parent", "COMMIT") == [0, 0, 1]
        assert events_of(server, "INSERT INTO watched VALUES (1)", "ROLLBACK") == [0, 0, 0]
        assert events_of(server, "SELECT FROM watched", "COMMIT") == [0, 0, 0]
        assert events_of(server, "INSERT INTO other VALUES (1)", "COMMIT") == [0, 0, 0]
        sql("SELECT boundary_watch(ARRAY(SELECT oid FROM pg_class LIMIT 65))")
        assert events_of(server, "INSERT INTO other VALUES (1)", "COMMIT") == [0, 0, 1]
        assert events_of(server, "SELECT FROM other", "COMMIT") == [0, 0, 0]
    finally:
        sql("SELECT boundary_watch('{}')")
    assert events_of(server, "INSERT INTO other VALUES (1)", "COMMIT") == [0, 0, 0]


# ---- workers ----

def test_a_worker_survives_errors_and_exceptions_and_keeps_its_memory(server, sql):
    pid = server.worker_pid("boundary survivor")
    sql("SELECT boundary_run_rounds(10000)")
    wait_for(lambda: numbers(sql, "survived")[0] == 10000, "10,000 transactions are run", 60)
    _, errors, exceptions, before, after = numbers(sql, "survived")
    assert (errors, exceptions) == (100, 100)
    assert after <= before, f"{after - before} bytes in 9,000 transactions"
    assert server.worker_pid("boundary survivor") == pid
    assert sql("SELECT count(*) FROM pg_class WHERE relname = 'never'") == 0
    state = "SELECT state, application_name FROM pg_stat_activity WHERE backend_type = "
    assert sql(f"SELECT ARRAY(SELECT unnest(ARRAY[state, application_name]) FROM ({state}"
               "'boundary survivor') s)") == ["idle", "pgmqtt sink"]


def test_a_worker_that_is_stuck_in_a_statement_ends_in_time(server, sql):
    def running():
        return sql("SELECT count(*) FROM pg_stat_activity WHERE query = 'boundary: stuck' "
                   "AND state = 'active'") == 1

    sql("SELECT boundary_get_stuck()")
    wait_for(running, "the worker is stuck")
    pid = server.worker_pid("boundary survivor")
    begin = time.monotonic()
    sql("SELECT pg_terminate_backend(%s)", pid)
    wait_for(lambda: server.worker_pid("boundary survivor") != pid, "it ends")
    assert time.monotonic() - begin < 2, "shutdown_timeout"
    wait_for(lambda: server.worker_pid("boundary survivor"), "it comes back")


def test_a_cancel_ends_the_statement_not_the_worker(server, sql):
    sql("SELECT boundary_get_stuck()")
    active = ("SELECT min(pid) FROM pg_stat_activity WHERE query = 'boundary: stuck' "
              "AND state = 'active'")
    pid = wait_for(lambda: sql(active), "the worker is stuck")
    sql("SELECT pg_cancel_backend(%s)", pid)
    wait_for(lambda: sql(active) is None, "the statement ends", 5)
    sql("SELECT pg_cancel_backend(%s)", pid)  # nothing to cancel
    time.sleep(0.2)
    assert server.worker_pid("boundary survivor") == pid


def test_idle_workers_do_not_hold_up_drop_database(server, sql):
    sql("CREATE DATABASE passing")
    begin = time.monotonic()
    sql("DROP DATABASE passing")
    assert time.monotonic() - begin < 5


def test_batches_cross_a_link_whose_ends_die(server, sql):
    total, kills = 10000, 12
    dice = random.Random(20261)
    killed = 0
    sql("SELECT boundary_exchange(%s)", total)
    while killed < kills:
        goal = (killed + dice.random()) * total / kills
        wait_for(lambda: numbers(sql, "exchanged")[0] >= goal, f"batch {goal:.0f} is echoed", 60)
        victims = [pid for pid in (server.worker_pid("boundary broker"),
                                   server.worker_pid("boundary store")) if pid]
        if victims:
            sql("SELECT pg_terminate_backend(%s)", dice.choice(victims))
            killed += 1
    wait_for(lambda: numbers(sql, "exchanged")[0] == total, "all batches are echoed", 60)
    echoed, corrupted, connections = numbers(sql, "exchanged")
    assert (echoed, corrupted) == (total, 0)
    print(f"{echoed} batches over {connections} connections, {killed} ends terminated")
    assert connections >= kills / 2


# ---- a server of one's own ----

def test_workers_wait_for_their_database(plain_tree):
    with new_server(conf={"pgmqtt.database": "later"}) as server:
        server.wait_for(lambda: "waits for database" in server.log_text(), "the broker end waits")
        time.sleep(3)
        assert server.log_text().count('FATAL:  database "later" does not exist') == 1
        assert server.log_text().count("waits for database") == 1
        server.psql("CREATE DATABASE later")

        def connected():
            return server.psql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'later' "
                               "AND backend_type LIKE 'boundary%'") == "3"

        server.wait_for(connected, "three workers connect", 10)
        server.psql("DROP DATABASE later WITH (FORCE)")
        server.wait_for(lambda: server.log_text().count("waits for database") == 2, "it waits again")
        server.psql("CREATE DATABASE later")
        server.wait_for(connected, "they connect again", 10)
        begin = time.monotonic()
        server.stop("fast")
        assert time.monotonic() - begin < 2
        assert "PANIC" not in server.log_text() and "terminated by signal" not in server.log_text()


def test_a_bad_setting_is_refused_with_a_reason(server, sql):
    for bad in ("256.0.0.1", "a,,b", "::g", "-x", "a b"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue):
            sql("ALTER SYSTEM SET pgmqtt.listen_addresses = %s", bad)
    for good in ("*", "", "localhost", "127.0.0.1, ::1", "fe80::1%eth0,my-host.example"):
        sql("ALTER SYSTEM SET pgmqtt.listen_addresses = %s", good)
    with pytest.raises(psycopg2.Error):
        sql("SET pgmqtt.prot = 1")
    sql("ALTER SYSTEM RESET pgmqtt.listen_addresses")


def test_without_preload_functions_say_what_to_add(plain_tree):
    with new_server(preload=False, conf={"shared_preload_libraries": ""}) as server:
        server.psql(CREATE_FUNCTIONS)
        with pytest.raises(RuntimeError) as raised:
            server.psql("SELECT boundary_require_preload()")
        assert "55000" in str(raised.value)
        assert "HINT:  Add pgmqtt to shared_preload_libraries and restart the server." in \
            str(raised.value)
        server.psql("SELECT boundary_mark(0)")
