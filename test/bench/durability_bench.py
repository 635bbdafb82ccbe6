"""What each value of pgmqtt.durability costs: python3 durability_bench.py [messages [rounds]]

Per value: queueing into ten sessions that are away (build/loadtest, QoS 1), the WAL and the transactions
of that; then one message at a time. Rounds take turns. For people: asserts nothing.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.packets import PUBACK, publish_frame  # noqa: E402
from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server  # noqa: E402

LOADTEST = Path(__file__).resolve().parents[2] / "build" / "loadtest"
VALUES = ("durable", "async", "unlogged")
ONE_BY_ONE = 2000


def counters(server):
    lsn, xid = server.psql("SELECT pg_current_wal_insert_lsn() - '0/0', "
                           "pg_snapshot_xmax(pg_current_snapshot())").split("|")
    return int(lsn), int(xid)


def since(server, before):
    after = counters(server)
    return after[0] - before[0], after[1] - before[1]


def queue(server, messages):
    before = counters(server)
    done = subprocess.run(
        [str(LOADTEST), "offline", "--port", str(server.mqtt_port), "--messages", str(messages),
         "--window", "1000", "--quiet", "--json", "-"], check=True, stdout=subprocess.PIPE, text=True)
    wal, transactions = since(server, before)
    return json.loads(done.stdout.splitlines()[-1]), wal, transactions


def one_by_one(server):
    with RawClient(server.mqtt_port) as away:
        away.connect("away", clean=False, properties={"session_expiry_interval": 3600})
        away.subscribe("one", 1)
        away.leave()
    times = []
    before = counters(server)
    with RawClient(server.mqtt_port) as client:
        client.connect()
        for number in range(ONE_BY_ONE):
            start = time.perf_counter()
            client.send(publish_frame("one", "x" * 64, 1, packet_id=number + 1))
            client.expect(PUBACK)
            times.append((time.perf_counter() - start) * 1000)
    wal, transactions = since(server, before)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100], wal / max(1, transactions)


def find(record, name):
    """A field of loadtest's JSON, wherever it stands."""
    if isinstance(record, dict):
        for key, value in record.items():
            if key == name:
                return value
            found = find(value, name)
            if found is not None:
                return found
    return None


def main():
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rates = {value: [] for value in VALUES}
    for number in range(1, rounds + 1):
        for value in VALUES:
            with Server({"pgmqtt.durability": value, "pgmqtt.max_inflight": 1000,
                         "max_wal_size": "8GB", "shared_buffers": "256MB"}) as server:
                record, wal, transactions = queue(server, messages)
                p50, p99, per_message = one_by_one(server)
            rate = find(record, "queue_rate")
            rates[value].append(rate)
            print(f"{number} {value}: {rate:,.0f} messages/s queued; with the drain {transactions} "
                  f"transactions, {wal / max(1, transactions):,.0f} bytes of WAL each; one by one p50 "
                  f"{p50:.2f} ms, p99 {p99:.2f} ms, {per_message:,.0f} bytes of WAL each", flush=True)
    for value in VALUES:
        print(f"{value}: median {statistics.median(rates[value]):,.0f} messages/s")


if __name__ == "__main__":
    main()
