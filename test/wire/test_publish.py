"""pgmqtt.publish(): delivered after COMMIT and only then, in order."""

import json
import time

import psycopg2
import pytest

from harness.rawmqtt import RawClient
from harness.server import Server
from test_mappings import wait_until_decoded


@pytest.fixture(scope="module")
def big_server():
    """Its messages may have 16 MB and a little."""
    with Server({"pgmqtt.max_packet_size": "17MB", "pgmqtt.client_buffer": "32MB"}) as running:
        yield running


def payloads(client, count):
    return [packet.payload.decode() for packet in client.messages(count)]


def test_commit_delivers_in_call_order(server, sub, topic):
    wanted = [str(n) for n in range(200)]
    with server.connect(autocommit=False) as session, session.cursor() as cursor:
        for payload in wanted:
            cursor.execute("SELECT pgmqtt.publish(%s, %s::text, 1)", (f"{topic}/a", payload))
        sub.expect_nothing_before_ping()  # the transaction is still open
        session.commit()
        assert payloads(sub, len(wanted)) == wanted


def test_rollback_delivers_nothing(server, sub, topic, name):
    """BEGIN; INSERT; SELECT pgmqtt.publish(...); ROLLBACK, with a mapping on the table as well."""
    server.psql(f"CREATE TABLE {name} (v int);"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$)")
    statements = (f"INSERT INTO {name} VALUES (1); "
                  f"SELECT pgmqtt.publish('{topic}/call', 'x'::text, 1);")
    server.psql(f"BEGIN; {statements} ROLLBACK;")
    server.psql(f"BEGIN; {statements} COMMIT;")
    topics = {packet.topic for packet in sub.messages(2)}
    assert topics == {f"{topic}/row", f"{topic}/call"}, "once each: from the COMMIT"
    sub.expect_nothing_before_ping()


def test_rollback_to_savepoint_takes_back(server, sub, topic):
    server.psql(f"""
        BEGIN;
        SELECT pgmqtt.publish('{topic}/a', 'one'::text, 1);
        SAVEPOINT s;
        SELECT pgmqtt.publish('{topic}/a', 'never'::text, 1);
        ROLLBACK TO s;
        SELECT pgmqtt.publish('{topic}/a', 'two'::text, 1);
        COMMIT;""")
    assert payloads(sub, 2) == ["one", "two"]
    sub.expect_nothing_before_ping()


def test_an_exception_block_takes_back(server, sub, topic):
    server.psql(f"""
        DO $do$ BEGIN
            PERFORM pgmqtt.publish('{topic}/a', 'one'::text, 1);
            BEGIN
                PERFORM pgmqtt.publish('{topic}/a', 'never'::text, 1);
                PERFORM 1 / 0;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
            PERFORM pgmqtt.publish('{topic}/a', 'two'::text, 1);
        END $do$""")
    assert payloads(sub, 2) == ["one", "two"]


