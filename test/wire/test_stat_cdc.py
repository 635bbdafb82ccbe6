"""pgmqtt.stat_cdc and pgmqtt.stat_mappings: honest numbers of rows, errors, lag and time."""

import pytest


@pytest.fixture
def own(new_server):
    return new_server().start()


def stat(server, columns, view="stat_cdc", where=""):
    return server.psql(f"SELECT {columns} FROM pgmqtt.{view} {where}")


def test_changes_are_counted_once_by_what_became_of_them(own):
    """Also after the worker is new."""
    own.psql("""CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int);
        SELECT pgmqtt.add_mapping('a', 't', $$'a/' || new.id$$, $$(10 / new.id)::text$$,
            filter => 'new.id < 100', operations => '{insert}');
        SELECT pgmqtt.add_mapping('b', 't', $$'b'$$, operations => '{delete}')""")
    assert stat(own, "state, transactions, changes, published, filtered, errors, last_commit_lsn") == \
        "streaming|0|0|0|0|0|"
    commit = own.psql("""INSERT INTO other VALUES (1);
        INSERT INTO t SELECT generate_series(0, 199); DELETE FROM t WHERE id < 3;
        SELECT pg_current_wal_flush_lsn()""")
    total = "2|203|102|100|1"
    counts = "transactions, changes, published, filtered, errors"
    own.wait_for(lambda: stat(own, counts) == total, "all is counted")
    assert stat(own, f"last_commit_lsn < '{commit}', last_commit_at BETWEEN now() - interval '1 min'"
                " AND now(), batches > 0, batch_p50_ms > 0, batch_p99_ms >= batch_p50_ms,"
                " waiting_bytes, spilled_bytes, started_at < last_commit_at") == "t|t|t|t|t|0|0|t"
    rows = "name, rows, published, filtered, errors, batch_p99_ms > 0, lag_seconds = 0"
    own.wait_for(lambda: stat(own, rows, "stat_mappings", "ORDER BY name").splitlines()
                 == ["a|200|99|100|1|t|t", "b|3|3|0|0|t|t"], "nothing is under way")
    own.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pgmqtt cdc'")
    own.wait_for(lambda: own.psql("SELECT started_at > last_commit_at FROM pgmqtt.stat_cdc"
                                  " WHERE state = 'streaming'") == "t", "the worker is new")
    own.psql("INSERT INTO t VALUES (1)")
    own.wait_for(lambda: stat(own, counts) == "3|204|103|100|1", "it counts on")


def test_lag_grows_while_a_mapping_stalls_and_ends(own):
    own.psql("""CREATE TABLE t (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$(10 / new.id)::text$$, on_error => 'stall')""")
    own.psql("INSERT INTO t VALUES (0), (1)")
    own.wait_for(lambda: stat(own, "lag_seconds > 1 AND lag_bytes > 0 AND waiting_bytes > 0") == "t",
                 "it waits and says how long")
    assert stat(own, "lag_seconds > 1", "stat_mappings") == "t"
    own.psql("SELECT pgmqtt.drop_mapping('a'); SELECT pgmqtt.add_mapping('b', 't', $$'b'$$)")
    own.wait_for(lambda: stat(own, "lag_seconds, waiting_bytes") == "0|0", "it goes on", 40)
    own.wait_for(lambda: int(stat(own, "lag_bytes")) < 100000, "the slot follows")


def test_a_large_transaction_spills_and_says_so(own):
    own.psql("""CREATE TABLE t (id int PRIMARY KEY, v text);
        SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$, qos => 0)""")
    own.psql("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i")
    own.wait_for(lambda: stat(own, "published") == "50000", "all is published", 60)
    assert int(stat(own, "spilled_bytes")) > 20_000_000
    own.wait_for(lambda: stat(own, "waiting_bytes, lag_seconds") == "0|0", "nothing is left")


def test_a_mapping_that_is_made_anew_begins_at_zero_and_without_a_stream_there_is_no_lag(own):
    assert stat(own, "state, lag_bytes IS NULL, lag_seconds IS NULL") == "stopped|t|t"
    make = "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)"
    own.psql(f"CREATE TABLE t (id int PRIMARY KEY); {make}; INSERT INTO t VALUES (1)")
    own.wait_for(lambda: stat(own, "rows", "stat_mappings") == "1", "it is counted")
    own.psql(f"SELECT pgmqtt.drop_mapping('a'); {make}")
    assert stat(own, "rows, last_commit_lsn IS NULL, batch_p50_ms IS NULL", "stat_mappings") == "0|t|t"


def test_monitors_may_look_and_others_may_not(server, name):
    server.psql(f"CREATE ROLE {name}_m LOGIN IN ROLE pg_monitor; CREATE ROLE {name}_p LOGIN IN ROLE"
                f" pgmqtt_monitor; CREATE ROLE {name}_n LOGIN")
    for view in ("stat_cdc", "stat_mappings"):
        for allowed in ("m", "p"):
            server.psql(f"SELECT * FROM pgmqtt.{view}", user=f"{name}_{allowed}")
        with pytest.raises(RuntimeError, match="permission denied"):
            server.psql(f"SELECT * FROM pgmqtt.{view}", user=f"{name}_n")
