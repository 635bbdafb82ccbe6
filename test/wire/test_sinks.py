"""Messages become rows: pgmqtt.add_sink. PUBACK means committed."""

import pytest

from harness.clients import mosquitto_pub
from harness.packets import PUBACK, publish_frame

BAD_PAYLOAD, IMPLEMENTATION_ERROR = 0x99, 0x83


@pytest.fixture
def readings(server, topic, name):
    """A table and the sink of the README, under a name and topic of the test's own."""
    server.psql(f"""
        CREATE TABLE {name} (site text, at timestamptz, celsius float8 CHECK (celsius < 1000));
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{site}}/temp',
          $$ INSERT INTO {name}(site, at, celsius)
             SELECT site, received_at, (json->>'temperature')::float8 FROM msg $$);""")
    return name


def test_puback_means_the_row_is_visible(server, raw, topic, readings):
    client = raw()
    client.connect()
    with server.connect() as session, session.cursor() as cursor:
        for n in range(100):
            ack = client.publish(f"{topic}/s{n}/temp", '{"temperature": 21.5}', qos=1)
            assert ack.code in (0, 0x10)
            cursor.execute(f"SELECT celsius, now() - at < '1 min' FROM {readings} WHERE site = %s",
                           (f"s{n}",))
            assert cursor.fetchall() == [(21.5, True)]


def test_a_stock_client_makes_rows(server, broker, topic, readings):
    for version in ("mqttv311", "mqttv5"):
        mosquitto_pub(server.mqtt_port, f"{topic}/{version}/temp", '{"temperature":1}',
                      version=version)
        assert server.psql(f"SELECT celsius FROM {readings} WHERE site = '{version}'") == "1"


