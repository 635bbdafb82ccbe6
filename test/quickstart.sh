#!/usr/bin/env bash
# From a clone to a running server with pgmqtt, shown in both directions:
#   INSERT INTO orders ...  -> a line in mosquitto_sub
#   mosquitto_pub ...       -> a row in reading
# The server is a private one, with a directory of its own; nothing of a packaged PostgreSQL is
# touched. Run it again: it takes up the server where it is.
#   bash test/quickstart.sh          PGMQTT_QUICKSTART=DIR chooses the directory
#   bash test/quickstart.sh stop
set -euo pipefail
case "${1:-}" in
"" | stop) ;;
*)
    echo "usage: bash test/quickstart.sh [stop]" >&2
    exit 2
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

deadline=30  # seconds for each direction

fail() {
    echo "FAILED: $1" >&2
    if [ -s "${log:-}" ]; then
        echo "The server log ($log) ends:" >&2
        tail -n 15 "$log" >&2
    fi
    exit 1
}

# ---- where, and as whom: PostgreSQL does not run as root ----

if [ "$(id -u)" -eq 0 ]; then
    home=${PGMQTT_QUICKSTART:-/var/lib/pgmqtt-quickstart}
    as_server() { (cd / && exec setpriv --reuid postgres --regid postgres --init-groups "$@"); }
    give() { chown postgres: "$@"; }
else
    home=${PGMQTT_QUICKSTART:-${XDG_STATE_HOME:-$HOME/.local/state}/pgmqtt-quickstart}
    as_server() { (cd / && exec "$@"); }
    give() { :; }
fi
data=$home/data log=$home/server.log ports=$home/ports

bindir() { echo "$home/tree$(pg_config --bindir)"; }
is_running() { [ -d "$data" ] && as_server "$(bindir)/pg_ctl" -s -D "$data" status >/dev/null 2>&1; }

if [ "${1:-}" = stop ]; then
    is_running || { echo "It is not running."; exit 0; }
    as_server "$(bindir)/pg_ctl" -s -D "$data" -m fast stop
    echo "Stopped. Its data stays in $home."
    exit 0
fi

# ---- build, and install into a tree of its own ----

bash test/install_packages.sh || fail "installing packages"
echo "building pgmqtt"
make -s "-j$(nproc)" all || fail "the build"

mkdir -p "$home" || fail "$home cannot be made"
tree=$home/tree
for kind in bindir pkglibdir sharedir; do
    from=$(pg_config --$kind)
    [ -d "$tree$from" ] || { mkdir -p "$tree$from" && cp -RL "$from/." "$tree$from/"; }
done
before=$(cksum 2>/dev/null <"$tree$(pg_config --pkglibdir)/pgmqtt.so" || true)
make -s install DESTDIR="$tree" >/dev/null || fail "make install into $tree"
after=$(cksum <"$tree$(pg_config --pkglibdir)/pgmqtt.so")
if [ "$before" != "$after" ] && is_running; then
    echo "pgmqtt was built anew: restarting the server"
    as_server "$(bindir)/pg_ctl" -s -D "$data" -m fast stop
fi

# ---- a server ----

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
first_free_port() {
    local port=$1
    until port_is_free "$port"; do port=$((port + 1)); done
    echo "$port"
}

if [ ! -f "$data/PG_VERSION" ]; then
    echo "making a database cluster in $data"
    mkdir -p "$data"
    chmod 700 "$data"
    give "$home" "$data"
    as_server "$(bindir)/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 \
        >/dev/null || fail "initdb"
    echo "include_if_exists 'quickstart.conf'" >>"$data/postgresql.conf"
fi

if ! is_running; then
    pg_port=$(first_free_port 54321)
    mqtt_port=$(first_free_port 1883)
    [ "$mqtt_port" = 1883 ] || echo "port 1883 is in use: MQTT listens on $mqtt_port"
    {
        echo "listen_addresses = '127.0.0.1'"
        echo "port = $pg_port"
        echo "unix_socket_directories = '$home'"
        echo "shared_preload_libraries = 'pgmqtt'"
        echo "wal_level = logical"
        # Late minor releases want the output plugin named. (All of the list is read: a grep -q that
        # leaves early would end the writer, and with pipefail the answer.)
        if as_server "$(bindir)/postgres" --describe-config | grep '^output_plugin_libraries' \
            >/dev/null; then
            echo "output_plugin_libraries = 'pgoutput, test_decoding, pgmqtt'"
        fi
        echo "pgmqtt.port = $mqtt_port"
    } >"$data/quickstart.conf"
    echo "pg_port=$pg_port mqtt_port=$mqtt_port" >"$ports"
    touch "$log"
    give "$data/quickstart.conf" "$log"
    as_server "$(bindir)/pg_ctl" -s -D "$data" -l "$log" -w -t 60 start || fail "the server's start"
