"""pgmqtt.clients: everybody who is connected, and a broker that nobody who asks can hold up."""

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import psycopg2
import pytest

from harness.rawmqtt import RawClient

SEGMENT = 64 * 1024  # kRingSize of src/pg/inquiry.cpp
COUNT = "SELECT count(*) FROM pgmqtt.clients"


@pytest.fixture
def own(new_server):
    return new_server().start()


def segments(pid):
    """How many of the dynamic segments that backends bring, known by their size, it has mapped."""
    count = 0
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf8").splitlines():
        start, end = line.split()[0].split("-")
        shared = "/PostgreSQL." in line or "/SYSV" in line  # dynamic_shared_memory_type
        count += shared and int(end, 16) - int(start, 16) == SEGMENT
    return count


class Query(threading.Thread):
    """One statement in a session of its own; result() waits for what became of it."""

    def __init__(self, server, sql=COUNT):
        super().__init__()
        self.connection = server.connect()
        self.pid = self.connection.get_backend_pid()
        self.sql = sql
        self.rows = self.error = None
        self.start()

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(self.sql)
                self.rows = cursor.fetchall()
        except psycopg2.Error as error:
            self.error = error
        self.connection.close()

    def result(self):
        self.join(60)
        assert not self.is_alive(), "the query is over"
        if self.error:
            raise self.error
        return self.rows


def waits_for_broker(server, query):
    server.wait_for(
        lambda: server.psql("SELECT wait_event_type || ':' || wait_event FROM pg_stat_activity"
                            f" WHERE pid = {query.pid}") == "Extension:Extension",
        "the backend waits for the broker")


def test_the_columns_of_a_client(own):
    own.psql("CREATE ROLE alice LOGIN PASSWORD 'secret'")
    with RawClient(own.mqtt_port) as client, RawClient(own.mqtt_port, version=4) as old:
        client.connect("a", username="alice", password="secret", keep_alive=60)
        old.connect("b")
        client.subscribe("t", 1)
        client.subscribe("u", 1)
        old.subscribe("t")
        port = client.socket.getsockname()[1]
        old.publish("t", b"x")
        client.messages(1)
        old.messages(1)
        client.until_ping()
        assert own.psql(
            "SELECT client_id, username, addr, port, transport, protocol, keep_alive, clean_start,"
            " session_expiry, subscriptions, inflight_out, inflight_in, queued, queued_bytes,"
            " messages_in, messages_out, dropped, throttled, bytes_in > 0, bytes_out > 0,"
            " connected_at <= last_packet_at, now() - last_packet_at < '60s',"
            " connected_at < clock_timestamp()"
            " FROM pgmqtt.clients WHERE client_id = 'a'") == \
            f"a|alice|127.0.0.1|{port}|tcp|5.0|60|t|0|2|0|0|0|0|0|1|0|f|t|t|t|t|t"
        assert own.psql("SELECT client_id, username IS NULL, protocol, messages_in"
                        " FROM pgmqtt.clients ORDER BY 1") == "a|f|5.0|0\nb|t|3.1.1|1"
    own.wait_for(lambda: own.psql(COUNT) == "0", "who has gone is not shown")


STRANGE = ["x", "x" * 23, "x" * 128, "x" * 129, "x" * 1024, "x" * 65535, "a/b", "a b", "+", "#",
           "\U0001f600", "'; drop table", "two\nlines", "é" * 32767]


def test_client_ids_are_shown_intact_and_can_be_disconnected(own):
    """Case A02 of the field cases."""
    with ExitStack() as stack:
        clients = {}
        for client_id in STRANGE:
            clients[client_id] = stack.enter_context(RawClient(own.mqtt_port))
            assert clients[client_id].connect(client_id).code == 0, client_id[:40]
        with own.connect().cursor() as cursor:
            cursor.execute("SELECT client_id FROM pgmqtt.clients")
            assert sorted(row[0] for row in cursor) == sorted(STRANGE)
            for client_id, client in clients.items():
                cursor.execute("SELECT pgmqtt.disconnect(client_id) FROM pgmqtt.clients"
                               " WHERE client_id = %s", (client_id,))
                assert client.expect_closed()[-1].code == 0x98


def test_more_clients_than_fit_into_the_queue(own):
    with ExitStack() as stack:
        for number in range(700):
            stack.enter_context(RawClient(own.mqtt_port)).connect(f"{number:04}" + "x" * 200)
        assert own.psql("SELECT count(*), count(DISTINCT client_id), min(length(client_id))"
                        " FROM pgmqtt.clients") == "700|700|204"
        queries = [Query(own) for _ in range(30)]  # more than can be taken up at a time
        assert [query.result() for query in queries] == [[(700,)]] * 30


