#!/usr/bin/env bash
# Installs what the tests need, builds, runs every kind of test, and ends with one line that sums
# them all:   N passed, N failed
#   bash test/run.sh             all kinds
#   bash test/run.sh lint wire   only these, of: unit walk fuzz lint profile boundary regress wire crash
# FUZZ_SECONDS per fuzz target (5) and CRASH_ROUNDS (8) make the long ones longer.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

python=/usr/bin/python3  # Debian's, which has its packages; another may be first on PATH
kinds=(unit walk fuzz lint profile boundary regress wire crash)
chosen=("${@:-${kinds[@]}}")
results=build/test-results
total_passed=0 total_failed=0 total_skipped=0

finish() {
    local line="$total_passed passed, $total_failed failed"
    [ "$total_skipped" -gt 0 ] && line+=", $total_skipped skipped"
    echo "$line"
    [ "$total_failed" -eq 0 ]
    exit
}

give_up() {
    echo "FAILED: $1"
    total_failed=$((total_failed + 1))
    finish
}

# record KIND STATUS PASSED FAILED SKIPPED: a kind that failed without saying which test, or that
# ran none, counts as one failed test.
record() {
    local kind=$1 status=$2 passed=$3 failed=$4 skipped=$5
    if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then
        echo "$kind: exit status $status with $passed tests passed"
        failed=1
    fi
    echo "== $kind: $passed passed, $failed failed, $skipped skipped (after $SECONDS s)"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
}

# A runner that leaves JUnit files says itself how many tests there were.
record_junit() {
    local kind=$1 status=$2 counts
    counts=$("$python" test/harness/count_junit.py "$results/$kind"*.xml) || counts="0 0 0"
    # shellcheck disable=SC2086
    record "$kind" "$status" $counts
}

run_unit() {
    local shard status=0
    make -s "-j$(nproc)" build/unit_tests || give_up "the unit tests' build"
    rm -f "$results"/unit*.xml
    export GTEST_TOTAL_SHARDS
    GTEST_TOTAL_SHARDS=$(nproc)
    for ((shard = 0; shard < GTEST_TOTAL_SHARDS; shard++)); do
        GTEST_SHARD_INDEX=$shard build/unit_tests --gtest_brief=1 \
            --gtest_output="xml:$results/unit-$shard.xml" &
    done
    for ((shard = 0; shard < GTEST_TOTAL_SHARDS; shard++)); do
        wait -n || status=$?
    done
    unset GTEST_TOTAL_SHARDS
    record_junit unit "$status"
}

run_walk() {
    make -s "-j$(nproc)" build/session_walk &&
        PGMQTT_WALK_STEPS=1000000 build/session_walk --gtest_brief=1 \
            --gtest_output="xml:$results/walk.xml"
    record_junit walk $?
}

run_fuzz() {
    local name passed=0 failed=0
    local -A running=()
    make -s "-j$(nproc)" fuzzers || give_up "the fuzzers' build"
    for name in test/fuzz/*_fuzz.cpp; do
        name=$(basename "$name" _fuzz.cpp)
        make -s fuzz FUZZ_TARGETS="$name" FUZZ_SECONDS="${FUZZ_SECONDS:-5}" \
            >"$results/fuzz-$name.log" 2>&1 &
        running[$name]=$!
    done
    for name in "${!running[@]}"; do
        if wait "${running[$name]}"; then
            echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$results/fuzz-$name.log") inputs"
            passed=$((passed + 1))
        else
            tail -n 40 "$results/fuzz-$name.log"
            failed=$((failed + 1))
        fi
    done
    record fuzz 0 "$passed" "$failed" 0
}

run_pytest() {
    local kind=$1
    shift
    "$python" -m pytest -q -p no:cacheprovider --tb=short --junitxml="$results/$kind.xml" "$@"
    record_junit "$kind" $?
}

run_boundary() {
    make -s "-j$(nproc)" build/boundary/pgmqtt_boundary.so || give_up "the boundary's test module"
    run_pytest boundary test/boundary
}

run_regress() {
    local log=$results/regress.log status
    "$python" test/harness/server.py --no-extension -c pgmqtt.database=contrib_regression -- \
        make -s installcheck 2>&1 | tee "$log"
    status=$?
    [ "$status" -eq 0 ] || cat build/regress/regression.diffs 2>/dev/null
    record regress "$status" "$(grep -cE '^test .* ok +[0-9]+ ms' "$log")" \
        "$(grep -cE '^test .* FAILED' "$log")" 0
}

run_one() {
    case $1 in
        unit) run_unit ;;
        walk) run_walk ;;
        fuzz) run_fuzz ;;
        lint) run_pytest lint -rP test/lint ;;
        profile) run_pytest profile test/profile ;;
        boundary) run_boundary ;;
        regress) run_regress ;;
        # They wait more than they compute.
        wire) run_pytest wire -n $((2 * $(nproc))) --dist loadfile test/wire ;;
        crash) CRASH_ROUNDS=${CRASH_ROUNDS:-8} run_pytest crash test/crash ;;
        *) give_up "there is no kind of test called $1" ;;
    esac
}

bash test/install_packages.sh tests || give_up "installing packages"
bash test/install_mqttjs.sh || give_up "installing mqtt.js"
mkdir -p "$results"
make -s "-j$(nproc)" || give_up "the build"

# One private installation for all servers of this run.
PGMQTT_TEST_TREE=$(mktemp -d "${TMPDIR:-/tmp}/pgmqtt-tree-XXXXXX")
export PGMQTT_TEST_TREE
trap 'rm -rf "$PGMQTT_TEST_TREE"' EXIT
chmod 755 "$PGMQTT_TEST_TREE"

for kind in "${chosen[@]}"; do
    echo "== $kind"
    run_one "$kind"
done
finish
