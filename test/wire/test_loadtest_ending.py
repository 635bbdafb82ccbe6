"""The load generator when it does not come to its end: by a signal, or because a server went away."""

import json
import os
import signal
import socket
import subprocess

import pytest

from harness.tree import REPOSITORY
from harness.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.usefixtures("loadtest")

LOADTEST = REPOSITORY / "build" / "loadtest"
# Far beyond what a test waits: only an early end brings these runs to theirs.
FOREVER = ("--duration", "100000", "--warmup", "0")

# What there is to see once the run is under way, of a run whose names begin with lt_ending.
CONNECTED = "SELECT count(*) FROM pgmqtt.clients WHERE client_id LIKE 'lt_ending-%'"
PUBLISHING = "SELECT count(*) FROM pgmqtt.clients WHERE client_id LIKE 'lt_ending-%-p0'"
ALL_IDLE = "SELECT count(*) / 20 FROM pgmqtt.clients WHERE client_id LIKE 'lt_ending-%'"
SESSIONS = "SELECT count(*) FROM pgmqtt.sessions WHERE client_id LIKE 'lt_ending-%'"
QUEUED = "SELECT sum(queued) FROM pgmqtt.sessions WHERE client_id LIKE 'lt_ending-%'"
RETAINED = "SELECT count(*) FROM pgmqtt.retained WHERE topic LIKE 'lt_ending/%'"
ROWS = "SELECT count(*) FROM lt_ending_row"
OBJECTS = ("SELECT (SELECT count(*) FROM pg_class WHERE relname = 'lt_ending_row')"
           " + (SELECT count(*) FROM pgmqtt.sinks WHERE name = 'lt_ending_row')"
           " + (SELECT count(*) FROM pgmqtt.mappings WHERE name = 'lt_ending_row')")
TABLE = ("--table", "lt_ending_row")

RUNS = {
    "closedloop": (PUBLISHING, FOREVER),
    "kept": (RETAINED, (*FOREVER, "--persistent", "--retain", "--qos", "1")),
    "kept with QoS 0": (RETAINED, (*FOREVER, "--persistent", "--retain")),
    "fanout": (PUBLISHING, (*FOREVER, "--window", "10")),
    "openloop": (PUBLISHING, (*FOREVER, "--rate", "200")),
    "soak": (PUBLISHING, (*FOREVER, "--rate", "200", "--persistent")),
    "offline": (QUEUED, ("--messages", "100000000", "--sessions", "4", "--publishers", "2")),
    "storm": (SESSIONS, (*FOREVER, "--reconnect", "--subscribe", "--concurrency", "5")),
    "idle": (ALL_IDLE, ("--duration", "100000", "--connections", "20")),
    "cardinality": (SESSIONS, (*FOREVER, "--topics", "100", "--sessions", "10000000")),
    "filters": (PUBLISHING, (*FOREVER, "--filters", "1000")),
    "retained": (RETAINED, ("--retained", "50000000", "--qos", "1")),
    "sink": (ROWS, (*FOREVER, *TABLE)),
    "cdc": (ROWS, (*FOREVER, *TABLE)),
}
MODES = {"kept": "closedloop", "kept with QoS 0": "closedloop", "filters": "cardinality",
         "retained": "cardinality"}


@pytest.fixture
def begin():
    """begin(server, run, ...) starts a run of RUNS and returns when it is under way."""
    begun = []

    def start(server, run, *more, before=()):
        premise, options = RUNS[run]
        command = [LOADTEST, *before, MODES.get(run, run), "--port", server.mqtt_port, "--pg",
                   server.dsn(), "--client-prefix", "lt_ending", "--topic-prefix", "lt_ending",
                   *options, *more]
        # A shell's background jobs, of which the tests may be one, ignore SIGINT.
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
        begun.append(process)
        server.wait_for(lambda: int(server.psql(premise) or 0) > 0 or process.poll() is not None,
                        f"{run} is under way", 60)
        assert process.poll() is None, process.communicate()
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def traces(server):
    return {sql: int(server.psql(sql)) for sql in (CONNECTED, SESSIONS, RETAINED, OBJECTS)}


def assert_nothing_is_left(server):
    server.wait_for(lambda: sum(traces(server).values()) == 0, "nothing of the run is left", 15)


