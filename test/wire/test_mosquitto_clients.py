"""mosquitto_pub, mosquitto_sub and mosquitto_rr beyond publish and subscribe."""

import hashlib
import os
import signal
import subprocess

import pytest

from harness.clients import MosquittoSub, mosquitto_pub
from harness.waiting import PATIENCE

pytestmark = pytest.mark.protocol
VERSIONS = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
ODD_TOPIC = "\u00fcber/\u6771\u4eac/\U0001f680/a b"


def lasting(version):
    return ["-c", *(["-x", "300"] if version == "mqttv5" else [])]


def options(port, version="mqttv5"):
    return ["-h", "127.0.0.1", "-p", str(port), "-V", version]


@VERSIONS
def test_a_will_comes_when_the_client_is_killed(broker, topic, version):
    with MosquittoSub(broker.mqtt_port, f"{topic}/will", version=version) as watcher:
        will = ["--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", "1"]
        with MosquittoSub(broker.mqtt_port, f"{topic}/other", *will, version=version) as mortal:
            os.kill(mortal.process.pid, signal.SIGKILL)
        assert watcher.inbox.get().payload == "gone"


@VERSIONS
def test_a_persistent_session_waits(broker, topic, version):
    session = ["-i", f"{topic} {version}", *lasting(version)]
    with MosquittoSub(broker.mqtt_port, topic, *session, version=version, qos=2):
        pass  # subscribed, and killed
    for qos in (1, 2):
        mosquitto_pub(broker.mqtt_port, topic, f"queued {qos}", version=version, qos=qos)
    with MosquittoSub(broker.mqtt_port, topic, *session, version=version, qos=2) as again:
        assert again.inbox.payloads(2) == ["queued 1", "queued 2"]
        mosquitto_pub(broker.mqtt_port, topic, "live", version=version, qos=2)
        assert again.inbox.payloads(1) == ["live"]


@VERSIONS
def test_a_shared_subscription_divides_the_work(broker, topic, version):
    share = f"$share/workers/{topic}"
    with MosquittoSub(broker.mqtt_port, share, version=version) as one, \
            MosquittoSub(broker.mqtt_port, share, version=version) as two, \
            MosquittoSub(broker.mqtt_port, topic, version=version) as everything:
        jobs = [str(n) for n in range(10)]
        for job in jobs:
            mosquitto_pub(broker.mqtt_port, topic, job, version=version)
        assert everything.inbox.payloads(10) == jobs
        done = []
        while len(done) < 10:
            done += [inbox.get().payload for inbox in (one.inbox, two.inbox)]
        assert sorted(done, key=int) == jobs


def test_request_and_response(broker, topic):
    """mosquitto_rr asks, and takes the answer that comes to its response topic."""
    with MosquittoSub(broker.mqtt_port, f"{topic}/ask") as answering:
        asking = subprocess.Popen(
            ["mosquitto_rr", *options(broker.mqtt_port), "-q", "1", "-t", f"{topic}/ask", "-e",
             f"{topic}/answer", "-m", "question", "-W", "20"], stdout=subprocess.PIPE, text=True)
        assert answering.inbox.get().payload == "question"
        mosquitto_pub(broker.mqtt_port, f"{topic}/answer", "the answer")
        answer, _ = asking.communicate(timeout=30 * PATIENCE)
    assert answer.strip() == "the answer"


def test_properties_arrive_in_order(broker, topic):
    sent = ["-D", "publish", "content-type", "text/plain", "-D", "publish", "response-topic",
            f"{topic}/answer", "-D", "publish", "correlation-data", "number 7", "-D", "publish",
            "payload-format-indicator", "1"]
    for name, value in (("b", "1"), ("a", "2"), ("b", "1")):
        sent += ["-D", "publish", "user-property", name, value]
    with MosquittoSub(broker.mqtt_port, topic, "-F", "MESSAGE %t|1|0|%C|%R|%D|%F|%P") as sub:
        mosquitto_pub(broker.mqtt_port, topic, "x", *sent)
        said = sub.inbox.get().payload
    assert said == f"text/plain|{topic}/answer|number 7|1|b:1 a:2 b:1"


@VERSIONS
def test_a_mebibyte_is_the_same_bytes(broker, topic, version, tmp_path):
    """A little below, so that the packet with its topic is not above what the server takes."""
    content = os.urandom((1 << 20) - 1024)
    source, target = tmp_path / "sent", tmp_path / "received"
    source.write_bytes(content)
    subprocess.run(["mosquitto_pub", *options(broker.mqtt_port, version), "-q", "1", "-r", "-t",
                    topic, "-f", str(source)], check=True, timeout=30 * PATIENCE)
    with open(target, "wb") as output:
        subprocess.run(["mosquitto_sub", *options(broker.mqtt_port, version), "-q", "1", "-t",
                        topic, "-C", "1", "-N", "-W", "20"], stdout=output, check=True)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(content).digest()


@VERSIONS
def test_unicode_topics(broker, topic, version):
    with MosquittoSub(broker.mqtt_port, f"{topic}/+/\u6771\u4eac/#", version=version) as sub:
        mosquitto_pub(broker.mqtt_port, f"{topic}/{ODD_TOPIC}", "\u00fc", version=version)
        message = sub.inbox.get()
    assert (message.topic, message.payload) == (f"{topic}/{ODD_TOPIC}", "\u00fc")
