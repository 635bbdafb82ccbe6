"""Writers of a table (id, n), and a subscriber who knows it from messages alone.

A key that is gone does not come back, and n only grows (sequences keys and age): so whoever sees a row
knows how old what he sees is.
"""

import json
import random
import threading

import psycopg2

from harness.rawmqtt import RawClient


class Writer(threading.Thread):
    """Inserts, updates, deletes and moves rows, one or many per transaction; now and then rolls back."""

    def __init__(self, server, table, seed, rounds):
        super().__init__()
        self.connection = server.connect(autocommit=False)
        self.table = table
        self.dice = random.Random(seed)
        self.rounds = rounds
        self.error = None
        self.start()

    def run(self):
        try:
            for _ in range(self.rounds):
                self.transaction()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        self.connection.close()

    def transaction(self):
        some = f"(SELECT id FROM {self.table} ORDER BY random() LIMIT {self.dice.choice((1, 1, 20))})"
        statements = {
            "insert": f"INSERT INTO {self.table} SELECT nextval('keys'), nextval('age')"
                      f" FROM generate_series(1, {self.dice.choice((1, 1, 20))})",
            "update": f"UPDATE {self.table} SET n = nextval('age') WHERE id IN {some}",
            "delete": f"DELETE FROM {self.table} WHERE id IN {some}",
            "move": f"UPDATE {self.table} SET id = nextval('keys'), n = nextval('age')"
                    f" WHERE id IN {some}",
        }
        cursor = self.connection.cursor()
        try:
            for kind in self.dice.choices(list(statements), (3, 4, 2, 2), k=self.dice.choice((1, 1, 4))):
                cursor.execute(statements[kind])
            if self.dice.random() < 0.1:
                self.connection.rollback()
            else:
                self.connection.commit()
        except (psycopg2.errors.DeadlockDetected, psycopg2.errors.SerializationFailure):
            self.connection.rollback()  # a partitioned table says so of a row that moved


class View(threading.Thread):
    """What a subscriber knows of the table, from messages alone, as they come."""

    def __init__(self, port, topic):
        super().__init__()
        self.client = RawClient(port, timeout=60)
        self.client.connect()
        self.client.subscribe(f"{topic}/#", 1)
        self.topic = topic
        self.rows, self.gone, self.wrong, self.ops = {}, set(), [], {}
        self.error = None
        self.start()

    def run(self):
        try:
            while (packet := self.client.message()).topic != f"{self.topic}/end":
                self.take(int(packet.topic.rsplit("/", 1)[1]), packet.payload)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        self.client.close()

    def take(self, key, payload):
        if not payload:
            self.rows.pop(key, None)
            self.gone.add(key)
            return
        said = json.loads(payload)
        self.ops[said["op"]] = self.ops.get(said["op"], 0) + 1
        if key in self.gone:
            self.wrong.append(f"{key} came back: {said}")
        if said["n"] < self.rows.get(key, 0):
            self.wrong.append(f"{key} went from {self.rows[key]} to {said}")
        self.rows[key] = said["n"]
