"""Loops (B16): a sink writes what a mapping publishes to a topic that the sink reads. They end."""

import pytest

from harness.packets import publish_frame
from harness.rawmqtt import RawClient

HOPS = "pgmqtt-hops"
MAX_HOPS = 8


def hops(packet):
    counts = [value for name, value in packet.properties.get("user_property", []) if name == HOPS]
    assert len(counts) <= 1
    return int(counts[0]) if counts else 0


def letters(server, name):
    return server.psql("SELECT source, topic, sqlstate, convert_from(payload, 'UTF8'), properties"
                       f" FROM pgmqtt.dead_letter WHERE name = '{name}'")


def wait_for_the_end(server, name):
    return server.wait_for(lambda: letters(server, name), "the loop has ended").split("|")


@pytest.fixture
def publisher(raw):
    client = raw()
    client.connect()
    return client


def test_a_sink_and_a_mapping_that_feed_each_other_end(server, sub, publisher, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/in'$$, $$new.v || '.'$$);
        SELECT pgmqtt.add_sink('{name}', '{topic}/in', 'INSERT INTO {name} SELECT text FROM msg')""")
    publisher.publish(f"{topic}/in", "x", 1)
    source, last, sqlstate, payload, _ = wait_for_the_end(server, name)
    assert (source, last, sqlstate, payload) == ("sink", f"{topic}/in", "54000", "x" + "." * MAX_HOPS)
    packets = sub.messages(MAX_HOPS + 1)
    assert [hops(packet) for packet in packets] == list(range(MAX_HOPS + 1))
    sub.expect_nothing_before_ping()
    assert server.psql(f"SELECT count(*) FROM {name}") == str(MAX_HOPS)


def test_a_loop_through_two_sinks_and_two_tables_ends(server, sub, publisher, topic, name):
    server.psql(f"""
        CREATE TABLE {name}_a (v text); CREATE TABLE {name}_b (v text);
        SELECT pgmqtt.add_sink('{name}_a', '{topic}/a', 'INSERT INTO {name}_a SELECT text FROM msg');
        SELECT pgmqtt.add_sink('{name}_b', '{topic}/b', 'INSERT INTO {name}_b SELECT text FROM msg');
        SELECT pgmqtt.add_mapping('{name}_a', '{name}_a', $$'{topic}/b'$$, $$new.v$$);
        SELECT pgmqtt.add_mapping('{name}_b', '{name}_b', $$'{topic}/a'$$, $$new.v$$)""")
    publisher.publish(f"{topic}/a", "x", 1)
    wait_for_the_end(server, f"{name}_a")
    packets = sub.messages(MAX_HOPS + 1)
    assert [packet.topic[-1] for packet in packets] == list("ababababa")
    sub.expect_nothing_before_ping()


def test_a_sink_that_publishes_to_itself_ends(server, sub, publisher, topic, name):
    """Not through a table: pgmqtt.publish() in the statement, and in a trigger of its table."""
    server.psql(f"""
        SELECT pgmqtt.add_sink('{name}', '{topic}/self',
            $$SELECT pgmqtt.publish(topic, text, 1) FROM msg$$);
        CREATE TABLE {name} (v text);
        CREATE FUNCTION {name}_again() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN
            PERFORM pgmqtt.publish('{topic}/trigger', NEW.v, 1); RETURN NULL; END$f$;
        CREATE TRIGGER again AFTER INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_again();
        SELECT pgmqtt.add_sink('{name}_t', '{topic}/trigger', 'INSERT INTO {name} SELECT text FROM msg')""")
    for which, sink in (("self", name), ("trigger", f"{name}_t")):
        publisher.publish(f"{topic}/{which}", "x", 1)
        wait_for_the_end(server, sink)
        assert [hops(packet) for packet in sub.messages(MAX_HOPS + 1)] == list(range(MAX_HOPS + 1))
        sub.expect_nothing_before_ping()


def test_an_echo_is_no_loop(server, sub, publisher, topic, name):
    """A device's report becomes a row, the row a retained state: what bridges swallow as an echo."""
    server.psql(f"""
        CREATE TABLE {name} (id text PRIMARY KEY, v text);
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{id}}/report',
            $$INSERT INTO {name} SELECT id, text FROM msg ON CONFLICT (id) DO UPDATE SET v = excluded.v$$);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || new.id || '/state'$$, $$new.v$$,
            retain => true, operations => '{{insert,update}}')""")
    for n in range(20):
        publisher.publish(f"{topic}/lamp/report", str(n), 1)
    reports, states = [], []
    while len(reports) < 20 or len(states) < 20:
        packet = sub.message()
        (reports if packet.topic.endswith("report") else states).append(packet)
    assert [packet.payload for packet in states] == [str(n).encode() for n in range(20)]
    assert {hops(packet) for packet in states} == {1}
    assert letters(server, name) == ""


def test_a_message_that_starts_fresh_is_not_counted_with_a_looping_one(server, sub, publisher, topic,
                                                                       name):
    """In one batch of a sink: each has its own count."""
    server.psql(f"""
        CREATE TABLE {name} (v text);
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/out'$$, $$new.v$$);
        SELECT pgmqtt.add_sink('{name}', '{topic}/in', 'INSERT INTO {name} SELECT text FROM msg')""")
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE {name}")
    marked = {"user_property": [(HOPS, "5"), ("other", "kept by nobody")]}
    for n, properties in enumerate([None, marked, None]):
        publisher.send(publish_frame(f"{topic}/in", str(n), 1, packet_id=100 + n, version=5,
                                     properties=properties))
    assert sorted(int(packet.payload) for packet in sub.messages(3)) == [0, 1, 2]
    locker.rollback()
    got = {int(packet.payload): hops(packet) for packet in sub.messages(3)}
    assert got == {0: 1, 1: 6, 2: 1}


@pytest.mark.parametrize("value,stored", [("8", False), ("99999999999999999999", False), ("7", True),
                                          ("-3", True), ("x", True), ("", True)])
def test_what_clients_say_of_hops(server, publisher, topic, name, value, stored):
    """A count of a client's own can only keep its message out of sinks."""
    server.psql(f"CREATE TABLE {name} (v text);"
                f"SELECT pgmqtt.add_sink('{name}', '{topic}/in', 'INSERT INTO {name} SELECT text FROM msg')")
    ack = publisher.publish(f"{topic}/in", "x", 1, properties={"user_property": [(HOPS, value)]})
    assert (ack.code < 0x80) == stored
    assert server.psql(f"SELECT count(*) FROM {name}") == ("1" if stored else "0")
    assert bool(letters(server, name)) == (not stored)


def test_a_loop_ends_across_a_restart(new_server):
    """The count is in the WAL and in the store, not in anybody's memory."""
    server = new_server().start()
    server.psql("""
        CREATE TABLE t (v text);
        SELECT pgmqtt.add_mapping('m', 't', $$'in'$$, $$new.v$$);
        SELECT pgmqtt.add_sink('s', 'in', 'INSERT INTO t SELECT text FROM msg')""")
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.publish("in", "x", 1)
    server.kill9(everyone=True)
    server.start()
    wait_for_the_end(server, "s")
    rows = int(server.psql("SELECT count(*) FROM t"))
    again = MAX_HOPS * (MAX_HOPS + 1) // 2
    assert MAX_HOPS <= rows <= MAX_HOPS + again, "each hop may come again, and goes on to the end"
