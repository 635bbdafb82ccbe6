"""The replication slot: made when needed, never in the way, never silently lost."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import psycopg2
import pytest

from harness.rawmqtt import RawClient
from test_mappings import wait_until_decoded


def slots(server):
    return server.psql("SELECT string_agg(slot_name, ',') FROM pg_replication_slots")


def status(server, name):
    return server.psql(f"SELECT concat_ws(': ', status, message) FROM pgmqtt.mappings"
                       f" WHERE name = '{name}'")


def worker_pid(server):
    return int(server.psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgmqtt cdc'"))


@pytest.fixture
def own(new_server):
    return new_server().start()


def test_the_slot_comes_and_goes_with_the_mappings(own):
    assert slots(own) == ""
    own.psql("CREATE TABLE t (id int PRIMARY KEY); SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    assert re.fullmatch(r"pgmqtt_\d+", slots(own))
    own.psql("SELECT pgmqtt.alter_mapping('a', false)")
    assert slots(own) != "" and status(own, "a") == "off"
    own.psql("SELECT pgmqtt.add_mapping('b', 't', $$'b'$$); SELECT pgmqtt.drop_mapping('a')")
    assert slots(own) != ""
    own.psql("SELECT pgmqtt.drop_mapping('b')")
    assert slots(own) == ""
    own.psql("SELECT pgmqtt.add_mapping('b', 't', $$'b'$$)")
    own.psql("DROP EXTENSION pgmqtt")
    own.wait_for(lambda: slots(own) == "", "the slot is dropped", 5)


def test_slot_creation_says_whom_it_waits_for(own):
    """B05: an open transaction delays the slot; everybody can see which one, and anything ends it."""
    own.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int)")
    blocker = own.connect(autocommit=False)
    blocker.cursor().execute("INSERT INTO other VALUES (1)")
    pid = blocker.get_backend_pid()

    adder = own.connect(autocommit=True)
    started = time.monotonic()
    adder.cursor().execute("SET client_min_messages = notice")
    adder.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    assert 9 < time.monotonic() - started < 12
    said = "".join(adder.notices)
    assert "NOTICE" in said and "WARNING" in said and f"pid {pid}" in said
    assert status(own, "a") == \
        f"starting: the replication slot waits for the transaction of pid {pid}"

    # The worker ends at once, and the slot it was making is gone.
    os.kill(worker_pid(own), signal.SIGTERM)
    own.wait_for(lambda: own.psql("SELECT status FROM pgmqtt.mappings") == "starting", "it is back")
    # So it does when nobody wants the slot any more.
    own.psql("SELECT pgmqtt.drop_mapping('a')")
    own.wait_for(lambda: slots(own) == "", "no slot is being made", 3)

    # A cancel ends the waiting, not the transaction.
    thread = threading.Timer(0.5, adder.cancel)
    thread.start()
    started = time.monotonic()
    adder.cursor().execute("SELECT pgmqtt.add_mapping('b', 't', $$'b'$$)")
    assert time.monotonic() - started < 3
    thread.join()
    blocker.rollback()
    own.wait_for(lambda: status(own, "b") == "streaming", "the slot is made", 5)


def test_a_fast_shutdown_while_the_slot_waits(own):
    own.psql("CREATE TABLE t (id int PRIMARY KEY)")
    blocker = own.connect(autocommit=False)
    blocker.cursor().execute("INSERT INTO t VALUES (1)")
    adder = own.connect(autocommit=True)
    threading.Timer(0.3, adder.cancel).start()
    adder.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    started = time.monotonic()
    own.stop("fast")
    assert time.monotonic() - started < 5


def test_wal_level_replica_disables_mappings_only(new_server):
    own = new_server(conf={"wal_level": "replica"}).start()
    session = own.connect(autocommit=True)
    session.cursor().execute("CREATE TABLE t (id int PRIMARY KEY)")
    session.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    assert any("wal_level = logical" in notice for notice in session.notices)
    assert status(own, "a").startswith("disabled: wal_level is replica")


def test_a_plugin_that_is_not_listed(new_server):
    own = new_server()
    if "output_plugin_libraries" not in own.conf:
        pytest.skip("this server lets any library be an output plugin")
    own.configure(output_plugin_libraries="pgoutput")
    own.start()
    session = own.connect(autocommit=True)
    session.cursor().execute("CREATE TABLE t (id int PRIMARY KEY)")
    session.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a/' || new.id$$)")
    assert any("output_plugin_libraries = " in notice for notice in session.notices)
    assert "output_plugin_libraries" in status(own, "a")
    own.configure(output_plugin_libraries="pgoutput, pgmqtt")
    own.psql("SELECT pg_reload_conf()")
    own.wait_for(lambda: status(own, "a") == "streaming", "the setting is enough", 12)


def test_a_quiet_mapped_table_does_not_hold_back_wal(own):
    """B04: the confirmed position follows what other tables write, and WAL is given back."""
    own.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE busy (v text);"
             "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    for _ in range(5):
        own.psql("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
    now = own.psql("SELECT pg_current_wal_flush_lsn()")
    own.wait_for(lambda: own.psql(f"SELECT confirmed_flush_lsn >= '{now}' FROM pg_replication_slots")
                 == "t", "the slot follows", 10)
    # Confirmed is not enough: WAL is kept from restart_lsn on, which follows what checkpoints log.
    now = own.psql("SELECT pg_current_wal_flush_lsn()")
    own.wait_for(lambda: own.psql(f"CHECKPOINT; INSERT INTO busy VALUES ('x');"
                                  f"SELECT restart_lsn >= '{now}' FROM pg_replication_slots") == "t",
                 "nothing older is held", 20)


def test_wal_is_not_kept_until_the_server_logs_running_transactions(new_server):
    """B04: nor decoded again by the next start; the background writer, which logs them, stands still."""
    own = new_server(conf={"max_wal_size": "10GB", "checkpoint_timeout": "1h"}).start()
    own.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (pad text);"
             "ALTER TABLE other ALTER pad SET STORAGE EXTERNAL; SELECT pgmqtt.add_mapping('t', 't', $$'t'$$)")
    writer = own.worker_pid("background writer")
    os.kill(writer, signal.SIGSTOP)
    try:
        kept = "SELECT ((pg_current_wal_lsn() - restart_lsn) / 1e6)::int FROM pg_replication_slots"
        for _ in range(10):
            own.psql("INSERT INTO other SELECT repeat('x', 100000) FROM generate_series(1, 200)")
        written = int(own.psql("SELECT ((pg_current_wal_lsn() - '0/0') / 1e6)::int"))
        assert written > 200, "the premise"
        own.wait_for(lambda: int(own.psql(kept)) < 100, "WAL is let go of", 60)
    finally:
        os.kill(writer, signal.SIGCONT)


def test_prepared_transactions(new_server):
    """B08: published at COMMIT PREPARED, also after a restart; a slot waits for one, and says so."""
    own = new_server(conf={"max_prepared_transactions": 5}).start()
    own.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int);"
             "BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'early'")
    adder = own.connect(autocommit=True)
    threading.Timer(0.5, adder.cancel).start()
    adder.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$)")
    assert status(own, "a") == "starting: the replication slot waits for a prepared transaction"
    own.psql("ROLLBACK PREPARED 'early'")
    own.wait_for(lambda: status(own, "a") == "streaming", "the slot is made", 5)
    own.psql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one';"
             "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'two'; INSERT INTO t VALUES (3)")
    wait_until_decoded(own)
    own.stop("fast")
    own.start()
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("a", 0)
        own.psql("ROLLBACK PREPARED 'one'")
        own.psql("COMMIT PREPARED 'two'")
        assert client.expect(3).payload == b"2"


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[11])


def has_pending(pid, number):
    with open(f"/proc/{pid}/status", encoding="utf8") as file:
        text = file.read()
    return any(int(mask, 16) >> (number - 1) & 1 for mask in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", text))


def test_a_change_of_mappings_leaves_decoding_alone(own):
    """The worker is stopped in the middle of decoding a transaction, so that it takes longer than
    a change of mappings waits before it interrupts an evaluation."""
    rows = 400_000
    own.psql("CREATE TABLE t (id int PRIMARY KEY, v text);"
             f"SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$, $$new.id > {rows - 3}$$);"
             "SELECT pgmqtt.add_mapping('b', 't', $$'b'$$, filter => 'false')")
    pid = worker_pid(own)
    with RawClient(own.mqtt_port, timeout=30) as client:
        client.connect()
        client.subscribe("a", 1)
        own.psql(f"INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, {rows}) i")
        before = cpu_ticks(pid)
        own.wait_for(lambda: cpu_ticks(pid) > before + 10, "it decodes", every=0)
        os.kill(pid, signal.SIGSTOP)
        try:
            state = own.psql(f"SELECT state, query FROM pg_stat_activity WHERE pid = {pid}")
            assert "evaluating" not in state or state.startswith("idle"), "the premise: it does not evaluate"
            adder = own.connect(autocommit=True)
            adder.cursor().execute("SELECT pgmqtt.alter_mapping('b', false)")
            assert any("not in force yet" in notice for notice in adder.notices), "it gave up waiting"
            assert not has_pending(pid, signal.SIGINT)
        finally:
            os.kill(pid, signal.SIGCONT)
        for number in range(rows - 2, rows + 1):
            assert client.message().payload == str(number).encode()
    assert worker_pid(own) == pid
    own.wait_for(lambda: status(own, "b") == "off", "the change is in force")


def test_stall_holds_and_goes_on(own):
    own.psql("""CREATE TABLE t (id int PRIMARY KEY, v int);
        SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$(10 / new.v)::text$$, on_error => 'stall')""")
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("a", 0)
        own.psql("INSERT INTO t VALUES (1, 1), (2, 0), (3, 2)")
        assert client.expect(3).payload == b"10"
        own.wait_for(lambda: status(own, "a") == "stalled: division by zero", "it says so", 3)
        client.expect_nothing_before_ping()
        own.psql("SELECT pgmqtt.drop_mapping('a');"
                 "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$);"
                 "INSERT INTO t VALUES (4, 0)")
        assert client.expect(3).payload == b"4"


def test_a_locked_table_delays_its_changes_and_loses_none(own):
    own.psql("CREATE TABLE t (id int PRIMARY KEY); SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("a", 0)
        locker, next_locker = own.connect(autocommit=False), own.connect(autocommit=False)
        own.psql("INSERT INTO t VALUES (1)")
        assert json.loads(client.expect(3).payload) == {"id": 1}
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
        locker.cursor().execute("INSERT INTO t VALUES (2); LOCK TABLE t")
        # Whoever waits longer gets it first: not the worker.
        thread = threading.Thread(target=next_locker.cursor().execute, args=("LOCK TABLE t",))
        thread.start()
        own.wait_for(lambda: own.psql(waiting) == "1", "the next one waits")
        locker.commit()
        thread.join()
        own.wait_for(lambda: own.psql(waiting) != "0", "the worker waits for the lock")
        own.wait_for(lambda: status(own, "a") == "waiting: waiting for a lock on t", "it says so")
        next_locker.rollback()
        assert json.loads(client.expect(3).payload) == {"id": 2}


def test_a_locked_table_holds_up_others_behind_a_change_of_its_own_only(own):
    """And no longer than its mapping is on. A table that a sub-select reads is as good as a mapped one."""
    own.psql("""CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE w (id int);
        SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$);
        SELECT pgmqtt.add_mapping('b', 'u', $$'b'$$, $$new.id::text$$);
        SELECT pgmqtt.add_mapping('c', 'w', $$'c'$$, $$new.id::text || (SELECT count(*) FROM t)$$)""")
    locker, next_locker = own.connect(autocommit=False), own.connect(autocommit=False)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("+", 0)
        locker.cursor().execute("LOCK TABLE t; INSERT INTO t VALUES (1)")
        own.psql("INSERT INTO u VALUES (1)")
        assert client.expect(3).payload == b"1", "nobody waits for what is not committed"
        own.psql("INSERT INTO w VALUES (5); INSERT INTO u VALUES (2)")
        own.wait_for(lambda: status(own, "c").startswith("waiting"), "the sub-select waits")
        client.expect_nothing_before_ping()
        own.psql("SELECT pgmqtt.alter_mapping('c', false)")
        assert client.expect(3).payload == b"2"
        thread = threading.Thread(target=next_locker.cursor().execute, args=("LOCK TABLE t",))
        thread.start()
        own.wait_for(lambda: own.psql(waiting) == "1", "the next one waits")
        locker.commit()
        thread.join()
        own.psql("INSERT INTO u VALUES (3)")
        own.wait_for(lambda: status(own, "a") == "waiting: waiting for a lock on t", "it says so")
        client.expect_nothing_before_ping()
        own.psql("SELECT pgmqtt.alter_mapping('a', false)")
        assert client.expect(3).payload == b"3"
        next_locker.rollback()


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="utf8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


class RoundTrips(threading.Thread):
    """A client that publishes to itself, one message after the other: what others notice of a load."""

    def __init__(self, server):
        super().__init__()
        self.seconds = []
        self._server = server
        self._stopped = threading.Event()
        self.start()

    def run(self):
        with RawClient(self._server.mqtt_port) as client:
            client.connect()
            client.subscribe("others", 0)
            while not self._stopped.is_set():
                started = time.monotonic()
                client.publish("others", str(len(self.seconds)), 0)
                assert client.message().payload == str(len(self.seconds)).encode()
                self.seconds.append(time.monotonic() - started)

    def stop(self):
        self._stopped.set()
        self.join()


def test_a_million_rows_in_one_transaction_are_bounded(new_server):
    """B03: of a COPY; complete, in order, the decoder's memory does not grow with the transaction, and
    other topics go on."""
    rows = 1_000_000
    # The subscriber is slower than the decoder; its queue has to hold the difference.
    own = new_server(conf={"pgmqtt.max_queued_messages": rows,
                           "pgmqtt.max_queued_bytes": "1GB"}).start()
    own.psql("CREATE TABLE t (id int PRIMARY KEY, a text, b int);"
             "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$);"
             f"COPY (SELECT i, 'row ' || i, i FROM generate_series(1, {rows}) i) TO '{own.data}/rows'")
    pid, peak, first, expected = worker_pid(own), 0, None, 1
    with subprocess.Popen(["mosquitto_sub", "-p", str(own.mqtt_port), "-t", "a", "-q", "1",
                           "-C", str(rows)], stdout=subprocess.PIPE) as client:
        own.wait_for(lambda: own.psql("SELECT subscriptions FROM pgmqtt.stat_broker") == "1",
                     "the subscription")
        own.psql(f"COPY t FROM '{own.data}/rows'")
        committed = time.monotonic()
        others = RoundTrips(own)
        for line in client.stdout:
            first = first or time.monotonic() - committed
            assert int(line) == expected
            expected += 1
            if expected % 10000 == 0:
                peak = max(peak, resident_kb(pid))
    took = time.monotonic() - committed
    others.stop()
    longest = max(others.seconds)
    print(f"\nfirst after {first:.2f} s, all after {took:.1f} s, cdc worker {peak // 1024} MB resident; others:"
          f" {len(others.seconds)} round trips, the longest {longest * 1000:.0f} ms")
    assert expected == rows + 1
    assert peak < 250 * 1024
    assert first < took / 2, "it begins to publish long before it has published all"
    assert len(others.seconds) > 100 and longest < took / 4


def test_a_clean_restart_publishes_nothing_again(own):
    """The position is saved at the end, whatever was saved a moment before."""
    own.psql("CREATE TABLE t (id int PRIMARY KEY);"
             "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$)")

    def receiver():
        client = RawClient(own.mqtt_port)
        client.connect()
        client.subscribe("a", 1)
        return client

    for first in range(0, 300, 100):
        with receiver() as client:
            cursor = own.connect().cursor()
            for number in range(first, first + 100):
                cursor.execute("INSERT INTO t VALUES (%s)", (number,))
                assert client.message().payload == str(number).encode()
            client.until_ping()  # the last PUBACK has arrived: nothing is under way
        assert own.psql("SELECT published FROM pgmqtt.mappings") == "100", "the premise: it counts"
        own.restart()
        wait_until_decoded(own)
        assert own.psql("SELECT published FROM pgmqtt.mappings") == "0", "since the restart"


@pytest.mark.parametrize("victim", ["pgmqtt cdc", "pgmqtt broker"])
def test_a_terminated_worker_loses_nothing(own, victim):
    own.psql("CREATE TABLE t (id int PRIMARY KEY);"
             "SELECT pgmqtt.add_mapping('a', 't', $$'a/' || new.id$$, retain => true,"
             " operations => '{insert}')")
    def write():
        connection = own.connect(autocommit=True)
        for number in range(1, 2001):
            connection.cursor().execute("INSERT INTO t VALUES (%s)", (number,))
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        own.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                 f" WHERE backend_type = '{victim}'")
        time.sleep(0.5)
    writer.join()
    own.wait_for(lambda: own.psql("SELECT count(*) FROM pgmqtt.retained") == "2000",
                 "every row is retained", 30)


def test_tables_named_like_ours_are_nobodys_mapping(own):
    """B17: only pgmqtt.mapping counts."""
    own.psql("CREATE SCHEMA evil; CREATE TABLE evil.mapping (LIKE pgmqtt.mapping);"
             "CREATE TABLE pgmqtt_mapping (id int PRIMARY KEY); INSERT INTO pgmqtt_mapping VALUES (1)")
    assert own.psql("SELECT count(*) FROM pgmqtt.mappings") == "0"
    assert slots(own) == ""
    with pytest.raises((RuntimeError, psycopg2.Error), match="belongs to pgmqtt"):
        own.psql("SELECT pgmqtt.add_mapping('x', 'pgmqtt.dead_letter', $$'a'$$)")


def test_committed_changes_flow_beside_transactions_that_stay_open(own):
    """B05: one that wrote the mapped table, one that holds its snapshot, one that is idle in it."""
    own.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int);"
             "SELECT pgmqtt.add_mapping('a', 't', $$'a'$$, $$new.id::text$$)")
    writer, reader, idle = (own.connect(autocommit=False) for _ in range(3))
    writer.cursor().execute("INSERT INTO t VALUES (1000)")
    reader.set_session(isolation_level="REPEATABLE READ")
    reader.cursor().execute("SELECT count(*) FROM t, pgmqtt.outbox")
    idle.cursor().execute("INSERT INTO other VALUES (1)")
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("a", 1)
        for number in range(50):
            own.psql(f"INSERT INTO t VALUES ({number})")
            assert client.message().payload == str(number).encode()
        # Neither a new mapping nor a new worker waits for them.
        own.psql("SELECT pgmqtt.add_mapping('b', 'other', $$'b'$$)")
        assert status(own, "b") == "streaming"
        before = worker_pid(own)
        own.psql(f"SELECT pg_terminate_backend({before})")
        own.wait_for(lambda: own.worker_pid("pgmqtt cdc") not in (None, before), "a new worker")
        own.psql("INSERT INTO t VALUES (50)")
        assert client.message().payload == b"50"
        writer.commit()
        assert client.message().payload == b"1000"
    for session in (reader, idle):
        session.rollback()


def test_the_backend_that_waits_for_the_slot_can_be_ended(own):
    """B05: cancelled it commits; terminated it does, too, since only the waiting comes after."""
    own.psql("CREATE TABLE t (id int PRIMARY KEY)")
    blocker = own.connect(autocommit=False)
    blocker.cursor().execute("INSERT INTO t VALUES (1)")
    adder = own.connect(autocommit=True)
    pid = adder.get_backend_pid()

    def add():
        try:
            adder.cursor().execute("SELECT pgmqtt.add_mapping('a', 't', $$'a'$$)")
        except psycopg2.OperationalError:
            pass  # ended before it could say that it had committed

    thread = threading.Thread(target=add)
    thread.start()
    own.wait_for(lambda: "waits for the transaction" in status(own, "a"), "it waits")
    own.psql(f"SELECT pg_terminate_backend({pid})")
    own.wait_for(lambda: own.psql(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}") == "0",
                 "it has ended", 5)
    thread.join()
    # It is tried again until it works, whoever waits.
    blocker.rollback()
    own.wait_for(lambda: status(own, "a") == "streaming", "the slot is made", 5)
