"""kill -9 right after a PUBACK: every acknowledged message is a row after the restart.

CRASH_ROUNDS (50) rounds with one server; CRASH_SEED repeats a run. In even rounds all processes are
killed at once, in odd ones only the postmaster, which its children then have to notice.
"""

import os
import random

import pytest

from harness.server import Server
from ledger import Ledger

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.randrange(1, 10**6)


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def add_ledger(server):
    server.psql("""
        CREATE TABLE ledger (n int);
        SELECT pgmqtt.add_sink('ledger', 'ledger/{n}',
            'INSERT INTO ledger SELECT n::int FROM msg');""")


def test_an_acknowledged_message_is_a_row(server):
    rows_survive(server, ROUNDS)


def test_also_without_synchronous_commit():
    """What a power cut may take then, kill -9 may not."""
    with Server({"synchronous_commit": "off"}) as server:
        rows_survive(server, max(4, ROUNDS // 4))


def rows_survive(server, rounds):
    add_ledger(server)
    dice = random.Random(SEED)
    acknowledged, first = set(), 0
    for round_number in range(rounds):
        ledger = Ledger(server.mqtt_port, "ledger", first)
        ledger.run(dice.randrange(1, 400))
        server.kill9(everyone=round_number % 2 == 0)
        acknowledged |= ledger.finish()
        first += 100000
        server.start()
        rows = [int(row) for row in server.psql("SELECT n FROM ledger").split()]
        lost = acknowledged - set(rows)
        assert not lost, f"round {round_number}, CRASH_SEED={SEED}: {len(lost)} lost of " \
                         f"{len(acknowledged)}: {sorted(lost)[:10]}"
    assert len(acknowledged) >= rounds
    print(f"\n{rounds} kills, {len(acknowledged)} acknowledged, {len(rows)} rows of "
          f"{len(set(rows))} messages, 0 acknowledged lost (CRASH_SEED={SEED})")


def test_committed_rows_are_published_after_the_kill(server):
    """The other direction: each committed row is a retained message when the server is back."""
    server.psql("CREATE TABLE out_row (n int PRIMARY KEY); SELECT pgmqtt.add_mapping('out', 'out_row', "
                "$$'out/' || new.n$$, $$new.n::text$$, retain => true)")
    dice = random.Random(SEED)
    committed = 0
    for round_number in range(max(2, ROUNDS // 4)):
        cursor = server.connect().cursor()
        for _ in range(dice.randrange(1, 100)):
            cursor.execute("INSERT INTO out_row VALUES (%s)", (committed,))
            committed += 1
        server.kill9(everyone=round_number % 2 == 0)
        server.start()
        missing = subscribed_until_complete(server, set(range(committed)))
        assert not missing, f"round {round_number}, CRASH_SEED={SEED}: {sorted(missing)[:10]}"
    print(f"\n{committed} committed rows, 0 messages missing (CRASH_SEED={SEED})")


def subscribed_until_complete(server, wanted):
    from harness.rawmqtt import RawClient

    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.send_subscribe("out/+", 0)
        missing = set(wanted)
        try:
            while missing:
                packet = client.receive(timeout=20)
                if packet.type == 3:
                    missing.discard(int(packet.payload))
        except TimeoutError:
            pass
        return missing
