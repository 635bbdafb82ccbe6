"""Many connections at once."""

import resource

import pytest

from harness.packets import CONNACK, CONNECT, connect_body, frame
from harness.rawmqtt import RawClient

CONNECTIONS = 1000


@pytest.fixture
def descriptors():
    """This process needs one for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 256
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} file descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.protocol
def test_1000_connections_at_once(broker, descriptors, topic):
    clients = [RawClient(broker.mqtt_port, timeout=60) for _ in range(CONNECTIONS)]
    try:
        for number, client in enumerate(clients):  # all ask before the first is answered
            client.send(frame(CONNECT, 0, connect_body(f"{topic}/{number}", keep_alive=0)))
        codes = [client.expect(CONNACK).code for client in clients]
        assert codes == [0] * CONNECTIONS
        for client in clients:
            client.subscribe(topic)
        clients[0].publish(topic, "to all")
        assert [client.expect(3).payload for client in clients] == [b"to all"] * CONNECTIONS
    finally:
        for client in clients:
            client.close()
