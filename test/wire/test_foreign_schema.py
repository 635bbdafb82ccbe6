"""A database whose extension another build made: one message, quiet, and on again without a restart."""

import pytest

from harness.rawmqtt import RawClient

FOREIGN = "extension pgmqtt was created by another build than the library that runs"
MARKER = "CREATE OR REPLACE FUNCTION pgmqtt.schema_fingerprint() RETURNS text LANGUAGE sql " \
         "IMMUTABLE AS $$SELECT '{}'$$"
RELEASE = "ALTER EXTENSION pgmqtt DROP FUNCTION pgmqtt.schema_fingerprint();"
OTHERS = {"from before there were fingerprints": RELEASE + "DROP FUNCTION pgmqtt.schema_fingerprint()",
          "older": MARKER.format("1-1"), "newer": MARKER.format("4294967295-99999999")}
OLD_TABLES = "ALTER TABLE pgmqtt.mapping DROP COLUMN calls;" \
             "ALTER TABLE pgmqtt.outbox DROP COLUMN expires_at"
WORKERS = "SELECT backend_type, pid FROM pg_stat_activity WHERE backend_type LIKE 'pgmqtt %' ORDER BY 1"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgmqtt %' " \
          "AND wait_event_type = 'Extension'"
SLOTS = "SELECT count(*) FROM pg_replication_slots"


def started_on(server, damage):
    """A server that starts on what `damage` left; the log from there on."""
    server.psql("CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'rows'$$, 'new.v')")
    assert server.psql(SLOTS) == "1"
    server.psql(damage)
    server.stop()
    before = len(server.log_text())
    server.start(wait=False)
    server.wait_for(server.answers, "the server accepts connections", 60)
    server.wait_for(lambda: FOREIGN in server.log_text()[before:], "the log says so")
    server.wait_for(lambda: server.psql(WAITING) == "4", "all workers wait")
    return lambda: server.log_text()[before:]


def assert_serves(server):
    server.wait_listening()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("a", 1)
        server.psql("SELECT pgmqtt.publish('a', 'x'::text, 1)")
        assert client.expect(3).payload == b"x"


@pytest.mark.parametrize("other", OTHERS)
def test_one_message_until_it_is_created_anew(new_server, other):
    server = new_server().start()
    log = started_on(server, f"{OLD_TABLES};{OTHERS[other]}")
    workers = server.psql(WORKERS)
    server.wait_for(lambda: server.psql("SELECT clock_timestamp() > pg_postmaster_start_time() "
                                        "+ interval '3 s'") == "t", "a restart would have come")
    assert server.psql(WORKERS) == workers
    assert log().count(FOREIGN) == 1
    assert " ERROR: " not in log() and "does not exist" not in log()
    for part in ("DETAIL:  The library wants version 1.0 with schema ", "HINT:  If a newer library",
                 "run DROP EXTENSION pgmqtt CASCADE; CREATE EXTENSION pgmqtt;"):
        assert part in log()
    assert not server.listening()
    with pytest.raises(RuntimeError, match=f"55000: {FOREIGN}"):
        server.psql("SELECT pgmqtt.publish('a', 'x'::text)")
    server.psql("DROP EXTENSION pgmqtt CASCADE")
    server.wait_for(lambda: server.psql(SLOTS) == "0", "its slot goes with it")
    server.psql("CREATE EXTENSION pgmqtt")
    assert_serves(server)
    assert server.psql(WORKERS) == workers
    assert log().count(FOREIGN) == 2  # and once to the caller of publish()


def test_dropped_and_created_at_once_nothing_of_it_stays(new_server):
    server = new_server().start()
    started_on(server, f"{OLD_TABLES};{OTHERS['older']}")
    server.psql("BEGIN; DROP EXTENSION pgmqtt; CREATE EXTENSION pgmqtt; COMMIT")
    assert_serves(server)
    server.wait_for(lambda: server.psql(SLOTS) == "0", "the slot of the first is dropped")


def test_one_that_is_updated_keeps_what_it_has(new_server):
    """As ALTER EXTENSION UPDATE does it: the objects change, the extension is the same."""
    server = new_server().start()
    own = server.psql("SELECT pgmqtt.schema_fingerprint()")
    assert "@" not in own
    started_on(server, OTHERS["older"])
    server.psql(f"BEGIN; {RELEASE} {MARKER.format(own)};"
                "ALTER EXTENSION pgmqtt ADD FUNCTION pgmqtt.schema_fingerprint(); COMMIT")
    assert_serves(server)
    assert server.psql(SLOTS) == "1"
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("rows", 1)
        server.psql("INSERT INTO t VALUES ('row')")
        assert client.expect(3).payload == b"row"


def test_a_script_of_another_build_is_refused(new_server):
    server = new_server().start()
    server.psql("SELECT pgmqtt.extension_created()")
    server.psql(OTHERS["newer"])
    with pytest.raises(RuntimeError, match="55000: the script of extension pgmqtt is of another build"):
        server.psql("SELECT pgmqtt.extension_created()")


@pytest.mark.parametrize("conf", [{}, {"pgmqtt.database": "nowhere"}], ids=["extension", "database"])
def test_without_extension_or_database_the_workers_sleep(new_server, conf):
    """They look when something has changed, and not because they have just looked."""
    server = new_server(conf=conf, create_extension=False).start()
    server.wait_for(lambda: server.psql(WAITING) == "4", "all workers wait")
