"""The life of the workers: from CREATE EXTENSION to DROP EXTENSION, shutdown, being ended."""

import pytest

from harness.packets import DISCONNECT
from harness.rawmqtt import Closed, RawClient
from harness.server import WORKERS
from harness.waiting import wait_for

SHUTTING_DOWN = 0x8B
OUR_SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE plugin = 'pgmqtt'"


class Flows:
    """Both directions of one server: a mapped table and a sink, to see whether service is there."""

    def __init__(self, server):
        self.server = server
        server.psql("""
            CREATE TABLE out_row (v text);
            CREATE TABLE in_row (v text);
            SELECT pgmqtt.add_mapping('out', 'out_row', $$'out'$$, $$new.v$$);
            SELECT pgmqtt.add_sink('in', 'in/{v}', 'INSERT INTO in_row SELECT v FROM msg');""")

    def check(self, mark):
        """Rows, publish() and a client's message all come through, once the workers are back."""
        wait_for(lambda: self._client_to_row(f"{mark}-sink"), f"{mark}: a message becomes a row")
        with RawClient(self.server.mqtt_port) as client:
            client.connect()
            client.subscribe("out", 1)
            self.server.psql(f"INSERT INTO out_row VALUES ('{mark}-row');"
                             f"SELECT pgmqtt.publish('out', '{mark}-call'::text, 1)")
            wanted, got = {f"{mark}-row", f"{mark}-call"}, set()
            while not wanted <= got:  # at least once: an older one may come again
                packet = client.expect(3)
                client.puback(packet.packet_id)
                got.add(packet.payload.decode())

    def _client_to_row(self, value):
        with RawClient(self.server.mqtt_port, timeout=5) as client:
            client.connect()
            assert client.publish(f"in/{value}", "", qos=1).code < 0x80
        return self.server.psql(f"SELECT count(*) > 0 FROM in_row WHERE v = '{value}'") == "t"


def test_create_extension_opens_the_port_without_a_restart(new_server):
    server = new_server(create_extension=False).start()
    assert not server.listening()
    server.psql("BEGIN; CREATE EXTENSION pgmqtt; ROLLBACK;")
    assert not server.listening()
    server.psql("CREATE EXTENSION pgmqtt")
    server.wait_listening()
    Flows(server).check("fresh")


def test_the_first_row_after_add_mapping_is_published(new_server):
    """The first mapping of a server needs a slot first: add_mapping's commit is the promise."""
    server = new_server().start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("out", 1)
        server.psql("CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $$new.v$$);"
                    "INSERT INTO t VALUES ('first')")
        assert client.expect(3).payload == b"first"


def test_drop_extension_leaves_nothing(new_server):
    server = new_server().start()
    Flows(server).check("before")
    server.wait_for(lambda: server.psql(OUR_SLOTS) == "1", "the slot of the mapping")
    with RawClient(server.mqtt_port) as client:
        client.connect()
        server.psql("DROP EXTENSION pgmqtt CASCADE")
        packets = client.expect_closed()
        assert [(packet.type, packet.code) for packet in packets] == [(DISCONNECT, SHUTTING_DOWN)]
    server.wait_not_listening()
    server.wait_for(lambda: server.psql(OUR_SLOTS) == "0", "the slot is dropped")
    assert server.psql("SELECT count(*) FROM pg_replication_origin") == "0"
    assert server.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'pgmqtt'") == "0"


def test_drop_and_create_again(new_server):
    server = new_server().start()
    for _ in range(3):
        server.psql("DROP EXTENSION pgmqtt")
        server.wait_not_listening()
        server.psql("CREATE EXTENSION pgmqtt")
        server.wait_listening()
    Flows(server).check("again")


