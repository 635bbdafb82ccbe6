"""kill -9 while QoS 1 and 2 publishers send into a persistent session.

Every message that the broker acknowledged arrives, one of QoS 2 once, and in order. CRASH_ROUNDS (50)
rounds with one server; CRASH_SEED repeats a run. In every third round the subscriber is away, so that
its queue spans kills. The postmaster is killed, with or without its children, or the store or the broker
worker, which makes the postmaster restart all; the power is cut, which takes the unflushed WAL along; or
the store worker alone is ended, which nobody may notice.
"""

import os
import random
import signal
import threading

from harness.rawmqtt import RawClient
from harness.server import Server
from harness.waiting import wait_for
from session_clients import Publisher, Subscriber

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.randrange(1, 10**6)


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


def one_round(server, publishers, subscriber, dice, number):
    clients = [publisher.connect(server.mqtt_port).publish() for publisher in publishers]
    if number % 3 != 2:
        clients.append(subscriber.connect(server.mqtt_port))
    threads = Threads(*(client.run for client in clients))
    target = sum(len(publisher.acknowledged) for publisher in publishers) + dice.randrange(1, 600)

    def enough():
        acknowledged = sum(len(publisher.acknowledged) for publisher in publishers)
        return acknowledged >= target or threads.errors

    wait_for(enough, "acknowledgements", 60, every=0.001)
    DISASTERS[number % len(DISASTERS)](server)
    threads.join()
    if server.postmaster.poll() is not None:
        server.start()
    else:
        server.wait_for(server.answers, "the server is back", 60)
        server.wait_listening(60)


def kill_worker(name):
    def kill(server):
        os.kill(server.worker_pid(name), signal.SIGKILL)
    return kill


def end_store_worker(server):
    """Nobody else notices; then the server is killed after all."""
    before = server.worker_pid("pgmqtt store")
    server.psql(f"SELECT pg_terminate_backend({before})")
    server.wait_for(lambda: server.worker_pid("pgmqtt store") not in (None, before),
                    "the store worker is back")
    server.kill9()


DISASTERS = [Server.kill9, lambda server: server.kill9(everyone=True), Server.power_cut,
             kill_worker("pgmqtt store"), kill_worker("pgmqtt broker"), end_store_worker,
             Server.power_cut]


def drain(server, publishers, subscriber):
    """The rest is sent and acknowledged, and all of it arrives."""
    for publisher in publishers:
        publisher.connect(server.mqtt_port).publish(more=False)
        publisher.run(publisher.open)
        assert publisher.open() == 0, f"{publisher.client_id}: not all is acknowledged"
    missing = {}

    def incomplete():
        for publisher in publishers:
            arrived = subscriber.arrived.get(publisher.client_id, [])
            missing[publisher.client_id] = publisher.acknowledged - set(arrived)
        return any(missing.values())

    subscriber.connect(server.mqtt_port).run(incomplete)
    incomplete()
    return missing


def test_acknowledged_messages_reach_a_persistent_session():
    dice = random.Random(SEED)
    publishers = [Publisher("once-or-more", 1), Publisher("once", 2)]
    subscriber = Subscriber("subscriber", "crash/#")
    with Server() as server:
        subscriber.connect(server.mqtt_port).subscribe().run(lambda: False)
        for number in range(ROUNDS):
            one_round(server, publishers, subscriber, dice, number)
        missing = drain(server, publishers, subscriber)
    said = f"CRASH_SEED={SEED}"
    for publisher in publishers:
        name = publisher.client_id
        lost, arrived = missing[name], subscriber.arrived[name]
        assert not lost, f"{said}: {name}: {len(lost)} lost: {sorted(lost)[:10]}"
        assert in_order(arrived), f"{said}: {name}: order"
    once = subscriber.arrived["once"]
    assert len(once) == len(set(once)), f"{said}: {len(once) - len(set(once))} duplicates of QoS 2"
    print(f"\n{ROUNDS} kills, " + ", ".join(
        f"QoS {qos}: {len(publisher.acknowledged)} acknowledged, "
        f"{len(subscriber.arrived[publisher.client_id])} arrived"
        for qos, publisher in enumerate(publishers, 1))
        + f", 0 lost, 0 duplicates of QoS 2 ({said})")


def test_a_session_discarded_by_a_clean_start_stays_gone():
    """The CONNACK of a clean start promises it [MQTT-3.1.2-4]."""
    with Server() as server:
        for number in range(10):
            def connect(client_id, clean):
                client = RawClient(server.mqtt_port, 4)
                connack = client.connect(client_id, clean=clean)
                assert connack.code == 0
                return client, connack.session_present

            client, _ = connect(f"c{number}", False)
            client.subscribe("x/#", 1)
            client.vanish()
            client, present = connect(f"c{number}", False)
            assert present  # the premise
            client.vanish()
            client, present = connect(f"c{number}", True)
            assert not present
            server.kill9(everyone=True)
            client.vanish()
            server.start()
            client, present = connect(f"c{number}", False)
            assert not present
            client.vanish()
