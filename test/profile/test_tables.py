"""The tables, the flame graph, and what profile.sh says when it cannot."""

import os
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import pytest

import tables
from conftest import PROFILE
from flamegraph import svg_of
from folding import write_folded

HERE = Path(__file__).parent


@pytest.fixture
def label(tmp_path):
    def make(name, scale=1.0):
        folder = tmp_path / name
        folder.mkdir()
        for half, source in (("on", "perf_script.txt"), ("off", "bpftrace_output.txt")):
            tables.fold(half, HERE / source, folder / f"{half}.folded")
            (folder / f"{half}.meta").write_text(
                f"seconds={scale}\ncpu_seconds=0.5\ntool=a tool\nnote=beware\n", encoding="utf8")
        return folder
    return make


def test_tables_say_cause_folder_and_function(label):
    text = tables.show(label("one"), "on")
    for part in ("one: on-CPU, 1.0 s, a tool", "NOTE: beware", "kernel-net", "pgmqtt::broker",
                 "pgmqtt::broker::Broker::State::route  (pgmqtt.so)", "0.50 s of CPU"):
        assert part in text
    assert "[epoll]" in tables.show(label("two"), "off")


def test_two_labels_side_by_side(label):
    text = tables.compare(label("before"), label("after", scale=2.0))
    assert "A = before, B = after" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("[fsync]"))
    assert row.split() == ["[fsync]", "900.00", "450.00", "-450.00", "0.50"]


def test_halves_that_do_not_match_are_said(label):
    one, two = label("one"), label("two")
    (one / "on.folded").unlink()
    (two / "off.folded").unlink()
    with pytest.raises(SystemExit, match="same --mode"):
        tables.compare(one, two)


def frames(svg):
    document = xml.dom.minidom.parseString(svg)
    return {group.getAttribute("data-n"): group for group in document.getElementsByTagName("g")}


def test_the_flame_graph_is_xml_with_shares(label):
    drawn = frames(svg_of(tables.Profile(label("one"), "on").folded, "<title> & more"))
    assert float(drawn["all"].getAttribute("data-w")) == 1
    assert float(drawn["main"].getAttribute("data-w")) == pytest.approx(0.5)
    assert float(drawn["tcp_sendmsg"].getAttribute("data-w")) == pytest.approx(0.25)
    assert int(drawn["main"].getAttribute("data-r")) == 2


def test_flame_graphs_of_nothing_and_of_deep_stacks_are_drawn():
    assert set(frames(svg_of({}, "nothing"))) == {"all"}
    deep = tuple(f"x`<f{i}>&" for i in range(3000))
    assert len(frames(svg_of({deep: 5.0}, "deep"))) == 3001


def test_an_empty_profile_has_tables(tmp_path):
    write_folded({}, tmp_path / "on.folded")
    assert "total" in tables.show(tmp_path, "on")


def profile_sh(*arguments):
    done = subprocess.run(["bash", str(PROFILE / "profile.sh"), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={"PATH": "/usr/bin:/bin",
                                                                    "PYTHON": sys.executable})
    return done.returncode, done.stdout


@pytest.mark.parametrize("arguments, says", [
    (["--pid-pattern", f"no such title {os.getpid()}"], "is the server running"),
    (["--pid", "4194305"], "there is no process"),
    (["--mode", "sideways"], "on, off or both"),
    (["--duration", "x"], "1 to 3600"),
    (["--label", "../up"], "name of a folder"),
    (["--frob", "1"], "--help lists them"),
    (["--duration"], "lacks its value"),
    (["--compare", "a"], "two labels"),
    (["--compare", "no-such-label", "other"], "there is no profile no-such-label"),
])
def test_profile_sh_says_what_is_wrong(arguments, says):
    status, said = profile_sh(*arguments)
    assert status == 1 and says in said


def test_a_pattern_that_two_processes_have_is_refused():
    title = "pgmqtt-profile-test-sleeper"
    twins = [subprocess.Popen(["bash", "-c", "sleep 30; :", title]) for _ in range(2)]
    try:
        status, said = profile_sh("--pid-pattern", title)
        assert status == 1 and "--pid" in said and str(twins[0].pid) in said
    finally:
        for twin in twins:
            subprocess.run(["pkill", "-P", str(twin.pid)])
            twin.kill()
            twin.wait()


def test_help_is_the_head_of_the_script():
    status, said = profile_sh("--help")
    assert status == 0 and "--pid-pattern" in said and "set -e" not in said
