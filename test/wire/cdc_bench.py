"""Measures rows to messages, each case with a server of its own; prints numbers beside their bars.

    python3 test/wire/cdc_bench.py [CASE ...] [--seconds N] [--rows N]

Cases (all by default):
  lag     pgbench, one row per transaction, on a mapped table: commit to delivery must not grow
  bulk    transactions of 100,000 rows, payload jsonb of 5 columns, QoS 0: publishes/s
  copy    COPY of 1,000,000 rows: complete and in order, memory, the first delivery, other topics meanwhile
  idle    pgbench TPS with the extension and a mapping that nothing touches, and without; in turns
  quiet   a mapped table at rest while pgbench writes others: retained WAL, CPU of the cdc worker
Asserts what must hold on any machine (completeness, order); the bars are for a quiet one. fsync is on.
"""

import argparse
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.packets import CONNECT, SUBSCRIBE, connect_body, frame  # noqa: E402
from harness.processes import cpu_seconds  # noqa: E402
from harness.server import Server  # noqa: E402

# Five columns of the usual kinds.
COLUMNS = "id bigint, device text, at timestamptz, celsius float8, ok boolean"
ROW = "i, 'device-' || i % 1000, now(), i * 0.1::float8, true"


def say(what, value, bar=""):
    print(f"  {what}: {value}" + (f"   (bar: {bar})" if bar else ""), flush=True)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Reader(threading.Thread):
    """Subscribes with QoS 0 and hands whole PUBLISH packets' (arrival, topic, payload) to `take`."""

    def __init__(self, port, topic_filter, take):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(frame(CONNECT, 0, connect_body("", 4)))
        self._read_exactly(4)
        self.socket.sendall(frame(SUBSCRIBE, 2, b"\0\1" + struct.pack(">H", len(topic_filter))
                                  + topic_filter.encode() + b"\0"))
        self._read_exactly(5)
        self.take = take
        self.closing = False

    def _read_exactly(self, size):
        while size > 0:
            size -= len(self.socket.recv(size))

    def run(self):
        rest = b""
        while not self.closing:
            if not select.select([self.socket], [], [], 0.1)[0]:
                continue
            data = self.socket.recv(1 << 20)
            if not data:
                return
            rest = self._split(rest + data, time.monotonic())

    def _split(self, data, now):
        at = 0
        while at + 2 <= len(data):
            size, shift, head = 0, 0, at + 1
            while head < len(data):
                byte = data[head]
                size |= (byte & 127) << shift
                shift += 7
                head += 1
                if byte < 128:
                    break
            else:
                break
            if head + size > len(data):
                break
            topic_end = head + 2 + (data[head] << 8 | data[head + 1])
            self.take(now, data[head + 2:topic_end], data[topic_end:head + size])
            at = head + size
        return data[at:]

    def close(self):
        self.closing = True
        self.join()
        self.socket.close()


class Counter(threading.Thread):
    """As Reader, for rates that Python cannot parse: mosquitto's packets all have one size, so bytes count."""

    def __init__(self, port, topic_filter, packet_size):
        super().__init__(daemon=True)
        self._reader = Reader(port, topic_filter, None)
        self.packet_size, self.bytes, self.first, self.last = packet_size, 0, None, None
        self.closing = False

    @property
    def packets(self):
        return self.bytes / self.packet_size

    def run(self):
        buffer = bytearray(1 << 20)
        while not self.closing:
            if not select.select([self._reader.socket], [], [], 0.1)[0]:
                continue
            self.bytes += self._reader.socket.recv_into(buffer)
            self.last = time.monotonic()
            self.first = self.first or self.last

    def close(self):
        self.closing = True
        self.join()
        self._reader.socket.close()


class Pinger(threading.Thread):
    """Publishes to itself every few milliseconds, QoS 0: what other topics feel."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.sent, self.times, self.closing = {}, [], False
        self.reader = Reader(port, "other", self._take)
        self.socket = self.reader.socket

    def _take(self, now, _, payload):
        self.times.append(now - self.sent.pop(payload))

    def run(self):
        self.reader.start()
        number = 0
        while not self.closing:
            payload = struct.pack(">Q", number)
            self.sent[payload] = time.monotonic()
            self.socket.sendall(frame(3, 0, b"\0\5other" + payload))
            number += 1
            time.sleep(0.005)

    def close(self):
        self.closing = True
        self.join()
        self.reader.close()
        return self.times


class Resident(threading.Thread):
    """The highest resident memory of processes, their shared memory apart, sampled."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.peaks, self.closing = dict.fromkeys(pids, 0), False

    def run(self):
        while not self.closing:
            for pid in self.peaks:
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf8")
                self.peaks[pid] = max(self.peaks[pid], int(re.search(r"RssAnon:\s+(\d+)", status)[1]))
            time.sleep(0.05)

    def close(self):
        self.closing = True
        self.join()
        return [peak / 1024 for peak in self.peaks.values()]


