"""$SYS/broker/... over the wire and in the database: mosquitto's names, and nothing stored."""

import subprocess
import time

import pytest

from harness.packets import PUBLISH
from harness.rawmqtt import RawClient

# What mosquitto 2.0 has and pgmqtt has too; the rest of mosquitto's are of bridges and threads.
NAMES = """version uptime clients/total clients/inactive clients/disconnected clients/active
clients/connected clients/maximum clients/expired messages/stored messages/received messages/sent
store/messages/count store/messages/bytes subscriptions/count shared_subscriptions/count
publish/messages/dropped publish/messages/received publish/messages/sent publish/bytes/received
publish/bytes/sent bytes/received bytes/sent heap/current heap/maximum""".split()
NAMES += ["retained messages/count"]
LOADS = "messages/received messages/sent publish/dropped publish/received publish/sent " \
        "bytes/received bytes/sent sockets connections"
NAMES += [f"load/{load}/{window}" for load in LOADS.split() for window in ("1min", "5min", "15min")]


@pytest.fixture
def fast(new_server):
    return new_server(conf={"pgmqtt.sys_interval": "200ms"}).start()


def test_mosquitto_sub_sees_every_name_at_once(server):
    done = subprocess.run(
        ["mosquitto_sub", "-p", str(server.mqtt_port), "-t", "$SYS/#", "-F", "%r %q %t",
         "-C", str(len(NAMES)), "-W", "20"], stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    assert sorted(lines) == sorted(f"1 0 $SYS/broker/{name}" for name in NAMES)


def test_values_come_each_interval_and_agree_with_stat_broker(fast):
    with RawClient(fast.mqtt_port) as client:
        client.connect("watcher")
        client.subscribe("$SYS/broker/clients/connected", 2)
        first = client.expect(PUBLISH)
        assert (first.topic, first.payload, first.retain, first.qos) == \
            ("$SYS/broker/clients/connected", b"1", True, 0)
        with RawClient(fast.mqtt_port) as other:
            other.connect("other")
            told = client.expect(PUBLISH)
            assert (told.payload, told.retain) == (b"2", False)
            assert fast.psql("SELECT clients, clients_maximum, sessions, accepted >= 2,"
                             " memory_maximum >= memory FROM pgmqtt.stat_broker") == "2|2|2|t|t"
        assert client.expect(PUBLISH).payload == b"1"


def test_nothing_is_stored(fast):
    with RawClient(fast.mqtt_port) as client:
        client.connect("a")
        client.subscribe("$SYS/broker/uptime", 1)
        client.messages(3)
        assert fast.psql("SELECT retained FROM pgmqtt.stat_broker") == "0"
        assert fast.psql("SELECT count(*) FROM pgmqtt.retained_message") == "0"
    assert fast.psql("SELECT count(*) FROM pgmqtt.message") == "0"


def test_a_reload_turns_it_off_and_on(fast):
    with RawClient(fast.mqtt_port) as client:
        client.connect("a")
        client.subscribe("$SYS/broker/uptime")
        client.messages(2)
        fast.configure(pgmqtt__sys_interval=0)
        fast.reload()
        fast.wait_for(lambda: fast.psql("SHOW pgmqtt.sys_interval") == "0", "the reload")
        # The broker may still say one more; then it is silent for several former intervals.
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                client.receive(timeout=1.5)
            except TimeoutError:
                break
        else:
            pytest.fail("still published")
        fast.configure(pgmqtt__sys_interval="200ms")
        fast.reload()
        client.messages(2)


def test_a_sink_that_names_it_stores_it(fast):
    fast.psql("CREATE TABLE sys (topic text, value text);"
              "SELECT pgmqtt.add_sink('sys', '$SYS/broker/{what}',"
              " 'INSERT INTO sys SELECT what, text FROM msg');"
              "CREATE TABLE everything (topic text);"
              "SELECT pgmqtt.add_sink('everything', '{all...}',"
              " 'INSERT INTO everything SELECT topic FROM msg')")
    fast.wait_for(lambda: fast.psql("SELECT count(DISTINCT value) >= 2 FROM sys"
                                    " WHERE topic = 'uptime'") == "t", "uptime goes on in a table")
    assert fast.psql("SELECT count(*) FROM sys WHERE topic = 'version'") == "1"
    assert fast.psql("SELECT count(*) FROM everything") == "0"
