"""The load generator's command line, what it says of brokers that refuse, and what it warns of."""

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


def run(*arguments):
    return subprocess.run([str(LOADTEST), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120 * PATIENCE)


def refusal(*arguments):
    """What standard error says of a run that did not take place."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("loadtest: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("mode, option, value", (
    ("closedloop", "--port", "0"), ("closedloop", "--port", "65536"), ("closedloop", "--port", "67419"),
    ("closedloop", "--port", "mqtt"), ("closedloop", "--port", ""), ("closedloop", "--window", "0"),
    ("closedloop", "--ack-window", "0"), ("closedloop", "--ack-window", "65535"),
    ("closedloop", "--publishers", "0"), ("closedloop", "--publishers", "-1"),
    ("closedloop", "--publishers", "1.5"), ("closedloop", "--publishers", "99999999999999999999"),
    ("closedloop", "--threads", "0"), ("closedloop", "--topics", "0"),
    ("closedloop", "--payload-size", "31"), ("closedloop", "--payload-size", "256000001"),
    ("closedloop", "--duration", "0"), ("closedloop", "--duration", "nan"),
    ("closedloop", "--duration", "inf"), ("closedloop", "--warmup", "-1"),
    ("closedloop", "--drain", "-0.1"), ("closedloop", "--broker-pid", "-1"),
    ("openloop", "--rate", "0"), ("openloop", "--rate", "-5"), ("openloop", "--rate", "nan"),
    ("openloop", "--max-inflight", "0"), ("soak", "--report-every", "0"),
    ("offline", "--messages", "0"), ("offline", "--sessions", "0"),
    ("cardinality", "--filters", "0"), ("cardinality", "--retained", "0"),
    ("idle", "--connections", "0"), ("storm", "--concurrency", "0"),
    ("cdc", "--rows-per-transaction", "0"), ("compare", "--rounds", "0"),
    ("compare", "--peer-pid", "0")))
def test_a_number_out_of_its_range_is_refused(mode, option, value):
    """With the option, the value and the range, whichever way it is written."""
    for words in ((option, value), (f"{option}={value}",)):
        said = refusal(mode, *words)
        assert f"{option} {value or repr('')}: give a" in said and "number from" in said, said
        assert " to " in said and "--help" in said


def test_a_port_is_not_wrapped_round(server):
    """Modulo 65536 it would be the port of a broker that is there."""
    wrapped = server.mqtt_port + 65536
    assert f"--port {wrapped}" in refusal("closedloop", "--port", wrapped, *BRIEFLY)
    assert str(wrapped) in refusal("compare", "--port", server.mqtt_port, "--peer",
                                   f"127.0.0.1:{wrapped}", "--", "closedloop", *BRIEFLY)


def test_options_may_be_written_with_an_equals_sign(server):
    done = run("closedloop", f"--port={server.mqtt_port}", "--qos=1", "--duration=0.5", "--warmup=0",
               "--label=a=b", "--json=-", "--quiet")
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["options"]["qos"] == "1" and result["label"] == "a=b"
    assert result["counters"]["acknowledged"] > 0
    assert "--retain takes no value" in refusal("closedloop", "--retain=yes")
    assert "--nonsense" in refusal("closedloop", "--nonsense=1")
    assert "closedloop --help" in refusal("closedloop", "--rounds=3")


def test_the_help_of_a_mode_says_its_own_defaults():
    def default(mode, option):
        lines = run(mode, "--help").stdout.splitlines()
        return next(line for line in lines if line.startswith(f"  {option} ")).rsplit("(", 1)[1].rstrip(")")

    assert [default("closedloop", option) for option in ("--qos", "--publishers", "--duration")] == ["0", "1", "10"]
    assert [default("sink", option) for option in ("--qos", "--publishers")] == ["1", "4"]
    assert [default("fanout", option) for option in ("--publishers", "--subscribers")] == ["1", "100"]
    assert [default("soak", "--duration"), default("cardinality", "--topics")] == ["3600", "100000"]


def test_a_report_that_cannot_be_written_is_said_before_the_run(tmp_path):
    """Before anybody is connected to: nobody is there, which is not what is said."""
    assert "refused" in refusal("closedloop", "--port", 1, *BRIEFLY)
    same = tmp_path / "same"
    for reports in (("--json", tmp_path / "no" / "folder"), ("--html", tmp_path / "no" / "folder"),
                    ("--json", tmp_path), ("--html", tmp_path), ("--html", "-"),
                    ("--html", same, "--json", same)):
        said = refusal("closedloop", "--port", 1, *BRIEFLY, *reports)
        assert reports[0] in said and "refused" not in said


def test_a_start_that_fails_leaves_no_file(tmp_path):
    kept = tmp_path / "kept.html"
    kept.write_text("of an earlier run", encoding="utf8")
    refusal("closedloop", "--port", 1, "--json", tmp_path / "run.json", "--html", kept)
    refusal("closedloop", "--port", 1, "--html", tmp_path / "run.html")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.html"]
    assert kept.read_text(encoding="utf8") == "of an earlier run"


def test_a_process_that_is_not_there_is_said_before_the_run(server):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert f"--broker-pid {gone.pid}" in refusal("closedloop", "--port", server.mqtt_port,
                                                 "--broker-pid", gone.pid)


def test_compare_looks_for_both_brokers_first(server):
    """Before a round is run against the one that is there."""
    there = f"127.0.0.1:{server.mqtt_port}"
    said = refusal("compare", "--port", server.mqtt_port, "--peer", "127.0.0.1:1", "--peer-label",
                   "other", "--", "closedloop", *BRIEFLY)
    assert "other (127.0.0.1:1): " in said and "refused" in said
    assert "ours (127.0.0.1:1): " in refusal("compare", "--port", 1, "--peer", there, "--",
                                             "closedloop", *BRIEFLY)


def test_compare_without_pids_leaves_out_what_it_does_not_know(server, tmp_path):
    done = run("compare", "--port", server.mqtt_port, "--peer", f"127.0.0.1:{server.mqtt_port}",
               "--rounds", 1, "--json", tmp_path / "run.json", "--html", tmp_path / "run.html", "--",
               "closedloop", *BRIEFLY)
    assert done.returncode == 0, done
    assert done.stdout.count("CPU not known") == 2 and "-1" not in done.stdout.split("\n")[0]
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert not any("cpu" in name for name in result["figures"])
    assert "broker_cpu_us_per_operation" not in result
    assert any("--peer-pid" in warning for warning in result["warnings"])
    page = (tmp_path / "run.html").read_text(encoding="utf8")
    assert "-1.00 us" not in page and "-1.000 us" not in done.stdout


def test_what_is_shed_is_warned_of(server, tmp_path):
    done = run("openloop", "--port", server.mqtt_port, "--pg", server.dsn(), *BRIEFLY, "--rate",
               200_000, "--max-inflight", 1, "--json", tmp_path / "run.json", "--html",
               tmp_path / "run.html")
    result = json.loads((tmp_path / "run.json").read_text(encoding="utf8"))
    assert result["counters"]["shed"] > 0.01 * result["counters"]["offered"]
    warned, = (text for text in result["warnings"] if "shed" in text)
    share = 100 * result["counters"]["shed"] / result["counters"]["offered"]
    assert f"{share:.0f} %" in warned and "--rate was not reached" in warned
    assert f"WARNING: {warned}" in done.stdout
    assert "of what was offered was shed" in (tmp_path / "run.html").read_text(encoding="utf8")


def test_what_is_hardly_shed_is_not_warned_of(server):
    done = run("openloop", "--port", server.mqtt_port, *BRIEFLY, "--rate", 100, "--quiet", "--json", "-")
    result = json.loads(done.stdout)
    assert result["counters"]["shed"] <= 0.01 * result["counters"]["offered"]
    assert not any("shed" in text for text in result["warnings"])


def test_remarks_of_the_server_are_not_output(server):
    """Neither those that come with a connection nor those of queries."""
    server.psql("CREATE ROLE lt_noisy LOGIN SUPERUSER; ALTER ROLE lt_noisy SET client_min_messages = debug5")
    try:
        remarks = subprocess.run([str(server.tree.bin / "psql"), "-XAtq", "-d", server.dsn(user="lt_noisy"),
                                  "-c", "SELECT 1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "DEBUG:" in remarks.stderr
        done = run("sink", "--port", server.mqtt_port, "--pg", server.dsn(user="lt_noisy"), *BRIEFLY)
        assert (done.returncode, done.stderr) == (0, "") and "DEBUG" not in done.stdout
    finally:
        server.psql("DROP ROLE lt_noisy")


def test_what_was_not_measured_is_not_zero(server, new_server):
    """The broker of another port hears nothing of the rows: no delivery, so no time of one."""
    elsewhere = new_server().start()
    done = run("cdc", "--port", elsewhere.mqtt_port, "--pg", server.dsn(), "--duration", 0.5, "--warmup",
               0, "--drain", 0.2, "--json", "-")
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and result["counters"]["sent"] > 0 == result["counters"]["received"]
    assert "commit" in result["histograms"] and "commit to delivery" not in result["histograms"]
    assert "commit to delivery" not in done.stdout.split("{")[0]
    assert "broker_cpu_us_per_operation" not in result


class Refuser:
    """Answers each CONNECT with a CONNACK that has this code."""

    def __init__(self, packet):
        self._packet = packet
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.recv(65536)
            client.sendall(self._packet)
            client.recv(1)
            client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


REFUSALS = (
    (5, 0x86, "Bad User Name or Password", "--username and --password"),
    (4, 4, "Bad User Name or Password", "--username and --password"),
    (5, 0x87, "Not authorized", "who may connect"), (4, 5, "Not authorized", "who may connect"),
    (4, 1, "Unsupported Protocol Version", "--protocol"),
    (5, 0x85, "Client Identifier not valid", "--client-prefix"),
    (5, 0x97, "Quota exceeded", "limits"), (4, 3, "Server unavailable", "limits"),
)


@pytest.mark.parametrize("client", ("raw", "paho"))
@pytest.mark.parametrize("protocol, code, name, advice", REFUSALS)
def test_a_refusal_has_the_name_of_its_reason(client, protocol, code, name, advice):
    packet = bytes([0x20, 3, 0, code, 0] if protocol == 5 else [0x20, 2, 0, code])
    with Refuser(packet) as broker:
        said = refusal("closedloop", "--port", broker.port, "--client", client, "--protocol",
                       protocol, *BRIEFLY)
    assert name.lower() in said.lower() and f"({code})" in said and advice in said
    assert "is the broker there" not in said
