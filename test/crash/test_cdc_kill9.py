"""kill -9 while rows of a mapped table are committed: no committed change is lost, order is kept.

CRASH_ROUNDS (50) rounds with one server; CRASH_SEED repeats a run. Two writers commit single rows and
transactions of up to 3,000; a persistent session (QoS 1) and retained messages receive them. In each round
the postmaster is killed with or without its children, or the cdc, the broker or the store worker (which
makes the postmaster restart all), or the power is cut. In every third round the subscriber is away.

At least once: what was published since the slot's position was last saved, and what the subscriber had but
not yet acknowledged, comes again after a crash. Both are counted. With (lsn, seq) a consumer drops them.
"""

import os
import random
import threading
from collections import namedtuple

import psycopg2

from harness.packets import PUBACK, PUBLISH
from harness.rawmqtt import RawClient
from harness.server import Server
from harness.waiting import wait_for
from session_clients import SessionClient, acknowledgement
from session_rounds import ROOM, kill_worker

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.randrange(1, 10**6)
# Seldom large: a hundred rounds are to leave the consumer a backlog, and not one of hours.
BULK_SIZES = [2] * 8 + [50] * 8 + [3000]
NUMBERS = """$$jsonb_build_object('user_properties',
    jsonb_build_object('lsn', (lsn - '0/0')::text, 'seq', seq::text))$$"""


class Writer(threading.Thread):
    """Commits transactions of consecutive numbers until the server is gone; knows what was committed.

    A COMMIT without an answer may have happened: the table says so, later.
    """

    def __init__(self, server, table, first, sizes, seed):
        super().__init__(daemon=True)
        self.connection = server.connect(autocommit=False)
        self.table, self.next, self.sizes = table, first, sizes
        self.dice = random.Random(seed)
        self.transactions = 0

    def run(self):
        cursor = self.connection.cursor()
        try:
            while True:
                size = self.dice.choice(self.sizes)
                cursor.execute(f"INSERT INTO {self.table} SELECT n, 'row' FROM generate_series(%s, %s) n",
                               (self.next, self.next + size - 1))
                self.connection.commit()
                self.next += size
                self.transactions += 1
        except psycopg2.Error:
            self.connection.close()


Message = namedtuple("Message", "table number pair dup")


class Consumer(SessionClient):
    """A persistent session that notes each message, and acknowledges it."""

    def __init__(self):
        super().__init__("consumer")
        self.arrived = []

    def subscribe(self):
        assert self._client.subscribe("rows/+", 1).codes == b"\x01"
        return self

    def handle(self, packet):
        assert packet.type == PUBLISH and packet.qos == 1, packet
        said = dict(packet.properties["user_property"])
        self.arrived.append(Message(packet.topic.rpartition("/")[2], int(packet.payload),
                                    (int(said["lsn"]), int(said["seq"])), bool(packet.dup)))
        self._client.send(acknowledgement(PUBACK, packet.packet_id))


DISASTERS = [("postmaster", Server.kill9), ("all", lambda server: server.kill9(everyone=True)),
             ("cdc", kill_worker("pgmqtt cdc")), ("broker", kill_worker("pgmqtt broker")),
             ("power", Server.power_cut), ("store", kill_worker("pgmqtt store"))]


def set_up(server):
    for table in ("single", "bulk"):
        server.psql(f"""
            CREATE TABLE {table} (n int PRIMARY KEY, v text);
            SELECT pgmqtt.add_mapping('{table}', '{table}', $$'rows/{table}'$$, $$new.n::text$$,
                properties => {NUMBERS}, operations => '{{insert}}')""")
    server.psql("""
        CREATE TABLE state (k int PRIMARY KEY, n int);
        SELECT pgmqtt.add_mapping('state', 'state', $$'state/' || new.k$$, $$new.n::text$$, retain => true,
            operations => '{insert,update}');
        INSERT INTO state SELECT k, 0 FROM generate_series(0, 9) k""")


def update_state(server, stop):
    """Overwrites ten retained messages again and again; one that is old afterwards was lost."""
    try:
        cursor = server.connect().cursor()
        while not stop.is_set():
            cursor.execute("UPDATE state SET n = n + 1 WHERE k = (random() * 9)::int")
    except psycopg2.Error:
        pass


