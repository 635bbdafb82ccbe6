"""Settings of the database and the role that the workers connect with must not harm the workers."""

import re
import threading
import time

import pytest

from harness.packets import PUBACK, PUBLISH, publish_frame
from harness.rawmqtt import RawClient

HARMFUL = {"statement_timeout": "1ms", "lock_timeout": "1ms", "default_transaction_read_only": "on",
           "default_transaction_isolation": "serializable", "transaction_timeout": "1ms",
           "session_replication_role": "replica", "search_path": "harmful", "role": "pg_monitor",
           "row_security": "off", "transform_null_equals": "on"}
# What the test itself connects with.
HARMLESS = {"statement_timeout": "0", "lock_timeout": "0", "default_transaction_read_only": "off",
            "transaction_timeout": "0", "session_replication_role": "origin", "search_path": "public",
            "role": "none"}


def known(server, settings):
    return {name: value for name, value in settings.items()
            if name != "transaction_timeout" or server.tree.knows_setting(name)}


def start_with(server, monkeypatch, topic, where, settings):
    server.start()
    server.psql(f"""CREATE TABLE sunk (n int); CREATE TABLE source_row (n int);
        SELECT pgmqtt.add_sink('sunk', '{topic}/sunk', 'INSERT INTO sunk SELECT text::int FROM msg');
        SELECT pgmqtt.add_mapping('rows', 'source_row', $$'{topic}/rows'$$, 'new.n::text');""")
    monkeypatch.setenv("PGOPTIONS", " ".join(f"-c {name}={value}" for name, value
                                             in known(server, HARMLESS).items()))
    for name, value in settings.items():
        server.psql(f"ALTER {where} SET {name} = '{value}'")
    server.restart()


def hold_lock(server, tables, seconds):
    """A lock for longer than lock_timeout."""
    connection = server.connect(autocommit=False)
    connection.cursor().execute(f"LOCK TABLE {tables} IN SHARE MODE")

    def release():
        time.sleep(seconds)
        connection.close()

    thread = threading.Thread(target=release)
    thread.start()
    return thread


def work_goes_on(server, topic):
    """Into a sink and a session, out of publish() and a mapping; also past a lock that is held."""
    with RawClient(server.mqtt_port, timeout=30) as client:
        client.connect("away", clean=False, properties={"session_expiry_interval": 3600})
        client.subscribe(f"{topic}/#", 1)
        holder = hold_lock(server, "pgmqtt.session, pgmqtt.message, sunk", 0.5)
        client.send(publish_frame(f"{topic}/sunk", "1", 1, packet_id=100, retain=True))
        assert {client.receive().type for _ in range(2)} == {PUBACK, PUBLISH}
        holder.join()
        assert server.psql("SELECT n FROM sunk") == "1"
        server.psql("INSERT INTO source_row VALUES (7)")
        assert client.expect(PUBLISH).payload == b"7"
        server.psql(f"SELECT pgmqtt.publish('{topic}/sql', '8', 1)")
        assert client.expect(PUBLISH).payload == b"8"
    # (The autovacuum worker may complain.)
    assert not re.search("pgmqtt .*WARNING", server.log_text())


@pytest.mark.parametrize("name", HARMFUL)
def test_one_of_the_database(new_server, monkeypatch, topic, name):
    server = new_server()
    settings = known(server, {name: HARMFUL[name]})
    if not settings:  # then it can do no harm
        with pytest.raises(RuntimeError, match="unrecognized configuration parameter"):
            server.start().psql(f"ALTER DATABASE postgres SET {name} = '{HARMFUL[name]}'")
        return
    start_with(server, monkeypatch, topic, "DATABASE postgres", settings)
    work_goes_on(server, topic)


def test_all_of_the_role(new_server, monkeypatch, topic):
    server = new_server()
    start_with(server, monkeypatch, topic, "ROLE postgres", known(server, HARMFUL))
    work_goes_on(server, topic)
