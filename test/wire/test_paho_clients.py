"""paho for Python beyond publish and subscribe."""

import os
import queue
import socket

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from harness.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.protocol
DEADLINE = 20 * PATIENCE
VERSIONS = pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5], ids=["3.1.1", "5.0"])


class Application:
    """A paho client on its own thread; all that it hears is in queues."""

    def __init__(self, port, version, client_id="", lasting=False, will=None):
        clean = {"clean_session": not lasting} if version != paho.MQTTv5 else {}
        self.client = paho.Client(client_id=client_id, protocol=version, **clean)
        self.messages, self.connected = queue.Queue(), queue.Queue()
        self.subscribed = queue.Queue()
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.on_connect = lambda *args: self.connected.put(args[2]["session present"])
        self.client.on_subscribe = lambda *args: self.subscribed.put(args[3])
        if will is not None:
            self.client.will_set(will, "gone", qos=1)
        options = {}
        if version == paho.MQTTv5:
            options["clean_start"] = not lasting
            if lasting:
                options["properties"] = Properties(PacketTypes.CONNECT)
                options["properties"].SessionExpiryInterval = 300
        self.client.connect("127.0.0.1", port, **options)
        self.client.loop_start()
        self.session_present = self.connected.get(timeout=DEADLINE)

    def subscribe(self, topic_filter, qos=1):
        self.client.subscribe(topic_filter, qos)
        self.subscribed.get(timeout=DEADLINE)

    def publish(self, topic, payload, qos=1, **options):
        info = self.client.publish(topic, payload, qos, **options)
        info.wait_for_publish(DEADLINE)
        assert info.is_published()

    def get(self):
        return self.messages.get(timeout=DEADLINE)

    def break_connection(self):
        self.client.loop_stop()
        self.client.socket().shutdown(socket.SHUT_RDWR)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def application(broker):
    made = []

    def start(*arguments, **options):
        made.append(Application(broker.mqtt_port, *arguments, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


@VERSIONS
def test_a_will_comes_when_the_connection_breaks(application, topic, version):
    watcher = application(version)
    watcher.subscribe(topic)
    application(version, will=topic).break_connection()
    assert watcher.get().payload == b"gone"


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_persistent_session_waits(application, topic, version, qos):
    client_id = f"paho {topic}"
    first = application(version, client_id, lasting=True)
    assert not first.session_present
    first.subscribe(topic, qos)
    first.close()
    application(version).publish(topic, "queued", qos)
    again = application(version, client_id, lasting=True)
    assert again.session_present
    message = again.get()
    assert (message.payload, message.qos) == (b"queued", qos)


@VERSIONS
def test_a_shared_subscription_divides_the_work(application, topic, version):
    members = [application(version) for _ in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{topic}")
    publisher = application(version)
    for number in range(10):
        publisher.publish(topic, str(number))
    wait_for(lambda: sum(member.messages.qsize() for member in members) == 10, "all work is taken")
    assert all(member.messages.qsize() for member in members)


def test_properties_and_the_answer_to_a_request(application, topic):
    asking, answering = application(paho.MQTTv5), application(paho.MQTTv5)
    asking.subscribe(f"{topic}/answer")
    answering.subscribe(topic)
    sent = Properties(PacketTypes.PUBLISH)
    sent.PayloadFormatIndicator = 1
    sent.ContentType = "text/plain"
    sent.ResponseTopic = f"{topic}/answer"
    sent.CorrelationData = b"\x00\x07"
    sent.UserProperty = [("b", "1"), ("a", "2"), ("b", "1")]
    asking.publish(topic, "question", properties=sent)
    got = answering.get().properties
    assert got.json() == sent.json()
    answer = Properties(PacketTypes.PUBLISH)
    answer.CorrelationData = got.CorrelationData
    answering.publish(got.ResponseTopic, "answer", properties=answer)
    message = asking.get()
    assert message.payload == b"answer"
    assert message.properties.CorrelationData == b"\x00\x07"


@VERSIONS
def test_a_large_payload_on_a_unicode_topic(application, topic, version):
    payload = os.urandom((1 << 20) - 1024)
    client = application(version)
    client.subscribe(f"{topic}/#")
    client.publish(f"{topic}/\u00fc/\U0001f680", payload)
    message = client.get()
    assert message.topic == f"{topic}/\u00fc/\U0001f680" and message.payload == payload


@VERSIONS
@pytest.mark.stricter
def test_topics_of_1000_levels_and_of_65535_bytes(application, topic, version):
    client = application(version)
    for name in (f"{topic}/" + "/".join(["l"] * 998), f"{topic}/".ljust(65535, "x")):
        client.subscribe(name)
        client.publish(name, "x")
        assert client.get().topic == name
