#!/usr/bin/env bash
# Where a process of pgmqtt spends its time, on the CPU and off it: tables by cause and flame graphs.
#   profile/profile.sh --workload "CMD" --label NAME
#   profile/profile.sh --compare A B
# Options:
#   --pid-pattern TEXT   of the process title ("pgmqtt broker"); exactly one process must have it
#   --pid PID            in place of a pattern, where several servers run
#   --mode on|off|both   (both: the workload runs once for each)
#   --duration SECONDS   of a profile (60)
#   --warmup SECONDS     of the workload before it begins (2)
#   --workload CMD       run by bash, ended after the profile; without it the process is taken as it is
#   --label NAME         the profile goes to build/profile/NAME (profile)
#   --frequency HZ       of on-CPU samples (499)
#   --call-graph KIND    dwarf (whole stacks) or fp (cheaper; ends where code has no frame pointers)
#   --keep yes|no        perf's own data, hundreds of MB a minute, for perf report (no)
#   --off-by TOOL        bpftrace or sampling; by default bpftrace where it works
# Build with `make clean && make PROFILE=1` and install that. Needs root, linux-perf, and for exact
# off-CPU times bpftrace.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
pattern="pgmqtt broker" pid="" mode=both duration=60 warmup=2 workload="" label=profile
frequency=499 call_graph=dwarf keep=no off_by=""
stack_bytes=16384
profiles=$(dirname "$here")/build/profile
workload_pid=""
unfinished=""

fail() {
    echo "profile.sh: $1" >&2
    exit 1
}

usage() { sed -n '2,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

is_number() { [[ $1 =~ ^[1-9][0-9]*$ ]]; }

read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) usage; exit 0 ;;
            --compare)
                [ $# -eq 3 ] || fail "--compare wants two labels and nothing else"
                compare "$2" "$3"
                exit 0 ;;
        esac
        [ $# -ge 2 ] || fail "$1 is no option or lacks its value; --help lists them"
        case $1 in
            --pid-pattern) pattern=$2 ;;
            --pid) pid=$2 ;;
            --mode) mode=$2 ;;
            --duration) duration=$2 ;;
            --warmup) warmup=$2 ;;
            --workload) workload=$2 ;;
            --label) label=$2 ;;
            --frequency) frequency=$2 ;;
            --call-graph) call_graph=$2 ;;
            --keep) keep=$2 ;;
            --off-by) off_by=$2 ;;
            *) fail "there is no option $1; --help lists them" ;;
        esac
        shift 2
    done
    [[ $mode =~ ^(on|off|both)$ ]] || fail "--mode is on, off or both, not $mode"
    is_number "$duration" && [ "$duration" -le 3600 ] || fail "--duration is 1 to 3600 seconds"
    [[ $warmup =~ ^[0-9]+$ ]] || fail "--warmup is a number of seconds"
    is_number "$frequency" && [ "$frequency" -le 4000 ] || fail "--frequency is 1 to 4000 Hz"
    [[ $call_graph =~ ^(dwarf|fp)$ ]] || fail "--call-graph is dwarf or fp, not $call_graph"
    [[ $keep =~ ^(yes|no)$ ]] || fail "--keep is yes or no, not $keep"
    [[ $off_by =~ ^(|bpftrace|sampling)$ ]] || fail "--off-by is bpftrace or sampling, not $off_by"
    [[ $label =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ ]] ||
        fail "--label becomes the name of a folder: letters, digits, dot, dash and underscore"
}

compare() {
    local name
    for name in "$1" "$2"; do
        [ -d "$profiles/$name" ] ||
            fail "there is no profile $name; there are: $(ls "$profiles" 2>/dev/null | tr '\n' ' ')"
    done
    "$python" "$here/tables.py" compare "$profiles/$1" "$profiles/$2"
}

# Who calls this script has the pattern in its own arguments.
is_ours() {
    local at=$$
    while [ "$at" -gt 1 ]; do
        [ "$at" != "$1" ] || return 0
        at=$(ps -o ppid= -p "$at" | tr -d ' ')
        [ -n "$at" ] || break
    done
    return 1
}

find_process() {
    local found=() all one
    if [ -n "$pid" ]; then
        [ -d "/proc/$pid" ] || fail "there is no process $pid"
        return
    fi
    # exec: a waiting subshell would have the pattern in its arguments, too.
    mapfile -t all < <(exec pgrep -f -- "$pattern")
    for one in "${all[@]}"; do
        is_ours "$one" || found+=("$one")
    done
    case ${#found[@]} in
        0) fail "no process has \"$pattern\" in its title: is the server running, and preloads it pgmqtt?" ;;
        1) pid=${found[0]} ;;
        *)
            echo "Several processes match \"$pattern\":" >&2
            ps -o pid,ppid,lstart,args -p "$(IFS=,; echo "${found[*]}")" >&2
            fail "choose one of them with --pid" ;;
    esac
}

