"""Username and password are the database's own roles and their SCRAM verifiers."""

import os
from pathlib import Path

import pytest

BAD_LOGIN_5, BAD_LOGIN_3 = 0x86, 4
NOT_AUTHORIZED = 0x87


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def role(server, name):
    server.psql(f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
    return name


def refused(client, code, **login):
    connack = client.connect(**login)
    assert connack.code == code
    assert client.expect_closed() == []


@pytest.mark.parametrize("version", [4, 5])
def test_the_right_password_is_let_in(raw, role, version):
    client = raw(version)
    assert client.connect(f"c-{role}", username=role, password="right").code == 0
    client.expect_nothing_before_ping()


def test_wrong_password_and_unknown_role_look_the_same(raw, role):
    refused(raw(), BAD_LOGIN_5, username=role, password="wrong")
    refused(raw(), BAD_LOGIN_5, username=f"no_{role}", password="right")
    refused(raw(4), BAD_LOGIN_3, client_id="c", username=role, password="wrong")


@pytest.mark.parametrize("length", [1024, 1025, 65535])
def test_a_long_password_is_refused_before_it_costs_anything(server, raw, name, length):
    server.psql(f"CREATE ROLE {name} LOGIN PASSWORD '{'p' * length}'")
    client = raw()
    if length <= 1024:
        assert client.connect(f"c-{name}", username=name, password="p" * length).code == 0
        return
    worker = server.psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgmqtt broker'")
    refused(client, BAD_LOGIN_5, username=name, password="p" * length)
    cost = []
    for password in "p" * length, "short":
        before = cpu_seconds(worker)
        for _ in range(50):
            refused(raw(), BAD_LOGIN_5, username=name, password=password)
        cost.append(cpu_seconds(worker) - before)
    assert cost[0] < cost[1]
    assert "more than 1024 bytes" in server.log_text()


def test_a_role_that_may_not_log_in_is_refused(server, raw, role):
    server.psql(f"ALTER ROLE {role} NOLOGIN")
    assert raw().connect(username=role, password="right").code in (BAD_LOGIN_5, NOT_AUTHORIZED)


def test_an_expired_password_is_refused(server, raw, role):
    server.psql(f"ALTER ROLE {role} VALID UNTIL '2001-01-01'")
    assert raw().connect(username=role, password="right").code in (BAD_LOGIN_5, NOT_AUTHORIZED)


def test_an_md5_verifier_is_refused_with_a_hint_in_the_log(server, raw, name):
    server.psql(f"SET password_encryption = md5; CREATE ROLE {name} LOGIN PASSWORD 'right'")
    refused(raw(), BAD_LOGIN_5, username=name, password="right")
    assert name in server.log_text() and "md5" in server.log_text()


def test_anonymous_off_asks_for_a_name(new_server):
    from harness.rawmqtt import RawClient

    server = new_server(conf={"pgmqtt.allow_anonymous": "off"}).start()
    with RawClient(server.mqtt_port) as client:
        refused(client, NOT_AUTHORIZED)
    server.psql("CREATE ROLE r LOGIN PASSWORD 'p'")
    with RawClient(server.mqtt_port) as client:
        assert client.connect(username="r", password="p").code == 0