def pgbench(server, script, seconds, clients=4, more=()):
    """Runs a pgbench script; returns transactions per second."""
    path = server.directory / "pgbench.sql"
    path.write_text(script, encoding="utf8")
    said = subprocess.run(
        [str(server.tree.bin / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "2",
         "-T", str(int(seconds)), "-f", str(path), *more, "-h", str(server.directory),
         "-p", str(server.port), "-U", "postgres", "postgres"],
        check=True, text=True, capture_output=True).stdout
    return float(re.search(r"tps = ([\d.]+)", said)[1])


def start(**conf):
    return Server(conf={"fsync": "on", "max_wal_size": "8GB", "shared_buffers": "256MB",
                        "pgmqtt.sys_interval": 0, **conf})


def map_rows(server, topic, payload, qos=0):
    server.psql(f"CREATE TABLE t ({COLUMNS});"
                f"SELECT pgmqtt.add_mapping('t', 't', $${topic}$$, {payload}, qos => {qos},"
                " operations => '{insert}')")


def lag(options):
    """(a) The lag is that of commit_ts, which the decoder has, to the arrival here."""
    with start() as server:
        map_rows(server, "'t'", "$$extract(epoch FROM commit_ts)::text$$")
        lags = []
        reader = Reader(server.mqtt_port, "t", lambda now, topic, payload: lags.append(
            (now, time.time() - float(payload))))
        reader.start()
        began = time.monotonic()
        tps = pgbench(server, "INSERT INTO t VALUES (1, 'device', now(), 1.5, true)", options.seconds)
        rows = int(server.psql("SELECT count(*) FROM t"))
        server.wait_for(lambda: len(lags) == rows, f"{rows} messages", 60)
        reader.close()
    say("committed", f"{tps:.0f}/s")
    tenth = options.seconds / 10
    parts = [[lag for at, lag in lags if n * tenth <= at - began < (n + 1) * tenth] for n in (1, 5, 9)]
    for what, part in zip(("second", "middle", "last"), parts):
        say(f"{what} tenth, commit to arrival",
            f"p50 {percentile(part, .5) * 1000:.2f} ms, p99 {percentile(part, .99) * 1000:.2f} ms")
    say("growth of p50", f"{percentile(parts[2], .5) / percentile(parts[0], .5):.2f}", "does not grow: ~1")


def bulk(options):
    """(b) Rows of one length, so that bytes count packets. From the first delivery to the last."""
    rows, transactions = 100_000, 5
    with start() as server:
        server.psql(f"CREATE TABLE t ({COLUMNS}); SELECT pgmqtt.add_mapping('t', 't', $$'t'$$, qos => 0)")
        sizes = []
        reader = Reader(server.mqtt_port, "t", lambda now, topic, payload: sizes.append(len(payload)))
        reader.start()
        insert = ("INSERT INTO t SELECT 1000000 + i, 'device-' || 100 + i % 900,"
                  " '2026-01-01T00:00:00Z', 0.5, true FROM generate_series(1, {}) i")
        server.psql(insert.format(3))
        server.wait_for(lambda: len(sizes) == 3, "a first row")
        reader.close()
        assert len(set(sizes)) == 1, sizes
        body = 2 + 1 + sizes[0]
        counter = Counter(server.mqtt_port, "t", 1 + (1 if body < 128 else 2) + body)
        counter.start()
        cdc, broker = (server.worker_pid(f"pgmqtt {name}") for name in ("cdc", "broker"))
        rates = []
        for _ in range(transactions):
            before, first = counter.packets, None
            cpu = cpu_seconds(cdc), cpu_seconds(broker)
            counter.first = None
            server.psql(insert.format(rows))
            server.wait_for(lambda: counter.packets == before + rows, "all rows", 120, every=0.002)
            first, last = counter.first, counter.last
            used = cpu_seconds(cdc) - cpu[0], cpu_seconds(broker) - cpu[1]
            rates.append(rows / (last - first))
            say("publishes delivered", f"{rates[-1]:.0f}/s; CPU per row: cdc {used[0] / rows * 1e6:.2f} us,"
                f" broker {used[1] / rows * 1e6:.2f} us; cdc {used[0] / (last - first) * 100:.0f} % of a core")
        counter.close()
    say("median", f"{percentile(rates, .5):.0f}/s", ">= 100,000/s")


def copy(options):
    """(c) Beside a client that publishes to itself."""
    rows = options.rows
    with start(**{"pgmqtt.max_queued_messages": rows, "pgmqtt.max_queued_bytes": "1GB"}) as server:
        map_rows(server, "'t'", "$$new.id::text$$", qos=1)
        cdc, broker = (server.worker_pid(f"pgmqtt {name}") for name in ("cdc", "broker"))
        state = {"next": 1, "first": None, "last": None}

        def take(now, _, payload):
            assert int(payload) == state["next"], f"{payload!r} where {state['next']} was due"
            state["next"] += 1
            state["first"], state["last"] = state["first"] or now, now

        reader = Reader(server.mqtt_port, "t", take)
        pinger, resident = Pinger(server.mqtt_port), Resident([cdc, broker])
        data = server.directory / "rows"
        with open(data, "w", encoding="utf8") as file:
            file.writelines(f"{i}\tdevice-{i % 1000}\t2026-01-01\t{i / 10}\tt\n" for i in range(1, rows + 1))
        os.chmod(data, 0o644)
        for thread in (reader, pinger, resident):
            thread.start()
        began = time.monotonic()
        server.psql(f"COPY t FROM '{data}'")
        committed = time.monotonic()
        server.wait_for(lambda: state["next"] == rows + 1 or not reader.is_alive(), "all rows", 300)
        assert state["next"] == rows + 1
        others, peaks = pinger.close(), resident.close()
        reader.close()
    say("COPY took", f"{committed - began:.1f} s")
    say(f"{rows} distinct rows, in order", f"all {state['last'] - committed:.1f} s after the commit")
    say("first delivery after the commit", f"{state['first'] - committed:.2f} s", "2 s")
    say("other topics meanwhile", f"p50 {percentile(others, .5) * 1000:.2f} ms,"
        f" p99 {percentile(others, .99) * 1000:.1f} ms, max {max(others) * 1000:.0f} ms", "p99 100 ms")
    say("peak memory of its own", f"cdc {peaks[0]:.0f} MB, broker {peaks[1]:.0f} MB")


def idle(options):
    """(d) In turns, so that a machine that changes its mind does so for both."""
    script = "\\set id random(1, 100000)\nUPDATE busy SET v = v + 1 WHERE id = :id;\n"
    table = ("CREATE TABLE busy (id int PRIMARY KEY, v int) WITH (fillfactor = 50);"
             "INSERT INTO busy SELECT i, 0 FROM generate_series(1, 100000) i")
    with start() as with_mapping, Server(
            conf={"fsync": "on", "max_wal_size": "8GB", "shared_buffers": "256MB"},
            create_extension=False, preload=False) as without:
        with_mapping.psql("CREATE TABLE t (id int PRIMARY KEY); SELECT pgmqtt.add_mapping('t', 't', $$'t'$$)")
        rates = {"with": [], "without": []}
        for server in (with_mapping, without):
            server.psql(table)
            pgbench(server, script, 2)
        for _ in range(5):
            for name, server in (("with", with_mapping), ("without", without)):
                rates[name].append(pgbench(server, script, max(2, options.seconds / 5)))
    ratios = [a / b for a, b in zip(rates["with"], rates["without"])]
    for name, values in rates.items():
        say(name, " ".join(f"{value:.0f}" for value in values) + " tps")
    say("ratio, median of rounds", f"{percentile(ratios, .5) * 100:.1f} %", ">= 98 %")


def quiet(options):
    """(e) What a mapping costs that has nothing to publish."""
    with start() as server:
        server.psql("CREATE TABLE t (id int PRIMARY KEY); SELECT pgmqtt.add_mapping('t', 't', $$'t'$$);"
                    "CREATE TABLE busy (id bigserial, v text)")
        cdc = server.worker_pid("pgmqtt cdc")
        retained, stop = [], threading.Event()

        def watch():
            cursor = server.connect().cursor()
            while not stop.wait(0.25):
                cursor.execute("SELECT pg_current_wal_lsn() - restart_lsn, pg_current_wal_lsn() -"
                               " confirmed_flush_lsn FROM pg_replication_slots")
                retained.append(tuple(map(int, cursor.fetchone())))

        watcher = threading.Thread(target=watch)
        watcher.start()
        before, cpu = time.monotonic(), cpu_seconds(cdc)
        written = int(server.psql("SELECT pg_current_wal_lsn() - '0/0'"))
        tps = pgbench(server, "INSERT INTO busy (v) VALUES (repeat('x', 500))", options.seconds)
        share = (cpu_seconds(cdc) - cpu) / (time.monotonic() - before)
        stop.set()
        watcher.join()
        written = (int(server.psql("SELECT pg_current_wal_lsn() - '0/0'")) - written) / 2**20
    say("pgbench on another table", f"{tps:.0f} tps, {written:.0f} MB of WAL")
    say("retained WAL, highest", f"{max(one for one, _ in retained) / 2**20:.1f} MB", "< 200 MB")
    say("behind the confirmed position, highest", f"{max(two for _, two in retained) / 2**20:.1f} MB")
    say("cdc worker", f"{share * 100:.2f} % of a core")


CASES = {"lag": lag, "bulk": bulk, "copy": copy, "idle": idle, "quiet": quiet}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--seconds", type=float, default=30, help="of each pgbench run")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of COPY")
    options = parser.parse_args()
    for name in options.cases or CASES:
        print(f"{name}: {CASES[name].__doc__.strip()}", flush=True)
        CASES[name](options)


if __name__ == "__main__":
    main()
