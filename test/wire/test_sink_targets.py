"""Where the rows go: every kind of relation, while it changes, and by whose rights (C04, C05, C08, C10)."""

import os
import time

import pytest

from harness.packets import PUBACK, publish_frame
from harness.rawmqtt import RawClient

LOCKED_SECONDS = float(os.environ.get("SINK_LOCK_SECONDS", "3"))  # 60 in the long run

TARGETS = {
    "view": "CREATE TABLE {0}_base (a text, v text); CREATE VIEW {0} AS SELECT * FROM {0}_base",
    "instead of": """CREATE TABLE {0}_base (a text, v text);
        CREATE VIEW {0} AS SELECT a, upper(v) AS v FROM {0}_base;
        CREATE FUNCTION {0}_f() RETURNS trigger LANGUAGE plpgsql AS $f$
        BEGIN INSERT INTO {0}_base VALUES (NEW.a, NEW.v); RETURN NEW; END $f$;
        CREATE TRIGGER t INSTEAD OF INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_f()""",
    "unlogged": "CREATE UNLOGGED TABLE {0} (a text, v text)",
    "partitioned": """CREATE TABLE {0} (a text, v text) PARTITION BY LIST (a);
        CREATE TABLE {0}_1 PARTITION OF {0} FOR VALUES IN ('one');
        CREATE TABLE {0}_2 PARTITION OF {0} DEFAULT""",
    "inherited": "CREATE TABLE {0}_root (a text); CREATE TABLE {0} (v text) INHERITS ({0}_root)",
    "generated": """CREATE TABLE {0} (n serial PRIMARY KEY, a text DEFAULT 'x', v text,
        both_of text GENERATED ALWAYS AS (a || v) STORED)""",
}


def publish_both(client, topic):
    for a in ("one", "two"):
        assert client.publish(f"{topic}/{a}", "V", qos=1).code < 0x80


@pytest.mark.parametrize("kind", TARGETS)
def test_a_target_of_any_kind(server, raw, topic, name, kind):
    """C08: views, unlogged tables, partition roots."""
    server.psql(TARGETS[kind].format(name) + f"""; SELECT pgmqtt.add_sink('{name}', '{topic}/{{a}}',
        $$ INSERT INTO {name} (a, v) SELECT a, text FROM msg $$)""")
    client = raw()
    client.connect()
    publish_both(client, topic)
    assert server.psql(f"SELECT a, v FROM {name} ORDER BY 1") == "one|V\ntwo|V"


def test_a_quoted_name_in_another_schema(server, raw, topic, name):
    """C08: a table "Select" in a schema that no search_path has."""
    server.psql(f"""CREATE SCHEMA "{name} From"; CREATE TABLE "{name} From"."Select" ("Table" text);
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{a}}',
            $$ INSERT INTO "{name} From"."Select" SELECT a FROM msg $$)""")
    client = raw()
    client.connect()
    publish_both(client, topic)
    assert server.psql(f'SELECT count(*) FROM "{name} From"."Select"') == "2"


def test_ddl_while_messages_flow(server, raw, topic, name):
    """C08: columns come and go, the table is dropped and made anew; nothing acknowledged is missing."""
    create = f"CREATE TABLE {name} (v int, extra int)"
    server.psql(f"""{create}; SELECT pgmqtt.add_sink('{name}', '{topic}/x',
        'INSERT INTO {name} (v) SELECT text::int FROM msg')""")
    client = raw()
    client.connect()
    changes = [f"ALTER TABLE {name} ADD COLUMN more text DEFAULT 'm'",
               f"ALTER TABLE {name} DROP COLUMN extra", f"CREATE INDEX ON {name} (v)",
               f"ALTER TABLE {name} ALTER v TYPE bigint", f"VACUUM FULL {name}",
               f"ALTER TABLE {name} SET UNLOGGED"]
    for number, change in enumerate(changes):
        assert client.publish(f"{topic}/x", str(number), qos=1).code < 0x80
        server.psql(change)
    assert server.psql(f"SELECT count(*) FROM {name}") == str(len(changes))
    server.psql(f"DROP TABLE {name}")
    client.send(publish_frame(f"{topic}/x", "7", 1, packet_id=client.next_id()))
    server.wait_for(lambda: server.psql(f"SELECT status FROM pgmqtt.sinks WHERE name = '{name}'")
                    == "error", "the sink says that its table is gone")
    server.psql(create)
    assert client.expect(PUBACK, timeout=40).code < 0x80
    assert server.psql(f"SELECT v FROM {name}") == "7"
    assert server.psql(f"SELECT count(*) FROM pgmqtt.dead_letter WHERE name = '{name}'") == "0"


