"""What durable messages cost the other users of the database.

    /usr/bin/python3 test/wire/neighbours.py [SECONDS] [ROUNDS] [MESSAGES_PER_SECOND]

A private server, fsync on; in turn, ROUNDS (3) times SECONDS (20) each: pgbench alone, pgbench beside the
messages, the messages alone. The messages: 64 bytes, QoS 1, 20,000 a second from ten publishers to ten
persistent subscribers that are there and to one that is away, so that each is stored. Prints medians: TPS
and their ratio, transaction ids and WAL bytes that the messages take (of the rounds without pgbench), what
autovacuum had to do with tables of pgmqtt. The bars are in the output; a measurement, for people.
"""

import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server  # noqa: E402
from harness.tree import REPOSITORY, make  # noqa: E402

WARMUP = 2
CLIENTS = 4
CONF = {"fsync": "on", "shared_buffers": "128MB", "max_wal_size": "4GB", "pgmqtt.max_memory": "2GB",
        "pgmqtt.max_queued_messages": 100_000_000, "pgmqtt.max_queued_bytes": "100GB"}
NOW = """SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_lsn() - '0/0',
    (SELECT publishes_in FROM pgmqtt.stat_broker), extract(epoch FROM clock_timestamp())"""
VACUUM = """SELECT sum(autovacuum_count), sum(autoanalyze_count), sum(n_dead_tup),
    pg_size_pretty(sum(pg_total_relation_size(relid)))
    FROM pg_stat_all_tables WHERE schemaname = 'pgmqtt'"""


def pgbench(server, *arguments):
    done = subprocess.run(["pgbench", *arguments], env=server.environment(), check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout


def tps(server, seconds):
    said = pgbench(server, "-n", "-c", str(CLIENTS), "-j", "1", "-T", f"{seconds:.0f}")
    return float(re.search(r"tps = ([\d.]+)", said).group(1))


class Messages:
    """The messages, while entered."""

    def __init__(self, server, rate, seconds):
        self.server = server
        self.rate = rate
        self.seconds = seconds

    def __enter__(self):
        with RawClient(self.server.mqtt_port, 4) as away:
            away.connect("away", clean=False)
            away.subscribe("neighbours/#", 1)
        self.process = subprocess.Popen(
            [str(REPOSITORY / "build" / "loadtest"), "openloop", "--quiet", "--json", "-", "--port",
             str(self.server.mqtt_port), "--qos", "1", "--persistent", "--rate", f"{self.rate:.0f}",
             "--publishers", "10", "--subscribers", "10", "--topic-prefix", "neighbours", "--warmup",
             str(WARMUP), "--duration", f"{self.seconds + 1:.0f}", "--drain", "60"],
            stdout=subprocess.PIPE, text=True)
        time.sleep(WARMUP)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        self.result = json.loads(self.process.communicate()[0].splitlines()[-1]) \
            if kind is None else None
        self.server.psql("SELECT pgmqtt.delete_session('away')")

    def said(self):
        result = self.result
        if not result["ok"]:
            print("  FAILED:", "; ".join(result["errors"]))
        histogram = result["histograms"]["acknowledge"]
        return (f"{result['acknowledged_per_second']:.0f}/s acknowledged, p50 "
                f"{histogram['p50_us'] / 1000:.1f} ms, p99 {histogram['p99_us'] / 1000:.1f} ms, "
                f"shed {result['counters']['shed']}")


def look(server):
    return [float(value) for value in server.psql(NOW).split("|")]


def messages_alone(server, rate, seconds):
    """xids a second, WAL bytes per message."""
    with Messages(server, rate, seconds) as messages:
        before = look(server)
        time.sleep(seconds)
        xids, wal, count, elapsed = [b - a for a, b in zip(before, look(server))]
    print(f"  messages alone: {messages.said()}", flush=True)
    return xids / elapsed, wal / max(count, 1)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rate = float(sys.argv[3]) if len(sys.argv) > 3 else 20000.0
    make("loadtest")
    alone, beside, xids, wal = [], [], [], []
    with Server(conf=CONF) as server:
        pgbench(server, "-i", "-q", "-s", "10")
        tps(server, 3)  # warm
        for number in range(rounds):
            print(f"round {number + 1}", flush=True)
            server.psql("CHECKPOINT")
            alone.append(tps(server, seconds))
            print(f"  pgbench alone: {alone[-1]:.0f} TPS", flush=True)
            server.psql("CHECKPOINT")
            with Messages(server, rate, seconds) as messages:
                beside.append(tps(server, seconds))
            print(f"  pgbench beside: {beside[-1]:.0f} TPS; messages {messages.said()}", flush=True)
            server.psql("CHECKPOINT")
            used, written = messages_alone(server, rate, seconds)
            xids.append(used)
            wal.append(written)
        vacuum = server.psql(VACUUM).split("|")
    ratio = statistics.median(b / a for a, b in zip(alone, beside))
    print(f"pgbench: {statistics.median(alone):.0f} TPS alone, {statistics.median(beside):.0f} beside "
          f"{rate:.0f} messages/s: {ratio:.2f} x (medians of {rounds} rounds)")
    print(f"transaction ids: {statistics.median(xids):.0f} per second (bar: 500)")
    print(f"WAL: {statistics.median(wal):.0f} bytes per message (bar: 200)")
    print(f"autovacuum on tables of pgmqtt: {vacuum[0]} vacuums, {vacuum[1]} analyzes, {vacuum[2]} "
          f"dead rows, {vacuum[3]} in all at the end")


if __name__ == "__main__":
    main()
