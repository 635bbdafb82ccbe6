"""The files of the repository, as the lints see them: what git would commit."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def files(*patterns):
    """Tracked and new files that are not ignored, as paths relative to the root."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "--cached",
               "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    return [Path(name) for name in sorted(set(listed)) if name and (ROOT / name).is_file()]


def text(path):
    return (ROOT / path).read_text(encoding="utf8", errors="replace")


def includes(path):
    """(is_quoted, target, line) of each #include."""
    content = text(path)
    return [(match[1] == '"', match[2], content.count("\n", 0, match.start(2)) + 1)
            for match in INCLUDE.finditer(content)]


def ours(*extensions):
    return [path for path in files("src", "test", "loadtest", "profile") if path.suffix in extensions]


def report(checked, faults):
    """Prints what was looked at; fails with one line per fault."""
    print(checked)
    assert not faults, "\n".join(["", *faults])
