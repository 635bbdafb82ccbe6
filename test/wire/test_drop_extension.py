"""DROP EXTENSION beside clients that use all there is: prompt, quiet, and as if nothing had been when rolled back."""

import os
import re
import threading

import pytest

from harness.rawmqtt import Closed, RawClient
from harness.waiting import PATIENCE

ROUNDS = int(os.environ.get("PGMQTT_DROP_ROUNDS", "3"))  # of each; 100 by hand
TOLD = r" (WARNING|ERROR|FATAL|PANIC): "
GONE = "pgmqtt waits for CREATE EXTENSION: the extension was dropped"


def complaints(log):
    """Lines that say that something is wrong."""
    return [line for line in log.splitlines() if re.search(TOLD, line)]


class Load:
    """Clients that make the workers use every table, until the extension is gone; and the ledger of
    what they were told is stored."""

    def __init__(self, server):
        self.server = server
        self.acknowledged = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._until_over, args=(work,), daemon=True)
                        for work in (self._publish, self._retain, self._connect, self._drain)]
        self.rounds = {}

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(20 * PATIENCE)
            assert not thread.is_alive()

    def under_way(self):
        """Each has worked for a while."""
        return len(self.rounds) == len(self.threads) and min(self.rounds.values()) > 20

    def _until_over(self, work):
        while not self.over.is_set():
            try:
                with RawClient(self.server.mqtt_port, timeout=5) as client:
                    for _ in work(client):
                        self.rounds[work.__name__] = self.rounds.get(work.__name__, 0) + 1
                        if self.over.is_set():
                            return
            except (Closed, OSError, AssertionError):  # gone, or not there yet
                self.over.wait(0.01)

    def _publish(self, client):
        """Into the queue of an offline session and the sink."""
        client.connect()
        while True:
            number = len(self.acknowledged)
            assert client.publish("queued", str(number), qos=1).code == 0
            self.acknowledged.append(number)
            assert client.publish("in/x", str(number), qos=1).code in (0, 16)
            yield

    def _retain(self, client):
        client.connect()
        number = 0
        while True:
            number += 1
            assert client.publish(f"retained/{number % 50}", str(number), qos=1, retain=True).code == 0
            yield

    def _connect(self, _):
        number = 0
        while True:
            number += 1
            with RawClient(self.server.mqtt_port, timeout=5) as client:
                client.connect(f"passing-{number % 20}",
                               properties={"session_expiry_interval": 60})
                client.subscribe("retained/#", 1)
            yield

    def _drain(self, client):
        """A session that is away half of the time: its queue is fetched from the store."""
        if not client.connect("comes-and-goes", clean=False,
                              properties={"session_expiry_interval": 3600}).session_present:
            client.subscribe("queued", 1)
        for _ in range(10):
            packet = client.expect(3)
            client.puback(packet.packet_id)
            yield


def set_up(server):
    """What the extension is used for, and an offline session."""
    server.psql("CREATE EXTENSION IF NOT EXISTS pgmqtt")
    server.wait_listening()
    server.psql("CREATE TABLE IF NOT EXISTS sunk (v text); CREATE TABLE IF NOT EXISTS t (v text);"
                "SELECT pgmqtt.add_sink('s', 'in/#', 'INSERT INTO sunk SELECT text FROM msg');"
                "SELECT pgmqtt.add_mapping('m', 't', $$'rows'$$, 'new.v')")
    with RawClient(server.mqtt_port) as client:
        client.connect("away", clean=False, properties={"session_expiry_interval": 3600})
        client.subscribe("queued", 1)


DROPS = {"alone": "DROP EXTENSION pgmqtt", "CASCADE": "DROP EXTENSION pgmqtt CASCADE",
         "behind a use": "BEGIN; SELECT pgmqtt.publish('queued', 'x', 1); DROP EXTENSION pgmqtt; COMMIT"}


@pytest.mark.parametrize("how", DROPS)
def test_dropping_the_extension_under_load_is_prompt_and_quiet(new_server, how):
    """No deadlock, whoever would be its victim, and no line in the log that is a false alarm."""
    server = new_server(conf={"pgmqtt.tick": "1ms", "deadlock_timeout": "500ms",
                              "pgmqtt.max_queued_messages": 1000000}).start()
    for _ in range(ROUNDS):
        set_up(server)
        before = len(server.log_text())
        with Load(server) as load:
            server.wait_for(load.under_way, "all of them use it")
            server.psql(f"SET statement_timeout = '{5 * PATIENCE}s'; {DROPS[how]}")
            server.wait_not_listening(5)
            server.wait_for(lambda: server.psql("SELECT count(*) FROM pg_replication_slots") == "0",
                            "the slot is dropped", 5)
            server.wait_for(lambda: GONE in server.log_text()[before:], "one line says so", 5)
        log = server.log_text()[before:]
        assert not complaints(log), "\n".join(complaints(log))
        assert log.count(GONE) == 1


