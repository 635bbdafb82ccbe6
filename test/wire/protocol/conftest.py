"""Fixtures of the protocol tests: connected clients, in both versions, with names of their own."""

import itertools

import pytest

_numbers = itertools.count(1)
LONG = 300  # seconds a session is kept, where a test does not wait for its end


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5.0"])
def version(request):
    return request.param


@pytest.fixture
def client_id():
    return f"client {next(_numbers)}"


@pytest.fixture
def connected(raw):
    """connected(version=5, client_id="", **connect): a client with an accepted CONNECT."""

    def connect(version=5, client_id="", **options):
        client = raw(version)
        client.connack = client.connect(client_id, **options)
        assert client.connack.code == 0, client.connack
        return client

    return connect


@pytest.fixture
def lasting(connected):
    """lasting(version, client_id, expiry=300, **connect): a session that outlives its connection."""

    def connect(version, client_id, expiry=LONG, clean=False, properties=None, **options):
        if version == 5:
            properties = {"session_expiry_interval": expiry, **(properties or {})}
        return connected(version, client_id, clean=clean, properties=properties, **options)

    return connect