fi
# shellcheck disable=SC1090
. "$ports"

psql=("$(bindir)/psql" -X -q -v ON_ERROR_STOP=1 -h "$home" -p "$pg_port" -U postgres postgres)
sql() { "${psql[@]}" -c "$1" || fail "this SQL: $1"; }
ask() { "${psql[@]}" -At -c "$1"; }

# Waits until "$@" succeeds.
wait_for() {
    local what=$1 end=$((SECONDS + deadline))
    shift
    until "$@" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || fail "$what, after $deadline seconds"
        sleep 0.05
    done
}

# ---- the extension, a table that is published, a table that is filled ----

sql "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS pgmqtt"
sql 'SET client_min_messages = warning;
     CREATE TABLE IF NOT EXISTS orders(id serial PRIMARY KEY, customer text, total numeric);
     CREATE TABLE IF NOT EXISTS reading(site text, at timestamptz, celsius float8)'
[ "$(ask "SELECT count(*) FROM pgmqtt.mappings WHERE name = 'orders'")" = 1 ] ||
    sql "SELECT pgmqtt.add_mapping('orders', 'orders', \$\$'orders/' || coalesce(new.id, old.id)\$\$)" >/dev/null
[ "$(ask "SELECT count(*) FROM pgmqtt.sinks WHERE name = 'temps'")" = 1 ] ||
    sql "SELECT pgmqtt.add_sink('temps', 'sensors/{site}/temp',
         \$\$ INSERT INTO reading(site, at, celsius)
            SELECT site, received_at, (json->>'temperature')::float8 FROM msg \$\$)" >/dev/null
is_streaming() { [ "$(ask "SELECT status FROM pgmqtt.mappings WHERE name = 'orders'")" = streaming ]; }
wait_for "the mapping of orders does not start" is_streaming
mqtt_is_open() { ! port_is_free "$mqtt_port"; }
wait_for "MQTT port $mqtt_port does not open" mqtt_is_open

# ---- rows -> MQTT ----

echo
echo "\$ mosquitto_sub -p $mqtt_port -t 'orders/#' -v -C 1 &"
heard=$(mktemp)
trap 'rm -f "$heard"' EXIT
# -d and the line buffer tell when the subscription stands.
stdbuf -oL mosquitto_sub -h 127.0.0.1 -p "$mqtt_port" -t 'orders/#' -v -C 1 -W "$deadline" -d \
    >"$heard" 2>&1 &
subscriber=$!
wait_for "mosquitto_sub does not get its subscription" grep -q '^Subscribed' "$heard"
insert="INSERT INTO orders(customer, total) VALUES ('Ada', 12.50)"
echo "\$ psql -c \"$insert\""
sql "$insert"
wait "$subscriber" || fail "mosquitto_sub saw no order within $deadline seconds"
grep '^orders/' "$heard" || fail "mosquitto_sub saw no order"

# ---- MQTT -> rows ----

echo
count="SELECT count(*) FROM reading"
had=$(ask "$count")
message='{"temperature":21.5}'
echo "\$ mosquitto_pub -p $mqtt_port -q 1 -t sensors/s1/temp -m '$message'"
timeout "$deadline" mosquitto_pub -h 127.0.0.1 -p "$mqtt_port" -q 1 -t sensors/s1/temp \
    -m "$message" || fail "mosquitto_pub got no acknowledgement within $deadline seconds"
echo "\$ psql -c 'SELECT * FROM reading'"
sql "SELECT * FROM reading ORDER BY at DESC LIMIT 5"
[ "$(ask "$count")" -gt "$had" ] || fail "the message was acknowledged and is no row"

cat <<EOT
It works. The server goes on running:
  psql -h $home -p $pg_port -U postgres postgres
  mosquitto_sub -p $mqtt_port -t '#' -v
  log:  $log
  stop: ${PGMQTT_QUICKSTART:+PGMQTT_QUICKSTART=$PGMQTT_QUICKSTART }bash test/quickstart.sh stop
EOT
