"""What a transaction changes of pgmqtt's configuration, or asks of its broker, has happened when COMMIT returns."""

import threading

import pytest

from harness.packets import DISCONNECT
from harness.rawmqtt import RawClient

# By statement: what a second session sees of it at once. `t` is a table, `m` mapped from it, `s` a
# sink for in/#.
LOCK = "LOCK TABLE pgmqtt.mapping, pgmqtt.sink, pgmqtt.durability_rule IN ACCESS EXCLUSIVE MODE;"
CHANGES = {
    "TRUNCATE of mappings": "TRUNCATE pgmqtt.mapping CASCADE",
    "TRUNCATE of sinks": "TRUNCATE pgmqtt.sink CASCADE",
    "TRUNCATE of durability rules": "TRUNCATE pgmqtt.durability_rule",
    "LOCK before add_mapping()": f"BEGIN; {LOCK} SELECT pgmqtt.add_mapping('m2', 't', $$'o'$$); COMMIT",
    "LOCK behind drop_sink()": f"BEGIN; SELECT pgmqtt.drop_sink('s'); {LOCK} COMMIT",
    "LOCK before set_durability()": f"BEGIN; {LOCK} SELECT pgmqtt.set_durability('a/#', 'async'); COMMIT",
    "ALTER behind drop_mapping()": "BEGIN; SELECT pgmqtt.drop_mapping('m'); "
                                   "ALTER TABLE pgmqtt.mapping SET (fillfactor = 90); COMMIT",
    "a table that is new itself": "BEGIN; CREATE TABLE fresh (v text PRIMARY KEY); "
                                  "SELECT pgmqtt.add_mapping('m2', 'fresh', $$'o'$$); COMMIT",
    "a lock on the mapped table": "BEGIN; LOCK TABLE t; SELECT pgmqtt.add_mapping('m2', 't', $$'o'$$); COMMIT",
}


def has(server, what):
    return server.psql(f"SELECT count(*) FROM pgmqtt.{what}") == "1"


@pytest.fixture
def configured(new_server):
    server = new_server().start()
    server.psql("CREATE TABLE t (v text PRIMARY KEY); CREATE TABLE sunk (v text);"
                "SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, 'new.v');"
                "SELECT pgmqtt.add_sink('s', 'in/#', 'INSERT INTO sunk SELECT text FROM msg');"
                "SELECT pgmqtt.set_durability('b/#', 'unlogged')")
    assert has(server, "mapping") and has(server, "sink") and has(server, "durability_rule")
    return server


@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_does_not_wait_for_who_waits_for_its_locks(configured, change):
    """Whatever it has locked: the workers follow, and nobody is told that they did not."""
    session = configured.connect()
    session.cursor().execute(CHANGES[change])
    assert not session.notices, session.notices
    session.cursor().execute("SELECT pgmqtt.add_sink('later', 'x/#', 'INSERT INTO sunk SELECT text FROM msg')")
    assert not session.notices, session.notices


def test_truncated_sinks_are_gone_at_once(configured):
    with RawClient(configured.mqtt_port) as client:
        client.connect()
        assert client.publish("in/x", "1", qos=1).code == 0
        assert configured.psql("SELECT v FROM sunk") == "1", "the sink is there"
        configured.psql("TRUNCATE pgmqtt.sink CASCADE")
        assert client.publish("in/x", "2", qos=1).code == 16, "no matching subscribers"
    assert configured.psql("SELECT count(*) FROM pgmqtt.dead_letter") == "0"


def test_a_change_and_the_end_of_the_extension_in_one_transaction(configured):
    session = configured.connect()
    session.cursor().execute("BEGIN; SELECT pgmqtt.drop_mapping('m'); SELECT pgmqtt.drop_sink('s');"
                             "DROP EXTENSION pgmqtt CASCADE; COMMIT")
    assert not [notice for notice in session.notices if "in force" in notice], session.notices


def test_a_lock_of_somebody_else_is_waited_for(configured):
    """And the waiting says so: the change is committed, whoever holds up the workers."""
    blocker = configured.connect(autocommit=False)
    session = configured.connect()
    session.cursor().execute("BEGIN; SELECT pgmqtt.set_durability('c/#', 'async')")
    waiting = threading.Thread(target=lambda: blocker.cursor().execute("LOCK TABLE pgmqtt.durability_rule"))
    waiting.start()
    configured.wait_for(lambda: configured.psql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1",
                        "the lock stands behind the change")
    done = threading.Thread(target=lambda: session.cursor().execute("COMMIT"))
    done.start()
    waiting.join()
    configured.wait_for(lambda: "waiting until the change is in force" in configured.log_text(),
                        "the commit says that it waits")
    assert done.is_alive()
    blocker.rollback()
    done.join()
    assert not [notice for notice in session.notices if "WARNING" in notice], session.notices


