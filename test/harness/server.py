"""A private PostgreSQL server with pgmqtt, for tests and for trying things by hand.

    /usr/bin/python3 test/harness/server.py          starts one, says how to reach it, waits for Ctrl-C
    /usr/bin/python3 test/harness/server.py -- CMD   runs CMD with PGHOST, PGPORT, MQTT_PORT set

Keys of `conf` are PostgreSQL settings. Every process is ended by its pid.
"""

import argparse
import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.processes import children_of, is_running  # noqa: E402
from harness.tree import Tree  # noqa: E402
from harness.waiting import PATIENCE, wait_for  # noqa: E402

DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "shared_preload_libraries": "pgmqtt",
    "wal_level": "logical",
    "log_line_prefix": "%m [%p] %b ",
    "log_min_messages": "info",
    "max_connections": "50",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10s",
    "pgmqtt.database": "postgres",
    "pgmqtt.listen_addresses": "127.0.0.1",
}
OUTPUT_PLUGINS = "pgoutput, test_decoding, pgmqtt"
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
WORKERS = ("pgmqtt broker", "pgmqtt store", "pgmqtt sink", "pgmqtt cdc")

_tree = None


def shared_tree():
    """The tree of this process, or the one that test/run.sh made for all of them."""
    global _tree
    if _tree is None:
        prefix = os.environ.get("PGMQTT_TEST_TREE")
        if prefix is None:
            prefix = new_directory("tree-")
            atexit.register(shutil.rmtree, prefix, ignore_errors=True)
        tree = Tree(prefix)
        if not (tree.bin / "postgres").exists():
            tree.build()
        if not os.environ.get("PGMQTT_TEST_PLAIN") and not tree.has_pgmqtt():
            tree.install_pgmqtt()
        _tree = tree
    return _tree


def new_directory(kind):
    path = tempfile.mkdtemp(prefix=f"pgmqtt-{kind}", dir=os.environ.get("TMPDIR", "/tmp"))
    os.chmod(path, 0o755)
    return path


