"""A sink that meets a lock: its messages wait, in order and whole, and hardly anybody waits with it."""

import re
import threading

import pytest

from harness.packets import PUBACK, publish_frame

TABLE = "CREATE TABLE {0} (n int GENERATED ALWAYS AS IDENTITY, v text);"
INSERT = "INSERT INTO {0} (v) SELECT text FROM msg"
HOT = "CREATE TABLE {0}_hot (id int PRIMARY KEY, c bigint); INSERT INTO {0}_hot VALUES (1, 0);"
UPSERT = """INSERT INTO {0}_hot SELECT 1, count(*) FROM msg
    ON CONFLICT (id) DO UPDATE SET c = {0}_hot.c + excluded.c"""
HOT_ROW = "SELECT FROM {0}_hot WHERE id = 1 FOR UPDATE"

LOCKS = {  # what there is, what the sink runs, what an open transaction does
    "table": (TABLE, INSERT, "LOCK TABLE {0}"),
    "table that is read": (TABLE + "CREATE TABLE {0}_site (v text)",
                           INSERT + " WHERE NOT EXISTS (SELECT FROM {0}_site s WHERE s.v = text)",
                           "LOCK TABLE {0}_site"),
    "table of a view": (TABLE + "CREATE VIEW {0}_view AS SELECT n, v FROM {0}",
                        "INSERT INTO {0}_view (v) SELECT text FROM msg", "LOCK TABLE {0}"),
    "upsert of a row": (TABLE + HOT, f"WITH hot AS ({UPSERT}) {INSERT}", HOT_ROW),
    "unique": (TABLE + "ALTER TABLE {0} ADD UNIQUE (v)", INSERT,
               "INSERT INTO {0} (v) VALUES ('3')"),
    "foreign key": (TABLE + """CREATE TABLE {0}_parent (v text PRIMARY KEY);
        INSERT INTO {0}_parent SELECT generate_series(0, 19);
        ALTER TABLE {0} ADD FOREIGN KEY (v) REFERENCES {0}_parent""", INSERT,
                    "SELECT FROM {0}_parent WHERE v = '5' FOR UPDATE"),
    "partition": ("CREATE SEQUENCE {0}_s; CREATE TABLE {0} (n int DEFAULT nextval('{0}_s'), v text)"
                  " PARTITION BY LIST (v); CREATE TABLE {0}_1 PARTITION OF {0} FOR VALUES IN ('7');"
                  " CREATE TABLE {0}_2 PARTITION OF {0} DEFAULT", INSERT, "LOCK TABLE {0}_1"),
    "table of a trigger": (TABLE + """CREATE TABLE {0}_log (v text);
        CREATE FUNCTION {0}_f() RETURNS trigger LANGUAGE plpgsql AS
            $f$ BEGIN INSERT INTO {0}_log VALUES (NEW.v); RETURN NEW; END $f$;
        CREATE TRIGGER t BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_f()""", INSERT,
                           "LOCK TABLE {0}_log"),
    "advisory": (TABLE, "WITH l AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('{0}'))) "
                        + INSERT + ", l", "SELECT pg_advisory_xact_lock(hashtext('{0}'))"),
}


def add_sink(server, name, topic_filter, statement):
    server.psql(f"SELECT pgmqtt.add_sink('{name}', '{topic_filter}', $${statement}$$)")


def open_transaction(server, sql):
    session = server.connect(autocommit=False)
    session.cursor().execute(sql)
    return session


def end(session):
    session.rollback()
    session.close()


def send(client, topic, payloads):
    client.send(b"".join(publish_frame(topic, payload, qos=1, packet_id=client.next_id())
                         for payload in payloads))


def acknowledged(client, count):
    return all(client.expect(PUBACK).code < 0x80 for _ in range(count))


def retries(server, name):
    return int(server.psql(f"SELECT retries FROM pgmqtt.sinks WHERE name = '{name}'"))


