"""The load generator: each mode for a moment, and that it sees what it is there to see."""

import json
import socket
import subprocess
import threading

import pytest

from harness.tree import REPOSITORY
from harness.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("loadtest")

LOADTEST = REPOSITORY / "build" / "loadtest"
BRIEFLY = ("--duration", "1", "--warmup", "0.2", "--drain", str(10 * PATIENCE))
FAULTS = ("lost", "duplicated", "misordered", "corrupt", "failed")


def start(mode, *arguments):
    return subprocess.Popen([str(LOADTEST), mode, "--quiet", "--json", "-", *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """(exit code, result): the last line of the output is JSON."""
    output, errors = process.communicate(timeout=120 * PATIENCE)
    lines = output.splitlines()
    assert lines, errors
    return process.returncode, json.loads(lines[-1])


@pytest.fixture
def load(server):
    """load(mode, ...) runs against the shared server; returns the result of a good run."""
    def run(mode, *arguments):
        code, result = finish(start(mode, "--port", server.mqtt_port, "--pg", server.dsn(),
                                    *arguments))
        assert (code, result["errors"], result["ok"]) == (0, [], True)
        counters = result["counters"]
        assert [counters[fault] for fault in FAULTS] == [0] * len(FAULTS)
        assert counters["received"] == counters["expected"]
        assert counters["offered"] == counters["sent"] + counters["shed"]
        assert result["operations"] > 0 and result["broker_cpu_us_per_operation"] >= 0
        carries_messages = mode not in ("storm", "idle")
        assert (result["payload_megabytes_per_second"] > 0) == carries_messages
        return result

    return run


@pytest.mark.parametrize("protocol", (4, 5))
@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("client", ("raw", "paho"))
def test_closed_loop(load, client, qos, protocol):
    result = load("closedloop", *BRIEFLY, "--client", client, "--qos", qos, "--protocol", protocol,
                  "--publishers", 2, "--subscribers", 2, "--window", 50)
    assert result["counters"]["acknowledged"] == (result["counters"]["sent"] if qos else 0)
    assert result["histograms"]["end to end"]["count"] > 0


@pytest.mark.parametrize("mode", ("fanin", "fanout"))
def test_fans(load, mode):
    counters = load(mode, *BRIEFLY, "--qos", 1, "--window", 10)["counters"]
    assert counters["expected"] == counters["sent"] * (100 if mode == "fanout" else 1)


def test_threads_share_the_pairs(load):
    load("closedloop", *BRIEFLY, "--publishers", 4, "--subscribers", 8, "--threads", 2)


def test_large_payloads_and_many_topics(load):
    load("closedloop", *BRIEFLY, "--qos", 1, "--payload-size", 300_000, "--window", 5)
    load("closedloop", *BRIEFLY, "--topics", 1000, "--topology", "all", "--subscribers", 3)


def test_open_loop_offers_the_rate(load):
    result = load("openloop", *BRIEFLY, "--rate", 500, "--qos", 1)
    assert result["counters"]["offered"] >= 500 * (result["measured_seconds"] + 0.2) - 1


def test_open_loop_sheds_and_says_so(load):
    """One message in flight, and a rate that nobody reaches with that."""
    counters = load("openloop", *BRIEFLY, "--rate", 200_000, "--max-inflight", 1)["counters"]
    assert counters["shed"] > 0 and counters["sent"] > 0


def test_offline_sessions_are_drained(load, server):
    result = load("offline", "--messages", 200, "--sessions", 4, "--publishers", 2)
    assert result["counters"]["received"] == 4 * 200
    assert result["figures"]["queue_rate"] > 0 and result["figures"]["drain_rate"] > 0
    server.wait_for(lambda: server.psql("SELECT count(*) FROM pgmqtt.session "
                                        "WHERE client_id LIKE 'lt-%'") == "0",
                    "no session is left behind")


def test_cardinality(load):
    result = load("cardinality", *BRIEFLY, "--topics", 5000, "--sessions", 200)
    assert result["figures"]["sessions_made"] > 0


@pytest.mark.parametrize("client", ("raw", "paho"))
def test_many_filters(load, client):
    """Many in flight: paho refuses some of them, which are not lost but sent later."""
    result = load("cardinality", *BRIEFLY, "--filters", 2000, "--window", 5000, "--client", client)
    assert result["figures"]["subscribe_rate"] > 0


def test_many_retained_messages(load):
    result = load("cardinality", "--retained", 500, "--qos", 1)
    assert result["counters"]["received"] == 500


@pytest.mark.parametrize("options", ((), ("--subscribe",), ("--subscribe", "--reconnect")))
def test_storm(load, options):
    assert load("storm", *BRIEFLY, "--concurrency", 10, *options)["operation"] == "connect"


def test_idle_connections(load):
    result = load("idle", "--duration", "0.2", "--connections", 200)
    assert "memory_per_connection" in result["figures"]


@pytest.mark.parametrize("qos", (0, 1))
def test_sink_rows_are_counted(load, qos):
    rate = ("--rate", 500) if qos == 0 else ()
    result = load("sink", *BRIEFLY, "--qos", qos, *rate)
    assert result["figures"]["rows"] == result["counters"]["sent"]


def test_somebody_elses_table_is_not_taken(server):
    server.psql("CREATE TABLE precious (word text); INSERT INTO precious VALUES ('mine')")
    process = start("sink", *BRIEFLY, "--port", server.mqtt_port, "--pg", server.dsn(), "--table", "precious")
    assert "give --table another name" in process.communicate(timeout=60 * PATIENCE)[1]
    assert process.returncode == 2
    assert server.psql("SELECT word FROM precious") == "mine"
    server.psql("DROP TABLE precious")


@pytest.mark.parametrize("rate", ((), ("--rate", 300)))
def test_cdc_rows_are_delivered(load, rate):
    counters = load("cdc", *BRIEFLY, "--rows-per-transaction", 5, "--subscribers", 2, *rate)["counters"]
    assert counters["received"] == 2 * counters["sent"]


def test_compare_gives_ratios(load, server):
    """With itself: the ratio of anything is about anything."""
    pid = server.worker_pid("pgmqtt broker")
    result = load("compare", "--peer", f"127.0.0.1:{server.mqtt_port}", "--peer-pid", pid,
                  "--rounds", 2, *BRIEFLY, "--", "closedloop", "--qos", 1)
    assert result["figures"]["rate_ratio"] > 0 and result["figures"]["cpu_ratio"] > 0


def test_reports(load, tmp_path):
    load("soak", "--duration", 1, "--warmup", 0, "--rate", 200, "--html", tmp_path / "run.html")
    assert "<svg" in (tmp_path / "run.html").read_text(encoding="utf8")


def test_a_broker_that_ends_is_a_failure(new_server):
    broker = new_server().start()
    process = start("closedloop", "--port", broker.mqtt_port, "--qos", 1, "--duration", 600)
    broker.wait_for(lambda: int(broker.psql("SELECT clients FROM pgmqtt.stat_broker")) >= 2,
                    "publisher and subscriber are connected")
    broker.stop("immediate")
    code, result = finish(process)
    assert code == 1 and not result["ok"]
    assert result["counters"]["failed"] > 0 and result["errors"]


def test_no_broker_is_no_run(server):
    process = start("closedloop", "--port", 1, *BRIEFLY)
    _, errors = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 2 and "refused" in errors


def test_a_wrong_option_is_refused(server):
    for arguments in (["--qos", "3"], ["--nonsense"], ["--window"], ["--payload-size", "31"]):
        process = start("closedloop", *arguments)
        _, errors = process.communicate(timeout=60 * PATIENCE)
        assert process.returncode == 2 and errors.startswith("loadtest: "), errors


class Tamperer:
    """Stands between the load generator and the broker and spoils a few PUBLISHes to subscribers."""

    def __init__(self, port):
        self._broker = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._broker)
            for work in ((self._copy, client, upstream), (self._tamper, upstream, client)):
                threading.Thread(target=work[0], args=work[1:], daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        target.close()

    @staticmethod
    def _packets(source):
        buffer = b""
        while data := source.recv(65536):
            buffer += data
            # Packets here have remaining lengths below 128.
            while len(buffer) >= 2 and len(buffer) >= 2 + buffer[1]:
                size = 2 + buffer[1]
                yield buffer[:size]
                buffer = buffer[size:]

    def _tamper(self, source, target):
        number, held = 0, b""
        try:
            for packet in self._packets(source):
                if packet[0] >> 4 == 3:
                    number += 1
                    if number == 10:
                        continue
                    if number == 20:
                        packet += packet
                    if number == 30:
                        packet = packet[:-1] + bytes([packet[-1] ^ 1])
                    if number == 40:
                        held = packet
                        continue
                    packet, held = packet + held, b""
                target.sendall(packet)
        except OSError:
            pass
        target.close()

    def close(self):
        self._listener.close()


def test_what_was_tampered_with_is_counted(server):
    tamperer = Tamperer(server.mqtt_port)
    try:
        code, result = finish(start("openloop", "--port", tamperer.port, "--duration", 1, "--warmup",
                                    0, "--rate", 200, "--drain", 1))
    finally:
        tamperer.close()
    counters = result["counters"]
    assert code == 1 and len(result["errors"]) == 4
    # The corrupt one is lost, too: whose it was cannot be told.
    assert [counters[fault] for fault in FAULTS] == [2, 1, 1, 1, 0]
    assert counters["received"] == counters["sent"] - 2 + 1