def test_a_failure_at_commit_delivers_nothing(server, sub, topic, name):
    server.psql(f"CREATE TABLE {name} (v int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(RuntimeError, match="23505"):
        server.psql(f"BEGIN; INSERT INTO {name} VALUES (1), (1);"
                    f"SELECT pgmqtt.publish('{topic}/a', 'never'::text, 1); COMMIT;")
    server.psql(f"SELECT pgmqtt.publish('{topic}/a', 'after'::text, 1)")
    assert payloads(sub, 1) == ["after"]


def test_payload_types(server, sub, topic):
    server.psql(f"""
        SELECT pgmqtt.publish('{topic}/a', 'text'::text);
        SELECT pgmqtt.publish('{topic}/a', '\\x00ff'::bytea);
        SELECT pgmqtt.publish('{topic}/a', '{{"a": 1}}'::jsonb);
        SELECT pgmqtt.publish('{topic}/a', NULL::text);
        SELECT pgmqtt.publish('{topic}/a', repeat('x', 9000)::text);""")
    text, binary, json_, empty, long = (packet.payload for packet in sub.messages(5))
    assert (text, binary, empty, long) == (b"text", b"\x00\xff", b"", b"x" * 9000)
    assert json.loads(json_) == {"a": 1}


def test_qos_retain_and_properties_arrive(server, sub, raw, topic):
    server.psql(f"""SELECT pgmqtt.publish('{topic}/a', 'x'::text, 1, true,
        '{{"content_type": "text/plain", "response_topic": "r", "correlation_data": "c",
           "payload_format_indicator": 1, "user_properties": {{"k": ["1", "2"]}}}}')""")
    packet = sub.messages(1)[0]
    assert packet.qos == 1
    assert packet.properties == {
        "content_type": "text/plain", "response_topic": "r", "correlation_data": b"c",
        "payload_format_indicator": 1, "user_property": [("k", "1"), ("k", "2")]}
    late = raw()
    late.connect()
    late.subscribe(f"{topic}/a")
    assert late.expect(3).retain is True


@pytest.mark.parametrize("arguments", [
    "'', 'x'::text", "'a/+', 'x'::text", "'#', 'x'::text", "'$SYS/x', 'x'::text",
    "repeat('a', 65536), 'x'::text", "'a', 'x'::text, 3", "'a', 'x'::text, -1",
    "'a', repeat('x', 2000000)::text", "'a', 'x'::text, 0, false, '{\"unknown\": 1}'",
    "NULL, 'x'::text",
])
def test_a_wrong_call_is_the_callers_error(server, arguments):
    with pytest.raises(RuntimeError, match="ERROR"):
        server.psql(f"SELECT pgmqtt.publish({arguments})")


def test_an_ordinary_role_may_not_publish_until_granted(server, name, topic):
    server.psql(f"CREATE ROLE {name} LOGIN")
    call = f"SELECT pgmqtt.publish('{topic}', 'x'::text)"
    with pytest.raises(RuntimeError, match="42501"):
        server.psql(call, user=name)
    server.psql(f"GRANT USAGE ON SCHEMA pgmqtt TO {name};"
                "GRANT EXECUTE ON FUNCTION pgmqtt.publish(text, text, int, boolean, jsonb)"
                f" TO {name}")
    server.psql(call, user=name)


def test_transactions_are_delivered_in_commit_order(server, sub, topic):
    first, second = server.connect(autocommit=False), server.connect(autocommit=False)
    call = f"SELECT pgmqtt.publish('{topic}/a', %s::text, 1)"
    first.cursor().execute(call, ("committed second",))
    second.cursor().execute(call, ("committed first",))
    second.commit()
    first.commit()
    assert payloads(sub, 2) == ["committed first", "committed second"]
    for session in (first, second):
        session.close()


def test_prepare_transaction(new_server, topic):
    server = new_server(conf={"max_prepared_transactions": 5}).start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(topic, 1)
        server.psql(f"BEGIN; SELECT pgmqtt.publish('{topic}', 'x'::text, 1);"
                    "PREPARE TRANSACTION 'p'")
        client.expect_nothing_before_ping()
        server.psql("COMMIT PREPARED 'p'")
        assert payloads(client, 1) == ["x"]


def test_prepared_publishes_wait_for_their_commit_whatever_passes_them(new_server):
    """Other publishes, which are looked for behind it, a kill -9, and other sessions that end it."""
    server = new_server(conf={"max_prepared_transactions": 5}).start()
    for name in ("yes", "no"):
        server.psql(f"BEGIN; SELECT pgmqtt.publish('{name}/' || n, 'x'::text, 1) "
                    f"FROM generate_series(1, 3) n; PREPARE TRANSACTION '{name}'")
    for kill in (False, True):
        if kill:
            server.kill9(everyone=True)
            server.start()
        assert server.psql("SELECT count(*) FROM pg_prepared_xacts") == "2"
        with RawClient(server.mqtt_port) as client:
            client.connect()
            client.subscribe("#", 1)
            for number in range(20):
                server.psql(f"SELECT pgmqtt.publish('later', '{number}'::text, 1)")
                assert payloads(client, 1) == [str(number)]
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe("#", 1)
        server.psql("ROLLBACK PREPARED 'no'")
        server.psql("COMMIT PREPARED 'yes'")
        topics = []
        for _ in range(3):
            packet = client.expect(3)
            client.puback(packet.packet_id)
            topics.append(packet.topic)
        assert topics == ["yes/1", "yes/2", "yes/3"]
        client.expect_nothing_before_ping()
    server.wait_for(lambda: server.psql("SELECT (SELECT count(*) FROM pgmqtt.outbox) + "
                                        "(SELECT count(*) FROM pgmqtt.outbox_commit)") == "0",
                    "nothing is left in the outbox")


def test_a_read_only_transaction_cannot_publish(server, topic):
    with pytest.raises(RuntimeError, match="25006"):
        server.psql(f"BEGIN READ ONLY; SELECT pgmqtt.publish('{topic}', 'x'::text)")


def test_a_committed_publish_survives_kill_9(new_server, topic):
    """No subscriber is needed to see it: it is retained."""
    server = new_server().start()
    server.psql(f"SELECT pgmqtt.publish('{topic}', 'kept'::text, 1, true)")
    server.kill9(everyone=True)
    server.start()
    with RawClient(server.mqtt_port) as client:
        client.connect()
        client.subscribe(topic, 1)
        assert payloads(client, 1) == ["kept"]


def test_python_types_need_no_casts(server, sub, topic):
    """psycopg2 sends unknown literals: the overloads must not be ambiguous for bytes."""
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT pgmqtt.publish(%s, %s)",
                       (f"{topic}/a", psycopg2.Binary(b"\x01\x02")))
    assert sub.messages(1)[0].payload == b"\x01\x02"


