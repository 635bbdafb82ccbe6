"""The disk is full for a while: acknowledgements wait, the rest goes on, nothing is lost.

disk_full.c, preloaded into the server, makes tables and indexes refuse to grow while a file exists. (A full
disk under pg_wal ends the server itself: PostgreSQL promises nothing else.)
"""

import os
import subprocess
from pathlib import Path

import pytest

from harness.packets import PUBACK, PUBLISH, publish_frame
from harness.rawmqtt import RawClient
from harness.server import Server
from harness.waiting import wait_for

SOURCE = Path(__file__).with_name("disk_full.c")
SIZE = 8000
FULL = "pgmqtt store could not write"
AGAIN = "pgmqtt store can write again"
REFUSED = 0x97


class Disk:
    def __init__(self, server):
        self.server = server
        library = server.directory / "disk_full.so"
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", str(library),
                        str(SOURCE), "-ldl"], check=True)
        self._trigger = server.directory / "disk-is-full"
        server.variables.update(LD_PRELOAD=str(library), PGMQTT_TEST_DISK_FULL=str(self._trigger))

    def fill(self):
        self._trigger.touch()
        with pytest.raises(RuntimeError, match="No space left on device"):
            self.server.psql("CREATE TABLE IF NOT EXISTS grows (n int); "
                             "INSERT INTO grows SELECT generate_series(1, 100000)")

    def free(self):
        self._trigger.unlink()


@pytest.fixture
def disk():
    server = Server({"pgmqtt.store_timeout": "2s", "pgmqtt.max_queued_bytes": "1GB"})
    disk = Disk(server)
    with server:
        yield disk


def subscribed(server, client_id, topic_filter):
    client = RawClient(server.mqtt_port, timeout=30)
    client.connect(client_id, clean=False, properties={"session_expiry_interval": 3600})
    assert client.subscribe(topic_filter, 1).codes == b"\x01"
    return client


def messages(topic, numbers, version):
    padding = "." * (SIZE - 8)
    return b"".join(publish_frame(topic, f"{number:08d}{padding}", 1, packet_id=number + 1,
                                  version=version) for number in numbers)


def acknowledged(client, count, timeout=30):
    return [client.expect(PUBACK, timeout) for _ in range(count)]


def drain(server, client_id):
    client = RawClient(server.mqtt_port, timeout=30)
    assert client.connect(client_id, clean=False,
                          properties={"session_expiry_interval": 3600}).session_present
    taken = []
    try:
        while True:
            packet = client.receive(timeout=3)
            if packet.type == PUBLISH:
                taken.append(int(packet.payload[:8]))
                client.puback(packet.packet_id)
    except TimeoutError:
        client.close()
        return taken


def test_acknowledgements_wait_for_space(disk):
    server = disk.server
    subscribed(server, "away", "queued").leave()
    store = server.worker_pid("pgmqtt store")
    patient = RawClient(server.mqtt_port, 4, timeout=30)
    patient.connect("patient")
    refused = RawClient(server.mqtt_port, 5, timeout=30)
    refused.connect("refused")
    watcher = RawClient(server.mqtt_port)
    watcher.connect()
    watcher.subscribe("live")
    patient.send(messages("queued", range(10), 4))
    acknowledged(patient, 10)
    disk.fill()
    patient.send(messages("queued", range(10, 50), 4))
    server.wait_for(lambda: FULL in server.log_text(), "a line in the log")
    early = len(patient.until_ping())  # what still fitted
    assert early < 40
    refused.send(messages("queued", [50], 5))
    assert refused.expect(PUBACK).code == REFUSED  # after store_timeout
    watcher.publish("live", "x", 0)
    assert watcher.expect(PUBLISH).payload == b"x"
    # It has tried more than once by now.
    assert server.log_text().count(FULL) == 1
    disk.free()
    acknowledged(patient, 40 - early)
    server.wait_for(lambda: AGAIN in server.log_text(), "a line in the log")
    assert server.worker_pid("pgmqtt store") == store, "it was there all the time"
    assert server.log_text().count(FULL) == server.log_text().count(AGAIN) == 1
    server.kill9(everyone=True)
    server.start()
    assert [number for number in drain(server, "away") if number < 50] == list(range(50))


def test_a_sink_waits_for_space(disk):
    server = disk.server
    server.psql("""CREATE TABLE full_row (n int, padding text);
        SELECT pgmqtt.add_sink('full', 'sunk', 'INSERT INTO full_row SELECT left(text, 8)::int, text
            FROM msg');""")
    publisher = RawClient(server.mqtt_port, 4, timeout=60)
    publisher.connect("publisher")
    publisher.send(messages("sunk", range(5), 4))
    acknowledged(publisher, 5)
    disk.fill()
    publisher.send(messages("sunk", range(5, 100), 4))
    wait_for(lambda: server.psql("SELECT status FROM pgmqtt.sinks") == "waiting", "the sink waits")
    disk.free()
    acknowledged(publisher, 95, timeout=60)
    assert server.psql("SELECT count(*), count(DISTINCT n) FROM full_row") == "100|100"
    assert server.psql("SELECT count(*) FROM pgmqtt.dead_letter") == "0"


def test_a_commit_is_published_while_the_disk_is_full(disk):
    """publish() fails in its caller; what a mapping publishes at QoS 0 goes on."""
    server = disk.server
    server.psql("CREATE TABLE small (n int PRIMARY KEY); INSERT INTO small VALUES (1); "
                "SELECT pgmqtt.add_mapping('small', 'small', $$'small'$$, 'new.n::text', qos => 0)")
    watcher = RawClient(server.mqtt_port)
    watcher.connect()
    watcher.subscribe("small")
    disk.fill()
    server.psql("UPDATE small SET n = 2")
    assert watcher.expect(PUBLISH).payload == b"2"
    disk.free()
