"""What a stack was busy with, or waited for: patterns over its frames.

A frame is `object`symbol`, the object being "kernel", "pgmqtt.so", "postgres", "libc.so.6" ...;
a stack is a tuple of frames, the outermost first.
"""

import re

KERNEL = "kernel"
UNKNOWN = "[unknown]"
FEATURES = {"store", "sink", "cdc", "auth", "functions"}
FOLDER = re.compile(r"\bpgmqtt::(\w+)::")

# The order matters: a write that waits inside a sync is [fsync], not [disk-io].
OFF_KERNEL = [
    ("[fsync]", r"vfs_fsync|do_fsync|fsync$|fdatasync|sync_file|msync"),
    ("[epoll]", r"ep_poll|epoll_wait|epoll_pwait|do_sys_poll|do_poll|do_select|poll_schedule"),
    ("[futex]", r"futex"),
    ("[net]", r"^(tcp|udp|inet6?|sock|sk|skb|unix)_|lock_sock|__sys_(send|recv|accept|connect)|"
              r"wait_for_unix|x64_sys_(send|recv|accept|connect)"),
    ("[disk-io]", r"io_schedule|folio_wait|wait_on_(page|buffer|bit)|^blk_|submit_bio|^(ext4|xfs|btrfs|"
                  r"jbd2|nfs|overlayfs|ovl)_|balance_dirty|x64_sys_(pread|pwrite|open|unlink|ftruncate|"
                  r"fallocate)|filemap_"),
    ("[lock]", r"semtimedop|do_sem|mutex_lock|rwsem_down|down_(read|write)|rwbase"),
    ("[sleep]", r"nanosleep"),
    ("[memory]", r"page_fault|mmap|munmap|madvise"),
]
OFF_USER_LOCK = re.compile(r"^(LWLockAcquire|PGSemaphoreLock|ProcSleep|LockAcquire|XactLockTableWait|"
                           r"s_lock)")
ON_KERNEL = [
    ("kernel-epoll", r"epoll|^ep_|do_sys_poll|do_poll|do_select"),
    ("kernel-futex", r"futex"),
    ("kernel-net", r"^(tcp|udp|inet6?|sock|sk|skb|ip|ip6|net|nf|netif|loopback|unix|dev|napi|eth)_|sendmsg|"
                   r"recvmsg|sys_send|sys_recv|sys_accept|sys_connect|sys_shutdown|process_backlog"),
    ("kernel-disk", r"fsync|fdatasync|^(ext4|xfs|btrfs|jbd2|blk|bio|submit_bio|filemap|iomap)_?|"
                    r"x64_sys_(pread|pwrite|open|unlink|ftruncate|fallocate)|vfs_(read|write)"),
    ("kernel-memory", r"page_fault|mmap|munmap|madvise|brk"),
    ("kernel-signal", r"sys_(kill|tgkill|rt_sig)|do_signal|get_signal|group_send_sig"),
    ("kernel-schedule", r"schedule|sched_yield"),
    ("kernel-interrupt", r"sysvec|irq"),
]
MALLOC = re.compile(r"^(__libc_)?(malloc|free|calloc|realloc|cfree|memalign)\b|^_int_(malloc|free|realloc)|"
                    r"^malloc_|^unlink_chunk|^tcache|^operator (new|delete)|^__libc_free")
PALLOC = re.compile(r"^(AllocSet|palloc|pfree|repalloc|MemoryContext|Generation|Slab)")
COPY = re.compile(r"mem(cpy|move|set|cmp|chr)|^__?str(len|cmp|ncmp|chr|cpy)")
HASH = re.compile(r"^XXH|^xxh|^XXH3")
CLOCK = re.compile(r"clock_gettime|gettimeofday|__vdso")
WAL = re.compile(r"^(XLog|Xlog|WAL|Wal|pg_comp_crc)")


def compiled(rules):
    return [(cause, re.compile(pattern)) for cause, pattern in rules]


OFF_KERNEL = compiled(OFF_KERNEL)
ON_KERNEL = compiled(ON_KERNEL)


def split(frame):
    """(object, symbol)"""
    holder, _, symbol = frame.partition("`")
    return holder, symbol


def first_match(rules, symbols):
    for cause, pattern in rules:
        if any(pattern.search(symbol) for symbol in symbols):
            return cause
    return None


def off_cause(stack):
    """Why the thread did not run. `[preempted]` is said by the folder, as the innermost frame."""
    frames = [split(frame) for frame in stack]
    if frames and frames[-1][1] == "[preempted]":
        return "[preempted]"
    kernel = [symbol for holder, symbol in frames if holder == KERNEL]
    cause = first_match(OFF_KERNEL, kernel)
    # A lock of PostgreSQL is a futex or a latch underneath.
    if cause in (None, "[futex]", "[epoll]") and any(
            OFF_USER_LOCK.match(symbol) for holder, symbol in frames if holder != KERNEL):
        return "[lock]"
    return cause or "[other]"


def innermost_folder(stack):
    """The folder of src/ whose code is innermost, or the object where there is none."""
    for frame in reversed(stack):
        match = FOLDER.search(split(frame)[1])
        if match:
            return f"pgmqtt::{match[1]}"
    for frame in reversed(stack):
        holder = split(frame)[0]
        if holder not in (KERNEL, UNKNOWN) and not holder.startswith(("lib", "[", "ld-")):
            return holder
    return KERNEL if stack and split(stack[-1])[0] == KERNEL else "[other]"


def folder_of(stack):
    """The folder that a stack is to be counted for: what its calls below cost is its own. pg/ is how
    features reach PostgreSQL, so it is the feature that asked."""
    innermost = innermost_folder(stack)
    if innermost == "pgmqtt::pg":
        for frame in reversed(stack):
            match = FOLDER.search(split(frame)[1])
            if match and match[1] in FEATURES:
                return f"pgmqtt::{match[1]}"
    return innermost


def on_cause(stack):
    """What the CPU did. Code of libstdc++ and templates of std count for the folder that calls them."""
    if not stack:
        return "[other]"
    holder, symbol = split(stack[-1])
    if holder == KERNEL:
        kernel = [s for h, s in map(split, stack) if h == KERNEL]
        return first_match(ON_KERNEL, kernel) or "kernel-other"
    for cause, pattern in (("malloc", MALLOC), ("palloc", PALLOC), ("memcpy", COPY), ("hash", HASH),
                           ("clock", CLOCK)):
        if pattern.search(symbol):
            return cause
    if holder == "postgres":
        return "postgres-wal" if WAL.match(symbol) else "postgres"
    return innermost_folder(stack)