def test_strings_are_values_whatever_the_settings(new_server):
    """C04: backslashes and quotes in topics, payloads, client ids and user properties."""
    server = new_server(conf={"standard_conforming_strings": "off",
                              "backslash_quote": "on"}).start()
    server.psql("""CREATE TABLE seen (a text, t text, c text, u text);
        SELECT pgmqtt.add_sink('s', 'x/{a}', $$
            INSERT INTO seen SELECT a, text, client_id, user_properties->>'u' FROM msg $$)""")
    odd = ["x'); DROP TABLE seen;--", 'a"b', "$1", "%s", "{payload}", "a\\b", "\\'; DROP TABLE seen;--"]
    for text in odd:
        with RawClient(server.mqtt_port) as client:
            client.connect(text)
            client.publish(f"x/{text}", text, qos=1, properties={"user_property": [("u", text)]})
    connection = server.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT a, t, c, u FROM seen")
    assert sorted(cursor.fetchall()) == sorted((text,) * 4 for text in odd)
    connection.close()


def test_a_statement_has_the_rights_of_its_owner_and_no_more(server, raw, topic, name):
    """C04: what a function of somebody else does when the sink calls it, it does as the owner."""
    server.psql(f"""
        CREATE ROLE {name} IN ROLE pgmqtt_admin; CREATE SCHEMA {name} AUTHORIZATION {name};
        SET ROLE {name}; CREATE TABLE {name}.seen (who text, rest text);
        CREATE FUNCTION {name}.try() RETURNS text LANGUAGE plpgsql AS $f$
        BEGIN EXECUTE 'SET ROLE postgres'; RETURN 'escaped';
        EXCEPTION WHEN insufficient_privilege THEN RETURN 'kept'; END $f$;
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', $$
            INSERT INTO {name}.seen SELECT current_user, {name}.try() FROM msg $$);""")
    client = raw()
    client.connect()
    assert client.publish(f"{topic}/x", "", qos=1).code < 0x80
    assert server.psql(f"SELECT * FROM {name}.seen") == f"{name}|kept"


def push(clients, topic, count, window=50):
    """Every client sends `count` messages, each with a full window; returns the codes."""
    codes = []
    sent = [0] * len(clients)
    for number, client in enumerate(clients):
        for _ in range(min(window, count)):
            client.send(publish_frame(f"{topic}/{number}", '{"v": 1}', 1, packet_id=client.next_id()))
            sent[number] += 1
    for number, client in enumerate(clients):
        for _ in range(count):
            codes.append(client.expect(PUBACK, timeout=60).code)
            if sent[number] < count:
                client.send(publish_frame(f"{topic}/{number}", '{"v": 1}', 1,
                                          packet_id=client.next_id()))
                sent[number] += 1
    return codes