def free_port():
    """Below the range of outgoing connections: one of those must not take it during a restart."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def quote(value):
    return "'" + str(value).replace("'", "''") + "'"


class Server:
    def __init__(self, conf=None, create_extension=True, preload=True, data_from=None):
        """data_from(server) fills server.data in place of initdb (a base backup, say)."""
        self.tree = shared_tree()
        self.directory = Path(new_directory("server-"))
        self.tree.user.own(self.directory)
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self.port = free_port()
        self.mqtt_port = free_port()
        self.postmaster = None
        self.variables = {}  # of the postmaster's environment, beside our own
        self._create_extension = create_extension
        self.conf = dict(DEFAULTS)
        if self.tree.knows_setting("output_plugin_libraries"):
            self.conf["output_plugin_libraries"] = OUTPUT_PLUGINS
        if not preload:
            del self.conf["shared_preload_libraries"]
        for off in ("tls_port", "ws_port", "wss_port"):
            if self.tree.knows_setting(f"pgmqtt.{off}"):
                self.conf[f"pgmqtt.{off}"] = 0
        self.conf["pgmqtt.port"] = self.mqtt_port
        self.conf.update({"port": self.port, "unix_socket_directories": self.directory})
        (data_from or (lambda server: server.tree.new_data_directory(server.data)))(self)
        with open(self.data / "postgresql.conf", "a", encoding="utf8") as main:
            main.write("\ninclude_if_exists 'test.conf'\n")
        self.configure(**(conf or {}))

    # ---- settings ----

    def configure(self, **conf):
        """Writes settings (None removes one); a running server wants reload() or restart() then."""
        for name, value in conf.items():
            name = name.replace("__", ".")
            if value is None:
                self.conf.pop(name, None)
            else:
                self.conf[name] = value
        self.mqtt_port = int(self.conf.get("pgmqtt.port", self.mqtt_port))
        text = "".join(f"{name} = {quote(value)}\n" for name, value in self.conf.items())
        target = self.data / "test.conf"
        target.write_text(text, encoding="utf8")
        self.tree.user.own(target)

    def reload(self):
        os.kill(self.postmaster.pid, signal.SIGHUP)

    # ---- life ----

    def start(self, wait=True):
        with open(self.log, "ab") as log:
            self.postmaster = subprocess.Popen(
                [str(self.tree.bin / "postgres"), "-D", str(self.data)], cwd="/",
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.variables}, **self.tree.user.popen_args)
        if wait:
            self.wait_for(self.answers, "the server accepts connections", 60)
            if self._create_extension:
                self.psql("CREATE EXTENSION IF NOT EXISTS pgmqtt")
                self.wait_listening()
        return self

    def answers(self):
        """Whether it takes connections; it must not have ended."""
        if self.postmaster.poll() is not None:
            raise SystemExit(f"postgres ended with {self.postmaster.returncode}:\n"
                             + self.log_tail())
        return self.psql("SELECT 1") == "1"

    def stop(self, mode="fast", deadline=60):
        if self.postmaster is None or self.postmaster.poll() is not None:
            return
        self.postmaster.send_signal(STOP_SIGNALS[mode])
        try:
            self.postmaster.wait(deadline * PATIENCE)
        except subprocess.TimeoutExpired:
            tail = self.log_tail()
            self.kill9(everyone=True)
            raise TimeoutError(f"{mode} shutdown took over {deadline} s\n{tail}") from None

    def restart(self, mode="fast"):
        self.stop(mode)
        return self.start()

    def kill9(self, everyone=False):
        """SIGKILL to the postmaster (and, if asked, its children); returns when all are gone."""
        children = children_of(self.postmaster.pid)
        self.postmaster.kill()
        self.postmaster.wait()
        if everyone:
            for pid in children:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.wait_for(lambda: not any(map(is_running, children)),
                      "the postmaster's children end with it", 30)

    def kill_worker(self, backend_type):
        """SIGKILL to one, upon which the postmaster ends all; returns when it has noticed.

        Who connects before that meets a server that is about to go.
        """
        def noticed():
            return self.log_text().count("all server processes terminated; reinitializing")

        before = noticed()
        os.kill(self.worker_pid(backend_type), signal.SIGKILL)
        self.wait_for(lambda: noticed() > before, "the postmaster begins anew", 60)

    def power_cut(self):
        """As kill9(everyone=True), and what of the WAL was not flushed is gone.

        The broker stands still before it is asked how far the flush went: it acknowledged nothing
        behind that. Data pages are never ahead of the flushed WAL.
        """
        os.kill(self.worker_pid("pgmqtt broker"), signal.SIGSTOP)
        name, offset = self.psql("SELECT * FROM pg_walfile_name_offset(pg_current_wal_flush_lsn())"
                                 ).split("|")
        self.kill9(everyone=True)
        for path in (self.data / "pg_wal").iterdir():
            if len(path.name) == len(name) and path.name > name:
                path.unlink()
        if int(offset) > 0:
            with open(self.data / "pg_wal" / name, "r+b") as segment:
                size = segment.seek(0, os.SEEK_END)
                segment.seek(int(offset))
                segment.write(bytes(size - int(offset)))

    def remove(self):
        """Ends the server and deletes all it had."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            print(self.log_tail(), file=sys.stderr)
            self.remove()
            raise

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.log_tail(), file=sys.stderr)
        self.remove()

    # ---- SQL ----

    def dsn(self, database="postgres", user="postgres"):
        return f"host={self.directory} port={self.port} dbname={database} user={user}"

    def connect(self, database="postgres", user="postgres", autocommit=True):
        """Beware: psycopg2's `with connection` opens a transaction even with autocommit."""
        import psycopg2

        connection = psycopg2.connect(self.dsn(database, user))
        connection.autocommit = autocommit
        return connection

    def psql(self, sql, database="postgres", user="postgres"):
        """Runs SQL through psql; returns unaligned rows, raises RuntimeError with its messages."""
        done = subprocess.run(
            [str(self.tree.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-v",
             "VERBOSITY=verbose", "-d", self.dsn(database, user), "-f", "-"],
            input=sql, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout.rstrip("\n")

    # ---- looking at it ----

    def wait_for(self, condition, what, deadline=20, every=0.02):
        try:
            return wait_for(condition, what, deadline, every)
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n--- server log ---\n{self.log_tail(25)}") from None

    def listening(self, port=None):
        try:
            socket.create_connection(("127.0.0.1", port or self.mqtt_port), timeout=2).close()
            return True
        except OSError:
            return False

    def wait_listening(self, deadline=20):
        self.wait_for(self.listening, f"MQTT port {self.mqtt_port} is open", deadline)
        return self

    def wait_not_listening(self, deadline=20):
        self.wait_for(lambda: not self.listening(), f"MQTT port {self.mqtt_port} closes", deadline)

    def worker_pid(self, backend_type):
        """The pid of 'pgmqtt broker' and the like, or None."""
        answer = self.psql("SELECT pid FROM pg_stat_activity "
                           f"WHERE backend_type = {quote(backend_type)}")
        return int(answer) if answer else None

    def log_text(self):
        return self.log.read_text(encoding="utf8", errors="replace") if self.log.exists() else ""

    def log_tail(self, lines=40):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def environment(self):
        return {"PGHOST": str(self.directory), "PGPORT": str(self.port), "PGUSER": "postgres",
                "PGDATABASE": "postgres", "MQTT_PORT": str(self.mqtt_port),
                "PATH": f"{self.tree.bin}:{os.environ['PATH']}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-c", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--no-extension", action="store_true", help="leave CREATE EXTENSION to you")
    parser.add_argument("--plain", action="store_true", help="PostgreSQL without pgmqtt")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND to run beside it")
    args = parser.parse_args()
    if args.plain:
        os.environ["PGMQTT_TEST_PLAIN"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a time limit's end cleans up, too
    conf = dict(setting.split("=", 1) for setting in args.c)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    with Server(conf, not (args.no_extension or args.plain), preload=not args.plain) as server:
        if command:
            code = subprocess.run(command, env={**os.environ, **server.environment()}).returncode
            if code != 0:
                print(server.log_tail(), file=sys.stderr)
            return code
        print(f"psql -h {server.directory} -p {server.port} -U postgres postgres\n"
              f"mosquitto_sub -p {server.mqtt_port} -t '#' -v\n"
              f"tail -f {server.log}\nCtrl-C ends it and removes it.", flush=True)
        try:
            server.postmaster.wait()
            print(server.log_tail())
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
