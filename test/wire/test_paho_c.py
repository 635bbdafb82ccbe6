"""An application on paho C: the scenarios of paho_c/scenarios.c."""

import subprocess
from pathlib import Path

import pytest

from harness.waiting import PATIENCE

pytestmark = pytest.mark.protocol
SOURCE = Path(__file__).parent / "paho_c" / "scenarios.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    binary = tmp_path_factory.mktemp("paho_c") / "scenarios"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o",
                    str(binary), str(SOURCE), "-lpaho-mqtt3c"], check=True)
    return binary


@pytest.mark.parametrize("scenario", ["session", "will", "shared", "request", "large"])
def test_paho_c(broker, topic, program, scenario):
    done = subprocess.run([str(program), str(broker.mqtt_port), scenario, f"{topic}/\u00fc/\u6771"],
                          stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
