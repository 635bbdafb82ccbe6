"""The fallback where bpftrace cannot run: looks at /proc many times a second and notes where the threads
of a process sleep. What is shorter than the interval is seen by chance only, and user stacks not at all.
How long they waited for a CPU is the kernel's own sum.

    python3 profile/wait_sampler.py PID SECONDS > off.folded
"""

import os
import sys
import time
from collections import Counter

from causes import KERNEL, UNKNOWN
from folding import OFFSET

INTERVAL = 0.01
# System calls of x86_64 in which a broker or a backend may sleep, by the kernel function of that name.
SYSCALLS = {0: "vfs_read", 1: "vfs_write", 7: "do_sys_poll", 23: "do_select", 44: "__sys_sendto",
            45: "__sys_recvfrom", 46: "__sys_sendmsg", 47: "__sys_recvmsg", 74: "do_fsync",
            75: "do_fdatasync", 202: "do_futex", 220: "do_semtimedop", 230: "nanosleep",
            232: "do_epoll_wait", 270: "do_select", 271: "do_sys_poll", 281: "do_epoll_pwait",
            35: "nanosleep", 17: "__x64_sys_pread64", 18: "__x64_sys_pwrite64"}


def read(path):
    try:
        with open(path, encoding="utf8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def state_of(thread):
    """R, S, D ... of /proc/PID/task/TID/stat; empty when it has gone."""
    after_name = read(f"{thread}/stat").rpartition(")")[2].split()
    return after_name[0] if after_name else ""


def kernel_stack(text):
    """Lines of /proc/PID/stack, innermost first, as frames, outermost first."""
    frames = []
    for line in text.splitlines():
        symbol = line.split("]", 1)[-1].strip().split("/")[0]
        if symbol:
            frames.append(f"{KERNEL}`{OFFSET.sub('', symbol)}")
    return frames[::-1]


def where(stack, wchan, syscall):
    """The best of what the kernel tells: a stack, the function that sleeps, the system call."""
    frames = kernel_stack(stack)
    if frames:
        return tuple(frames)
    if wchan not in ("", "0"):
        return (f"{KERNEL}`{wchan}",)
    number = syscall.split()[0] if syscall else ""
    if number.isdigit():
        return (f"{KERNEL}`{SYSCALLS.get(int(number), 'system call ' + number)}",)
    return (f"{KERNEL}`{UNKNOWN}",)


def sample(pid):
    """One look at all threads: the stacks of those that do not run."""
    tasks = f"/proc/{pid}/task"
    for tid in os.listdir(tasks):
        thread = f"{tasks}/{tid}"
        if state_of(thread) in ("S", "D", "I"):
            yield where(read(f"{thread}/stack"), read(f"{thread}/wchan"), read(f"{thread}/syscall"))


def run_delays(pid):
    """By thread, the nanoseconds that it was ready to run and had no CPU."""
    delays = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        numbers = read(f"/proc/{pid}/task/{tid}/schedstat").split()
        if len(numbers) == 3:
            delays[tid] = int(numbers[1])
    return delays


def sample_for(pid, seconds):
    folded, last = Counter(), time.monotonic()
    end = last + seconds
    before = run_delays(pid)
    while last < end:
        time.sleep(INTERVAL)
        now = time.monotonic()
        try:
            for stack in sample(pid):
                folded[stack] += (now - last) * 1e6
        except FileNotFoundError:
            sys.stderr.write(f"process {pid} ended while it was looked at\n")
            break
        last = now
    else:
        folded[(f"{KERNEL}`[preempted]",)] += sum(
            (delay - before.get(tid, 0)) / 1000 for tid, delay in run_delays(pid).items())
    return folded


if __name__ == "__main__":
    from folding import write_folded
    write_folded(sample_for(int(sys.argv[1]), float(sys.argv[2])), "/dev/stdout")
