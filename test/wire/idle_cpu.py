"""Prints the CPU time that the workers of an idle server take.

    /usr/bin/python3 test/wire/idle_cpu.py [SECONDS] [CONNECTIONS]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.processes import cpu_seconds  # noqa: E402
from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import WORKERS, Server  # noqa: E402


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    connections = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with Server() as server:
        server.psql("CREATE TABLE t (v text); SELECT pgmqtt.add_mapping('m', 't', $$'out'$$);"
                    "SELECT pgmqtt.add_sink('s', 'in/{v}', 'INSERT INTO t SELECT v FROM msg')")
        clients = [RawClient(server.mqtt_port) for _ in range(connections)]
        for client in clients:
            client.connect(keep_alive=0)
        pids = {worker: server.worker_pid(worker) for worker in WORKERS}
        before = {worker: cpu_seconds(pid) for worker, pid in pids.items()}
        time.sleep(seconds)
        used = {worker: cpu_seconds(pid) - before[worker] for worker, pid in pids.items()}
        for worker, cpu in used.items():
            print(f"{worker}: {cpu:.2f} s")
        print(f"all workers: {sum(used.values()):.2f} s of CPU in {seconds:g} s, "
              f"{connections} idle connections")
        for client in clients:
            client.close()


if __name__ == "__main__":
    main()
