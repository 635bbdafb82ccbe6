"""msg.message_key: one row for a message however often it comes (C07)."""

import pytest

from harness.packets import PUBACK, PUBREC, publish_frame
from harness.rawmqtt import RawClient

KEPT = {"session_expiry_interval": 3600}


def add_sink(server, name, topic):
    """The README's recipe."""
    server.psql(f"""
        CREATE TABLE {name} (message_key text UNIQUE, v text);
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$
            INSERT INTO {name} SELECT message_key, text FROM msg
            ON CONFLICT (message_key) DO NOTHING $$);""")
    return lambda: server.psql(f"SELECT string_agg(v, ' ' ORDER BY v) FROM {name}").split()


def connect(client, client_id, present):
    assert client.connect(client_id, clean=False, properties=KEPT).session_present == present
    return client


def deliver(client, topic, payload, packet_id, dup=False, qos=1):
    client.send(publish_frame(f"{topic}/x", payload, qos, packet_id=packet_id, dup=dup))
    ack = client.expect(PUBACK)
    assert ack.packet_id == packet_id and ack.code < 0x80


@pytest.mark.parametrize("everyone", [True, False], ids=["all killed", "postmaster killed"])
def test_a_repetition_after_a_crash_is_the_same_row(new_server, everyone):
    """C07: the PUBACK is lost, the server restarts, the client sends it again."""
    server = new_server().start()
    rows = add_sink(server, "r", "t")
    with RawClient(server.mqtt_port) as client:
        connect(client, "device", False)
        deliver(client, "t", "a", 1)
        deliver(client, "t", "b", 2)
        server.kill9(everyone=everyone)
    server.start().wait_listening()
    assert rows() == ["a", "b"]
    with RawClient(server.mqtt_port) as client:
        connect(client, "device", True)
        deliver(client, "t", "a", 1, dup=True)
        deliver(client, "t", "b", 2, dup=True)
        deliver(client, "t", "b", 2, dup=True)
        assert rows() == ["a", "b"]
        # The identifier is free again: whatever comes under it now is another message.
        deliver(client, "t", "a", 1)
        assert rows() == ["a", "a", "b"]
        deliver(client, "t", "a", 1, dup=True)
        assert rows() == ["a", "a", "b"]


def test_a_repetition_of_what_never_arrived_is_a_message_of_its_own(server, raw, topic, name):
    """C07: DUP says that the client may have sent it before, not that the broker has it."""
    rows = add_sink(server, name, topic)
    client = connect(raw(), name, False)
    deliver(client, topic, "old", 7)
    deliver(client, topic, "new", 7, dup=True)  # its first transmission was lost
    deliver(client, topic, "first", 8, dup=True)
    assert rows() == ["first", "new", "old"]


def test_a_repetition_that_meets_the_first_in_one_batch(server, raw, topic, name):
    """C07: the client reconnects while the message still waits for the table."""
    rows = add_sink(server, name, topic)
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE {name}")
    connect(raw(), name, False).send(publish_frame(f"{topic}/x", "once", 1, packet_id=1))
    waiting = f"SELECT pending FROM pgmqtt.sinks WHERE name = '{name}'"
    server.wait_for(lambda: server.psql(waiting) == "1", "the first waits for the table")
    again = connect(raw(), name, True)
    again.send(publish_frame(f"{topic}/x", "once", 1, packet_id=1, dup=True))
    server.wait_for(lambda: server.psql(waiting) == "2", "so does the repetition")
    locker.rollback()
    locker.close()
    assert again.expect(PUBACK).packet_id == 1
    assert rows() == ["once"]


def test_a_worker_that_ends_between_commit_and_answer_makes_no_second_row(new_server):
    """C07: what the broker hands over once more is the same message."""
    server = new_server()
    server.variables["PGMQTT_FAILPOINT"] = "sink-answer:1:exit"
    server.start()
    rows = add_sink(server, "r", "t")
    with RawClient(server.mqtt_port, timeout=20) as client:
        connect(client, "device", False)
        deliver(client, "t", "a", 1)
    assert "exited with exit code 1" in server.log_text()  # the premise
    assert rows() == ["a"]


def test_keys_differ_between_clients_sessions_and_sinks_see_the_same(server, raw, topic, name):
    add_sink(server, name, topic)
    add_sink(server, f"{name}_second", topic)
    for client_id in (name, f"{name}/other"):
        client = connect(raw(), client_id, False)
        deliver(client, topic, client_id, 1)
        client.close()
    client = raw()
    assert not client.connect(name, clean=True, properties=KEPT).session_present  # a new session
    deliver(client, topic, "third", 1, dup=True)
    count = f"SELECT count(DISTINCT message_key), count(*) FROM {name}"
    assert server.psql(count) == "3|3"
    assert server.psql(f"SELECT count(*) FROM {name} JOIN {name}_second USING (message_key, v)"
                       ) == "3"


def test_what_does_not_come_again_has_no_key(server, raw, topic, name):
    rows = add_sink(server, name, topic)
    client = raw()
    client.connect(name)  # its session ends with the connection
    deliver(client, topic, "a", 1)
    deliver(client, topic, "b", 1)
    client.publish(f"{topic}/x", "c", qos=0)
    server.psql(f"SELECT pgmqtt.publish('{topic}/x', 'd'::text, 1)")
    server.wait_for(lambda: rows() == ["a", "b", "c", "d"], "four rows")
    assert server.psql(f"SELECT count(message_key) FROM {name}") == "0"


def test_qos_2_has_a_key(server, raw, topic, name):
    add_sink(server, name, topic)
    client = connect(raw(), name, False)
    client.send(publish_frame(f"{topic}/x", "a", 2, packet_id=3))
    client.expect(PUBREC)
    assert server.psql(f"SELECT message_key LIKE '{name}/%/3/%' FROM {name}") == "t"


def test_a_dead_letter_keeps_its_key(server, raw, topic, name):
    """C07: a redriven message and its repetition are one row."""
    add_sink(server, name, topic)
    server.psql(f"ALTER TABLE {name} ADD CONSTRAINT small CHECK (length(v) < 3)")
    client = connect(raw(), name, False)
    client.send(publish_frame(f"{topic}/x", "long", 1, packet_id=1))
    assert client.expect(PUBACK).code == 0x83
    key = server.psql(f"SELECT message_key FROM pgmqtt.dead_letter WHERE name = '{name}'")
    assert key.startswith(f"{name}/")
    server.psql(f"ALTER TABLE {name} DROP CONSTRAINT small; SELECT pgmqtt.redrive('{name}')")
    deliver(client, topic, "long", 1, dup=True)
    assert server.psql(f"SELECT message_key, v FROM {name}") == f"{key}|long"