def dead_letters(server, name):
    return server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'")


@pytest.mark.parametrize("kind", LOCKS)
def test_any_lock_holds_its_own_sink_and_no_message_is_lost_or_moved(server, raw, topic, name, kind):
    setup, statement, lock = (text.format(name) for text in LOCKS[kind])
    server.psql(setup + f"; CREATE TABLE {name}_free (v text)")
    add_sink(server, name, f"{topic}/blocked", statement)
    add_sink(server, f"{name}_free", f"{topic}/free", f"INSERT INTO {name}_free SELECT text FROM msg")
    locker = open_transaction(server, lock)
    blocked, free = raw(), raw()
    blocked.connect()
    free.connect()
    payloads = [str(n) for n in range(20)]
    send(blocked, f"{topic}/blocked", payloads)
    published = 0
    while retries(server, name) < 5:  # every kind of try: the first, brief ones, one that queues
        assert free.publish(f"{topic}/free", str(published), qos=1).code < 0x80
        published += 1
    before = len(blocked.until_ping())  # in small batches, what comes before the one that is blocked
    assert before < len(payloads)
    assert server.psql(f"SELECT count(*) FROM {name}_free") == str(published)
    assert retries(server, f"{name}_free") == 0
    end(locker)
    assert acknowledged(blocked, len(payloads) - before)
    assert server.psql(f"SELECT string_agg(v, ' ' ORDER BY n) FROM {name}") == " ".join(payloads)
    assert dead_letters(server, name) == "0"
    assert server.psql(f"SELECT status FROM pgmqtt.sinks WHERE name = '{name}'") == "active"


@pytest.mark.parametrize("kind", ["table", "table that is read", "table of a view"])
def test_a_locked_table_of_a_known_statement_is_not_waited_for(server, raw, topic, name, kind):
    setup, statement, lock = (text.format(name) for text in LOCKS[kind])
    server.psql(setup)
    add_sink(server, name, f"{topic}/x", statement)
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/x", "0", qos=1).code < 0x80  # the premise: it has its plan
    locker = open_transaction(server, lock)
    send(client, f"{topic}/x", ["1"])
    first = server.wait_for(lambda: server.psql(
        f"SELECT message FROM pgmqtt.sinks WHERE name = '{name}' AND retries = 1"), "one try")
    locked = lock.rsplit(" ", 1)[1]
    assert first == f'could not obtain lock on relation "{locked}"'
    end(locker)
    assert acknowledged(client, 1)
    assert server.psql(f"SELECT v FROM {name} ORDER BY n") == "0\n1"


def logging(name, seconds=0):
    """A function of the batch's size that writes each try and its lock_timeout into the log."""
    return f"""CREATE FUNCTION {name}_try(sink text, messages bigint) RETURNS bigint
        LANGUAGE plpgsql AS $f$ BEGIN
            RAISE LOG 'try of % % with %', sink, messages, current_setting('lock_timeout');
            PERFORM pg_sleep({seconds}); RETURN messages; END $f$;"""


def tries(server, sink):
    """[(messages, milliseconds of waiting allowed)]"""
    found = re.findall(rf"try of {sink} (\d+) with (\d+)ms", server.log_text())
    return [(int(messages), int(wait)) for messages, wait in found]


def counting(name, sink):
    return UPSERT.format(name).replace("count(*)", f"{name}_try('{sink}', count(*))")


def test_a_row_that_stays_locked_is_waited_for_briefly_and_seldom(server, raw, topic, name):
    server.psql(HOT.format(name) + logging(name))
    add_sink(server, name, f"{topic}/x", counting(name, name))
    locker = open_transaction(server, HOT_ROW.format(name))
    client = raw()
    client.connect()
    send(client, f"{topic}/x", ["1", "2"])
    server.wait_for(lambda: len(tries(server, name)) >= 8, "eight tries")
    waits = [wait for _, wait in tries(server, name)[:8]]
    assert max(waits) <= 25
    assert max(waits[1:3] + waits[4:7]) <= 2  # all but the first and each fourth
    assert max(waits[3], waits[7]) > 2
    end(locker)
    assert acknowledged(client, 2)
    assert server.psql(f"SELECT c FROM {name}_hot") == "2"


