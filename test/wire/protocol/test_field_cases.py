"""What made trouble in the field, scaled down: fights for an id, slow readers, dying workers."""

import json
import socket
import time

import pytest

from harness.packets import CONNACK, CONNECT, PUBLISH, connect_body, frame
from harness.rawmqtt import RawClient
from harness.waiting import wait_for

pytestmark = pytest.mark.protocol


@pytest.mark.stricter
@pytest.mark.parametrize("size", [1, 23, 24, 128, 129, 1024, 65535])
def test_client_ids_of_any_length(connected, size):
    connected(5, "i" * size).expect_nothing_before_ping()


@pytest.mark.stricter
def test_ids_that_look_alike_are_different_clients(connected):
    names = ["a/b", "a b", "a\nb", "A/B", "+", "#", "'; drop table t", "\U0001f680", "$share/a"]
    clients = [connected(5, name) for name in names]
    for client in clients:
        client.expect_nothing_before_ping()


def test_a_fight_for_a_client_id_brings_no_delayed_will(connected, lasting, topic, client_id):
    """Twenty take-overs: the newest wins each time, the session lives, nobody is called dead."""
    watcher = connected()
    watcher.subscribe(topic)
    will = {"topic": topic, "payload": "dead", "properties": {"will_delay_interval": 100}}
    older = lasting(5, client_id, will=will)
    for _ in range(20):
        newer = lasting(5, client_id, will=will)
        assert newer.connack.session_present
        older.expect_closed()
        older = newer
    older.expect_nothing_before_ping()
    watcher.expect_nothing_before_ping()


def test_a_client_with_a_buffer_of_256_bytes_survives_large_messages(connected, topic):
    client = connected(5, properties={"maximum_packet_size": 256})
    client.subscribe(f"{topic}/#")
    publisher = connected()
    publisher.publish(f"{topic}/bridge/devices", bytes(25000), 1)
    publisher.publish(f"{topic}/light", "on", 1)
    assert client.expect(PUBLISH).payload == b"on"
    client.expect_nothing_before_ping()


def test_a_retained_json_of_400_kb(connected, topic):
    devices = json.dumps([{"ieee": n, "model": "x" * 80} for n in range(4000)])
    assert len(devices) > 400000
    client = connected(4)
    client.publish(topic, devices, 1, retain=True)
    client.subscribe(topic)
    assert client.expect(PUBLISH).payload == devices.encode()


def test_a_slow_reader_gets_all_retained_messages_and_slows_nobody(broker, connected, topic):
    """3,000 discovery messages of 900 bytes to a reader with a small window that pauses."""
    publisher = connected()
    for first in range(0, 3000, 10):
        for number in range(first, first + 10):
            publisher.publish(f"{topic}/x{number}/config", b"c" * 900, 0, retain=True)
    publisher.expect_nothing_before_ping()
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.connect(("127.0.0.1", broker.mqtt_port))
        reader = RawClient(broker.mqtt_port, 4)
        reader.socket.close()
        reader.socket = small
        assert reader.connect("slow").code == 0
        reader.send_subscribe(f"{topic}/#")
        longest, seen = 0.0, set()
        while len(seen) < 3000:
            packet = reader.receive()
            if packet.type == PUBLISH:
                seen.add(packet.topic)
            if len(seen) % 300 == 1:  # the reader pauses; meanwhile another is served
                start = time.monotonic()
                publisher.expect_nothing_before_ping()
                longest = max(longest, time.monotonic() - start)
    assert longest < 1.0


@pytest.mark.stricter
def test_the_work_of_a_dead_worker_goes_to_the_others(connected, topic):
    """Four workers of both versions; one dies with ten unacknowledged messages in its hands."""
    share = f"$share/workers/{topic}"
    dying = connected()
    dying.subscribe(share, 1)
    publisher = connected()
    for number in range(10):
        publisher.publish(topic, str(number), 1)
    assert len(dying.until_ping()) == 10
    others = [connected(version) for version in (4, 5, 4)]
    for other in others:
        other.subscribe(share, 1)
    dying.vanish()
    for number in range(10, 30):
        publisher.publish(topic, str(number), 1)
    done = []

    def all_done():
        for other in others:
            done.extend(int(other.accept(packet).payload) for packet in other.until_ping())
        return len(done) >= 30

    wait_for(all_done, "all work is done")
    assert sorted(done) == list(range(30))


@pytest.mark.stricter
def test_a_bridge_tries_its_own_level_first(raw):
    """Level 0x84 (3.1.1 with the bridge bit) is answered 0x01; then it comes with level 4."""
    client = raw(4)
    client.send(frame(CONNECT, 0, b"\x00\x04MQTT\x84\x02\x00\x3c\x00\x06bridge"))
    packets = client.expect_closed()
    assert [(packet.type, packet.code) for packet in packets] == [(CONNACK, 1)]
    again = raw(4)
    again.send(frame(CONNECT, 0, connect_body("bridge", 4, will={
        "topic": "$SYS/broker/connection/x/state", "payload": "0", "retain": True})))
    assert again.expect(CONNACK).code == 0
    again.publish("$SYS/broker/connection/x/state", "1", 1, retain=True)
    again.expect_nothing_before_ping()