@pytest.fixture(scope="module")
def flows():
    from harness.server import Server

    with Server() as server:
        yield Flows(server)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_terminated_worker_comes_back_and_service_goes_on(flows, worker):
    server = flows.server
    flows.check(f"before-{worker[7:]}")
    before = server.worker_pid(worker)
    assert before is not None, f"{worker} is in pg_stat_activity"
    assert server.psql(f"SELECT pg_terminate_backend({before})") == "t"
    server.wait_for(lambda: server.worker_pid(worker) not in (None, before), f"{worker} is back", 10)
    flows.check(f"after-{worker[7:]}")


@pytest.mark.parametrize("worker", [worker for worker in WORKERS if worker != "pgmqtt broker"])
def test_clients_stay_connected_when_another_worker_ends(flows, worker):
    server = flows.server
    with RawClient(server.mqtt_port) as client:
        client.connect()
        before = server.worker_pid(worker)
        server.psql(f"SELECT pg_terminate_backend({before})")
        server.wait_for(lambda: server.worker_pid(worker) not in (None, before),
                        f"{worker} is back")
        client.expect_nothing_before_ping()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_shutdown_is_quick_with_clients_connected(new_server, mode):
    server = new_server().start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        server.stop(mode, deadline=15)
        packets = client.expect_closed()
        if mode == "fast":
            assert [(packet.type, packet.code) for packet in packets] \
                == [(DISCONNECT, SHUTTING_DOWN)]
    assert "PANIC" not in server.log_text()


def test_a_restart_brings_both_directions_back(new_server):
    server = new_server().start()
    flows = Flows(server)
    for mode in ("fast", "immediate"):
        server.restart(mode)
        flows.check(f"after-{mode}")
    assert not [line for line in server.log_text().splitlines() if "PANIC" in line]


def test_workers_do_not_hold_up_drop_database(server):
    """A worker that does not answer the server's barriers would hang this."""
    server.psql("CREATE DATABASE passing")
    server.psql("SET statement_timeout = '30s'; DROP DATABASE passing")


def test_the_worker_survives_a_client_that_reads_nothing(server, topic):
    """It does not read what it subscribed to; others are served, and it ends with its connection."""
    with RawClient(server.mqtt_port) as deaf, RawClient(server.mqtt_port) as other:
        deaf.connect()
        deaf.subscribe(topic, 0)
        other.connect()
        for _ in range(300):
            other.publish(topic, bytes(65536))
        other.expect_nothing_before_ping()
        try:
            deaf.expect(3)
        except Closed:
            pass


ENDLESS = "(SELECT count(*)::text FROM generate_series(1, 100000000000))"


def test_an_endless_expression_ends_with_its_mapping(new_server):
    server = new_server().start()
    server.psql(f"CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $${ENDLESS}$$,"
                " operations => '{insert}'); INSERT INTO t VALUES ('x')")
    evaluating = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgmqtt cdc'" \
                 " AND state = 'active'"
    server.wait_for(lambda: server.psql(evaluating) == "1", "the worker is in the expression")
    server.psql("SELECT pgmqtt.drop_mapping('m')")
    server.wait_for(lambda: server.psql(OUR_SLOTS) == "0", "the slot went with the last mapping", 10)
    Flows(server).check("the stream goes on")


def test_drop_extension_ends_the_statements_of_mappings_and_sinks(new_server):
    server = new_server().start()
    server.psql(f"CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $${ENDLESS}$$,"
                " operations => '{insert}');"
                " SELECT pgmqtt.add_sink('s', 'in/#', 'SELECT pg_sleep(600) FROM msg');"
                " INSERT INTO t VALUES ('x'); SELECT pgmqtt.publish('in/x', 'x'::text)")
    busy = "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('pgmqtt cdc', 'pgmqtt sink')" \
           " AND state = 'active'"
    server.wait_for(lambda: server.psql(busy) == "2", "both workers are in the statements")
    server.psql("DROP EXTENSION pgmqtt CASCADE")
    server.wait_for(lambda: server.psql(OUR_SLOTS) == "0", "the slot is dropped", 5)
    server.wait_for(lambda: server.psql(busy) == "0", "nothing runs any more", 5)
    server.psql("CREATE EXTENSION pgmqtt")
    server.wait_listening()
