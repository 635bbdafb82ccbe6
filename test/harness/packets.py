"""MQTT packets to bytes and back, written from the specification and not from pgmqtt's codec.

It encodes what it is told, right or wrong.
"""

import struct
from dataclasses import dataclass, field

(CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE,
 UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH) = range(1, 16)

# Section 2.2.2.2 of MQTT 5.0: identifier and type of each property.
PROPERTIES = {
    "payload_format_indicator": (0x01, "byte"), "message_expiry_interval": (0x02, "four"),
    "content_type": (0x03, "string"), "response_topic": (0x08, "string"),
    "correlation_data": (0x09, "binary"), "subscription_identifier": (0x0B, "varint"),
    "session_expiry_interval": (0x11, "four"), "assigned_client_identifier": (0x12, "string"),
    "server_keep_alive": (0x13, "two"), "authentication_method": (0x15, "string"),
    "authentication_data": (0x16, "binary"), "request_problem_information": (0x17, "byte"),
    "will_delay_interval": (0x18, "four"), "request_response_information": (0x19, "byte"),
    "response_information": (0x1A, "string"), "server_reference": (0x1C, "string"),
    "reason_string": (0x1F, "string"), "receive_maximum": (0x21, "two"),
    "topic_alias_maximum": (0x22, "two"), "topic_alias": (0x23, "two"),
    "maximum_qos": (0x24, "byte"), "retain_available": (0x25, "byte"),
    "user_property": (0x26, "pair"), "maximum_packet_size": (0x27, "four"),
    "wildcard_subscription_available": (0x28, "byte"),
    "subscription_identifier_available": (0x29, "byte"),
    "shared_subscription_available": (0x2A, "byte"),
}
NAMES = {identifier: (name, kind) for name, (identifier, kind) in PROPERTIES.items()}
REPEATABLE = {"user_property", "subscription_identifier"}  # decoded as lists, in their order
NUMBERS = {"byte": ">B", "two": ">H", "four": ">I"}


@dataclass
class Packet:
    type: int
    flags: int
    body: bytes
    packet_id: int = 0
    code: int = 0
    codes: bytes = b""
    topic: str = ""
    payload: bytes = b""
    session_present: bool = False
    properties: dict = field(default_factory=dict)

    @property
    def qos(self):
        return (self.flags >> 1) & 3

    @property
    def retain(self):
        return bool(self.flags & 1)

    @property
    def dup(self):
        return bool(self.flags & 8)


def encode_varint(value):
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def encode_binary(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def encode_properties(properties):
    out = b""
    for name, value in (properties or {}).items():
        identifier, kind = PROPERTIES[name]
        for one in value if isinstance(value, list) else [value]:
            out += bytes([identifier])
            if kind in NUMBERS:
                out += struct.pack(NUMBERS[kind], one)
            elif kind == "varint":
                out += encode_varint(one)
            elif kind == "pair":
                out += encode_binary(one[0]) + encode_binary(one[1])
            else:
                out += encode_binary(one)
    return encode_varint(len(out)) + out


def frame(packet_type, flags, body):
    return bytes([packet_type << 4 | flags]) + encode_varint(len(body)) + body


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def left(self):
        return len(self.data) - self.at

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.number(">B")
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value

    def binary(self):
        return self.take(self.number(">H"))

    def properties(self):
        found = {}
        end = self.varint() + self.at
        while self.at < end:
            name, kind = NAMES[self.number(">B")]
            if kind in NUMBERS:
                value = self.number(NUMBERS[kind])
            elif kind == "varint":
                value = self.varint()
            elif kind == "pair":
                value = (self.binary().decode(), self.binary().decode())
            else:
                value = self.binary()
                value = value.decode() if kind == "string" else value
            if name in REPEATABLE:
                found.setdefault(name, []).append(value)
            else:
                found[name] = value
        return found


def decode(packet_type, flags, body, version):
    packet = Packet(packet_type, flags, body)
    read = Reader(body)
    v5 = version == 5
    if packet_type == CONNACK:
        packet.session_present = bool(read.number(">B") & 1)
        packet.code = read.number(">B")
        # A refusal of the version itself may come in the words of 3.1.1.
        packet.properties = read.properties() if v5 and read.left() else {}
    elif packet_type == PUBLISH:
        packet.topic = read.binary().decode()
        packet.packet_id = read.number(">H") if packet.qos else 0
        packet.properties = read.properties() if v5 else {}
        packet.payload = body[read.at:]
    elif packet_type in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        packet.packet_id = read.number(">H")
        packet.code = read.number(">B") if read.left() else 0
        packet.properties = read.properties() if read.left() else {}
    elif packet_type in (SUBACK, UNSUBACK):
        packet.packet_id = read.number(">H")
        packet.properties = read.properties() if v5 else {}
        packet.codes = body[read.at:]
    elif packet_type in (DISCONNECT, AUTH):
        packet.code = read.number(">B") if read.left() else 0
        packet.properties = read.properties() if read.left() else {}
    return packet


def connect_body(client_id="", version=5, clean=True, keep_alive=60, username=None, password=None,
                 will=None, properties=None):
    """will: dict(topic, payload, qos, retain, properties)."""
    name = "MQIsdp" if version == 3 else "MQTT"
    flags = 0x02 if clean else 0
    payload = encode_binary(client_id)
    if will is not None:
        flags |= 0x04 | will.get("qos", 0) << 3 | (0x20 if will.get("retain") else 0)
        if version == 5:
            payload += encode_properties(will.get("properties"))
        payload += encode_binary(will["topic"]) + encode_binary(will["payload"])
    if username is not None:
        flags |= 0x80
        payload += encode_binary(username)
    if password is not None:
        flags |= 0x40
        payload += encode_binary(password)
    head = encode_binary(name) + bytes([version, flags]) + struct.pack(">H", keep_alive)
    if version == 5:
        head += encode_properties(properties)
    return head + payload


def publish_frame(topic, payload=b"", qos=0, retain=False, packet_id=0, dup=False, version=5,
                  properties=None):
    body = encode_binary(topic) + (struct.pack(">H", packet_id) if qos else b"")
    if version == 5:
        body += encode_properties(properties)
    data = payload.encode() if isinstance(payload, str) else payload
    return frame(PUBLISH, (8 if dup else 0) | qos << 1 | int(retain), body + data)