@pytest.mark.parametrize("client", ("raw", "paho"))
@pytest.mark.parametrize("run", RUNS)
def test_a_signal_ends_a_run_with_a_report_and_without_traces(server, begin, tmp_path, run, client):
    asked = signal.SIGINT if client == "raw" else signal.SIGTERM
    process = begin(server, run, "--client", client, "--json", tmp_path / "run.json", "--html",
                    tmp_path / "run.html")
    process.send_signal(asked)
    output, errors = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 128 + asked, (output, errors)
    why = f"interrupted by {asked.name}"
    assert f"ENDED EARLY: {why}" in output
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert (result["ended_early"], result["ok"], result["errors"]) == (why, False, [])
    assert why in (tmp_path / "run.html").read_text(encoding="utf8")
    assert_nothing_is_left(server)


def test_a_signal_ends_a_comparison(server, begin, tmp_path):
    """In its first round: what is there to compare with is nothing, and that is said."""
    process = begin(server, "kept", "--json", "-", before=(
        "compare", "--peer", f"127.0.0.1:{server.mqtt_port}", "--json", tmp_path / "run.json", "--"))
    process.terminate()
    output, errors = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 143, (output, errors)
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert result["ended_early"] == "interrupted by SIGTERM"
    assert any("nothing is compared" in warning for warning in result["warnings"])
    assert_nothing_is_left(server)


def test_two_signals_at_a_time_are_one_request(server, begin):
    """As timeout(1) sends them: to the process, and to the group that it is in."""
    process = begin(server, "kept")
    process.terminate()
    process.terminate()
    output, errors = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 143 and "ENDED EARLY" in output, (output, errors)
    assert_nothing_is_left(server)


SILENT = {run: options for run, (_, options) in RUNS.items() if run not in ("sink", "cdc")}


@pytest.mark.parametrize("run", SILENT)
def test_a_signal_ends_the_wait_for_a_broker_that_is_silent(tmp_path, run):
    """It takes the connection and says nothing: there is a report all the same."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        process = subprocess.Popen(
            [str(LOADTEST), MODES.get(run, run), "--port", str(broker.getsockname()[1]), "--json",
             str(tmp_path / "run.json"), *SILENT[run]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        broker.settimeout(60 * PATIENCE)
        connection, _ = broker.accept()
        assert connection.recv(1) == b"\x10"
        process.terminate()
        output, errors = process.communicate(timeout=60 * PATIENCE)
        connection.close()
    assert process.returncode == 143, (output, errors)
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert result["ended_early"] == "interrupted by SIGTERM" and not result["ok"]
    assert "nan" not in output and "-1" not in output.replace(result["label"], "")


def test_a_second_signal_ends_a_run_at_once(server, begin):
    """The broker stands still, so that the first signal cannot be done with."""
    process = begin(server, "kept")
    broker = server.worker_pid("pgmqtt broker")
    os.kill(broker, signal.SIGSTOP)
    try:
        process.terminate()
        said = process.stderr.readline()
        assert "SIGTERM" in said and "once more" in said
        # One that comes with the first is the same request: until it counts, again and again.
        wait_for(lambda: process.poll() is not None or process.terminate(), "the process ends", 20)
        assert process.returncode == 143 and process.stdout.read() == ""
    finally:
        os.kill(broker, signal.SIGCONT)
    server.wait_for(lambda: int(server.psql(CONNECTED)) == 0, "its connections are gone")
    server.psql("SELECT pgmqtt.delete_session(client_id) FROM pgmqtt.sessions "
                "WHERE client_id LIKE 'lt_ending-%'; "
                "SELECT pgmqtt.publish(topic, ''::bytea, retain => true) FROM pgmqtt.retained "
                "WHERE topic LIKE 'lt_ending/%'")
    server.wait_for(lambda: sum(traces(server).values()) == 0, "the test has cleaned up")


@pytest.mark.parametrize("run", [run for run in RUNS if run != "closedloop"])
def test_a_server_that_goes_away_does_not_take_the_report_along(new_server, begin, tmp_path, run):
    server = new_server().start()
    process = begin(server, run, "--drain", 1, "--json", tmp_path / "run.json", "--html",
                    tmp_path / "run.html")
    server.stop("immediate")
    output, errors = process.communicate(timeout=120 * PATIENCE)
    assert process.returncode == 1, (output, errors)
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert result["ended_early"] and result["errors"] and not result["ok"]
    assert f"ENDED EARLY: {result['ended_early']}" in output
    assert "It ended early" in (tmp_path / "run.html").read_text(encoding="utf8")
