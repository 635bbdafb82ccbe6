"""capped.sh: what it says of its options, and that a signal leaves no server, no process and no group."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.processes import children_of, is_running
from harness.server import new_directory, shared_tree
from harness.tree import REPOSITORY
from harness.waiting import PATIENCE, wait_for

SCRIPT = REPOSITORY / "loadtest" / "capped.sh"


def test_options_are_checked_before_anything_is_built():
    for arguments, says in ((["--cpus"], "needs a value"), (["--cpus", "--", "closedloop"], "needs a value"),
                            (["--frob", "1"], "--frob is unknown"), ([], "give -- MODE"),
                            (["--cpus", "0", "--", "closedloop"], "above 0"),
                            (["--memory", "1X", "--", "closedloop"], "--memory 1X")):
        done = subprocess.run(["bash", str(SCRIPT), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and says in done.stderr, done
    helped = subprocess.run(["bash", str(SCRIPT), "--help"], stdout=subprocess.PIPE, text=True)
    assert helped.returncode == 0 and "--memory LIST" in helped.stdout
    assert "set -e" not in helped.stdout


def descendants(pid):
    found = []
    for child in children_of(pid):
        found += [child, *descendants(child)]
    return found


def load_tests(pid):
    """Of the descendants, those that heed SIGTERM by now: its bit is among the blocked signals."""
    found = []
    for one in descendants(pid):
        try:
            command = Path(f"/proc/{one}/cmdline").read_text(encoding="utf8")
            status = Path(f"/proc/{one}/status").read_text(encoding="utf8")
        except OSError:
            continue
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        if command.startswith("build/loadtest") and blocked >> (signal.SIGTERM - 1) & 1:
            found.append(one)
    return found


@pytest.mark.usefixtures("loadtest")
@pytest.mark.parametrize("asked", (signal.SIGTERM, signal.SIGHUP))
def test_a_signal_ends_the_point_and_leaves_nothing(tmp_path, asked):
    directory = Path(new_directory("capped-"))
    report = tmp_path / "capped.json"
    environment = {**os.environ, "TMPDIR": str(directory), "PGMQTT_TEST_TREE": str(shared_tree().prefix)}
    process = subprocess.Popen(
        ["bash", str(SCRIPT), "--cpus", "1,2", "--json", str(report), "--", "closedloop", "--duration",
         "100000", "--warmup", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment)
    try:
        wait_for(lambda: load_tests(process.pid) or process.poll() is not None, "the load test runs", 120)
        assert process.poll() is None, process.communicate()
        below = descendants(process.pid)
        assert any(directory.glob("pgmqtt-server-*"))
        process.send_signal(asked)
        said, _ = process.communicate(timeout=120 * PATIENCE)
        assert process.returncode == 128 + asked, said
        result, = map(json.loads, report.read_text(encoding="utf8").splitlines())
        assert result["ended_early"] == "interrupted by SIGTERM"
        wait_for(lambda: not any(map(is_running, below)), "its processes are gone", 20)
        assert list(directory.iterdir()) == []
        groups = [path for pid in below for path in Path("/sys/fs/cgroup").glob(f"*/pgmqtt-capped-{pid}")]
        assert groups == []
    finally:
        process.kill()
        shutil.rmtree(directory, ignore_errors=True)
