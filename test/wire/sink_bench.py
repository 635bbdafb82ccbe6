"""Prints what a sink takes: rows acknowledged per second, against mosquitto and the glue one would write.

    /usr/bin/python3 test/wire/sink_bench.py [rate|poison|isolation|memory|all] [SECONDS] [ROUNDS]

rate: 100 publishers of QoS 1, 200 bytes of JSON each, into a table with two indexes, three fields
extracted; closed loop with a window, then at half of that rate the time to the PUBACK. The same with
mosquitto and a subscriber (QoS 1, a session that is kept) that copies batches into the same table by
COPY and acknowledges after the COMMIT, in the same run; ROUNDS (1) times in turn: once a subscriber of
our own that reads the socket itself, once one by paho, as people write it. CPU is that of
everything on the way but the publishers: broker, glue, PostgreSQL. poison: one bad message in a
thousand, and none. isolation: round trips on another topic and into another sink, while the table of
one is locked for SECONDS. memory: publishers push at a locked table for SECONDS (600 in the long run).
Asserts that what was acknowledged is in the table. A measurement, for people.
"""

import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from multiprocessing import Pipe, Process
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.packets import PUBACK, PUBLISH, publish_frame  # noqa: E402
from harness.processes import children_of  # noqa: E402
from harness.rawmqtt import RawClient  # noqa: E402
from harness.server import Server, free_port  # noqa: E402
from harness.waiting import wait_for  # noqa: E402
from latency_bench import percentile  # noqa: E402

PUBLISHERS, WINDOW, PROCESSES = 100, 50, 2
TABLE = """CREATE TABLE reading (device text, at timestamptz, celsius float8, volt float8);
    CREATE INDEX ON reading (device); CREATE INDEX ON reading (at);"""
SINK = """SELECT pgmqtt.add_sink('reading', 'bench/{device}', $$
    INSERT INTO reading SELECT device, to_timestamp((json->>'ts')::float8 / 1000),
        (json->>'celsius')::float8, (json->>'volt')::float8 FROM msg $$);"""


def payload(bad=False):
    values = {"ts": 1700000000123, "celsius": "hot" if bad else 21.5, "volt": 3.3, "note": ""}
    values["note"] = "x" * (200 - len(json.dumps(values)))
    return json.dumps(values).encode()


def burst(number, first, bad_every):
    """A window of publishes; PUBACKs of 3.1.1 are 4 bytes each, so they need only be counted."""
    return b"".join(publish_frame(f"bench/d{number}", payload(bad_every and (first + i) % bad_every == 0),
                                  1, packet_id=i + 1, version=4) for i in range(WINDOW))


