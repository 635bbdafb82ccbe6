"""Servers that are not set up as they should be say what is wrong, and do what they can."""

import re
import socket
import threading

import pytest

from harness.rawmqtt import RawClient
from harness.server import Server, free_port

QUIET_SECONDS = 4  # several restarts of a worker that would end at once


def watch(seconds):
    """Lets time pass, for the tests that say that something does not happen in it."""
    threading.Event().wait(seconds)


def test_without_preload_the_error_names_the_line(new_server):
    server = new_server(create_extension=False, preload=False).start()
    server.psql("CREATE EXTENSION pgmqtt")
    with pytest.raises(RuntimeError, match="(?s)55000.*HINT.*shared_preload_libraries"):
        server.psql("SELECT pgmqtt.publish('a', 'x'::text)")
    assert server.psql("SELECT pgmqtt.topic_matches('a/+', 'a/b')") == "t", "pure functions work"


def test_wal_level_replica_costs_only_the_mappings(new_server):
    server = new_server(conf={"wal_level": "replica"}).start()
    server.psql("CREATE TABLE t (v text);"
                "SELECT pgmqtt.add_sink('s', 'in/{v}', 'INSERT INTO t SELECT v FROM msg')")
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("out", 1)
        server.psql("SELECT pgmqtt.publish('out', 'x'::text, 1)")
        packet = client.expect(3)
        client.puback(packet.packet_id)
        assert packet.payload == b"x"
        assert client.publish("in/row", "", qos=1).code < 0x80
    assert server.psql("SELECT v FROM t") == "row"
    try:
        server.psql("SELECT pgmqtt.add_mapping('m', 't', $$'out'$$)")
        said = server.psql("SELECT status FROM pgmqtt.mappings")
    except RuntimeError as error:
        said = str(error)
        assert "HINT" in said
    assert "wal_level" in said


def test_the_wrong_database_is_named(new_server):
    server = new_server().start()
    server.psql("CREATE DATABASE other")
    with pytest.raises(RuntimeError, match=r"(?s)ERROR.*pgmqtt\.database"):
        server.psql("CREATE EXTENSION pgmqtt", database="other")
    RawClient(server.mqtt_port).connect()


def test_a_missing_database_is_waited_for_quietly(new_server):
    server = new_server(conf={"pgmqtt.database": "later"}, create_extension=False).start()
    watch(QUIET_SECONDS)
    lines = [line for line in server.log_text().splitlines()
             if re.search(r"\] pgmqtt \w+ (LOG|WARNING|ERROR|FATAL|PANIC):|exited", line)]
    assert not re.search(r"CONTEXT: *$", server.log_text(), re.M), "no entry has an empty part"
    assert len(lines) <= 4, "\n".join(lines)
    server.psql("CREATE DATABASE later")
    server.psql("CREATE EXTENSION pgmqtt", database="later")
    server.wait_listening(30)


def test_a_port_in_use_is_a_log_line_and_a_retry(new_server):
    server = new_server(create_extension=False)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", server.mqtt_port))
        holder.listen()
        server.start()
        server.psql("CREATE EXTENSION pgmqtt")
        about = re.compile(rf"{server.mqtt_port}.*in use|in use.*{server.mqtt_port}", re.IGNORECASE)
        server.wait_for(lambda: about.search(server.log_text()), "a line that names the port")
        before = server.worker_pid("pgmqtt broker")
        watch(QUIET_SECONDS)
        assert server.worker_pid("pgmqtt broker") == before is not None, "it waits, it does not end"
        assert len(about.findall(server.log_text())) <= QUIET_SECONDS + 2
    server.wait_for(lambda: RawClient(server.mqtt_port).connect().code == 0,
                    "it listens once the port is free", 90)


def test_the_port_follows_a_reload(new_server):
    server = new_server().start()
    old, new = server.mqtt_port, free_port()
    with RawClient(old) as client:
        client.connect()
        server.configure(pgmqtt__port=new)
        server.reload()
        server.wait_listening()
        server.wait_for(lambda: not server.listening(old), "the old port closes")
        client.expect_nothing_before_ping()  # who is connected stays


def test_a_standby_does_nothing_until_it_is_promoted(new_server):
    primary = new_server().start()
    primary.psql("CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $$new.v$$)")
    with RawClient(primary.mqtt_port) as client:
        client.connect()
        client.publish("kept", "x", qos=1, retain=True)

    def base_backup(standby):
        primary.tree.run("pg_basebackup", "-d", primary.dsn(), "-D", standby.data, "-R",
                         "-X", "stream", "-c", "fast", "--no-sync")

    standby = new_server(create_extension=False, data_from=base_backup).start()
    assert standby.psql("SELECT pg_is_in_recovery()") == "t"
    watch(QUIET_SECONDS)
    assert not standby.listening()
    assert [standby.worker_pid(worker) for worker in ("pgmqtt broker", "pgmqtt cdc")] == [None] * 2
    primary.stop()
    standby.psql("SELECT pg_promote()")
    standby.wait_listening()
    with RawClient(standby.mqtt_port) as client:
        client.connect()
        client.subscribe("kept", 1)
        packet = client.expect(3)
        client.puback(packet.packet_id)
        assert packet.payload == b"x"
        client.subscribe("out", 1)
        standby.wait_for(lambda: standby.psql("SELECT count(*) FROM pg_replication_slots "
                                              "WHERE plugin = 'pgmqtt'") == "1", "a new slot")
        standby.psql("INSERT INTO t VALUES ('row'); SELECT pgmqtt.publish('out', 'call'::text, 1)")
        got = set()
        while got != {b"row", b"call"}:
            packet = client.expect(3)
            client.puback(packet.packet_id)
            got.add(packet.payload)
    assert standby.psql("SELECT status FROM pgmqtt.mappings") == "gap", "slots are not replicated"
    assert "does not exist any more" in standby.log_text()


def test_dump_and_restore_carry_mappings_and_sinks(new_server):
    server = new_server().start()
    server.psql("CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $$new.v$$);"
                "SELECT pgmqtt.add_sink('s', 'in/{v}', 'INSERT INTO t SELECT v FROM msg')")
    dump = server.tree.run("pg_dump", "-d", server.dsn())
    other = new_server(create_extension=False).start()
    other.psql(dump)
    other.wait_listening()
    other.wait_for(lambda: other.psql("SELECT status FROM pgmqtt.mappings") == "gap",
                   "the restored mapping streams, and says that changes may be missing")
    assert "snapshot_mapping('m')" in other.psql("SELECT message FROM pgmqtt.mappings")
    with RawClient(other.mqtt_port) as client, RawClient(other.mqtt_port) as publisher:
        client.connect()
        client.subscribe("out", 1)
        publisher.connect()
        assert publisher.publish("in/row", "", qos=1).code < 0x80
        assert client.expect(3).payload == b"row", "the sink's row came back by the mapping"


def test_the_harness_leaves_nothing():
    """Two servers beside each other have nothing in common but the installation."""
    with Server() as one, Server() as other:
        assert one.data != other.data and one.mqtt_port != other.mqtt_port
        kept = (one.directory, other.directory)
    assert not any(directory.exists() for directory in kept)
