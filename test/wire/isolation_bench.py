"""Prints how long a QoS 0 round trip takes while the database is busy with something else.

    /usr/bin/python3 test/wire/isolation_bench.py [SECONDS] [ROUNDS] [PEER_PORT]

Publish -> delivery to another client, one after the other: on a quiet server, while all of the queue's
tables are locked with a QoS 1 publish waiting for them, while CHECKPOINTs flood the disk, and the same with
the flood's processes on one CPU and the broker and its clients on the others ("apart": what is left
then is the disk's, the rest was the scheduler's); SECONDS (20) of each, in turn, ROUNDS (1) times;
then the ratios to quiet. With PEER_PORT, of another broker on this machine, quiet and flood through that
one, too: what it loses is the machine's, not ours. Asserts nothing but that nobody is
disconnected. A measurement, for people.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.hindrances import QUEUE, CheckpointFlood, KeptAlive, Lock  # noqa: E402
from harness.packets import PUBACK, PUBLISH, publish_frame  # noqa: E402
from harness.processes import children_of  # noqa: E402
from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server  # noqa: E402
from latency_bench import percentile  # noqa: E402

# What each is compared with.
BESIDE = {"lock": "quiet", "flood": "quiet", "apart flood": "apart", "peer flood": "peer"}


class Pair:
    """A publisher and a subscriber, at the pace of an idle machine."""

    def __init__(self, port):
        self.publisher, self.subscriber = RawClient(port), RawClient(port)
        for client in (self.publisher, self.subscriber):
            client.connect(keep_alive=0)
        self.subscriber.subscribe("fast")

    def times(self, seconds):
        times = []
        until = time.perf_counter() + seconds
        while (start := time.perf_counter()) < until:
            self.publisher.publish("fast", b"x" * 64)
            self.subscriber.expect(PUBLISH)
            times.append(time.perf_counter() - start)
            time.sleep(0.001)
        return times


def during_lock(server, pair, seconds):
    with Lock(server, QUEUE) as lock, RawClient(server.mqtt_port, 4, timeout=60) as waiting:
        waiting.connect()
        waiting.send(publish_frame("queued", b"x", 1, packet_id=1, version=4))
        server.wait_for(lock.is_waited_for, "the store worker waits for the lock")
        times = pair.times(seconds)
        lock.connection.rollback()
        waiting.expect(PUBACK)
    return times


def during_flood(server, pair, seconds):
    with CheckpointFlood(server) as flood:
        server.wait_for(lambda: flood.checkpoints > 0 or flood.error, "the first CHECKPOINT", 60)
        before = flood.checkpoints
        times = pair.times(seconds)
        print(f"  {flood.checkpoints - before} CHECKPOINTs")
    return times


class Apart:
    """While entered, PostgreSQL's other processes have one CPU, the broker and we have the others."""

    def __init__(self, server):
        self.server = server
        self.all = os.sched_getaffinity(0)
        self.theirs = {max(self.all)}

    def pin(self, theirs, ours):
        broker = int(self.server.worker_pid("pgmqtt broker"))
        postmaster = self.server.postmaster.pid
        for pid in [postmaster, *children_of(postmaster)]:  # whom it forks later inherits
            os.sched_setaffinity(pid, ours if pid == broker else theirs)
        os.sched_setaffinity(0, ours)

    def __enter__(self):
        self.pin(self.theirs, self.all - self.theirs or self.all)

    def __exit__(self, *_):
        self.pin(self.all, self.all)


def during_flood_apart(server, pair, seconds):
    with Apart(server):
        quiet = pair.times(seconds)
        return quiet, during_flood(server, pair, seconds)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    peer_port = int(sys.argv[3]) if len(sys.argv) > 3 else None
    found = {"quiet": [], "lock": [], "flood": [], "apart": [], "apart flood": []}
    if peer_port:
        found |= {"peer": [], "peer flood": []}
    with Server(conf={"fsync": "on"}) as server:
        with RawClient(server.mqtt_port, 4) as away:
            away.connect("away", clean=False)
            away.subscribe("queued", 1)
        kept = KeptAlive(server.mqtt_port)
        kept.start()
        pair = Pair(server.mqtt_port)
        pair.times(1)  # warm
        peer = Pair(peer_port) if peer_port else None
        for number in range(rounds):
            print(f"round {number + 1}", flush=True)
            found["quiet"] += pair.times(seconds)
            found["lock"] += during_lock(server, pair, seconds)
            found["flood"] += during_flood(server, pair, seconds)
            quiet, flood = during_flood_apart(server, pair, seconds)
            found["apart"] += quiet
            found["apart flood"] += flood
            if peer:
                found["peer"] += peer.times(seconds)
                found["peer flood"] += during_flood(server, peer, seconds)
        kept.finish()
    for what, times in found.items():
        quiet = found.get(BESIDE.get(what))
        p50, p99 = percentile(times, .5), percentile(times, .99)
        ratios = "".join(f", {p / percentile(quiet, share):.2f} x quiet"
                         for p, share in ((p50, .5), (p99, .99)) if quiet)
        print(f"{what}: p50 {p50:.3f} ms, p99 {p99:.3f} ms, max {max(times) * 1000:.1f} ms "
              f"({len(times)} times){ratios}")
    print(f"a client with a keep alive of 1 s: {kept.pings} PINGREQs, at most "
          f"{kept.longest_wait * 1000:.0f} ms for a PINGRESP")
    assert not kept.missed(), "a keep alive was missed"


if __name__ == "__main__":
    main()
