"""The clients people have: mosquitto_pub and mosquitto_sub, paho, mqtt.js. All on 127.0.0.1."""

import json
import queue
import subprocess
import threading
from collections import namedtuple
from pathlib import Path

import paho.mqtt.client as paho

from harness.waiting import PATIENCE

Message = namedtuple("Message", "topic qos retain payload")
MQTTJS_SCRIPT = Path(__file__).resolve().parents[1] / "wire" / "mqttjs_client.js"
DEADLINE = 20.0


class Inbox:
    """Messages as they come in on another thread."""

    def __init__(self):
        self._queue = queue.Queue()

    def put(self, message):
        self._queue.put(message)

    def get(self, deadline=DEADLINE):
        try:
            return self._queue.get(timeout=deadline * PATIENCE)
        except queue.Empty:
            raise TimeoutError("no message came") from None

    def take(self, count, deadline=DEADLINE):
        return [self.get(deadline) for _ in range(count)]

    def payloads(self, count, deadline=DEADLINE):
        return [message.payload for message in self.take(count, deadline)]

    def empty(self):
        return self._queue.empty()


class _Process:
    """A client program whose standard output is read line by line."""

    def __init__(self, command):
        self.inbox = Inbox()
        self.errors = []
        self._ready = threading.Event()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self._threads = [threading.Thread(target=self._read, daemon=True),
                         threading.Thread(target=self._read_errors, daemon=True)]
        for thread in self._threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.line(line.rstrip("\n"))
        self._ready.set()  # ended; wait_ready tells

    def _read_errors(self):
        self.errors.extend(self.process.stderr)

    def line(self, text):
        raise NotImplementedError

    def ready(self):
        self._ready.set()

    def wait_ready(self):
        if not self._ready.wait(DEADLINE * PATIENCE) or self.process.poll() is not None:
            raise TimeoutError(f"{self.process.args[:4]} is not subscribed: {''.join(self.errors)}")
        return self

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()

    def __enter__(self):
        return self.wait_ready()

    def __exit__(self, *_):
        self.close()


class MosquittoSub(_Process):
    """mosquitto_sub; entered, it is subscribed. version: mqttv31, mqttv311, mqttv5."""

    MARK = "MESSAGE "

    def __init__(self, port, topic_filter, *more, version="mqttv5", qos=1):
        # -d tells when the SUBACK came, and only line buffering tells it in time.
        super().__init__(["stdbuf", "-oL", "mosquitto_sub", "-h", "127.0.0.1", "-p", str(port),
                          "-V", version, "-q", str(qos), "-t", topic_filter, "-d",
                          "-F", f"{self.MARK}%t|%q|%r|%p", *more])

    def line(self, text):
        if text.startswith(self.MARK):
            topic, qos, retain, payload = text[len(self.MARK):].split("|", 3)
            self.inbox.put(Message(topic, int(qos), retain == "1", payload))
        elif text.startswith("Subscribed"):
            self.ready()


def mosquitto_pub(port, topic, payload, *more, version="mqttv5", qos=1, retain=False):
    """Publishes with mosquitto_pub; returns the finished process, raises when it failed."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-V", version, "-q", str(qos),
               "-t", topic, *(["-n"] if payload is None else ["-m", payload]),
               *(["-r"] if retain else []), *more]
    return subprocess.run(command, check=True, text=True, capture_output=True,
                          timeout=DEADLINE * PATIENCE)


class Paho:
    """A paho client on its own thread; entered, it is connected."""

    def __init__(self, port, version=paho.MQTTv5, client_id="", **connect):
        clean = {} if version == paho.MQTTv5 else {"clean_session": True}
        self.client = paho.Client(client_id=client_id, protocol=version, **clean)
        self.inbox = Inbox()
        self._events = queue.Queue()
        self.disconnected = Inbox()
        self.client.on_connect = lambda *args: self._events.put(("connect", args[3]))
        self.client.on_subscribe = lambda *args: self._events.put(("subscribe", args[3]))
        self.client.on_disconnect = lambda *args: self.disconnected.put(args[2])
        self.client.on_message = lambda _client, _data, message: self.inbox.put(
            Message(message.topic, message.qos, bool(message.retain), message.payload.decode()))
        self.client.connect("127.0.0.1", port, **connect)
        self.client.loop_start()

    def _await(self, wanted):
        event, value = self._events.get(timeout=DEADLINE * PATIENCE)
        assert event == wanted
        return value

    def __enter__(self):
        code = self._await("connect")
        assert code == 0, f"CONNACK {code}"
        return self

    def subscribe(self, topic_filter, qos=1):
        self.client.subscribe(topic_filter, qos)
        return self._await("subscribe")

    def publish(self, topic, payload, qos=1, retain=False):
        info = self.client.publish(topic, payload, qos, retain)
        info.wait_for_publish(DEADLINE * PATIENCE)
        assert info.is_published()

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()


class MqttJs(_Process):
    """mqtt.js in node: subscribes, then says each message as a line of JSON."""

    def __init__(self, port, topic_filter, version=5, qos=1):
        super().__init__(["node", str(MQTTJS_SCRIPT), "sub", str(port), str(version), str(qos),
                          topic_filter])

    def line(self, text):
        said = json.loads(text)
        if said == "subscribed":
            self.ready()
        else:
            self.inbox.put(Message(said["topic"], said["qos"], said["retain"], said["payload"]))


def mqttjs_publish(port, topic, payload, version=5, qos=1, retain=False):
    subprocess.run(["node", str(MQTTJS_SCRIPT), "pub", str(port), str(version), str(qos), topic,
                    payload, str(int(retain))], check=True, timeout=DEADLINE * PATIENCE)
