#!/usr/bin/env bash
# Installs the Debian packages that building (and with "tests" as the argument, testing) needs.
# Says nothing and asks nothing when all are present.
set -euo pipefail

build=(build-essential postgresql-15 postgresql-server-dev-15 libxxhash-dev mosquitto-clients
       python3)
tests=(libgtest-dev clang libclang-rt-14-dev clang-format mosquitto python3-pytest python3-pytest-xdist
       python3-paho-mqtt libpaho-mqtt-dev libpq-dev python3-psycopg2)

wanted=("${build[@]}")
if [ "${1:-build}" = tests ]; then
    wanted+=("${tests[@]}")
    command -v node >/dev/null || wanted+=(nodejs)
    command -v npm >/dev/null || wanted+=(npm)
fi

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "These packages are needed, and neither root nor sudo is at hand: ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

echo "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    exit 1
fi
