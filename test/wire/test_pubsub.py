"""Stock clients publish and subscribe, QoS 0 and 1, in every version they speak."""

import shutil
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from harness.clients import (Message, MosquittoSub, MqttJs, Paho, mosquitto_pub, mqttjs_publish)

pytestmark = pytest.mark.protocol
MQTTJS = Path(__file__).parent / "node_modules" / "mqtt"


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_mosquitto_clients(broker, topic, version, qos):
    with MosquittoSub(broker.mqtt_port, f"{topic}/#", version=version, qos=qos) as sub:
        mosquitto_pub(broker.mqtt_port, f"{topic}/a", "hello", version=version, qos=qos)
        assert sub.inbox.get() == Message(f"{topic}/a", qos, False, "hello")


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5],
                         ids=["3.1", "3.1.1", "5.0"])
def test_paho(broker, topic, version, qos):
    client_id = f"paho-{version}-{qos}"  # 3.1 has no empty client id
    with Paho(broker.mqtt_port, version, client_id) as client:
        client.subscribe(f"{topic}/+", qos)
        client.publish(f"{topic}/a", "hello", qos)
        assert client.inbox.get() == Message(f"{topic}/a", qos, False, "hello")


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])
def test_mqttjs(broker, topic, version, qos):
    assert shutil.which("node") and MQTTJS.exists(), "test/run.sh installs node and mqtt.js"
    with MqttJs(broker.mqtt_port, f"{topic}/#", version, qos) as sub:
        mqttjs_publish(broker.mqtt_port, f"{topic}/a", "hello", version, qos)
        assert sub.inbox.get() == Message(f"{topic}/a", qos, False, "hello")


def test_versions_meet(broker, topic):
    """A 3.1.1 publisher reaches a 5.0 subscriber and the other way round."""
    with MosquittoSub(broker.mqtt_port, topic, version="mqttv5") as new, \
            MosquittoSub(broker.mqtt_port, topic, version="mqttv311") as old:
        mosquitto_pub(broker.mqtt_port, topic, "from 3.1.1", version="mqttv311")
        mosquitto_pub(broker.mqtt_port, topic, "from 5.0", version="mqttv5")
        for sub in (new, old):
            assert sub.inbox.payloads(2) == ["from 3.1.1", "from 5.0"]


def test_delivery_qos_is_the_lower_of_both(raw, topic):
    client = raw()
    client.connect()
    client.subscribe(f"{topic}/0", 0)
    client.subscribe(f"{topic}/1", 1)
    other = raw()
    other.connect()
    for subscribed, published, delivered in ((0, 1, 0), (1, 0, 0), (1, 1, 1)):
        other.publish(f"{topic}/{subscribed}", "x", qos=published)
        packet = client.expect(3)
        assert packet.qos == delivered, f"subscribed {subscribed}, published {published}"
        if packet.qos:
            client.puback(packet.packet_id)


def test_one_publisher_is_heard_in_order(broker, raw, topic):
    sub, pub = raw(), raw()
    sub.connect()
    sub.subscribe(topic, 1)
    pub.connect()
    wanted = [str(n) for n in range(300)]
    for payload in wanted:
        pub.publish(topic, payload, qos=1)
    got = []
    while len(got) < len(wanted):
        packet = sub.expect(3)
        sub.puback(packet.packet_id)
        got.append(packet.payload.decode())
    assert got == wanted


def test_a_payload_is_bytes(raw, topic):
    payload = bytes(range(256)) * 300
    client = raw()
    client.connect()
    client.subscribe(topic, 1)
    client.publish(topic, payload)
    assert client.expect(3).payload == payload


def test_a_publish_carries_its_v5_properties(raw, topic):
    sent = {"payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "r/t",
            "correlation_data": b"\x00\x01",
            "user_property": [("a", "1"), ("b", "2"), ("a", "3")]}
    client = raw()
    client.connect()
    client.subscribe(topic)
    client.publish(topic, "x", properties=sent)
    assert client.expect(3).properties == sent


def test_unsubscribe_ends_delivery(raw, topic):
    client = raw()
    client.connect()
    client.subscribe(topic)
    client.publish(topic, "before")
    assert client.expect(3).payload == b"before"
    assert client.unsubscribe(topic).codes == b"\x00"
    client.publish(topic, "after")
    client.expect_nothing_before_ping()
    assert client.unsubscribe(topic).codes == b"\x11"  # no subscription existed
