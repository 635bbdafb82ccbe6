"""What is missing when the replication slot was lost, dropped or is not here any more: loud, and a way back."""

import re

import pytest

from harness.rawmqtt import RawClient
from test_cdc_slot import slots, status, worker_pid


@pytest.fixture
def own(new_server):
    return new_server().start()


def test_a_lost_slot_is_loud_and_there_is_a_way_back(new_server):
    """D10: what was committed meanwhile is missing, and the README's recipe brings it back: rows
    that were added or changed are published, the retained messages of deleted ones are gone."""
    own = new_server(conf={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB",
                           "max_wal_size": "32MB"}).start()
    own.psql("""CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE bulk (v text);
        SELECT pgmqtt.add_mapping('a', 't', $$'a/' || coalesce(new.id, old.id)$$,
            $$CASE WHEN op <> 'DELETE' THEN (1 / (new.v - 1) * 0 + new.v)::text END$$,
            retain => true, on_error => 'stall');
        INSERT INTO t SELECT i, 5 FROM generate_series(1, 4) i""")
    retained = ("SELECT string_agg(concat(topic, '=', convert_from(payload, 'UTF8')), ' '"
                " ORDER BY topic) FROM pgmqtt.retained")
    own.wait_for(lambda: own.psql(retained) == "a/1=5 a/2=5 a/3=5 a/4=5", "the tree is the table")
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("a/#", 0)
        seen = {packet.topic: packet.payload for packet in client.until_ping()}
        assert len(seen) == 4
        own.psql("UPDATE t SET v = 1 WHERE id = 1")
        own.wait_for(lambda: status(own, "a").startswith("stalled"), "it stalls")
        own.psql("UPDATE t SET v = 6 WHERE id = 1; DELETE FROM t WHERE id = 2;"
                 "INSERT INTO t VALUES (7, 7)")
        for _ in range(4):
            own.psql("INSERT INTO bulk SELECT repeat('x', 1000) FROM generate_series(1, 20000);"
                     "CHECKPOINT")
        own.wait_for(lambda: "has lost WAL" in status(own, "a"), "it says so", 10)
        assert status(own, "a").startswith("disabled")
        assert "has lost WAL" in own.log_tail(2000)
        with pytest.raises(RuntimeError, match="(?s)has lost WAL.*HINT"):
            own.psql("SELECT pgmqtt.snapshot_mapping('a')")
        own.psql("SELECT pgmqtt.alter_mapping('a', false); SELECT pgmqtt.alter_mapping('a', true)")
        assert status(own, "a") == "streaming"
        assert own.psql(retained) == "a/1=5 a/2=5 a/3=5 a/4=5", "nothing of it is known yet"
        assert own.psql("SELECT pgmqtt.clear_retained('a/#')") == "4"
        assert own.psql("SELECT pgmqtt.snapshot_mapping('a')") == "4"
        own.wait_for(lambda: own.psql(retained) == "a/1=6 a/3=5 a/4=5 a/7=7", "the tree is the table")
        for packet in client.until_ping():
            seen[packet.topic] = packet.payload
        assert {topic: payload for topic, payload in seen.items() if payload} == {
            "a/1": b"6", "a/3": b"5", "a/4": b"5", "a/7": b"7"}, "live subscribers know it, too"


def drop_slot_of_running_server(own):
    """As a DBA who finds a slot that nobody uses: the worker is away for a second."""
    before = worker_pid(own)
    own.psql(f"SELECT pg_terminate_backend({before})")
    own.wait_for(lambda: own.psql("SELECT pg_drop_replication_slot(slot_name) IS NOT NULL"
                                  " FROM pg_replication_slots WHERE NOT active") == "t",
                 "the slot is dropped", every=0)