def one_round(server, consumer, number, dice):
    firsts = [int(server.psql(f"SELECT coalesce(max(n), -1) + 1 FROM {table}"))
              for table in ("single", "bulk")]
    writers = [Writer(server, "single", firsts[0], [1], dice.random()),
               Writer(server, "bulk", firsts[1], BULK_SIZES, dice.random())]
    stop = threading.Event()
    threads = [*writers, threading.Thread(target=update_state, args=(server, stop), daemon=True)]
    if number % 3 != 2:
        consumer.connect(server.mqtt_port)
        threads.append(threading.Thread(target=consumer.run, args=(lambda: True,), daemon=True))
    for thread in threads:
        thread.start()
    target = dice.randrange(1, 200)
    wait_for(lambda: sum(writer.transactions for writer in writers) >= target, "commits", 60, every=0.001)
    what, disaster = DISASTERS[number % len(DISASTERS)]
    disaster(server)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a client hangs"
    if server.postmaster.poll() is not None:
        server.start()
    else:
        server.wait_for(server.answers, "the server is back", 60)
        server.wait_listening(60)
    return what


def drain(server, consumer):
    """Takes all that is still to come: up to a row of each table that is committed last."""
    lasts = {table: int(server.psql(f"INSERT INTO {table} SELECT coalesce(max(n), -1) + 1, 'last'"
                                    f" FROM {table} RETURNING n")) for table in ("single", "bulk")}

    def wanted():
        if consumer.arrived and lasts.get(consumer.arrived[-1].table) == consumer.arrived[-1].number:
            del lasts[consumer.arrived[-1].table]
        return bool(lasts)

    consumer.connect(server.mqtt_port).run(wanted)
    assert not lasts, f"the last rows did not come: {lasts}"


def check(server, consumer, said):
    """Complete and in order once what came again is dropped. Returns (sent again, decoded again)."""
    again = {True: 0, False: 0}
    for table in ("single", "bulk"):
        rows = set(map(int, server.psql(f"SELECT n FROM {table}").split()))
        numbers, seen, greatest = [], set(), (0, 0)
        for message in consumer.arrived:
            if message.table != table:
                continue
            if message.pair > greatest:
                greatest = message.pair
                numbers.append(message.number)
                seen.add(message.number)
            else:
                assert message.number in seen, f"{said}: {message} would be dropped, but never came"
                again[message.dup] += 1
        missing = rows - seen
        assert not missing, f"{said}: {table}: {len(missing)} committed rows lost: {sorted(missing)[:10]}"
        assert not seen - rows, f"{said}: {table}: rows that were never committed"
        assert numbers == sorted(seen), f"{said}: {table}: order, or (lsn, seq) did not tell a duplicate"
    return again[True], again[False]


def retained(server):
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("state/+", 0)
        return dict((int(packet.topic.rpartition("/")[2]), int(packet.payload))
                    for packet in (client.expect(PUBLISH) for _ in range(10)))


def test_committed_changes_arrive_in_order_whatever_is_killed():
    dice = random.Random(SEED)
    consumer = Consumer()
    said = f"CRASH_SEED={SEED}"
    with Server(ROOM) as server:
        set_up(server)
        consumer.connect(server.mqtt_port).subscribe().run(lambda: False)
        for number in range(ROUNDS):
            before = len(consumer.arrived)
            what = one_round(server, consumer, number, dice)
            print(f"  {number}: {what}, {len(consumer.arrived) - before} arrived", flush=True)
        drain(server, consumer)
        state = {int(k): int(n) for k, n in
                 (line.split("|") for line in server.psql("SELECT k, n FROM state").splitlines())}
        server.wait_for(lambda: retained(server) == state, f"{said}: retained messages are the rows' state")
        resent, decoded = check(server, consumer, said)
    total = len(consumer.arrived)
    print(f"\n{ROUNDS} kills, {total - resent - decoded} committed rows, {total} messages, 0 lost, in "
          f"order; {resent} came again because their PUBACK was lost, {decoded} because they were decoded "
          f"again ({said})")
