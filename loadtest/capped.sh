#!/usr/bin/env bash
# The same point of load under caps on the server's CPU and memory. Each point has a server of its own:
# a new cluster, nothing cached, nothing left from the point before.
#   bash loadtest/capped.sh [options] -- MODE [options of loadtest MODE]
#     --cpus LIST     cores, comma separated (0.5,1,2); "max" is no cap
#     --memory LIST   bytes, or with K, M, G, comma separated (max)
#     --setting N=V   of PostgreSQL; may be repeated
#     --json FILE     where each point's line goes (build/capped.json)
#     --help          this text
# The caps are control groups (version 2, else 1), for which one must be root. Without them taskset
# caps the cores, in whole ones, and memory is not capped: the output says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "capped.sh: $1" >&2
    exit 2
}

usage() { sed -n '2,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# attended CMD: waits for it, and a signal to this script is not kept waiting, as it is for a command
# in the foreground. The EXIT trap must end what `attended_pid` names.
attended_pid=""
attended() {
    local status=0
    "$@" &
    attended_pid=$!
    wait "$attended_pid" || status=$?
    attended_pid=""
    return "$status"
}

trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# ---- within a point: called again by the harness, beside the running server ----

v1=/sys/fs/cgroup
group=pgmqtt-capped-$PPID

cores_up() { awk -v cpus="$1" 'BEGIN { whole = int(cpus); print (whole < cpus) ? whole + 1 : whole }'; }

# The postmaster and all it started; what it starts later inherits.
server_pids() {
    local postmaster
    postmaster=$(head -n 1 "$PGHOST/data/postmaster.pid")
    echo "$postmaster"
    pgrep -P "$postmaster"
}

move_into() {
    local pid
    for pid in $(server_pids); do
        # One that ended meanwhile needs no cap.
        echo "$pid" >"$1/cgroup.procs" 2>/dev/null || [ ! -d "/proc/$pid" ] || return 1
    done
}

cap_by_v2() {
    local root=$1 controllers
    controllers=$(cat "$root/cgroup.controllers" 2>/dev/null) || return 1
    [[ " $controllers " == *" cpu "* && " $controllers " == *" memory "* ]] || return 1
    echo "+cpu +memory" >"$root/cgroup.subtree_control" 2>/dev/null || return 1
    mkdir "$root/$group" 2>/dev/null || return 1
    made+=("$root/$group")
    [ "$cpus" = max ] ||
        awk -v cpus="$cpus" 'BEGIN { print int(cpus * 100000), 100000 }' >"$root/$group/cpu.max" || return 1
    [ "$memory" = max ] || echo "$memory" >"$root/$group/memory.max" || return 1
    move_into "$root/$group"
}

cap_by_v1() {
    [ -f "$v1/cpu/cpu.cfs_quota_us" ] && [ -f "$v1/memory/memory.limit_in_bytes" ] || return 1
    mkdir "$v1/cpu/$group" 2>/dev/null && made+=("$v1/cpu/$group") || return 1
    mkdir "$v1/memory/$group" 2>/dev/null && made+=("$v1/memory/$group") || return 1
    [ "$cpus" = max ] ||
        awk -v cpus="$cpus" 'BEGIN { print int(cpus * 100000) }' \
            >"$v1/cpu/$group/cpu.cfs_quota_us" || return 1
    [ "$memory" = max ] || echo "$memory" >"$v1/memory/$group/memory.limit_in_bytes" || return 1
    move_into "$v1/cpu/$group" && move_into "$v1/memory/$group"
}

cap_by_taskset() {
    [ "$memory" = max ] || echo "capped.sh: no control groups here: memory is not capped" >&2
    [ "$cpus" = max ] && return
    local last pid
    last=$(($(cores_up "$cpus") - 1))
    [ "$last" -lt "$(nproc)" ] || last=$(($(nproc) - 1))
    echo "capped.sh: no control groups here: cores 0-$last by taskset" >&2
    for pid in $(server_pids); do
        taskset -a -p -c "0-$last" "$pid" >/dev/null || [ ! -d "/proc/$pid" ] || return 1
    done
}

# Also when a signal comes.
end_point() {
    # Their processes go back where they came from; the server ends after this.
    local directory pid
    trap '' INT TERM HUP
    # It writes the report of what it has seen so far.
    if [ -n "$attended_pid" ]; then
        kill -TERM "$attended_pid" 2>/dev/null || true
        wait "$attended_pid" || true
    fi
    rm -f "$PGMQTT_CAPPED_POINT"
    for directory in "${made[@]}"; do
        while read -r pid; do
            echo "$pid" >"$(dirname "$directory")/cgroup.procs" 2>/dev/null || true
        done <"$directory/cgroup.procs"
        rmdir "$directory" 2>/dev/null || echo "capped.sh: $directory is left; rmdir it" >&2
    done
}

run_point() {
    cpus=$1 memory=$2 json=$3
    shift 3
    made=()
    trap end_point EXIT
    echo $$ >"$PGMQTT_CAPPED_POINT"
    cap_by_v2 "$v1" || cap_by_v2 "$v1/unified" || cap_by_v1 || cap_by_taskset ||
        fail "the server cannot be capped; run as root, or install util-linux for taskset"
    local mode=$1
    shift
    attended build/loadtest "$mode" --port "$MQTT_PORT" \
        --pg "host=$PGHOST port=$PGPORT user=$PGUSER dbname=$PGDATABASE" \
        --label "$mode, $cpus cpus, $memory memory" --json "$json" "$@"
}

if [ "${1:-}" = --point ]; then
    shift
    run_point "$@"
    exit
fi

# ---- all points ----

cpu_list=0.5,1,2 memory_list=max json=build/capped.json
settings=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --cpus | --memory | --setting | --json) ;;
        *) fail "$1 is unknown; --help lists the options" ;;
    esac
    [ $# -ge 2 ] && [ "$2" != -- ] || fail "$1 needs a value; --help says which"
    case $1 in
        --cpus) cpu_list=$2 ;;
        --memory) memory_list=$2 ;;
        --setting) settings+=(-c "$2") ;;
        --json) json=$2 ;;
    esac
    shift 2