def publish(port, numbers, seconds, interval, bad_every, answer):
    """Closed loop, or one burst per `interval` and publisher; sends back acknowledged, times."""
    clients, bursts = [], []
    for number in numbers:
        client = RawClient(port, 4, timeout=60)
        client.connect(f"bench{number}", keep_alive=0)
        clients.append(client.socket)
        bursts.append([burst(number, at * WINDOW, bad_every) for at in range(20 if bad_every else 1)])
    missing, sent_at, turn = [0] * len(clients), [0.0] * len(clients), [0] * len(clients)
    next_at = [time.perf_counter() + (interval or 0) * i / len(clients) for i in range(len(clients))]
    index = {sock.fileno(): i for i, sock in enumerate(clients)}
    poller = select.epoll()
    for sock in clients:
        poller.register(sock, select.EPOLLIN)
    acknowledged, times, end = 0, [], time.perf_counter() + seconds
    while (now := time.perf_counter()) < end or any(missing):
        for i, sock in enumerate(clients):
            if missing[i] == 0 and now < end and now >= next_at[i]:
                sock.sendall(bursts[i][turn[i] % len(bursts[i])])
                turn[i] += 1
                missing[i], sent_at[i] = 4 * WINDOW, now
                next_at[i] = max(next_at[i] + interval, now - interval) if interval else now
        for number, _ in poller.poll(0.001 if interval else 0.1):
            i = index[number]
            data = clients[i].recv(65536)
            if not data:
                raise ConnectionError("the broker hung up")
            missing[i] -= len(data)
            acknowledged += len(data)
            if missing[i] == 0:
                times.append(time.perf_counter() - sent_at[i])
    answer.send((acknowledged // 4, times))


def load(port, seconds, rate=None, bad_every=0):
    """(acknowledged, per second, seconds from a burst to its last PUBACK)"""
    interval = PUBLISHERS * WINDOW / rate if rate else 0
    parts, pipes = [], []
    for part in range(PROCESSES):
        ours, theirs = Pipe()
        parts.append(Process(target=publish, args=(port, range(part, PUBLISHERS, PROCESSES), seconds,
                                                   interval, bad_every, theirs)))
        pipes.append(ours)
    start = time.perf_counter()
    for part in parts:
        part.start()
    answers = [pipe.recv() for pipe in pipes]
    took = time.perf_counter() - start
    for part in parts:
        part.join()
    count = sum(answer[0] for answer in answers)
    return count, count / took, [t for answer in answers for t in answer[1]]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        except FileNotFoundError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def glue(mqtt_port, dsn, ready):
    """The fastest honest one in Python: what has arrived is one COPY, COMMIT, then the PUBACKs."""
    import psycopg2

    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    client = RawClient(mqtt_port, 4, timeout=3600)
    client.connect("glue", clean=False, keep_alive=0)
    client.subscribe("bench/+", 1)
    ready.send(True)
    buffer = b""
    while data := client.socket.recv(1 << 20):
        buffer += data
        lines, acks, at, size = [], [], 0, len(buffer)
        while at + 2 <= size:
            length, shift, start = 0, 0, at + 1
            while start < size:
                byte = buffer[start]
                start += 1
                length |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            end = start + length
            if end > size:
                break
            topic_end = start + 2 + (buffer[start] << 8 | buffer[start + 1])
            body = json.loads(buffer[topic_end + 2:end])
            at_time = datetime.fromtimestamp(body["ts"] / 1000, timezone.utc).isoformat()
            lines.append(f"{buffer[start + 8:topic_end].decode()}\t{at_time}\t"
                         f"{body['celsius']}\t{body['volt']}\n")
            acks.append(b"\x40\x02" + buffer[topic_end:topic_end + 2])
            at = end
        buffer = buffer[at:]
        if not lines:
            continue
        cursor.copy_expert("COPY reading FROM STDIN", io.StringIO("".join(lines)))
        connection.commit()
        client.socket.sendall(b"".join(acks))


def paho_glue(mqtt_port, dsn, ready):
    """With the library: its thread reads, this one copies what has come, commits, acknowledges."""
    import paho.mqtt.client as paho
    import psycopg2

    connection = psycopg2.connect(dsn)
    cursor = connection.cursor()
    arrived = SimpleQueue()
    client = paho.Client("paho-glue", clean_session=False)
    # paho 1.6 acknowledges when on_message returns, which is before the commit; 2.0 can be told not to.
    acknowledge, client._send_puback = client._send_puback, lambda _mid: paho.MQTT_ERR_SUCCESS
    client.on_message = lambda _client, _data, message: arrived.put(message)
    client.on_subscribe = lambda *_: ready.send(True)
    client.on_connect = lambda *_: client.subscribe("bench/+", 1)
    client.connect("127.0.0.1", mqtt_port, keepalive=3600)
    client.loop_start()
    while True:
        batch = [arrived.get()]
        while not arrived.empty() and len(batch) < 5000:
            batch.append(arrived.get())
        lines = []
        for message in batch:
            body = json.loads(message.payload)
            at = datetime.fromtimestamp(body["ts"] / 1000, timezone.utc).isoformat()
            lines.append(f"{message.topic[6:]}\t{at}\t{body['celsius']}\t{body['volt']}\n")
        cursor.copy_expert("COPY reading FROM STDIN", io.StringIO("".join(lines)))
        connection.commit()
        for message in batch:
            acknowledge(message.mid)


def start_mosquitto(port, directory):
    conf = Path(directory) / "conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\n"
                    "max_queued_messages 0\n", encoding="ascii")
    binary = next(path for path in ("/usr/sbin/mosquitto", "/usr/bin/mosquitto")
                  if os.path.exists(path))
    process = subprocess.Popen([binary, "-c", str(conf)], stderr=subprocess.DEVNULL)
    wait_for(lambda: socket.create_connection(("127.0.0.1", port), 1).close() is None, "mosquitto")
    return process


def rows(server):
    return int(server.psql("SELECT count(*) FROM reading"))


def describe(name, rate, cpu, count, times=None):
    late = f", burst to last PUBACK p50 {percentile(times, 0.5):.1f} ms, p99 " \
           f"{percentile(times, 0.99):.1f} ms" if times else ""
    per_row = cpu / max(count, 1) * 1e6
    print(f"{name}: {rate:,.0f} rows/s, {per_row:.1f} us of CPU per row{late}", flush=True)
    return rate, per_row


def of_sink(seconds):
    with Server() as server:
        server.psql(TABLE + SINK)
        pids = children_of(server.postmaster.pid)
        before = cpu_seconds(pids)
        count, rate, _ = load(server.mqtt_port, seconds)
        found = describe("sink", rate, cpu_seconds(pids) - before, count)
        stored = count
        before = cpu_seconds(pids)
        count, half, times = load(server.mqtt_port, seconds, rate / 2)
        describe("sink at half of that", half, cpu_seconds(pids) - before, count, times)
        assert rows(server) == stored + count
        print(server.psql("SELECT 'batches of ' || rows / batches || ', p50 ' || batch_p50_ms || ' ms, p99 '"
                          " || batch_p99_ms || ' ms' FROM pgmqtt.stat_sinks"))
    return found


def of_glue(name, copy, seconds):
    """Rows per second until all that mosquitto acknowledged is in the table."""
    with Server() as server, tempfile.TemporaryDirectory(prefix="pgmqtt-mosquitto-") as directory:
        server.psql(TABLE)
        port = free_port()
        mosquitto = start_mosquitto(port, directory)
        ours, theirs = Pipe()
        worker = Process(target=copy, args=(port, server.dsn(), theirs))
        worker.start()
        try:
            ours.recv()
            pids = [mosquitto.pid, worker.pid, *children_of(server.postmaster.pid)]
            before, start = cpu_seconds(pids), time.perf_counter()
            count, accepted, _ = load(port, seconds)
            wait_for(lambda: rows(server) >= count,
                     "all that mosquitto acknowledged is a row", 600, 0.2)
            rate = count / (time.perf_counter() - start)
            found = describe(f"mosquitto and {name}", rate, cpu_seconds(pids) - before, count)
            print(f"  (mosquitto acknowledged {accepted:,.0f}/s, before any row was there)")
        finally:
            worker.terminate()
            worker.join()
            mosquitto.send_signal(signal.SIGTERM)
            mosquitto.wait()
    return found


def measure_rate(seconds, rounds):
    for _ in range(rounds):
        sink = of_sink(seconds)
        for name, copy in (("glue", glue), ("glue by paho", paho_glue)):
            other = of_glue(name, copy, seconds)
            print(f"ratio: rate {sink[0] / other[0]:.2f}, CPU {other[1] / sink[1]:.2f}", flush=True)


def measure_poison(seconds, rounds):
    for _ in range(rounds):
        rates = []
        for bad_every in (0, 1000):
            with Server() as server:
                server.psql(TABLE + SINK)
                count, rate, _ = load(server.mqtt_port, seconds, bad_every=bad_every)
                bad = int(server.psql("SELECT count(*) FROM pgmqtt.dead_letter"))
                exact = int(server.psql("SELECT count(*) FROM pgmqtt.dead_letter WHERE sqlstate = '22P02'"
                                        " AND position('hot' IN convert_from(payload, 'UTF8')) > 0"))
                assert rows(server) + bad == count and bad == exact
                print(f"1 bad in {bad_every or 'no'}: {rate:,.0f}/s, {bad} dead letters", flush=True)
                rates.append(rate)
        print(f"with poison {rates[1] / rates[0]:.2f} x")


def round_trips(server, other, fast, seconds):
    publish_times, sink_times, end = [], [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        fast.publish("fast", b"x")
        fast.expect(PUBLISH)
        publish_times.append(time.perf_counter() - start)
        start = time.perf_counter()
        other.publish("free", '{"v": 1}', qos=1)
        sink_times.append(time.perf_counter() - start)
        time.sleep(0.002)
    return publish_times, sink_times


def measure_isolation(seconds, _):
    with Server() as server:
        server.psql(TABLE + SINK + """CREATE TABLE free (v int);
            SELECT pgmqtt.add_sink('free', 'free', $$INSERT INTO free SELECT (json->>'v')::int FROM msg$$);""")
        other, fast = RawClient(server.mqtt_port), RawClient(server.mqtt_port)
        for client in (other, fast):
            client.connect(keep_alive=0)
        fast.subscribe("fast")
        pushing = Process(target=push_for_ever, args=(server.mqtt_port,))
        results = {}
        for name in ("quiet", "locked"):
            if name == "locked":
                locker = server.connect(autocommit=False)
                locker.cursor().execute("LOCK TABLE reading")
                pushing.start()
            results[name] = round_trips(server, other, fast, seconds)
            for what, times in zip(("another topic", "another sink"), results[name]):
                print(f"{name}, {what}: p50 {percentile(times, 0.5):.2f} ms, p99 "
                      f"{percentile(times, 0.99):.2f} ms, max {max(times) * 1e3:.1f} ms", flush=True)
        print(server.psql("SELECT name, status, pending, lag_seconds FROM pgmqtt.stat_sinks"))
        pushing.terminate()
        pushing.join()
        start = time.perf_counter()
        locker.rollback()
        wait_for(lambda: server.psql("SELECT max(pending) FROM pgmqtt.stat_sinks") == "0", "caught up", 120)
        print(f"caught up {time.perf_counter() - start:.1f} s after the unlock, {rows(server)} rows")


def push_for_ever(port):
    clients = []
    for number in range(20):
        client = RawClient(port, 4, timeout=3600)
        client.connect(keep_alive=0)
        client.socket.setblocking(False)
        clients.append([client.socket, burst(number, 0, 0), 0])
    poller = select.poll()
    for sock, _, _ in clients:
        poller.register(sock, select.POLLIN | select.POLLOUT)
    by_number = {entry[0].fileno(): entry for entry in clients}
    while True:
        for number, events in poller.poll():
            entry = by_number[number]
            if events & select.POLLIN:
                entry[0].recv(65536)
            if events & select.POLLOUT:
                entry[2] += entry[0].send(entry[1][entry[2]:])
                entry[2] %= len(entry[1])


def resident(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def measure_memory(seconds, _):
    with Server() as server:
        server.psql(TABLE + SINK)
        pids = {name: server.worker_pid(f"pgmqtt {name}") for name in ("broker", "sink")}
        locker = server.connect(autocommit=False)
        locker.cursor().execute("LOCK TABLE reading")
        pushing = Process(target=push_for_ever, args=(server.mqtt_port,))
        pushing.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(seconds / 10, 60))
            sizes = ", ".join(f"{name} {resident(pid) / 1024:.1f} MB" for name, pid in pids.items())
            print(f"{seconds - (end - time.monotonic()):.0f} s: {sizes}; "
                  + server.psql("SELECT pending || ' pending, lag ' || lag_seconds FROM pgmqtt.stat_sinks"),
                  flush=True)
        pushing.terminate()
        pushing.join()
        locker.rollback()
        locker.close()


MODES = {"rate": measure_rate, "poison": measure_poison, "isolation": measure_isolation,
         "memory": measure_memory}


def main(mode="rate", seconds="10", rounds="1"):
    for measure in MODES.values() if mode == "all" else [MODES[mode]]:
        measure(float(seconds), int(rounds))


if __name__ == "__main__":
    main(*sys.argv[1:])