def test_statement_timeout_takes_back(server, sub, topic):
    """B07: the statement that called publish() is cancelled; the transaction cannot commit."""
    with pytest.raises(RuntimeError, match="57014"):
        server.psql(f"SET statement_timeout = '50ms';"
                    f"SELECT pgmqtt.publish('{topic}/a', 'never'::text, 1), pg_sleep(10)")
    with server.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("SELECT pgmqtt.publish(%s, 'never'::text, 1)", (f"{topic}/a",))
        cursor.execute("SET LOCAL statement_timeout = '50ms'")
        with pytest.raises(psycopg2.errors.QueryCanceled):
            cursor.execute("SELECT pg_sleep(10)")
        session.commit()  # of a failed transaction: a rollback
        cursor.execute("SELECT pgmqtt.publish(%s, 'kept'::text, 1)", (f"{topic}/a",))
        cursor.execute("SAVEPOINT s")
        cursor.execute("SET LOCAL statement_timeout = '50ms'")
        with pytest.raises(psycopg2.errors.QueryCanceled):
            cursor.execute("SELECT pgmqtt.publish(%s, 'never'::text, 1), pg_sleep(10)", (f"{topic}/a",))
        cursor.execute("ROLLBACK TO s")
        session.commit()
    assert payloads(sub, 1) == ["kept"]
    sub.expect_nothing_before_ping()


def test_a_terminated_backend_publishes_nothing(server, sub, topic):
    """B07"""
    session = server.connect(autocommit=False)
    session.cursor().execute("SELECT pgmqtt.publish(%s, 'never'::text, 1)", (f"{topic}/a",))
    pid = session.get_backend_pid()
    server.psql(f"SELECT pg_terminate_backend({pid})")
    server.wait_for(lambda: server.psql(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}") == "0",
                    "the backend has ended")
    server.psql(f"SELECT pgmqtt.publish('{topic}/a', 'after'::text, 1)")
    assert payloads(sub, 1) == ["after"]


