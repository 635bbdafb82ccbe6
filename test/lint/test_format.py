"""C++ is formatted as .clang-format says."""

import subprocess

from sources import ROOT, ours, report


def test_clang_format():
    looked_at = ours(".h", ".cpp")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *map(str, looked_at)], cwd=ROOT,
                          stderr=subprocess.PIPE, text=True)
    faults = [line for line in done.stderr.splitlines() if "error:" in line]
    report(f"{len(looked_at)} files", faults[:50])
