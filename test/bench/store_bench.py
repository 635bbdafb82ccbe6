"""Runs test/bench/store_bench.cpp in a private server: python3 store_bench.py [messages payload per_cycle receivers]"""

import os
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["PGMQTT_TEST_PLAIN"] = "1"

from harness.server import Server  # noqa: E402
from harness.waiting import wait_for  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "build" / "bench" / "pgmqtt_store_bench.so"
RUNS = [(500000, 64, 1000, 1), (200000, 64, 100, 1), (50000, 64, 10, 1), (200000, 64, 1000, 10),
        (100000, 1024, 500, 1), (10000, 16384, 100, 1)]


def tables():
    """The state tables, from the install script."""
    script = (ROOT / "sql" / "pgmqtt--1.0.sql").read_text(encoding="utf8")
    start = script.index("CREATE TABLE pgmqtt.session (")
    end = script.index("-- What pgmqtt.durability does not say")
    return "CREATE SCHEMA pgmqtt;\n" + script[start:end]


def main():
    runs = [tuple(map(int, sys.argv[1:5]))] if len(sys.argv) > 1 else RUNS
    with Server(conf={"shared_preload_libraries": "", "shared_buffers": "256MB",
                      "max_wal_size": "8GB"}, create_extension=False, preload=False) as server:
        shutil.copy(MODULE, server.tree.lib / MODULE.name)
        (server.tree.lib / MODULE.name).chmod(0o755)
        server.psql(tables())
        server.psql("INSERT INTO pgmqtt.session SELECT n, '', '', now(), 'infinity', 0, '', '', 0, "
                    "false, '', now(), now(), 0 FROM generate_series(1, 10) n")
        server.psql("CREATE FUNCTION store_bench(bigint, bigint, bigint, bigint) RETURNS void "
                    "LANGUAGE c AS 'pgmqtt_store_bench'")
        for number, run in enumerate(runs, 1):
            print("messages %d, payload %d, per cycle %d, receivers %d" % run)
            server.psql("SELECT store_bench(%d, %d, %d, %d)" % run)
            wait_for(lambda: len(re.findall("bench (done|failed)", server.log_text())) >= number,
                     "the bench", 300)
            lines = re.findall(r"bench (?:store|load|fetch|end|failed).*", server.log_text())
            print("   " + "\n   ".join(lines[-4:]))
            print("    size", server.psql(
                "SELECT pg_size_pretty(sum(pg_total_relation_size(c.oid))) FROM pg_class c "
                "WHERE relnamespace = 'pgmqtt'::regnamespace AND relkind = 'r'"))
            server.psql("TRUNCATE pgmqtt.message, pgmqtt.queue_log")


if __name__ == "__main__":
    main()