def test_a_drop_that_is_rolled_back_loses_nothing(new_server):
    server = new_server(conf={"pgmqtt.tick": "1ms", "pgmqtt.max_queued_messages": 1000000,
                              "deadlock_timeout": "500ms"}).start()
    set_up(server)
    before = len(server.log_text())
    with Load(server) as load:
        server.wait_for(load.under_way, "all of them use it")
        for _ in range(ROUNDS):
            for cascade in ("", "CASCADE"):
                with pytest.raises(RuntimeError, match="extension pgmqtt requires it"):
                    server.psql(f"DROP SCHEMA pgmqtt {cascade}")
            session = server.connect(autocommit=False)
            session.cursor().execute(f"SET statement_timeout = '{5 * PATIENCE}s'; DROP EXTENSION pgmqtt")
            session.rollback()
            session.close()
            count = len(load.acknowledged)
            server.wait_for(lambda: len(load.acknowledged) > count + 20, "it goes on")
    log = server.log_text()[before:]
    ours = [line for line in complaints(log) if "client backend ERROR" not in line]
    assert not ours, "\n".join(ours)
    assert GONE not in log
    with RawClient(server.mqtt_port) as client:
        assert client.connect("away", clean=False,
                              properties={"session_expiry_interval": 3600}).session_present
        got = []
        while len(got) == 0 or got[-1] < load.acknowledged[-1]:
            packet = client.expect(3)
            client.puback(packet.packet_id)
            got.append(int(packet.payload))
    assert set(load.acknowledged) <= set(got)


@pytest.mark.parametrize("table", ["retained_message", "session", "queue_3", "sink"])
@pytest.mark.parametrize("end", ["ROLLBACK", "DROP EXTENSION pgmqtt; COMMIT"])
def test_a_broker_that_starts_gives_way(new_server, table, end):
    """It waits for who has locked what it loads, and is quiet when that goes away."""
    server = new_server().start()
    set_up(server)
    before = len(server.log_text())
    locker = server.connect()
    locker.cursor().execute(f"BEGIN; LOCK TABLE pgmqtt.{table}")
    started = server.worker_pid("pgmqtt broker")
    server.psql(f"SELECT pg_terminate_backend({started})")
    server.wait_for(lambda: server.worker_pid("pgmqtt broker") not in (None, started), "a new one")
    waits = "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid) " \
            "WHERE backend_type = 'pgmqtt broker' AND NOT granted"
    server.wait_for(lambda: server.psql(waits) == "1", "it waits for the lock")
    locker.cursor().execute(end)
    if end == "ROLLBACK":
        server.wait_listening()
        with RawClient(server.mqtt_port) as client:
            assert client.connect("away", clean=False,
                                  properties={"session_expiry_interval": 3600}).session_present
    else:
        server.wait_for(lambda: GONE in server.log_text()[before:], "one line says so", 5)
    assert not complaints(server.log_text()[before:]), server.log_text()[before:]


def test_an_extension_that_comes_back_at_once_begins_anew(new_server):
    """Dropped and created in one transaction it is another one: nothing of the first is known."""
    server = new_server().start()
    for again in ("BEGIN; DROP EXTENSION pgmqtt; CREATE EXTENSION pgmqtt; COMMIT",
                  "DROP EXTENSION pgmqtt; CREATE EXTENSION pgmqtt"):
        set_up(server)
        with RawClient(server.mqtt_port) as client:
            client.connect()
            assert client.publish("queued", "old", qos=1, retain=True).code == 0
            server.psql(again)
            client.expect_closed()
        server.wait_listening()
        with RawClient(server.mqtt_port) as client:
            assert not client.connect("away", clean=False,
                                      properties={"session_expiry_interval": 3600}).session_present
            client.subscribe("#", 1)
            client.expect_nothing_before_ping()
            server.psql("SELECT pgmqtt.publish('queued', 'new', 1)")
            assert client.expect(3).payload == b"new"
        assert server.psql("SELECT count(*) FROM pgmqtt.sessions WHERE client_id = 'away'") == "1"
        server.psql("DROP EXTENSION pgmqtt; CREATE EXTENSION pgmqtt")
