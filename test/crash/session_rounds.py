"""Rounds of publishers, a persistent subscriber and a disaster, and what must hold after them.

Every message that the broker acknowledged arrives, one of QoS 2 once, and in order. The clients keep
their side of QoS 1 and 2 over all rounds.
"""

import os
import random
import threading

from harness.server import Server
from harness.waiting import wait_for
from session_clients import Publisher, Subscriber

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.randrange(1, 10**6)
SAID = f"CRASH_SEED={SEED}"
# A subscriber that is slower than the publishers for hours: pgmqtt.queue_policy would take the oldest.
ROOM = {"pgmqtt.max_queued_messages": "100000000", "pgmqtt.max_queued_bytes": "100GB"}


class Threads:
    """Runs functions side by side; joined, it raises what one of them raised."""

    def __init__(self, *functions):
        self.errors = []
        self._threads = [threading.Thread(target=self._run, args=(function,), daemon=True)
                         for function in functions]
        for thread in self._threads:
            thread.start()

    def _run(self, function):
        try:
            function()
        except BaseException as error:
            self.errors.append(error)

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        if self.errors:
            raise self.errors[0]


def in_order(numbers):
    """Whether first arrivals are in order; QoS 1 may repeat."""
    first = list(dict.fromkeys(numbers))
    return first == sorted(first)


# ---- disasters ----

def kill_postmaster(server):
    server.kill9()


def kill_everyone(server):
    server.kill9(everyone=True)


def cut_power(server):
    server.power_cut()


def kill_worker(name):
    return lambda server: server.kill_worker(name)


def end_store_worker(server):
    """Nobody else notices; then the server is killed after all."""
    before = server.worker_pid("pgmqtt store")
    server.psql(f"SELECT pg_terminate_backend({before})")
    server.wait_for(lambda: server.worker_pid("pgmqtt store") not in (None, before),
                    "the store worker is back")
    server.kill9()


# ---- the rounds ----

class Campaign:
    """Some publishers and one subscriber over many rounds with one server."""

    def __init__(self, server, size=0):
        self.server = server
        self.publishers = [Publisher("once-or-more", 1, size=size), Publisher("once", 2, size=size)]
        self.subscriber = Subscriber("subscriber", "crash/#")
        self.subscriber.connect(server.mqtt_port).subscribe().run(lambda: False)

    def heard(self):
        """Who has a ledger of what the subscriber must get."""
        return self.publishers

    def acknowledged(self):
        return sum(len(publisher.acknowledged) for publisher in self.publishers)

    def load(self, away=False):
        """The clients at work; the subscriber, too, unless it is away."""
        clients = [publisher.connect(self.server.mqtt_port).publish()
                   for publisher in self.publishers]
        if not away:
            clients.append(self.subscriber.connect(self.server.mqtt_port))
        return Threads(*(client.run for client in clients))

    def round(self, disaster, acknowledgements, away=False):
        threads = self.load(away)
        target = self.acknowledged() + acknowledgements
        wait_for(lambda: self.acknowledged() >= target or threads.errors, "acknowledgements", 60,
                 every=0.001)
        disaster(self.server)
        threads.join()
        self.recover()

    def recover(self):
        if self.server.postmaster.poll() is not None:
            self.server.start()
            return
        self.server.wait_for(self.server.answers, "the server is back", 60)
        self.server.wait_listening(60)

    def drain(self):
        """The rest is sent and acknowledged, and all of it arrives."""
        for publisher in self.publishers:
            publisher.connect(self.server.mqtt_port).publish(more=False)
            publisher.run(publisher.open)
            assert publisher.open() == 0, f"{publisher.client_id}: not all is acknowledged"
        self.subscriber.connect(self.server.mqtt_port).run(
            lambda: not all(map(self.subscriber.has_all, self.heard())))

    def check(self):
        """After drain()."""
        for publisher in self.heard():
            name = publisher.client_id
            arrived = self.subscriber.arrived.get(name, [])
            lost = publisher.acknowledged - set(arrived)
            assert not lost, f"{SAID}: {name}: {len(lost)} lost: {sorted(lost)[:10]}"
            assert in_order(arrived), f"{SAID}: {name}: order"
        once = self.subscriber.arrived.get("once", [])
        doubled = len(once) - len(set(once))
        assert doubled == 0, f"{SAID}: {doubled} duplicates of QoS 2"

    def report(self, what):
        print(f"\n{what}, " + ", ".join(
            f"QoS {qos}: {len(publisher.acknowledged)} acknowledged, "
            f"{len(self.subscriber.arrived.get(publisher.client_id, []))} arrived"
            for qos, publisher in enumerate(self.publishers, 1))
            + f", 0 lost, 0 duplicates of QoS 2 ({SAID})")


def run_campaign(conf, disasters, rounds):
    """In every third round the subscriber is away, so that its queue spans disasters."""
    dice = random.Random(SEED)
    with Server({**ROOM, **conf}) as server:
        campaign = Campaign(server)
        for number in range(rounds):
            campaign.round(disasters[number % len(disasters)], dice.randrange(1, 600),
                           away=number % 3 == 2)
        campaign.drain()
        campaign.check()
        campaign.report(f"{rounds} disasters")
