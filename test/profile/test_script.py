"""profile.sh from its beginning to its end, and to ends that come early: what it leaves, and what it says.

A script stands for perf: what is looked at here is what happens around it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import PROFILE

PERF = """#!/usr/bin/env bash
# record ... -o FILE ... -- CMD, and script.
[ "$1" = record ] || exit 0
while [ "$1" != -- ]; do
    [ "$1" != -o ] || echo data >"$2"
    shift
done
shift
"$@"
"""
PATIENCE = 60 * float(os.environ.get("PGMQTT_TEST_PATIENCE", "1"))


@pytest.fixture
def tree(tmp_path):
    """A copy, whose profiles go to build/profile beside it."""
    shutil.copytree(PROFILE, tmp_path / "profile", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "perf").write_text(PERF, encoding="utf8")
    (tmp_path / "bin" / "perf").chmod(0o755)
    (tmp_path / "build" / "profile").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def target():
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def begin(tree, pid, *arguments):
    return subprocess.Popen(
        ["bash", str(tree / "profile" / "profile.sh"), "--pid", str(pid), "--label", "name",
         "--off-by", "sampling", "--warmup", "0", *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
        env={"PATH": f"{tree}/bin:/usr/bin:/bin", "PYTHON": sys.executable})


def left(tree):
    return sorted(str(path.relative_to(tree / "build" / "profile"))
                  for path in (tree / "build" / "profile").rglob("*"))


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.parametrize("half", ("on", "off"))
def test_a_whole_profile_is_left(tree, target, half):
    process = begin(tree, target.pid, "--mode", half, "--duration", "1", "--workload", "sleep 1000")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert {"name", "name/tables.txt", f"name/{half}.folded", f"name/{half}.svg"} <= set(left(tree))
    assert not any("unfinished" in name or name.endswith(".data") for name in left(tree))
    assert "build/profile/name/tables.txt" in said


@pytest.mark.parametrize("half", ("on", "off"))
def test_a_workload_that_ends_early_is_a_failure_and_leaves_nothing(tree, target, half):
    process = begin(tree, target.pid, "--mode", half, "--duration", "2", "--workload",
                    "echo what it said; sleep 0.5")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "the workload ended before the profile did" in said and "what it said" in said
    assert left(tree) == []


def test_a_profile_that_fails_leaves_an_earlier_one_alone(tree, target):
    earlier = tree / "build" / "profile" / "name"
    earlier.mkdir()
    (earlier / "tables.txt").write_text("earlier", encoding="utf8")
    process = begin(tree, target.pid, "--mode", "off", "--duration", "2", "--workload", "sleep 0.5")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and left(tree) == ["name", "name/tables.txt"]


@pytest.mark.parametrize("half", ("on", "off"))
def test_a_process_that_ends_is_a_failure(tree, half):
    mortal = subprocess.Popen(["sleep", "0.7"])
    process = begin(tree, mortal.pid, "--mode", half, "--duration", "2")
    mortal.wait()
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "ended while it was profiled" in said
    assert left(tree) == []


@pytest.mark.parametrize("half", ("on", "off"))
@pytest.mark.parametrize("asked", (signal.SIGTERM, signal.SIGHUP))
def test_a_signal_ends_it_at_once_with_all_it_started(tree, target, half, asked):
    process = begin(tree, target.pid, "--mode", half, "--duration", "3000", "--workload",
                    f"echo $$ >{tree}/workload; sleep 1000")
    under_way = {"on": "on.data", "off": "off.folded"}[half]
    wait_for(lambda: any(name.endswith(under_way) for name in left(tree))
             and (tree / "workload").exists(), "the profile is under way")
    workload = int((tree / "workload").read_text(encoding="utf8"))
    os.kill(workload, 0)
    process.send_signal(asked)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + asked
    with pytest.raises(ProcessLookupError):
        os.kill(workload, 0)
    assert left(tree) == []