# --- pgmqtt.disconnect(), pgmqtt.delete_session()


def connect(server, client_id="one", **options):
    client = RawClient(server.mqtt_port)
    connack = client.connect(client_id, clean=False,
                             properties={"session_expiry_interval": 3600}, **options)
    return client, connack.session_present


ROUNDS = 40


def test_disconnect_ends_the_connection_that_there_was_and_no_later_one(new_server):
    server = new_server().start()
    session = server.connect()
    for _ in range(ROUNDS):
        client, _ = connect(server)
        session.cursor().execute("SELECT pgmqtt.disconnect('one')")
        later, _ = connect(server)
        # Were the older one still connected, this would have taken it over, with another code.
        assert [packet.code for packet in client.expect_closed() if packet.type == DISCONNECT] == [152]
        later.expect_nothing_before_ping()
        session.cursor().execute("SELECT pgmqtt.disconnect('one')")
        assert server.psql("SELECT count(*) FROM pgmqtt.clients") == "0"
        later.close()


@pytest.mark.parametrize("queued", [0, 3000])
def test_delete_session_has_happened_when_it_returns(new_server, queued):
    """Also of a session with a queue so long that it does not end in one turn."""
    server = new_server().start()
    session = server.connect()
    for _ in range(ROUNDS if queued == 0 else 3):
        client, present = connect(server)
        assert not present
        client.subscribe("q/#", 1)
        client.close()
        server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.clients") == "0", "it is away")
        server.psql(f"SELECT pgmqtt.publish('q/' || i, 'x', 1) FROM generate_series(1, {queued}) i")
        server.wait_for(lambda: server.psql("SELECT queued FROM pgmqtt.sessions") == str(queued), "queued")
        session.cursor().execute("SELECT pgmqtt.delete_session('one')")
        assert server.psql("SELECT count(*) FROM pgmqtt.sessions") == "0"
        assert server.psql("SELECT count(*) FROM pgmqtt.command") == "0"
        later, present = connect(server)
        assert not present
        later.expect_nothing_before_ping()
        later.close()
        session.cursor().execute("SELECT pgmqtt.delete_session('one')")


def test_a_command_that_was_carried_out_is_not_repeated(new_server):
    """Its row stays while somebody locks the table; a store worker that comes back reads it again."""
    server = new_server().start()
    client, _ = connect(server)
    asking = server.connect()
    asking.cursor().execute("BEGIN; SELECT pgmqtt.delete_session('one')")
    blocker = server.connect(autocommit=False)
    standing = threading.Thread(
        target=lambda: blocker.cursor().execute("LOCK TABLE pgmqtt.command IN SHARE MODE"))
    standing.start()
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1",
                    "the lock stands behind the command")
    # It gets its lock before the worker can remove what is carried out.
    commit = threading.Thread(target=lambda: asking.cursor().execute("COMMIT"))
    commit.start()
    standing.join()
    assert [packet.code for packet in client.expect_closed()] == [152]
    assert server.psql("SELECT count(*) FROM pgmqtt.command") == "1", "it is not removed"
    later, present = connect(server)
    assert not present
    later.subscribe("q/#", 1)
    for worker in ("pgmqtt store", "pgmqtt broker"):
        before = server.worker_pid(worker)
        server.psql(f"SELECT pg_terminate_backend({before})")
        server.wait_for(lambda: server.worker_pid(worker) not in (None, before), f"{worker} is back")
        server.wait_listening()
        if worker == "pgmqtt broker":
            later.close()
            later, present = connect(server)
            assert present
        # The worker that came back has read the command again when it has stored the second.
        with RawClient(server.mqtt_port) as publisher:
            publisher.connect()
            for number in range(2):
                assert publisher.publish("q/1", f"{worker} {number}", qos=1).code == 0
        for number in range(2):
            packet = later.expect(3)
            assert packet.payload.decode() == f"{worker} {number}"
            later.puback(packet.packet_id)
        later.expect_nothing_before_ping()
    blocker.rollback()
    commit.join()
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.command") == "0", "it is removed")
    later.expect_nothing_before_ping()
