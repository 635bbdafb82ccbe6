"""Fixtures of the wire tests: a server, topics of one's own, clients that end with the test.

PGMQTT_WIRE_BROKER=mosquitto runs the tests that need no SQL against mosquitto: what they claim of
MQTT must hold there, too (they are marked `protocol`; where mosquitto 2.0 is known to be laxer than
the specification they are also marked `stricter`).
"""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server, free_port, shared_tree  # noqa: E402
from harness.tree import make  # noqa: E402
from harness.waiting import wait_for  # noqa: E402

MOSQUITTO = os.environ.get("PGMQTT_WIRE_BROKER") == "mosquitto"
_numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "protocol: needs only an MQTT broker, no SQL")
    config.addinivalue_line("markers", "stricter: mosquitto does not pass this one")


def pytest_sessionstart(session):
    """What does not build or install fails once, and not in every test.

    With -n, this runs before the workers start: they share the installation made here.
    """
    if not MOSQUITTO and not session.config.option.collectonly:
        try:
            tree = shared_tree()
            tree.make_template()
            os.environ["PGMQTT_TEST_TREE"] = str(tree.prefix)
        except RuntimeError as error:
            pytest.exit(str(error), returncode=2)


def pytest_collection_modifyitems(items):
    if MOSQUITTO:
        for item in items:
            if item.get_closest_marker("protocol") is None or item.get_closest_marker("stricter"):
                item.add_marker(pytest.mark.skip(reason="about pgmqtt"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A failed test shows the end of the log of each server it used."""
    report = (yield).get_result()
    if report.failed:
        for value in item.funcargs.values():
            if isinstance(value, Server):
                report.sections.append(("server log", value.log_tail()))


@pytest.fixture(scope="session")
def loadtest():
    """build/loadtest is there."""
    make("loadtest")


@pytest.fixture(scope="session")
def server():
    """The server that most tests share; tests that stop it or change settings use new_server."""
    with Server() as running:
        yield running


@pytest.fixture
def new_server():
    """Makes servers of the test's own: new_server(conf={...}, ...), not started yet."""
    made = []

    def make(**options):
        made.append(Server(**options))
        return made[-1]

    yield make
    for one in made:
        one.remove()


class Mosquitto:
    """The reference broker, for checking the protocol tests themselves."""

    def __init__(self):
        self.mqtt_port = free_port()
        self._directory = tempfile.TemporaryDirectory(prefix="pgmqtt-mosquitto-")
        conf = Path(self._directory.name) / "conf"
        conf.write_text(f"listener {self.mqtt_port} 127.0.0.1\nallow_anonymous true\n"
                        "max_keepalive 65535\n", encoding="utf8")
        binary = next(path for path in ("/usr/sbin/mosquitto", "/usr/bin/mosquitto")
                      if os.path.exists(path))
        self._process = subprocess.Popen([binary, "-c", str(conf)], stderr=subprocess.DEVNULL)
        wait_for(self._open, "mosquitto listens")

    def _open(self):
        with socket.create_connection(("127.0.0.1", self.mqtt_port), timeout=1):
            return True

    def stop(self):
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()


@pytest.fixture(scope="session")
def broker(request):
    """Whatever listens on .mqtt_port: pgmqtt, or mosquitto as the reference."""
    if not MOSQUITTO:
        yield request.getfixturevalue("server")
        return
    reference = Mosquitto()
    yield reference
    reference.stop()


@pytest.fixture
def topic():
    """The root of topics that no other test uses."""
    return f"test/{next(_numbers)}"


@pytest.fixture
def name():
    """An SQL identifier that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture
def raw(broker):
    """raw(version=5) opens a raw connection to the shared broker, closed after the test."""
    opened = []

    def connect(version=5, port=None, **options):
        opened.append(RawClient(port or broker.mqtt_port, version, **options))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def sub(raw, topic):
    """Subscribed to all under `topic` with QoS 1."""
    client = raw()
    client.connect()
    assert client.subscribe(f"{topic}/#", 1).codes == b"\x01"
    return client
