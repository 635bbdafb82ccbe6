"""kill -9 while QoS 1 and 2 publishers send into a persistent session (session_rounds.py).

CRASH_ROUNDS (50) rounds with one server; CRASH_SEED repeats a run. The postmaster is killed, with or
without its children, or the store or the broker worker, which makes the postmaster restart all; the
power is cut, which takes the unflushed WAL along; or the store worker alone is ended, which nobody may
notice.
"""

from harness.rawmqtt import RawClient
from harness.server import Server
from session_rounds import (ROUNDS, cut_power, end_store_worker, kill_everyone, kill_postmaster,
                            kill_worker, run_campaign)

DISASTERS = [kill_postmaster, kill_everyone, cut_power, kill_worker("pgmqtt store"),
             kill_worker("pgmqtt broker"), end_store_worker, cut_power]
ENDS_OF_PROCESSES = [kill_postmaster, kill_everyone, kill_worker("pgmqtt store"),
                     kill_worker("pgmqtt broker"), kill_worker("walwriter"), end_store_worker]


def test_acknowledged_messages_reach_a_persistent_session():
    run_campaign({}, DISASTERS, ROUNDS)


def test_async_loses_nothing_with_processes():
    """Whichever ends: the kernel has what was acknowledged."""
    run_campaign({"pgmqtt.durability": "async"}, ENDS_OF_PROCESSES, ROUNDS)


def test_without_synchronous_commit_nothing_is_lost_with_processes():
    """synchronous_commit = off takes the flush away from 'durable', and no more than that."""
    run_campaign({"synchronous_commit": "off"}, ENDS_OF_PROCESSES, max(6, ROUNDS // 4))


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