def test_who_may_look(own):
    own.psql("CREATE ROLE nobody LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE ours LOGIN;"
             "GRANT pg_monitor TO watcher; GRANT pgmqtt_monitor TO ours")
    for role in ("watcher", "ours"):
        assert own.psql(COUNT, user=role) == "0"
    with pytest.raises(RuntimeError, match="42501"):
        own.psql(COUNT, user="nobody")
    with pytest.raises(RuntimeError, match="42501"):
        own.psql("SELECT pgmqtt.client_rows()", user="nobody")


def test_a_broker_that_does_not_answer_is_an_error(own):
    broker = own.worker_pid("pgmqtt broker")
    os.kill(broker, signal.SIGSTOP)
    try:
        with pytest.raises(psycopg2.Error, match="the pgmqtt broker did not answer") as raised:
            Query(own).result()
        assert raised.value.pgcode == "55000"
        with pytest.raises(psycopg2.Error, match="statement timeout"):
            Query(own, "SET statement_timeout = '100ms'; " + COUNT).result()
        # Nobody who gave up leaves his place taken: there are 16.
        for _ in range(20):
            with pytest.raises(psycopg2.Error, match="statement timeout"):
                Query(own, "SET statement_timeout = '20ms'; " + COUNT).result()
        last = Query(own)
        waits_for_broker(own, last)
    finally:
        os.kill(broker, signal.SIGCONT)
    assert last.result() == [(0,)]
    own.wait_for(lambda: segments(broker) == 0, "the broker lets go of all segments")


def test_a_broker_that_ends_meanwhile_is_an_error(own):
    broker = own.worker_pid("pgmqtt broker")
    os.kill(broker, signal.SIGSTOP)
    query = Query(own)
    waits_for_broker(own, query)
    os.kill(broker, signal.SIGTERM)
    os.kill(broker, signal.SIGCONT)
    try:
        query.result()
    except psycopg2.Error as error:
        assert error.pgcode == "55000" and "the pgmqtt broker" in str(error)
    own.wait_for(lambda: own.worker_pid("pgmqtt broker") not in (None, broker), "a new broker")
    own.wait_listening()
    assert own.psql(COUNT) == "0"


def test_a_backend_that_stops_reading_holds_up_nobody(own):
    """Its answer is more than fits; others get theirs, and clients are served."""
    broker = own.worker_pid("pgmqtt broker")
    with ExitStack() as stack:
        for letter in "abcd":
            stack.enter_context(RawClient(own.mqtt_port)).connect(letter * 65535)
        client = stack.enter_context(RawClient(own.mqtt_port))
        client.connect("quick")
        os.kill(broker, signal.SIGSTOP)
        query = Query(own)
        waits_for_broker(own, query)
        os.kill(query.pid, signal.SIGSTOP)
        os.kill(broker, signal.SIGCONT)
        own.wait_for(lambda: segments(broker) == 1, "the broker has begun to answer")
        for _ in range(20):
            assert client.until_ping() == []
        assert own.psql(COUNT) == "5"
        os.kill(query.pid, signal.SIGCONT)
        assert query.result() == [(5,)]

        # The same, and the backend is ended in the middle.
        os.kill(broker, signal.SIGSTOP)
        query = Query(own)
        waits_for_broker(own, query)
        os.kill(query.pid, signal.SIGSTOP)
        os.kill(broker, signal.SIGCONT)
        own.wait_for(lambda: segments(broker) == 1, "the broker has begun to answer")
        os.kill(query.pid, signal.SIGTERM)
        os.kill(query.pid, signal.SIGCONT)
        with pytest.raises(psycopg2.Error):
            query.result()
        own.wait_for(lambda: segments(broker) == 0, "the broker lets go of the segment")
        assert client.until_ping() == []
        assert own.psql(COUNT) == "5"
    assert own.worker_pid("pgmqtt broker") == broker


def test_an_answer_that_its_reader_breaks_off(own):
    """An error inside the query, a cursor, and a subtransaction that is rolled back."""
    with RawClient(own.mqtt_port) as client:
        client.connect("a" * 65535)
        broker = own.worker_pid("pgmqtt broker")
        with pytest.raises(RuntimeError, match="22012"):
            own.psql("SELECT 1 / (length(client_id) - 65535) FROM pgmqtt.clients")
        assert own.psql("SELECT client_id IS NOT NULL FROM pgmqtt.clients LIMIT 1") == "t"
        own.psql("DO $$ BEGIN PERFORM 1 / (length(client_id) - 65535) FROM pgmqtt.clients;"
                 " EXCEPTION WHEN division_by_zero THEN"
                 " ASSERT (SELECT count(*) = 1 FROM pgmqtt.clients); END $$")
        own.wait_for(lambda: segments(broker) == 0, "the broker lets go of all segments")