def test_many_sinks_before_a_locked_row_share_what_one_may_wait(server, raw, topic, name):
    server.psql(HOT.format(name) + logging(name))
    sinks = [f"{name}_{n}_" for n in range(20)]
    for sink in sinks:
        add_sink(server, sink, f"{topic}/all", counting(name, sink))
    locker = open_transaction(server, HOT_ROW.format(name))
    client = raw()
    client.connect()
    send(client, f"{topic}/all", ["1"])
    server.wait_for(lambda: all(tries(server, sink) for sink in sinks), "each has tried")
    first = [tries(server, sink)[0][1] for sink in sinks]
    assert max(first) > 1  # the premise: the first of them does wait
    assert sorted(first)[len(first) // 2] == 1, first
    end(locker)
    assert acknowledged(client, 1)
    assert server.psql(f"SELECT c FROM {name}_hot") == "20"


def test_a_costly_batch_before_a_locked_row_is_tried_in_small(server, raw, topic, name):
    """What a lock ends is work for nothing; so the next try has an eighth of the messages."""
    server.psql(TABLE.format(name) + HOT.format(name) + logging(name, 0.03))
    add_sink(server, name, f"{topic}/x",
             f"WITH hot AS ({counting(name, name)}) {INSERT.format(name)}")
    locker = open_transaction(server, HOT_ROW.format(name))
    client = raw()
    client.connect()
    payloads = [str(n) for n in range(100)]
    send(client, f"{topic}/x", payloads)
    server.wait_for(lambda: len(tries(server, name)) >= 5, "five tries")
    sizes = [messages for messages, _ in tries(server, name)]
    for size, following in zip(sizes, sizes[1:]):
        assert following <= max(size // 8, 1), sizes
    assert sizes[-1] == 1
    end(locker)
    assert acknowledged(client, len(payloads))
    assert server.psql(f"SELECT string_agg(v, ' ' ORDER BY n) FROM {name}") == " ".join(payloads)
    assert max(messages for messages, _ in tries(server, name)[len(sizes):]) > 1  # it grows again


def waiters(name):
    return ("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"
            f" AND relation = '{name}'::regclass")


def take_turns(session, name, stop):
    """Has the lock until somebody else of the same kind waits for it: so it is never free."""
    cursor = session.cursor()
    while not stop.is_set():
        cursor.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
        while not stop.is_set():
            cursor.execute(waiters(name))
            if cursor.fetchone()[0] > 0:
                break
        session.rollback()


def test_a_lock_that_others_take_in_turn_is_had_in_the_end(server, raw, topic, name):
    """Who never queues may never find it free."""
    server.psql(TABLE.format(name))
    add_sink(server, name, f"{topic}/x", INSERT.format(name))
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/x", "0", qos=1).code < 0x80
    stop, sessions = threading.Event(), [server.connect(autocommit=False) for _ in range(2)]
    threads = [threading.Thread(target=take_turns, args=(session, name, stop)) for session in sessions]
    for thread in threads:
        thread.start()
    try:
        server.wait_for(lambda: server.psql(waiters(name)) == "1", "one has it, the other waits")
        send(client, f"{topic}/x", ["1"])
        server.wait_for(lambda: retries(server, name) > 0, "the sink has met the lock")
        assert client.expect(PUBACK, timeout=120).code < 0x80
        assert all(thread.is_alive() for thread in threads)  # the premise: until then they did
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for session in sessions:
            session.close()
    assert server.psql(f"SELECT v FROM {name} ORDER BY n") == "0\n1"
