"""A publisher that writes down which of its messages were acknowledged."""

from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import Closed, RawClient


class Ledger:
    def __init__(self, port, topic, first, window=20):
        self.client = RawClient(port)
        assert self.client.connect().code == 0
        self.acknowledged = set()
        self._topic = topic
        self._number = first
        self._outstanding = {}
        for _ in range(window):
            self._publish()

    def _publish(self):
        packet_id = self.client.next_id()
        self.client.send(publish_frame(f"{self._topic}/{self._number}", "", qos=1,
                                       packet_id=packet_id))
        self._outstanding[packet_id] = self._number
        self._number += 1

    def _note(self, packet):
        assert packet.type == PUBACK, packet
        number = self._outstanding.pop(packet.packet_id)
        if packet.code < 0x80:
            self.acknowledged.add(number)

    def run(self, count):
        """Publishes, always with a full window, and returns right after the count-th PUBACK."""
        while len(self.acknowledged) < count:
            self._note(self.client.receive())
            self._publish()

    def finish(self):
        """After the kill: what was already on its way was acknowledged, too."""
        try:
            while True:
                self._note(self.client.receive(timeout=10))
        except (Closed, OSError):
            self.client.close()
        return self.acknowledged
