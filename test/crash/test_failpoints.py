"""Each failpoint of src/pg/failpoint.cpp under load: what is acknowledged survives it.

One server for all of them. It is started with the failpoint armed, loaded until its log says that the
failpoint was reached, and when it is back everything is drained and checked. CRASH_ROUNDS (50): up to 8
only kill -9, which CI runs; beyond, an ERROR and an end of the worker, too; from 50 on each with
durability = async as well, at other hits.
"""

import random
import re
from pathlib import Path

import pytest

from harness.server import Server
from session_rounds import ROOM, ROUNDS, SEED
from whole_campaign import WholeCampaign

SOURCE = Path(__file__).resolve().parents[2] / "src/pg/failpoint.cpp"
NAMES = re.findall(r'"([a-z]+-[a-z-]+)"', re.search(r"kNames\[\] = \{(.*?)\};", SOURCE.read_text(
    encoding="utf8"), re.DOTALL)[1])
# Passed at the start.
AT_THE_START = {"store-load", "broker-load"}
# Needs segments of the queue that were full and are drained.
LARGE = {"store-truncate", "store-truncated", "store-move", "store-moved"}
# Passed a few times a second.
RARE = {"store-fetch", "cdc-evaluate", "cdc-publish", "cdc-confirm"}
RUNS = [(action, number) for number in range(max(1, ROUNDS // 25))
        for action in (("kill", "error", "exit") if ROUNDS > 8 else ("kill",))]


def test_there_are_failpoints():
    assert len(NAMES) >= 20 and AT_THE_START | LARGE <= set(NAMES)


@pytest.fixture(scope="module")
def campaign():
    with Server({**ROOM, "max_wal_size": "256MB"}) as server:
        yield WholeCampaign(server)


@pytest.mark.parametrize("action, number", RUNS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_acknowledged_is_lost(campaign, name, action, number):
    server = campaign.server
    dice = random.Random(f"{SEED} {name} {action} {number}")
    hit = 1 if name in AT_THE_START | LARGE else dice.randrange(1, 4 if name in RARE else 30)
    fired = f'failpoint "{name}" is reached: {action}'
    server.stop()
    server.configure(pgmqtt__durability="async" if number % 2 else "durable")
    before = len(server.log_text())

    def logged(line):
        return server.log_text()[before:].count(line)

    server.variables["PGMQTT_FAILPOINT"] = f"{name}:{hit}:{action}"
    server.start(wait=False)
    del server.variables["PGMQTT_FAILPOINT"]
    if name in AT_THE_START:
        server.wait_for(lambda: logged(fired), "the failpoint")
    else:
        campaign.recover()
        campaign.load_until(lambda: logged(fired), large=name in LARGE)
    # Clients that come back are not to meet a broker that is about to go.
    if action == "kill":
        server.wait_for(lambda: logged("reinitializing"), "the server notices")
    elif action == "exit" or name.startswith("broker"):
        server.wait_for(lambda: logged("exited with exit code 1"), "the server notices")
    campaign.recover()
    campaign.drain()
    campaign.check()
    assert logged(fired) == 1


def test_what_never_was_taken_is_still_there(campaign):
    campaign.take_what_is_stuck()


def test_a_name_that_does_not_exist_keeps_the_server_from_starting():
    server = Server()
    try:
        server.variables["PGMQTT_FAILPOINT"] = "store-typo"
        server.start(wait=False)
        server.wait_for(lambda: server.postmaster.poll() is not None, "the postmaster ends")
        assert "does not name a failpoint" in server.log_text()
    finally:
        server.remove()