def test_a_row_and_a_call_of_one_transaction_are_both_or_neither(server, sub, topic, name):
    """B07: mapped rows and publish() through all ways a transaction can fail, and one that commits."""
    server.psql(f"CREATE TABLE {name} (v int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/row'$$, $$new.v::text$$)")

    def transaction(number, end, *more):
        return (f"BEGIN; INSERT INTO {name} VALUES ({number});"
                f"SELECT pgmqtt.publish('{topic}/call', '{number}'::text, 1); {' '.join(more)} {end};")

    server.psql(transaction(1, "ROLLBACK"))
    for failing in (transaction(2, "COMMIT", f"INSERT INTO {name} VALUES (2);"),  # deferred constraint
                    transaction(3, "COMMIT", "SELECT 1 / 0;"),
                    transaction(4, "COMMIT", "SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5);")):
        with pytest.raises(RuntimeError, match="23505|22012|57014"):
            server.psql(failing)
    server.psql(transaction(5, "COMMIT", f"SAVEPOINT s; INSERT INTO {name} VALUES (6);"
                            f"SELECT pgmqtt.publish('{topic}/call', '6'::text, 1); ROLLBACK TO s;"))
    got = {(packet.topic.rpartition("/")[2], packet.payload) for packet in sub.messages(2)}
    assert got == {("row", b"5"), ("call", b"5")}
    wait_until_decoded(server)
    sub.expect_nothing_before_ping()


@pytest.mark.parametrize("size", [0, 1, 7999, 8000, 8001, 65535, 65536, 1 << 20, 16 << 20])
def test_payloads_of_any_size(big_server, size):
    """B09: no wall at 8,000 bytes; pgmqtt.max_packet_size is one, told in the caller's transaction."""
    with RawClient(big_server.mqtt_port, timeout=60) as client:
        client.connect()
        client.subscribe("big", 1)
        big_server.psql(f"SELECT pgmqtt.publish('big', repeat('x', {size})::text, 1)")
        assert client.message().payload == b"x" * size


def test_the_largest_payload_is_checked_in_the_callers_transaction(big_server):
    """B09"""
    with pytest.raises(RuntimeError, match="54000.*too large"):
        big_server.psql("SELECT pgmqtt.publish('big', repeat('x', 17 << 20)::text, 1)")


def test_payloads_without_a_value_and_with_every_byte(server, sub, topic):
    """B09: NULL, '' of each type, and 256 bytes."""
    server.psql(f"""
        SELECT pgmqtt.publish('{topic}/a', NULL::text); SELECT pgmqtt.publish('{topic}/a', NULL::bytea);
        SELECT pgmqtt.publish('{topic}/a', NULL::jsonb); SELECT pgmqtt.publish('{topic}/a', ''::text);
        SELECT pgmqtt.publish('{topic}/a', ''::bytea);
        SELECT pgmqtt.publish('{topic}/a', 'null'::jsonb);
        SELECT pgmqtt.publish('{topic}/a', decode(string_agg(lpad(to_hex(n), 2, '0'), ''), 'hex'))
            FROM generate_series(0, 255) n""")
    assert [packet.payload for packet in sub.messages(7)] == [b""] * 5 + [b"null", bytes(range(256))]


def test_a_held_snapshot_does_not_make_publishing_slower(new_server):
    """B06: rows that a forgotten transaction keeps are not looked at again with each message."""
    own = new_server(conf={"autovacuum_naptime": "1s"}).start()
    own.psql("""CREATE PROCEDURE many() LANGUAGE plpgsql AS $$BEGIN FOR i IN 1..20000 LOOP
        PERFORM pgmqtt.publish('a', 'x'::text); COMMIT; END LOOP; END$$""")
    holder = own.connect(autocommit=False)
    holder.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.cursor().execute("SELECT 1")
    looked_at = ("SELECT idx_tup_read FROM pg_stat_user_indexes"
                 " WHERE indexrelid = 'pgmqtt.outbox_commit_pkey'::regclass")

    def settled():
        """What the store worker has reported, when it has nothing more to report."""
        own.wait_for(lambda: own.psql("SELECT count(*) FROM pgmqtt.outbox_commit") == "0", "it is empty")
        previous = None
        while previous != (previous := own.psql(looked_at)):
            time.sleep(2)
        return int(previous)

    own.psql("SET synchronous_commit = off; CALL many()")
    with RawClient(own.mqtt_port) as client:
        client.connect()
        client.subscribe("b", 0)
        before = settled()
        for _ in range(200):
            own.psql("SELECT pgmqtt.publish('b', ''::text)")
            client.message()
        after = settled()
    dead = int(own.psql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_commit'"))
    assert dead >= 20000, "the premise: the snapshot keeps them"
    # Now and then it does begin at the beginning.
    assert after - before < 10 * 20000
    holder.close()
