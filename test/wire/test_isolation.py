"""What the database is busy with does not reach those who do not wait for it.

While an internal table is locked, or the disk is flooded by CHECKPOINTs, QoS 0 goes on and no keep
alive is missed; what has to be stored in the locked table is acknowledged after the unlock.
"""

import time

import pytest

from harness.hindrances import TABLES, CheckpointFlood, KeptAlive, Lock
from harness.packets import CONNACK, CONNECT, PUBACK, PUBLISH, connect_body, frame, publish_frame
from harness.rawmqtt import RawClient
from harness.server import Server

EXPIRY = {"session_expiry_interval": 3600}


@pytest.fixture(scope="module")
def server():
    with Server(conf={"fsync": "on"}) as running:
        yield running


@pytest.fixture
def bystanders(server, topic):
    """turn() is a round trip at QoS 0; all that need no table stay connected."""
    kept = KeptAlive(server.mqtt_port)
    kept.start()
    publisher = RawClient(server.mqtt_port)
    publisher.connect()
    subscriber = RawClient(server.mqtt_port)
    subscriber.connect(f"{topic}-online", clean=True, properties=EXPIRY)
    subscriber.subscribe(f"{topic}/fast", 1)
    numbers = iter(range(1 << 30))

    def turn():
        payload = str(next(numbers)).encode()
        publisher.publish(f"{topic}/fast", payload)
        assert subscriber.expect(PUBLISH).payload == payload

    turn.kept = kept
    turn()
    yield turn
    kept.finish()
    assert not kept.missed(), "a keep alive was missed"
    turn()  # also they are still there
    subscriber.leave(0, {"session_expiry_interval": 0})
    publisher.leave()


def ask(client, topic, what):
    """Asks for something that has to be stored in the locked table: the type of the answer."""
    if what == "session":
        client.send(frame(CONNECT, 0, connect_body(f"{topic}-new", 5, clean=False,
                                                   properties=EXPIRY)))
        return CONNACK
    client.connect()
    if what == "queue":
        client.send(publish_frame(f"{topic}/away", b"x", 1, packet_id=1))
    else:
        client.send(publish_frame(f"{topic}/kept", b"x", 1, True, packet_id=1))
    return PUBACK


@pytest.mark.parametrize("what", TABLES)
def test_while_a_table_is_locked_others_go_on(server, topic, bystanders, what):
    away = RawClient(server.mqtt_port)
    away.connect(f"{topic}-away", clean=False, properties=EXPIRY)
    away.subscribe(f"{topic}/away", 1)
    away.leave()
    with Lock(server, TABLES[what]) as lock, RawClient(server.mqtt_port, timeout=60) as waiting:
        awaited = ask(waiting, topic, what)
        server.wait_for(lock.is_waited_for, "the store worker waits for the lock")
        # Longer than two and a half keep alives.
        pings = bystanders.kept.pings
        until = time.monotonic() + 4
        turns = 0
        while time.monotonic() < until or (bystanders.kept.pings < pings + 10
                                               and not bystanders.kept.closed):
            bystanders()
            turns += 1
            assert not bystanders.kept.missed()
        assert turns > 100
        server.wait_for(lock.is_waited_for, "the store worker stands before the lock")
        if what != "session":
            waiting.expect_nothing_before_ping()
        else:
            with pytest.raises(TimeoutError):
                waiting.receive(0.2)
        lock.connection.rollback()
        assert waiting.expect(awaited).code < 0x80
        bystanders()
    # And what was promised is there.
    if what == "queue":
        with RawClient(server.mqtt_port) as back:
            assert back.connect(f"{topic}-away", clean=False, properties=EXPIRY).session_present
            assert back.message().payload == b"x"
    elif what == "retained":
        assert server.psql("SELECT count(*) FROM pgmqtt.retained "
                           f"WHERE topic = '{topic}/kept'") == "1"
    else:
        assert server.psql("SELECT count(*) FROM pgmqtt.sessions "
                           f"WHERE client_id = '{topic}-new'") == "1"
    assert server.psql("SELECT keep_alive_timeouts FROM pgmqtt.stat_broker") == "0"


def test_a_lock_on_the_active_segments_is_passed_by(server, topic, bystanders):
    """Also QoS 1 goes on, as long as another segment is free."""
    away = RawClient(server.mqtt_port)
    away.connect(f"{topic}-away", clean=False, properties=EXPIRY)
    away.subscribe(f"{topic}/away", 1)
    away.leave()
    with RawClient(server.mqtt_port) as publisher:
        publisher.connect()
        assert publisher.publish(f"{topic}/away", b"1", 1).code < 0x80
        active = server.psql("SELECT tableoid::regclass FROM pgmqtt.queue_log "
                             "ORDER BY batch DESC LIMIT 1")
        with Lock(server, [active, active.replace("queue_", "message_")]):
            assert publisher.publish(f"{topic}/away", b"2", 1).code < 0x80
            bystanders()
    with RawClient(server.mqtt_port) as back:
        back.connect(f"{topic}-away", clean=False, properties=EXPIRY)
        assert [message.payload for message in back.messages(2)] == [b"1", b"2"]


def test_while_checkpoints_flood_the_disk_others_go_on(server, topic, bystanders):
    away = RawClient(server.mqtt_port)
    away.connect(f"{topic}-away", clean=False, properties=EXPIRY)
    away.subscribe(f"{topic}/away", 1)
    away.leave()
    turns = stored = 0
    with CheckpointFlood(server) as flood, RawClient(server.mqtt_port, timeout=60) as publisher:
        publisher.connect()
        server.wait_for(lambda: flood.checkpoints > 0 or flood.error, "the first CHECKPOINT")
        first = flood.checkpoints
        until = time.monotonic() + 4
        while time.monotonic() < until or flood.checkpoints < first + 5:
            assert flood.error is None, flood.error
            before = flood.checkpoints
            for _ in range(20):
                bystanders()
            turns += 20
            if flood.checkpoints != before:
                assert publisher.publish(f"{topic}/away", b"%d" % stored, 1).code < 0x80
                stored += 1
    assert turns > 100 and stored > 0
    with RawClient(server.mqtt_port) as back:
        back.connect(f"{topic}-away", clean=False, properties=EXPIRY)
        assert [int(message.payload) for message in back.messages(stored)] == list(range(stored))
    assert server.psql("SELECT keep_alive_timeouts FROM pgmqtt.stat_broker") == "0"