done
[ "${1:-}" = -- ] && [ $# -ge 2 ] || fail "give -- MODE [options]; see --help, and build/loadtest --help"
shift

for cpus in ${cpu_list//,/ }; do
    [[ $cpus = max || ($cpus =~ ^[0-9]+(\.[0-9]+)?$ && $cpus =~ [1-9]) ]] ||
        fail "--cpus $cpus: give a number of cores above 0, or max"
done
for memory in ${memory_list//,/ }; do
    [[ $memory =~ ^(max|[1-9][0-9]*[KMG]?)$ ]] ||
        fail "--memory $memory: give bytes, or with K, M or G, or max"
done

# The point ends first, in order; the harness ends the server behind it. Before there is a point the
# harness is asked itself.
PGMQTT_CAPPED_POINT=$(mktemp)
export PGMQTT_CAPPED_POINT
end_points() {
    local point
    trap '' INT TERM HUP
    point=$(cat "$PGMQTT_CAPPED_POINT" 2>/dev/null) || true
    if [ -n "$attended_pid" ]; then
        kill -TERM "${point:-$attended_pid}" 2>/dev/null || true
        wait "$attended_pid" || true
    fi
    rm -f "$PGMQTT_CAPPED_POINT"
}
trap end_points EXIT

make -s all loadtest
failed=0
for memory in ${memory_list//,/ }; do
    for cpus in ${cpu_list//,/ }; do
        attended /usr/bin/python3 test/harness/server.py "${settings[@]}" -- \
            bash loadtest/capped.sh --point "$cpus" "$memory" "$json" "$@" || failed=1
    done
done
exit "$failed"