def test_many_publishers_share_commits_and_lose_nothing(server, raw, topic, name):
    """C05: rows come in batches; what is too much waits, nothing is dropped."""
    server.psql(f"""CREATE TABLE {name} (id bigserial PRIMARY KEY, p text, v int);
        CREATE INDEX ON {name} (p);
        SELECT pgmqtt.add_sink('{name}', '{topic}/{{p}}', $$
            INSERT INTO {name} (p, v) SELECT p, (json->>'v')::int FROM msg $$);""")
    clients = [raw() for _ in range(20)]
    for client in clients:
        client.connect()
    assert max(push(clients, topic, 200)) < 0x80
    rows, errors, pending, batches, times = server.psql(
        "SELECT rows, errors, pending, batches, batch_p50_ms <= batch_p99_ms AND batch_p50_ms > 0"
        f" FROM pgmqtt.stat_sinks WHERE name = '{name}'").split("|")
    assert (rows, errors, pending, times) == ("4000", "0", "0", "t")
    assert int(batches) * 3 < 4000  # more than three to a commit, on any machine
    assert server.psql(f"SELECT count(*), count(DISTINCT p) FROM {name}") == "4000|20"


def test_qos_0_is_batched_and_blocks_nobody(server, raw, topic, name):
    server.psql(f"""CREATE TABLE {name} (v int);
        SELECT pgmqtt.add_sink('{name}', '{topic}/x', 'INSERT INTO {name} SELECT text::int FROM msg');""")
    locker = server.connect(autocommit=False)
    locker.cursor().execute(f"LOCK TABLE {name}")
    client = raw()
    client.connect()
    client.send(b"".join(publish_frame(f"{topic}/x", str(n)) for n in range(1000)))
    client.expect_nothing_before_ping()  # served, while none of them can be stored
    locker.rollback()
    locker.close()
    server.wait_for(lambda: server.psql(f"SELECT count(*) FROM {name}") == "1000", "all are rows")
    assert int(server.psql(f"SELECT batches FROM pgmqtt.stat_sinks WHERE name = '{name}'")) < 200


def resident_kilobytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("RssAnon")).split()[1])


def test_a_backlog_is_bounded_visible_and_caught_up(new_server):
    """C10: publishers push at a sink whose table is locked; memory is bounded, the view shows the lag."""
    server = new_server().start()
    server.psql("""CREATE TABLE backlog (v int);
        SELECT pgmqtt.add_sink('backlog', 'x', 'INSERT INTO backlog SELECT length(payload) FROM msg');""")
    pids = [server.worker_pid("pgmqtt broker"), server.worker_pid("pgmqtt sink")]
    locker = server.connect(autocommit=False)
    locker.cursor().execute("LOCK TABLE backlog")
    before = [resident_kilobytes(pid) for pid in pids]
    clients = [RawClient(server.mqtt_port, 4, timeout=120) for _ in range(20)]
    sent, payload, end = [0] * 20, b"x" * 50_000, time.monotonic() + LOCKED_SECONDS
    for client in clients:
        client.connect()
        client.socket.settimeout(0.01)
    stuck = [b""] * 20
    while time.monotonic() < end or min(sent) == 0:
        for n, client in enumerate(clients):
            data = stuck[n] or publish_frame("x", payload, 1, packet_id=sent[n] % 65535 + 1, version=4)
            sent[n] += not stuck[n]
            try:
                stuck[n] = data[client.socket.send(data):]
            except TimeoutError:
                stuck[n] = data
    total, grown = sum(sent), [resident_kilobytes(pid) - was for pid, was in zip(pids, before)]
    lag = server.psql("SELECT lag_seconds > 0.5, pending > 0, status FROM pgmqtt.stat_sinks")
    assert lag == "t|t|waiting"
    assert max(grown) < 200 * 1024, grown
    assert any(stuck)  # the premise: TCP pushes back, more would have come
    locker.rollback()
    locker.close()
    for n, client in enumerate(clients):
        client.socket.settimeout(60)
        if stuck[n]:
            client.send(stuck[n])
    for n, client in enumerate(clients):
        for _ in range(sent[n]):
            client.expect(PUBACK)
        client.close()
    assert server.psql("SELECT count(*) FROM backlog") == str(total)
    assert server.psql("SELECT pending, lag_seconds, status FROM pgmqtt.stat_sinks") == "0|0|active"
    print(f"\n{total} messages of 50 kB behind a lock of {LOCKED_SECONDS:g} s: "
          f"broker +{grown[0]} kB, sink worker +{grown[1]} kB")
