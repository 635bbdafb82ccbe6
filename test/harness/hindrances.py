"""What a busy or careless database does: locked tables, a flood of CHECKPOINTs. And who must not notice."""

import threading
import time

from harness.rawmqtt import Closed, RawClient

QUEUE = [f"pgmqtt.{log}_{number}" for log in ("message", "queue") for number in range(1, 9)]
TABLES = {"queue": QUEUE, "session": ["pgmqtt.session"], "retained": ["pgmqtt.retained_message"]}


class Lock:
    """Holds ACCESS EXCLUSIVE on the tables while entered."""

    def __init__(self, server, tables):
        self.server = server
        self.tables = tables

    def __enter__(self):
        self.connection = self.server.connect(autocommit=False)
        self.connection.cursor().execute(
            f"LOCK TABLE {', '.join(self.tables)} IN ACCESS EXCLUSIVE MODE")
        return self

    def __exit__(self, *_):
        self.connection.rollback()
        self.connection.close()

    def is_waited_for(self):
        """Whether the store worker stands before it."""
        pid = self.server.worker_pid("pgmqtt store")
        return self.server.psql("SELECT count(*) FROM pg_locks WHERE NOT granted "
                                f"AND pid = {pid}") != "0"


class CheckpointFlood(threading.Thread):
    """Pages are made dirty and checkpointed, again and again: the disk is what is busy.

    One row a page, beside it the room for its next version: little CPU makes many pages dirty and,
    each time being the first change after a CHECKPOINT, writes all of them into the WAL, too."""

    PAGES = 1280  # 10 MB

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server
        self.checkpoints = 0
        self.error = None
        self._over = threading.Event()

    def run(self):
        try:
            connection = self.server.connect()
            cursor = connection.cursor()
            cursor.execute("DROP TABLE IF EXISTS flood;"
                           "CREATE TABLE flood (v text) WITH (fillfactor = 40);"
                           "ALTER TABLE flood ALTER v SET STORAGE PLAIN")
            cursor.execute("INSERT INTO flood SELECT repeat('x', 3500) "
                           f"FROM generate_series(1, {self.PAGES})")
            while not self._over.is_set():
                cursor.execute("UPDATE flood SET v = v")
                cursor.execute("CHECKPOINT")
                self.checkpoints += 1
            cursor.execute("DROP TABLE flood")
            connection.close()
        except Exception as error:  # shown by who waits for it
            self.error = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error


class KeptAlive(threading.Thread):
    """A client with a keep alive of a second that says PINGREQ five times as often."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.client = RawClient(port)
        self.client.connect(keep_alive=1)
        self.pings = 0
        self.longest_silence = 0.0  # of our own: after it the broker has the right to close
        self.longest_wait = 0.0  # for a PINGRESP
        self.closed = False
        self._over = threading.Event()

    def run(self):
        last = time.monotonic()
        try:
            while not self._over.wait(0.2):
                asked = time.monotonic()
                self.longest_silence = max(self.longest_silence, asked - last)
                self.client.expect_nothing_before_ping()
                last = time.monotonic()
                self.longest_wait = max(self.longest_wait, last - asked)
                self.pings += 1
        except (Closed, BrokenPipeError, TimeoutError):
            self.closed = True

    def finish(self):
        self._over.set()
        self.join()
        self.client.close()

    def missed(self):
        """Whether the broker closed although we were never silent for so long."""
        return self.closed and self.longest_silence < 1
