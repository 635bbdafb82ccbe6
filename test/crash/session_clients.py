"""A publisher and a subscriber with persistent sessions that keep their side of QoS 1 and 2.

Both remember over reconnects what section 4.4 of MQTT 5.0 wants a client to remember, and write down
what was acknowledged and what arrived.
"""

import socket
import struct

from harness.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, frame, publish_frame
from harness.rawmqtt import Closed, RawClient
from harness.waiting import PATIENCE

NOT_FOUND = 0x92
FOR_EVER = {"session_expiry_interval": 0xFFFFFFFF}


def acknowledgement(packet_type, packet_id):
    return frame(packet_type, 2 if packet_type == PUBREL else 0, struct.pack(">H", packet_id))


class SessionClient:
    def __init__(self, client_id):
        self.client_id = client_id
        self._known = False
        self._client = None

    def connect(self, port):
        self._client = RawClient(port)
        connack = self._client.connect(self.client_id, clean=False, properties=FOR_EVER)
        assert connack.code == 0, connack
        assert connack.session_present or not self._known, f"session {self.client_id} is gone"
        self._known = True
        return self

    def run(self, wanted=lambda: True):
        """Until `wanted` says no, which is asked at every packet, or the broker is gone."""
        try:
            while wanted():
                self.handle(self._client.receive(timeout=30 * PATIENCE))
        except (Closed, OSError):
            pass
        self._client.close()

    def vanish(self):
        """From another thread: run() ends."""
        try:
            if self._client is not None:
                self._client.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def handle(self, packet):
        raise NotImplementedError


class Publisher(SessionClient):
    """Numbers its messages from 0 and keeps `window` of them unacknowledged; `size` pads them."""

    def __init__(self, client_id, qos, window=20, size=0, topic=None):
        super().__init__(client_id)
        self._topic = topic or f"crash/{client_id}"
        self._size = size
        self.acknowledged = set()
        self._qos = qos
        self._window = window
        self._number = 0
        self._open = {}  # packet identifier -> number, in order; None: PUBREC came

    def _send(self, packet_id, dup=False):
        number = self._open[packet_id]
        if number is None:
            return self._client.send(acknowledgement(PUBREL, packet_id))
        return self._client.send(publish_frame(self._topic, str(number).ljust(self._size),
                                               self._qos, packet_id=packet_id, dup=dup))

    def publish(self, more=True):
        """What is open again after a reconnect, then new messages, as many as the window takes."""
        try:
            for packet_id in self._open:
                self._send(packet_id, dup=True)
            while more and len(self._open) < self._window:
                self._publish_next()
        except OSError:
            pass
        self._more = more
        return self

    def _publish_next(self):
        packet_id = self._number % 65535 + 1
        self._open[packet_id] = self._number
        self._number += 1
        self._send(packet_id)

    def open(self):
        return len(self._open)

    def handle(self, packet):
        # A PUBREL that comes again finds nothing where only its PUBCOMP was lost.
        assert packet.code < 0x80 or (packet.type, packet.code) == (PUBCOMP, NOT_FOUND), packet
        number = self._open.get(packet.packet_id)
        if packet.type == PUBREC:
            if number is not None:
                self.acknowledged.add(number)
            self._open[packet.packet_id] = None
            return self._send(packet.packet_id)
        assert packet.type == (PUBACK if self._qos == 1 else PUBCOMP), packet
        del self._open[packet.packet_id]
        if self._qos == 1:
            self.acknowledged.add(number)
        return self._publish_next() if self._more else None


class Subscriber(SessionClient):
    """Notes the numbers that arrive, by publisher, in order."""

    def __init__(self, client_id, topic_filter):
        super().__init__(client_id)
        self.arrived = {}
        self._seen = {}  # the same as sets
        self._filter = topic_filter
        self._received = set()  # packet identifiers of QoS 2 whose PUBREL has not come

    def has_all(self, publisher):
        return publisher.acknowledged <= self._seen.get(publisher.client_id, set())

    def subscribe(self):
        assert self._client.subscribe(self._filter, 2).codes == b"\x02"
        return self

    def _note(self, packet):
        publisher, number = packet.topic.rpartition("/")[2], int(packet.payload)
        self.arrived.setdefault(publisher, []).append(number)
        self._seen.setdefault(publisher, set()).add(number)

    def handle(self, packet):
        if packet.type == PUBREL:
            self._received.discard(packet.packet_id)
            self._client.send(acknowledgement(PUBCOMP, packet.packet_id))
            return
        assert packet.type == PUBLISH, packet
        if packet.qos == 1:
            self._note(packet)
            self._client.send(acknowledgement(PUBACK, packet.packet_id))
            return
        if packet.packet_id not in self._received:
            self._received.add(packet.packet_id)
            self._note(packet)
        self._client.send(acknowledgement(PUBREC, packet.packet_id))
