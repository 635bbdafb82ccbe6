"""What perf and bpftrace print becomes stacks, and stacks become causes."""

from pathlib import Path

import pytest

from causes import folder_of, off_cause, on_cause
from folding import MAX_DEPTH, fold_bpftrace, fold_perf, read_folded, short_symbol, write_folded
from wait_sampler import sample_for, where

HERE = Path(__file__).parent


def perf():
    return fold_perf((HERE / "perf_script.txt").read_text(encoding="utf8").splitlines(True))


def bpftrace():
    return fold_bpftrace((HERE / "bpftrace_output.txt").read_text(encoding="utf8").splitlines(True))


def sums(folded, key):
    out = {}
    for stack, weight in folded.items():
        out[key(stack)] = round(out.get(key(stack), 0) + weight)
    return out


def test_perf_samples_are_stacks_from_the_outside():
    folded = perf()
    assert sum(folded.values()) == pytest.approx(4 * 2004.008)
    stack = next(stack for stack in folded if stack[-1] == "kernel`tcp_sendmsg")
    assert stack == ("postgres`_start", "postgres`main", "postgres`[unknown]",
                     "pgmqtt.so`pgmqtt::workers::BrokerLoop::turn",
                     "pgmqtt.so`pgmqtt::net::(anonymous)::TcpTransport::write", "libc.so.6`__send",
                     "kernel`do_syscall_64", "kernel`__sys_sendto", "kernel`tcp_sendmsg")


def test_on_cpu_causes():
    assert sums(perf(), on_cause) == {"kernel-net": 2004, "malloc": 2004, "pgmqtt::broker": 2004,
                                      "[other]": 2004}


def test_calls_count_for_the_folder_that_makes_them():
    assert sums(perf(), folder_of) == {"pgmqtt::net": 2004, "pgmqtt::broker": 4008, "[other]": 2004}


def test_a_statement_counts_for_the_feature_that_runs_it():
    stack = ("pgmqtt.so`pgmqtt::workers::run", "pgmqtt.so`pgmqtt::store::Store::write",
             "pgmqtt.so`pgmqtt::pg::Statement::execute", "postgres`SPI_execute_plan")
    assert folder_of(stack) == "pgmqtt::store" and on_cause(stack) == "postgres"
    assert on_cause(stack[:-1]) == "pgmqtt::pg"
    assert folder_of(("pgmqtt.so`pgmqtt::workers::run", "pgmqtt.so`pgmqtt::pg::WaitSet::wait")) == \
        "pgmqtt::pg"


def test_off_cpu_causes():
    folded = bpftrace()
    assert sums(folded, off_cause) == {"[preempted]": 41, "[epoll]": 4_000_000, "[fsync]": 900_000,
                                       "[lock]": 90_000}
    assert ("pgmqtt.so`pgmqtt::pg::guard::{lambda}", "libc.so.6`epoll_wait",
            "kernel`__x64_sys_epoll_wait", "kernel`do_epoll_wait",
            "kernel`schedule_hrtimeout_range_clock", "kernel`schedule", "kernel`__schedule") in folded


@pytest.mark.parametrize("frames, cause", [
    (["kernel`do_futex", "kernel`futex_wait"], "[futex]"),
    (["postgres`LWLockAcquire", "kernel`futex_wait"], "[lock]"),
    (["postgres`ProcSleep", "kernel`do_epoll_wait"], "[lock]"),
    (["kernel`tcp_sendmsg", "kernel`sk_stream_wait_memory"], "[net]"),
    (["kernel`ext4_file_write_iter", "kernel`io_schedule"], "[disk-io]"),
    (["kernel`do_fsync", "kernel`ext4_sync_file", "kernel`io_schedule"], "[fsync]"),
    (["kernel`hrtimer_nanosleep"], "[sleep]"),
    (["kernel`something_new"], "[other]"),
])
def test_waits_have_causes(frames, cause):
    assert off_cause(tuple(frames)) == cause


@pytest.mark.parametrize("long, short", [
    ("XLogInsert+0x1a", "XLogInsert"),
    ("memcpy@plt", "memcpy@plt"),
    ("finish_task_switch.isra.0", "finish_task_switch"),
    ("void pgmqtt::base::f<int, std::pair<a, b> >(int)", "pgmqtt::base::f"),
    ("pgmqtt::net::Server::operator()(int) const", "pgmqtt::net::Server::operator()"),
    ("a::b::{lambda({lambda(int)#1}&&)#2}::operator()(x const&) const", "a::b::{lambda}::operator()"),
    ("pgmqtt::pg::(anonymous namespace)::g(int)", "pgmqtt::pg::(anonymous)::g"),
    ("operator new(unsigned long)", "operator new"),
    ("", ""),
])
def test_names_are_short(long, short):
    assert short_symbol(long) == short


def test_a_worker_begins_where_the_postmaster_starts_it():
    lines = ["x 1 1.0: 1000 cpu-clock:\n"] + [
        f"\t1 {name} (/bin/postgres)\n" for name in ("turn", "StartBackgroundWorker", "ServerLoop", "main")]
    (stack,) = fold_perf(lines)
    assert stack == ("postgres`StartBackgroundWorker", "postgres`turn")


def test_recursion_is_bounded():
    lines = ["x 1 1.0: 1000 cpu-clock:\n"] + [f"\t1 f{i} (/bin/x)\n" for i in range(5000)] + ["\n"]
    (stack,) = fold_perf(lines)
    assert len(stack) == MAX_DEPTH and stack[-1] == "x`f0" and stack[0] == "x`f4999"


def test_folded_stacks_are_read_as_they_were_written(tmp_path):
    write_folded(perf(), tmp_path / "on.folded")
    again = read_folded(tmp_path / "on.folded")
    assert set(again) == set(perf())
    assert sum(again.values()) == pytest.approx(sum(perf().values()), rel=0.01)


def test_the_fallback_takes_the_best_that_the_kernel_tells():
    stack = "[<0>] ep_poll+0x1/0x2\n[<0>] do_epoll_wait+0x1/0x2\n"
    assert where(stack, "ep_poll", "232 0x0") == ("kernel`do_epoll_wait", "kernel`ep_poll")
    assert where("", "futex_wait_queue", "202 0x0") == ("kernel`futex_wait_queue",)
    assert off_cause(where("", "0", "75 0x3")) == "[fsync]"
    assert off_cause(where("", "0", "232 0x3")) == "[epoll]"
    assert off_cause(where("", "", "running")) == "[other]"
    assert where("", "", "999 0x0") == ("kernel`system call 999",)


def test_the_fallback_sees_a_process_sleep():
    import subprocess
    sleeper = subprocess.Popen(["sleep", "30"])
    try:
        folded = sample_for(sleeper.pid, 0.3)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert sum(folded.values()) > 100_000
    assert set(sums(folded, off_cause)) <= {"[sleep]", "[other]", "[preempted]"}