# ---- what runs beside this script, and how it ends ----

# attended CMD: waits for it, and a signal to this script ends it at once with all that it started; a
# command in the foreground would be waited for first.
attended_pid=""
attended() {
    local status=0
    setsid "$@" &
    attended_pid=$!
    wait "$attended_pid" || status=$?
    attended_pid=""
    return "$status"
}

# end_group PID: most of what is ended so has something to put in order first (a load test, its clients).
end_group() {
    [ -n "$1" ] || return 0
    kill -TERM -- "-$1" 2>/dev/null || true
    for _ in {1..50}; do
        kill -0 -- "-$1" 2>/dev/null || break
        sleep 0.2
    done
    kill -KILL -- "-$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

workload_log() { tail -n 15 "$folder/workload-$1.log" >&2; }

start_workload() {
    [ -n "$workload" ] || return 0
    # A group of its own, so that all of it can be ended.
    setsid bash -c "$workload" >"$folder/workload-$1.log" 2>&1 </dev/null &
    workload_pid=$!
    attended sleep "$warmup"
    kill -0 "$workload_pid" 2>/dev/null || {
        workload_log "$1"
        fail "the workload ended within its $warmup s of warm-up: $workload"
    }
}

# Behind its end the process did something else: that is no profile of the workload.
end_workload() {
    [ -n "$workload_pid" ] || return 0
    kill -0 "$workload_pid" 2>/dev/null || {
        workload_log "$1"
        fail "the workload ended before the profile did: it must go on for longer than the \
$((warmup + duration)) s of warm-up and duration: $workload"
    }
    end_group "$workload_pid"
    workload_pid=""
}

# Nothing is left of a profile that was not made; an earlier one of the label is as it was.
clean_up() {
    trap '' INT TERM HUP
    end_group "$attended_pid"
    end_group "$workload_pid"
    [ -z "$unfinished" ] || rm -rf "$unfinished"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# ---- measuring ----

# Seconds since boot and CPU ticks of all threads, read at both ends of what is measured.
look='read -r at _ </proc/uptime; read -r line <"/proc/$0/stat"; echo "$at ${line##*) }"'

# between FIRST_LOOK SECOND_LOOK: "SECONDS CPU_SECONDS"
between() {
    printf '%s\n%s\n' "$1" "$2" | awk -v hz="$(getconf CLK_TCK)" '
        NR == 1 { at = $1; ticks = $13 + $14 }
        NR == 2 { printf "%.2f %.2f", $1 - at, ($13 + $14 - ticks) / hz }'
}

# write_meta HALF SECONDS CPU_SECONDS TOOL NOTE
write_meta() {
    printf 'seconds=%s\ncpu_seconds=%s\ntool=%s\nnote=%s\npid=%s\nworkload=%s\n' "$2" "$3" "$4" \
        "$5" "$pid" "$workload" >"$folder/$1.meta"
}

is_still_there() { [ -d "/proc/$pid" ] || fail "process $pid ended while it was profiled"; }

profile_on() {
    local graph=$call_graph looks seconds used lost
    command -v perf >/dev/null || fail "perf is missing: apt-get install linux-perf"
    [ "$graph" = dwarf ] && graph=dwarf,$stack_bytes
    start_workload on
    echo "on-CPU: process $pid for $duration s"
    # perf counts from the start of this command to its end.
    attended perf record -q -e cpu-clock -F "$frequency" --call-graph "$graph" -p "$pid" \
        -o "$folder/on.data" -- bash -c "$look; sleep $duration; $look" "$pid" \
        >"$folder/looks" 2>"$folder/perf.log" || {
        cat "$folder/perf.log" >&2
        fail "perf record failed: it needs root, or kernel.perf_event_paranoid at -1"
    }
    is_still_there
    end_workload on
    mapfile -t looks <"$folder/looks"
    read -r seconds used < <(between "${looks[@]}" && echo)
    rm -f "$folder/looks"
    # Inlined functions would need a look into the line tables for each frame: minutes of it.
    attended perf script --no-inline -i "$folder/on.data" -F comm,tid,time,period,event,ip,sym,dso \
        >"$folder/on.txt" 2>>"$folder/perf.log" || {
        tail -n 5 "$folder/perf.log" >&2
        fail "perf script failed"
    }
    lost=""
    grep -qi 'lost [1-9]' "$folder/perf.log" && lost="perf lost samples: lower --frequency. "
    "$python" "$here/tables.py" fold on "$folder/on.txt" "$folder/on.folded"
    write_meta on "$seconds" "$used" "perf cpu-clock at $frequency Hz, $call_graph stacks" "$lost"
    rm -f "$folder/on.txt"
    [ "$keep" = yes ] || rm -f "$folder/on.data"
}

# bpftrace wants to see the tracepoints; mounting them is all that is changed on this machine.
can_trace() {
    local at=/sys/kernel/tracing
    command -v bpftrace >/dev/null || { reason="bpftrace is not installed"; return 1; }
    [ -e $at/events ] || [ -e /sys/kernel/debug/tracing/events ] ||
        mount -t tracefs tracefs $at 2>/dev/null ||
        { reason="tracefs cannot be mounted"; return 1; }
    timeout 30 bpftrace -e 'tracepoint:sched:sched_switch { exit(); }' >"$folder/bpftrace.log" 2>&1 ||
        { reason="bpftrace does not work: $(tail -n 1 "$folder/bpftrace.log")"; return 1; }
}

off_by_bpftrace() {
    ulimit -l unlimited 2>/dev/null || true
    # bpftrace 0.17 closes its own maps when it drops a cache of symbols: then most stacks are missing.
    BPFTRACE_CACHE_USER_SYMBOLS=1 BPFTRACE_MAP_KEYS_MAX=16384 attended timeout -s INT -k 20 $((duration + 120)) \
        bpftrace -o "$folder/off.txt" "$here/off_cpu.bt" "$pid" "$duration" \
        >"$folder/bpftrace.log" 2>&1 || true
    seconds=$(awk '/^wall_ns/ { print $2 / 1e9 }' "$folder/off.txt")
    used=$(awk '/^cpu_ns/ { print $2 / 1e9 }' "$folder/off.txt")
    { [ -n "$seconds" ] && grep -q '^@off\[' "$folder/off.txt"; } || {
        tail -n 5 "$folder/bpftrace.log" >&2
        fail "bpftrace saw nothing: try --off-by sampling"
    }
    if grep -q 'failed to look up' "$folder/bpftrace.log"; then
        note="bpftrace could not print some stacks: if CPU and off-CPU time together are much less than \
the duration, use --off-by sampling. "
    fi
    # It leaves some names of templates and lambdas as the linker has them.
    if command -v c++filt >/dev/null; then
        c++filt <"$folder/off.txt" >"$folder/off.names"
    else
        cp "$folder/off.txt" "$folder/off.names"
    fi
    "$python" "$here/tables.py" fold off "$folder/off.names" "$folder/off.folded"
    rm -f "$folder/off.txt" "$folder/off.names"
}

off_by_sampling() {
    local first second
    first=$(bash -c "$look" "$pid")
    attended "$python" "$here/wait_sampler.py" "$pid" "$duration" >"$folder/off.folded"
    is_still_there
    second=$(bash -c "$look" "$pid")
    read -r seconds used < <(between "$first" "$second" && echo)
}

profile_off() {
    local reason="" note="" tool="bpftrace on sched_switch" seconds used
    if [ "$off_by" != sampling ] && ! can_trace; then
        [ -z "$off_by" ] || fail "$reason"
        off_by=sampling
        note="$reason: waits are sampled 100 times a second instead, short ones by chance only. "
    fi
    [ "$off_by" = bpftrace ] || [ -z "$off_by" ] || tool="samples of /proc (stack, wchan, syscall)"
    start_workload off
    echo "off-CPU: process $pid for $duration s"
    "off_by_${off_by:-bpftrace}"
    is_still_there
    end_workload off
    write_meta off "$seconds" "$used" "$tool" "$note"
}

read_options "$@"
find_process
unfinished=$profiles/.unfinished-$$
folder=$unfinished/$label
mkdir -p "$folder"
for half in on off; do
    [ "$mode" = "$half" ] || [ "$mode" = both ] || continue
    "profile_$half"
    "$python" "$here/tables.py" show "$folder" "$half" | tee -a "$folder/tables.txt"
done
rm -rf "${profiles:?}/$label"
mv "$folder" "$profiles/$label"
folder=$profiles/$label
echo "tables: $folder/tables.txt"
for half in on off; do
    [ ! -f "$folder/$half.svg" ] || echo "flame graph: $folder/$half.svg"
done
