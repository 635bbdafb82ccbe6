"""Prints how long a committed row takes to its subscriber: commit returned -> PUBLISH read.

    /usr/bin/python3 test/wire/latency_bench.py [ROWS]
Also from the INSERT's start, for the whole way as an application sees it; and how long a message for a
session that is away takes to be acknowledged, beside an fdatasync() of 8 kB. Asserts nothing.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server  # noqa: E402


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


def say(what, values):
    print(f"{what}: p50 {percentile(values, .5):.2f} ms, p99 {percentile(values, .99):.2f} ms, "
          f"max {max(values) * 1000:.2f} ms ({len(values)} times)")


def measure(cursor, client, statement, count):
    """Seconds from the commit's return, and from the statement's start, to the delivery."""
    after_commit, whole = [], []
    for n in range(count):
        start = time.perf_counter()
        cursor.execute(statement, (str(n),))
        committed = time.perf_counter()
        packet = client.expect(3)
        now = time.perf_counter()
        client.puback(packet.packet_id)
        assert packet.payload == str(n).encode()
        after_commit.append(now - committed)
        whole.append(now - start)
        time.sleep(0.002)  # the pace of an idle machine
    return after_commit, whole


def fdatasync_times(directory, count):
    times = []
    descriptor = os.open(directory / "fdatasync-test", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(16 << 20), 0)
    os.fsync(descriptor)
    for number in range(count):
        os.pwrite(descriptor, os.urandom(8192), number % 2048 * 8192)
        start = time.perf_counter()
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - start)
    os.close(descriptor)
    os.unlink(directory / "fdatasync-test")
    return times


def puback_times(server, client, count):
    """One message in flight, for a session that is away: each is committed and flushed."""
    with RawClient(server.mqtt_port, 4) as away:
        away.connect("away", clean=False)
        away.subscribe("queued", 1)
    times = []
    for number in range(count + 20):
        start = time.perf_counter()
        assert client.publish("queued", str(number), 1).code < 0x80
        if number >= 20:  # warm
            times.append(time.perf_counter() - start)
        time.sleep(0.002)
    return times


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with Server(conf={"fsync": "on"}) as server, RawClient(server.mqtt_port) as client:
        server.psql("CREATE TABLE t (v text);"
                    "SELECT pgmqtt.add_mapping('m', 't', $$'out'$$, $$new.v$$)")
        server.wait_for(lambda: server.psql("SELECT status FROM pgmqtt.mappings") == "streaming",
                        "the mapping streams")
        client.connect()
        client.subscribe("out", 1)
        cursor = server.connect().cursor()
        for what, statement in (("mapping", "INSERT INTO t VALUES (%s)"),
                                ("publish()", "SELECT pgmqtt.publish('out', %s::text, 1)")):
            measure(cursor, client, statement, 20)  # warm
            after_commit, whole = measure(cursor, client, statement, count)
            say(f"{what}, commit -> delivery", after_commit)
            say(f"{what}, statement -> delivery", whole)
        say("queued message -> PUBACK", puback_times(server, client, count))
        say("fdatasync of 8 kB", fdatasync_times(server.data, count))


if __name__ == "__main__":
    main()