def test_a_dropped_slot_is_loud_until_the_state_is_published_anew(own):
    """D10: what was committed while there was none is missing; the mapping goes on and says so."""
    own.psql("""CREATE TABLE t (id int PRIMARY KEY, v text);
        SELECT pgmqtt.add_mapping('a', 't', $$'a/' || new.id$$, $$new.v$$, retain => true);
        SELECT pgmqtt.add_mapping('b', 't', $$'b/' || new.id$$, $$new.v$$);
        SELECT pgmqtt.add_mapping('off', 't', $$'off'$$); SELECT pgmqtt.alter_mapping('off', false);
        INSERT INTO t VALUES (1, 'one')""")
    retained = "SELECT string_agg(topic, ' ' ORDER BY topic) FROM pgmqtt.retained"
    own.wait_for(lambda: own.psql(retained) == "a/1", "the premise: it publishes")
    drop_slot_of_running_server(own)
    own.wait_for(lambda: status(own, "a").startswith("gap"), "it says so")
    for mapping in "ab":
        assert re.match("gap: changes committed after [0-9A-F/]+ and before [0-9A-F/]+ are missing.*"
                        rf"snapshot_mapping\('{mapping}'\)", status(own, mapping)), status(own, mapping)
    assert status(own, "off") == "off"
    log = own.log_text()
    assert "replication slot does not exist any more" in log and "snapshot_mapping()" in log
    own.psql("INSERT INTO t VALUES (2, 'two')")
    own.wait_for(lambda: own.psql(retained) == "a/1 a/2", "it goes on with a new slot")
    own.restart()
    own.wait_for(lambda: status(own, "a").startswith("gap"), "it still says so")
    own.psql("SELECT pgmqtt.snapshot_mapping('a', 'new.id = 1')")
    assert status(own, "a").startswith("gap"), "not of all rows"
    own.psql("BEGIN; SELECT pgmqtt.snapshot_mapping('a'); ROLLBACK")
    assert status(own, "a").startswith("gap")
    own.psql("SELECT pgmqtt.snapshot_mapping('a')")
    assert status(own, "a") == "streaming"
    assert status(own, "b").startswith("gap"), "each for itself"
    own.psql("SELECT pgmqtt.alter_mapping('b', false); SELECT pgmqtt.alter_mapping('b', true)")
    assert status(own, "b") == "streaming"
    # Nothing is said where nothing is lost.
    own.restart()
    own.wait_for(lambda: status(own, "a") == "streaming", "it streams")
    own.psql("SELECT pgmqtt.drop_mapping(name) FROM pgmqtt.mappings")
    own.wait_for(lambda: slots(own) == "", "the last mapping takes the slot along")
    own.psql("SELECT pgmqtt.add_mapping('c', 't', $$'c'$$)")
    own.wait_for(lambda: status(own, "c") == "streaming", "a first slot is no gap")
    assert own.psql("SELECT count(*) FROM pgmqtt.gap") == "0"


def without_pgmqtt(server, sql):
    """While no worker runs, as after a restart of which somebody forgot the library."""
    server.configure(shared_preload_libraries=None)
    server.stop()
    server.start(wait=False)
    server.wait_for(server.answers, "the server accepts connections", 60)
    server.psql(sql)
    server.configure(shared_preload_libraries="pgmqtt")
    server.restart()


DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"


def test_a_mapping_that_no_slot_has_held_changes_for_has_no_gap(own):
    """Mappings and slot went or were switched off while nobody looked; one that was on has a gap."""
    own.psql("""CREATE TABLE t (id int PRIMARY KEY);
        SELECT pgmqtt.add_mapping(name, 't', $$'x/' || new.id$$) FROM unnest('{a,b}'::text[]) name""")
    without_pgmqtt(own, f"SELECT pgmqtt.drop_mapping(name) FROM pgmqtt.mappings; {DROP_SLOT}")
    assert slots(own) == "" and own.psql("SELECT count(*) FROM pgmqtt.cdc_slot") == "1", "the premise"
    own.psql("""SELECT pgmqtt.add_mapping('new', 't', $$'new/' || new.id$$, retain => true, operations => '{insert}');
        INSERT INTO t VALUES (1)""")
    own.wait_for(lambda: status(own, "new") == "streaming", "it streams")
    own.wait_for(lambda: own.psql("SELECT count(*) FROM pgmqtt.retained") == "1", "it publishes")
    own.psql("""SELECT pgmqtt.add_mapping(name, 't', $$name || '/' || new.id$$) FROM unnest('{a,b}'::text[]) name
        """.replace("$$name ||", "$$'x' ||"))
    # Off and on: with the slot there b goes on with it, a begins when there is none.
    without_pgmqtt(own, f"""SELECT pgmqtt.alter_mapping('b', false); SELECT pgmqtt.alter_mapping('b', true);
        SELECT pgmqtt.alter_mapping('a', false); {DROP_SLOT}; SELECT pgmqtt.alter_mapping('a', true)""")
    own.wait_for(lambda: slots(own) != "" and status(own, "a") == "streaming", "nothing of a's is missing")
    assert status(own, "b").startswith("gap")
    assert status(own, "new").startswith("gap"), "it was on all the time"
    assert own.psql("SELECT count(*) FROM pgmqtt.gap") == "2"
