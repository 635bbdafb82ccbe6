"""QoS 2 into a sink is exactly once, whatever ends between its commit and the PUBREC."""

import pytest

from harness.packets import PUBCOMP, PUBREC, PUBREL, frame, publish_frame
from harness.rawmqtt import RawClient

KEPT = {"session_expiry_interval": 3600}


@pytest.fixture
def failing(new_server):
    """A server whose sink worker fails as `how` says after its first commit, and a sink without keys."""
    def make(how):
        server = new_server()
        server.variables["PGMQTT_FAILPOINT"] = f"sink-answer:1:{how}"
        server.start()
        server.psql("""CREATE TABLE twice (v text);
            SELECT pgmqtt.add_sink('s', 'x', 'INSERT INTO twice SELECT text FROM msg', 2);""")
        return server
    return make


def connect(server, present):
    client = RawClient(server.mqtt_port, timeout=30)
    assert client.connect("exact", clean=False, properties=KEPT).session_present == present
    return client


def send(client, payload, dup=False):
    client.send(publish_frame("x", payload, 2, packet_id=5, dup=dup))


def release(client):
    client.send(frame(PUBREL, 2, b"\0\5"))
    assert client.expect(PUBCOMP).packet_id == 5


def rows(server):
    return server.psql("SELECT v FROM twice").split()


def test_a_worker_that_ends_after_its_commit(failing):
    server = failing("exit")
    with connect(server, False) as client:
        send(client, "a")
        assert client.expect(PUBREC).code == 0
        assert "exited with exit code 1" in server.log_text()  # the premise
        release(client)
    assert rows(server) == ["a"]


def test_a_crash_after_its_commit(failing):
    server = failing("kill")
    with connect(server, False) as client:
        send(client, "a")
        client.expect_closed(timeout=30)
    server.wait_for(lambda: rows(server) == ["a"], "the server is back, the row is there")
    server.wait_listening()
    with connect(server, True) as client:
        send(client, "a", dup=True)
        assert client.expect(PUBREC).code == 0
        assert rows(server) == ["a"]
        assert server.psql("SELECT session_id > 0, packet_id FROM pgmqtt.sink_received") == "t|5"
        release(client)
        assert server.psql("SELECT count(*) FROM pgmqtt.sink_received") == "0"
        # The same again is another message now, also if its first transmission was lost.
        send(client, "a", dup=True)
        assert client.expect(PUBREC).code == 0
        release(client)
    assert rows(server) == ["a", "a"]


def test_a_refused_message_leaves_its_identifier_free(new_server):
    server = new_server().start()
    server.psql("""CREATE TABLE twice (v text CHECK (v <> 'bad'));
        SELECT pgmqtt.add_sink('s', 'x', 'INSERT INTO twice SELECT text FROM msg', 2);""")
    with connect(server, False) as client:
        for payload, code in (("bad", 0x83), ("bad", 0x83), ("good", 0)):
            send(client, payload)
            assert client.expect(PUBREC).code == code
        release(client)
        send(client, "good")
        assert client.expect(PUBREC).code == 0
    assert rows(server) == ["good", "good"]
