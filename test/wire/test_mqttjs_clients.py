"""An application on mqtt.js: the scenarios of mqttjs_scenarios.js."""

import subprocess
from pathlib import Path

import pytest

from harness.waiting import PATIENCE

HERE = Path(__file__).parent
pytestmark = pytest.mark.protocol
SCENARIOS = [(version, scenario) for version in (4, 5)
             for scenario in ("will", "session", "shared", "large")] + [(5, "request")]


@pytest.mark.parametrize("version,scenario", SCENARIOS)
def test_mqttjs(broker, topic, version, scenario):
    assert (HERE / "node_modules" / "mqtt").exists(), "test/run.sh installs mqtt.js"
    done = subprocess.run(["node", str(HERE / "mqttjs_scenarios.js"), str(broker.mqtt_port),
                           str(version), scenario, topic],
                          stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
