"""A private, relocated PostgreSQL installation with pgmqtt in it.

PostgreSQL finds lib/ and share/ relative to the real place of its binaries. So a copy of bin/, lib/
and share/ under another prefix, in the same layout, is an installation of its own, and
`make install DESTDIR=prefix` adds pgmqtt to that one only. Nothing is installed into the system,
and runs beside each other do not meet.
"""

import fcntl
import grp
import os
import pwd
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PG_CONFIG = os.environ.get("PG_CONFIG", "pg_config")


def pg_config(option):
    return subprocess.run([PG_CONFIG, f"--{option}"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def make(*arguments):
    """make in the repository: one at a time, also of test processes beside each other, for two makes write
    the same files, and a program that is being written cannot run."""
    build = REPOSITORY / "build"
    build.mkdir(exist_ok=True)
    command = ["make", "-s", f"-j{os.cpu_count()}", "-C", str(REPOSITORY), *arguments,
               f"PG_CONFIG={PG_CONFIG}"]
    with open(build / "make.lock", "w", encoding="utf8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


class ServerUser:
    """Whom initdb and postgres run as: they refuse root, so root lends them another user."""

    def __init__(self):
        if os.geteuid() != 0:
            self.name = pwd.getpwuid(os.geteuid()).pw_name
            self.popen_args = {}
            return
        names = {entry.pw_name for entry in pwd.getpwall()}
        entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
        self.name = entry.pw_name
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.popen_args = {"user": entry.pw_uid, "group": entry.pw_gid,
                           "extra_groups": self._groups()}

    def _groups(self):
        # ssl-cert and the like: a copy of the server may need what the packaged one may read.
        return [group.gr_gid for group in grp.getgrall() if self.name in group.gr_mem]

    def own(self, path):
        if self.popen_args:
            os.chown(path, self.uid, self.gid)


class Tree:
    """The installation under `prefix`, and a data directory to copy new servers from."""

    def __init__(self, prefix):
        self.prefix = Path(prefix)
        self.user = ServerUser()
        self.bin = self._inside(pg_config("bindir"))
        self.lib = self._inside(pg_config("pkglibdir"))
        self.share = self._inside(pg_config("sharedir"))
        self.template = self.prefix / "template"
        self._settings = None

    def _inside(self, path):
        return self.prefix / path.lstrip("/")

    def build(self):
        for target, option in ((self.bin, "bindir"), (self.lib, "pkglibdir"),
                               (self.share, "sharedir")):
            shutil.copytree(pg_config(option), target, symlinks=False, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("bitcode"))
        return self

    def install_pgmqtt(self):
        """make install into the tree; builds first what is not built."""
        make("install", f"DESTDIR={self.prefix}")
        return self

    def has_pgmqtt(self):
        return (self.lib / "pgmqtt.so").exists()

    def run(self, *command, **options):
        """Runs a program of the tree as the server's user; returns its output."""
        done = subprocess.run([str(self.bin / command[0]), *map(str, command[1:])],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              cwd="/", **self.user.popen_args, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")
        return done.stdout

    def initdb(self, data):
        self.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                 "--locale=C.UTF-8", "--no-sync")

    def make_template(self):
        if not self.template.exists():
            os.makedirs(self.template, mode=0o700)
            self.user.own(self.template)
            self.initdb(self.template)

    def new_data_directory(self, data):
        """A copy of one initdb: that is the slow part of starting many servers."""
        self.make_template()
        subprocess.run(["cp", "-a", str(self.template), str(data)], check=True)

    def knows_setting(self, name):
        """Minor releases differ: output_plugin_libraries came late to the 15 line.

        What pgmqtt itself knows is in its library: --describe-config loads none.
        """
        if name.startswith("pgmqtt."):
            library = self.lib / "pgmqtt.so"
            return library.exists() and name.encode() + b"\0" in library.read_bytes()
        if self._settings is None:
            lines = self.run("postgres", "--describe-config").splitlines()
            self._settings = {line.split("\t", 1)[0] for line in lines}
        return name in self._settings
