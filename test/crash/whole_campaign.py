"""All ways into and out of the broker at once, and the ledger of each.

QoS 1 and 2 publishers, publish() and rows of a mapped table feed one persistent subscriber; a publisher
feeds a sink; large messages fill segments of the queue that a second subscriber drains, while a third
one never takes its message.
"""

import threading

import psycopg2

from harness.rawmqtt import Closed
from harness.waiting import wait_for
from session_clients import Publisher, Subscriber
from session_rounds import Campaign, Threads

SETUP = """
    CREATE TABLE sunk (n int);
    SELECT pgmqtt.add_sink('sunk', 'sunk/{who}', 'INSERT INTO sunk SELECT text::int FROM msg');
    CREATE TABLE source_row (n int);
    SELECT pgmqtt.add_mapping('rows', 'source_row', $$'crash/rows'$$, 'new.n::text');"""
LARGE = 64 << 10
LARGE_AT_ONCE = 640  # 40 MB: more than two segments


class SqlSource:
    """Runs a statement for each number; committed is acknowledged."""

    def __init__(self, client_id, statement):
        self.client_id = client_id
        self.acknowledged = set()
        self._statement = statement
        self._number = 0

    def run(self, server, stopped):
        try:
            cursor = server.connect().cursor()
            while not stopped.is_set():
                number, self._number = self._number, self._number + 1
                cursor.execute(self._statement, (number,))
                self.acknowledged.add(number)
        except psycopg2.Error:
            pass


class WholeCampaign(Campaign):
    def __init__(self, server):
        server.psql(SETUP)
        super().__init__(server)
        self.sources = [
            SqlSource("sql", "SELECT pgmqtt.publish('crash/sql', %s::text, 1)"),
            SqlSource("rows", "INSERT INTO source_row VALUES (%s)")]
        self.sunk = Publisher("sunk", 1, topic="sunk/sunk")
        self.large = Publisher("large", 1, size=LARGE, topic="large/large")
        self.taker = Subscriber("taker", "large/#")
        self.taker.connect(server.mqtt_port).subscribe().run(lambda: False)
        stuck = Subscriber("stuck", "stuck/#")
        stuck.connect(server.mqtt_port).subscribe().run(lambda: False)
        self._publish_one_that_is_stuck()
        self._stopped = threading.Event()

    def _publish_one_that_is_stuck(self):
        one = Publisher("stuck-source", 1, window=1, topic="stuck/first")
        one.connect(self.server.mqtt_port).publish().run(lambda: not one.acknowledged)
        self.stuck_source = one

    def _clients(self):
        return [*self.publishers, self.sunk, self.large, self.taker, self.subscriber]

    # ---- load until something happens ----

    def _attempt(self, client, wanted=lambda: True):
        """The broker may be gone at any moment, also while we connect."""
        try:
            client.connect(self.server.mqtt_port)
            if isinstance(client, Publisher):
                client.publish()
            client.run(lambda: wanted() and not self._stopped.is_set())
        except (Closed, OSError):
            pass

    def _fill_and_take(self):
        """Large messages into the queue, then out of it, over and over."""
        while not self._stopped.is_set():
            target = len(self.large.acknowledged) + LARGE_AT_ONCE
            self._attempt(self.large, lambda: len(self.large.acknowledged) < target)
            self._attempt(self.taker, lambda: not self.taker.has_all(self.large))
            self._stopped.wait(0.05)

    def load_until(self, happened, large=False):
        """First with the subscriber away, so that it finds a queue."""
        self._stopped.clear()
        runs = [lambda client=client: self._attempt(client)
                for client in (*self.publishers, self.sunk)]
        runs += [lambda source=source: source.run(self.server, self._stopped)
                 for source in self.sources]
        if large:
            runs.append(self._fill_and_take)
        threads = Threads(*runs)
        target = self.acknowledged() + 1000
        wait_for(lambda: self.acknowledged() >= target or happened() or threads.errors,
                 "acknowledgements", 60)
        reader = Threads(lambda: self._attempt(self.subscriber))
        try:
            wait_for(lambda: happened() or threads.errors or reader.errors, "the failpoint", 60)
        finally:
            self._stopped.set()
            for client in self._clients():
                client.vanish()
        threads.join()
        reader.join()

    # ---- what must hold ----

    def drain(self):
        for publisher in (self.sunk, self.large):
            publisher.connect(self.server.mqtt_port).publish(more=False)
            publisher.run(publisher.open)
            assert publisher.open() == 0, f"{publisher.client_id}: not all is acknowledged"
        self.taker.connect(self.server.mqtt_port).run(
            lambda: not self.taker.has_all(self.large))
        super().drain()

    def heard(self):
        return [*self.publishers, *self.sources]

    def check(self):
        super().check()
        assert self.taker.has_all(self.large), "large messages are lost"
        rows = set(map(int, self.server.psql("SELECT n FROM sunk").split()))
        assert self.sunk.acknowledged <= rows, "acknowledged messages are not in the sink's table"

    def take_what_is_stuck(self):
        stuck = Subscriber("stuck", "stuck/#")
        stuck.connect(self.server.mqtt_port).run(lambda: not stuck.arrived)
        assert set(stuck.arrived["first"]) == self.stuck_source.acknowledged == {0}