def test_many_at_once_are_all_rows_in_order(server, raw, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (n int, v int); CREATE SEQUENCE {name}_s;
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$
            INSERT INTO {name} SELECT nextval('{name}_s'), text::int FROM msg $$);""")
    client = raw()
    window = client.connect().properties["receive_maximum"]
    count, acknowledged = 2000, []
    for n in range(count):  # as many on their way as the server allows
        client.send(publish_frame(f"{topic}/x", str(n), qos=1, packet_id=n + 1))
        if n + 1 - len(acknowledged) == window:
            acknowledged.append(client.expect(PUBACK).packet_id)
    while len(acknowledged) < count:
        acknowledged.append(client.expect(PUBACK).packet_id)
    assert acknowledged == list(range(1, count + 1))
    assert server.psql(f"SELECT count(*), bool_and(v = n - 1) FROM {name}") == f"{count}|t"


def test_poison_is_a_dead_letter_and_good_rows_commit(server, raw, topic, readings):
    payloads = {"good1": '{"temperature": 1}', "poison": '{"temperature": "hot"}',
                "refused": '{"temperature": 5000}', "good2": '{"temperature": 2}'}
    client = raw()
    client.connect()
    client.send(b"".join(  # in one write, so that they meet in one batch
        publish_frame(f"{topic}/{site}/temp", payload, qos=1, packet_id=number)
        for number, (site, payload) in enumerate(payloads.items(), 1)))
    acks = {ack.packet_id: ack.code for ack in (client.expect(PUBACK) for _ in payloads)}
    assert acks[1] < 0x80 and acks[4] < 0x80
    assert (acks[2], acks[3]) == (BAD_PAYLOAD, IMPLEMENTATION_ERROR)
    assert server.psql(f"SELECT site FROM {readings} ORDER BY 1") == "good1\ngood2"
    letters = server.psql("SELECT source, topic, sqlstate, convert_from(payload, 'UTF8')"
                          f" FROM pgmqtt.dead_letter WHERE name = '{readings}' ORDER BY id")
    assert letters == (f"sink|{topic}/poison/temp|22P02|{payloads['poison']}\n"
                       f"sink|{topic}/refused/temp|23514|{payloads['refused']}")


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff\xfe", b'{"a": "\\u0000"}', b"{",
                                     b'{"temperature": "\\ud800"}', b'{"temperature": 1e400}'],
                         ids=repr)
def test_any_bytes_are_acknowledged_and_nothing_stops(server, raw, topic, readings, payload):
    client = raw()
    client.connect()
    client.publish(f"{topic}/odd/temp", payload, qos=1)
    assert client.publish(f"{topic}/good/temp", '{"temperature": 3}', qos=1).code < 0x80
    assert server.psql(f"SELECT celsius FROM {readings} WHERE site = 'good'") == "3"


def test_3_1_1_poison_is_acknowledged(server, raw, topic, readings):
    client = raw(4)
    client.connect("old publisher")
    client.publish(f"{topic}/x/temp", '{"temperature": "hot"}', qos=1)
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{readings}'") == "1"


def test_columns_of_msg(server, raw, topic, name):
    server.psql(f"""
        CREATE TABLE {name} (a text, rest text, row jsonb);
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{a}}/x/{{rest...}}', $$
            INSERT INTO {name} SELECT a, rest, to_jsonb(msg) FROM msg $$);""")
    client = raw()
    client.connect("the publisher")
    client.publish(f"{topic}/A/x/b/c", '{"k": 1}', qos=1, properties={
        "content_type": "application/json", "response_topic": "r", "correlation_data": b"\x01",
        "user_property": [("u", "1")]})
    assert server.psql(f"""SELECT a, rest, row->>'topic', row->'json'->>'k', row->>'text',
        row->>'payload', row->>'qos', row->>'retain', row->>'client_id', row->>'content_type',
        row->>'response_topic', row->>'correlation_data', row->'user_properties'->>'u'
        FROM {name}""") == ('A|b/c|' + topic + '/A/x/b/c|1|{"k": 1}|\\x7b226b223a20317d|1|false|'
                            'the publisher|application/json|r|\\x01|1')


def test_topics_never_become_sql(server, raw, topic, readings):
    client = raw()
    client.connect()
    for site in ("x'); DROP TABLE t;--", 'a"b', "$1", "%s", "{payload}", "a\\b", "é"):
        client.publish(f"{topic}/{site}/temp", '{"temperature": 1}', qos=1)
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {readings} WHERE site = %s", (site,))
            assert cursor.fetchone() == (1,), site


def test_a_locked_table_delays_only_its_own_acknowledgements(server, raw, topic, readings):
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE {readings}")
    blocked, other = raw(), raw()
    blocked.connect()
    other.connect()
    other.subscribe(f"{topic}/other", 1)
    blocked.send(publish_frame(f"{topic}/s/temp", '{"temperature": 1}', qos=1, packet_id=7))
    server.wait_for(lambda: server.psql(  # the premise: the sink has met the lock
        f"SELECT status FROM pgmqtt.sinks WHERE name = '{readings}'") == "waiting",
        "the sink waits for the table")
    other.publish(f"{topic}/other", "x")
    assert other.expect(3).payload == b"x"
    blocked.expect_nothing_before_ping()  # alive, not acknowledged
    locker.rollback()
    locker.close()
    assert blocked.expect(PUBACK).packet_id == 7
    assert server.psql(f"SELECT count(*) FROM {readings}") == "1"


@pytest.mark.parametrize("statement,message", [
    ("INSERT INTO nowhere SELECT 1 FROM msg", "nowhere"), ("INSERT INTO", "syntax"),
    ("SELECT nothing FROM msg", "nothing"), ("DROP TABLE x", "INSERT|statement"),
    ("SELECT 1; SELECT 2", "one|single|statement"), ("", "statement|empty"),
])
def test_a_wrong_statement_is_refused_at_creation(server, name, statement, message):
    with pytest.raises(RuntimeError, match=f"(?is)ERROR.*({message})"):
        server.psql(f"SELECT pgmqtt.add_sink('{name}', 'a/{{b}}', $${statement}$$)")
    assert server.psql(f"SELECT count(*) FROM pgmqtt.sinks WHERE name = '{name}'") == "0"


@pytest.mark.parametrize("topic_filter", ["", "a/{b}c", "a/{}", "{x...}/a", "a/{b}/{b}", "a#",
                                          "a/{topic}"])
def test_a_wrong_filter_is_refused_at_creation(server, name, topic_filter):
    with pytest.raises(RuntimeError, match="ERROR"):
        server.psql(f"SELECT pgmqtt.add_sink('{name}', '{topic_filter}', 'SELECT 1 FROM msg')")


def test_redrive_runs_dead_letters_again(server, raw, topic, readings):
    client = raw()
    client.connect()
    client.publish(f"{topic}/s/temp", '{"temperature": 5000}', qos=1)
    letters = f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{readings}'"
    assert server.psql(letters) == "1"
    server.psql(f"ALTER TABLE {readings} DROP CONSTRAINT {readings}_celsius_check")
    assert server.psql(f"SELECT pgmqtt.redrive('{readings}')") == "1"
    server.wait_for(lambda: server.psql(letters) == "0", "the dead letter is gone")
    assert server.psql(f"SELECT celsius FROM {readings}") == "5000"
