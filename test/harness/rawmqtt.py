"""A small MQTT client over a plain socket, for what real clients will not say or show.

It sends what it is told, right or wrong, and returns the packets it gets as they came.
"""

import json
import socket
import struct
import time

from harness.packets import (CONNACK, CONNECT, DISCONNECT, PINGREQ, PINGRESP, PUBACK, PUBCOMP,
                             PUBLISH, PUBREC, PUBREL, SUBACK, SUBSCRIBE, UNSUBACK, UNSUBSCRIBE,
                             connect_body, decode, encode_binary, encode_properties, frame,
                             publish_frame)
from harness.waiting import PATIENCE


class Closed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection. Packets come out of receive() in the order they arrived."""

    def __init__(self, port, version=5, timeout=10.0):
        self.version = version
        self.timeout = timeout * PATIENCE
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=self.timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._packets = []
        self._next_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def next_id(self):
        self._next_id = self._next_id % 65535 + 1
        return self._next_id

    def receive(self, timeout=None):
        """The next packet; Closed when the broker hung up, TimeoutError when nothing came."""
        if self._packets:
            return self._packets.pop(0)
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            packet = self._take_packet()
            if packet is not None:
                return packet
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("no packet came")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed()
            self._buffer += data

    def _take_packet(self):
        size = shift = 0
        for at in range(1, 5):
            if at >= len(self._buffer):
                return None
            size |= (self._buffer[at] & 127) << shift
            shift += 7
            if not self._buffer[at] & 128:
                break
        start = at + 1
        if len(self._buffer) < start + size:
            return None
        head, body = self._buffer[0], self._buffer[start:start + size]
        self._buffer = self._buffer[start + size:]
        return decode(head >> 4, head & 15, body, self.version)

    def expect(self, packet_type, timeout=None):
        packet = self.receive(timeout)
        assert packet.type == packet_type, f"wanted packet type {packet_type}, got {packet}"
        return packet

    def expect_closed(self, timeout=None):
        """Reads until the broker hangs up; returns the packets that came before."""
        packets = []
        try:
            while True:
                packets.append(self.receive(timeout))
        except Closed:
            return packets

    def expect_nothing_before_ping(self):
        """A round trip in which only the PINGRESP comes: nothing was on its way before it."""
        self.send(frame(PINGREQ, 0, b""))
        self.expect(PINGRESP)

    # ---- the usual exchanges ----

    def connect(self, client_id="", **options):
        self.send(frame(CONNECT, 0, connect_body(client_id, self.version, **options)))
        return self.expect(CONNACK)

    def subscribe_all(self, *pairs):
        """One SUBSCRIBE with several (filter, options)."""
        body = struct.pack(">H", self.next_id()) + (b"\0" if self.version == 5 else b"")
        for topic_filter, options in pairs:
            body += encode_binary(topic_filter) + bytes([options])
        self.send(frame(SUBSCRIBE, 2, body))
        return self.expect(SUBACK)

    def subscribe(self, topic_filter, options=0, properties=None):
        self.send_subscribe(topic_filter, options, properties)
        return self.expect(SUBACK)

    def send_subscribe(self, topic_filter, options=0, properties=None):
        body = struct.pack(">H", self.next_id())
        if self.version == 5:
            body += encode_properties(properties)
        self.send(frame(SUBSCRIBE, 2, body + encode_binary(topic_filter) + bytes([options])))

    def unsubscribe(self, *topic_filters):
        body = struct.pack(">H", self.next_id()) + (b"\0" if self.version == 5 else b"")
        self.send(frame(UNSUBSCRIBE, 2, body + b"".join(map(encode_binary, topic_filters))))
        return self.expect(UNSUBACK)

    def publish(self, topic, payload=b"", qos=0, retain=False, properties=None):
        """Sends; with QoS 1 also awaits and returns the PUBACK."""
        packet_id = self.next_id() if qos else 0
        self.send(publish_frame(topic, payload, qos, retain, packet_id, version=self.version,
                                properties=properties))
        if qos == 1:
            ack = self.expect(PUBACK)
            assert ack.packet_id == packet_id
            return ack
        return None

    def puback(self, packet_id):
        self.send_ack(PUBACK, packet_id)

    def send_ack(self, packet_type, packet_id, code=None, properties=None):
        """PUBACK, PUBREC, PUBREL or PUBCOMP; with a code in the long form of 5.0."""
        body = struct.pack(">H", packet_id)
        if code is not None:
            body += bytes([code]) + (encode_properties(properties) if properties else b"")
        self.send(frame(packet_type, 2 if packet_type == PUBREL else 0, body))

    def publish_twice_acknowledged(self, topic, payload=b"", **options):
        """QoS 2 from PUBLISH to PUBCOMP; returns the PUBREC."""
        packet_id = self.next_id()
        self.send(publish_frame(topic, payload, 2, packet_id=packet_id, version=self.version,
                                **options))
        received = self.expect(PUBREC)
        assert received.packet_id == packet_id
        if received.code < 0x80:
            self.send_ack(PUBREL, packet_id)
            assert self.expect(PUBCOMP).packet_id == packet_id
        return received

    def accept(self, packet):
        """Answers a PUBLISH as its QoS asks, to the end."""
        assert packet.type == PUBLISH, packet
        if packet.qos == 1:
            self.send_ack(PUBACK, packet.packet_id)
        elif packet.qos == 2:
            self.send_ack(PUBREC, packet.packet_id)
            earlier = []  # what came on its way is received again, later
            while (other := self.receive()).type != PUBREL or other.packet_id != packet.packet_id:
                earlier.append(other)
            self._packets[:0] = earlier
            self.send_ack(PUBCOMP, packet.packet_id)
        return packet

    def message(self):
        """The next PUBLISH packet, accepted."""
        return self.accept(self.expect(PUBLISH))

    def json_message(self):
        """Its topic, and what its payload says."""
        packet = self.message()
        return packet.topic, json.loads(packet.payload)

    def messages(self, count):
        """The next PUBLISH packets, each accepted."""
        return [self.message() for _ in range(count)]

    def until_ping(self):
        """The packets that come before the answer to a PINGREQ."""
        self.send(frame(PINGREQ, 0, b""))
        packets = []
        while (packet := self.receive()).type != PINGRESP:
            packets.append(packet)
        return packets

    def disconnect(self):
        self.send(frame(DISCONNECT, 0, b""))
        self.close()

    def leave(self, code=None, properties=None):
        """DISCONNECT; back when the broker has closed, so that it knows. Returns what came before."""
        body = b"" if code is None else bytes([code]) + encode_properties(properties)
        self.send(frame(DISCONNECT, 0, body))
        return self.expect_closed()

    def vanish(self):
        """Ends without DISCONNECT; back when the broker has closed, too."""
        self.socket.shutdown(socket.SHUT_WR)
        return self.expect_closed()
