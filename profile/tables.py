"""Tables of a profile: by cause, by folder of src/, by function.

    python3 profile/tables.py fold on|off TEXT FOLDED    what perf script or bpftrace printed
    python3 profile/tables.py show FOLDER [on|off]
    python3 profile/tables.py compare FOLDER FOLDER
"""

import sys
from collections import Counter
from pathlib import Path

from causes import KERNEL, UNKNOWN, folder_of, off_cause, on_cause, split
from flamegraph import svg_of
from folding import fold_bpftrace, fold_perf, read_folded, write_folded

FUNCTIONS = 30  # rows of a table of functions
OUTERMOST = {"_start", "main", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone",
             "clone3", "__clone3", "ret_from_fork", "StartBackgroundWorker", "BackgroundWorkerMain"}
NAMES = {"on": "on-CPU", "off": "off-CPU"}


class Profile:
    """One half, on or off, of a label."""

    def __init__(self, folder, half):
        self.half = half
        self.label = Path(folder).name
        self.folded = read_folded(Path(folder) / f"{half}.folded")
        self.meta = {}
        meta = Path(folder) / f"{half}.meta"
        if meta.exists():
            for line in meta.read_text(encoding="utf8").splitlines():
                name, _, value = line.partition("=")
                self.meta[name] = value
        self.seconds = float(self.meta.get("seconds", 0)) or 1.0
        self.total = sum(self.folded.values())

    def by(self, key):
        """Milliseconds per second of wall time, by what `key` says of a stack."""
        sums = Counter()
        for stack, weight in self.folded.items():
            sums[key(stack)] += weight / 1000 / self.seconds
        return sums

    def by_cause(self):
        return self.by(on_cause if self.half == "on" else off_cause)

    def by_folder(self):
        return self.by(folder_of)

    def innermost(self, stack):
        """Off the CPU, all are in the scheduler: there it is the function of user space that waits."""
        if self.half == "off":
            return next((frame for frame in reversed(stack) if split(frame)[0] != KERNEL), stack[-1])
        return stack[-1]

    def by_function(self):
        """(self, inclusive): a function that is in a stack twice counts once."""
        own, inclusive = Counter(), Counter()
        for stack, weight in self.folded.items():
            share = weight / 1000 / self.seconds
            own[self.innermost(stack)] += share
            for frame in set(stack):
                inclusive[frame] += share
        return own, inclusive

    def share(self, is_so):
        return 100 * sum(weight for stack, weight in self.folded.items() if is_so(stack)) / (
            self.total or 1)


def is_cut(stack):
    """The unwinder did not reach the beginning of the thread."""
    return split(stack[0])[1] not in OUTERMOST


def has_no_user_frame(stack):
    return all(split(frame)[0] == KERNEL or split(frame)[1] == UNKNOWN for frame in stack)


def percent(part, whole):
    return f"{100 * part / whole:6.2f}" if whole else "     -"


def label_of(frame):
    holder, symbol = split(frame)
    return f"{symbol}  ({holder})"


def sum_table(title, sums, wall):
    whole = sum(sums.values())
    lines = [f"{title:<28}    ms/s       %"]
    lines += [f"  {name:<24} {value:9.2f}  {percent(value, whole)}"
              for name, value in sorted(sums.items(), key=lambda item: -item[1])]
    lines.append(f"  {'total':<24} {whole:9.2f}  of {wall:.1f} s\n")
    return lines


def function_table(profile):
    own, inclusive = profile.by_function()
    whole = sum(own.values())
    lines = []
    for title, order in (("by function, self first", own), ("by function, inclusive first", inclusive)):
        lines.append(f"{title}\n     self %  incl. %")
        lines += [f"    {percent(own[frame], whole)}   {percent(inclusive[frame], whole)}   "
                  f"{label_of(frame)[:140]}" for frame, _ in order.most_common(FUNCTIONS)]
        lines.append("")
    return lines


def heading(profile):
    meta = profile.meta
    lines = [f"== {profile.label}: {NAMES[profile.half]}, {profile.seconds:.1f} s, "
             f"{meta.get('tool', 'unknown tool')}"]
    if "cpu_seconds" in meta:
        lines.append(f"   the kernel counted {float(meta['cpu_seconds']):.2f} s of CPU meanwhile, the "
                     f"profile has {profile.total / 1e6:.2f} s"
                     + (" of it" if profile.half == "on" else " off it"))
    unknown = profile.share(lambda stack: split(stack[-1])[1] == UNKNOWN)
    cut, what = profile.share(is_cut), "that do not reach the beginning of the thread"
    if profile.half == "off":  # by frame pointers, they hardly ever do
        cut, what = profile.share(has_no_user_frame), "without a function of user space"
    lines.append(f"   innermost function without a name: {unknown:.1f} %; stacks {what}: {cut:.1f} %")
    if meta.get("note"):
        lines.append(f"   NOTE: {meta['note']}")
    return lines + [""]


def show(folder, half):
    profile = Profile(folder, half)
    lines = heading(profile)
    lines += sum_table("by cause", profile.by_cause(), profile.seconds)
    lines += sum_table("by folder, calls included", profile.by_folder(), profile.seconds)
    lines += function_table(profile)
    return "\n".join(lines)


def difference(title, before, after, rows=None):
    lines = [f"{title:<52}   A ms/s   B ms/s     B - A    B / A"]
    names = sorted(set(before) | set(after),
                   key=lambda name: (-max(before[name], after[name]), name))
    if rows:
        names = sorted(sorted(names, key=lambda name: -abs(after[name] - before[name]))[:rows],
                       key=lambda name: before[name] - after[name])
    whole = [("total", sum(before.values()), sum(after.values()))] if not rows else []
    for name, a, b in [(name, before[name], after[name]) for name in names] + whole:
        ratio = f"{b / a:7.2f}" if a > 0 else "      -"
        lines.append(f"  {name[:50]:<50} {a:8.2f} {b:8.2f}  {b - a:+8.2f}  {ratio}")
    return lines + [""]


def compare(first, second):
    lines = [f"A = {Path(first).name}, B = {Path(second).name}; ms per second of wall time\n"]
    found = False
    for half in ("on", "off"):
        if not all((Path(folder) / f"{half}.folded").exists() for folder in (first, second)):
            continue
        found = True
        a, b = Profile(first, half), Profile(second, half)
        lines += heading(a) + heading(b)
        lines += difference(f"{NAMES[half]} by cause", a.by_cause(), b.by_cause())
        lines += difference(f"{NAMES[half]} by folder, calls included", a.by_folder(), b.by_folder())
        own_a, own_b = ({label_of(frame): value for frame, value in p.by_function()[0].items()}
                        for p in (a, b))
        lines += difference(f"{NAMES[half]} by function (self), what changed most", Counter(own_a),
                            Counter(own_b), FUNCTIONS)
    if not found:
        sys.exit(f"{first} and {second} have no half in common: profile both with the same --mode")
    return "\n".join(lines)


def fold(half, text, folded):
    with open(text, encoding="utf8", errors="replace") as lines:
        stacks = (fold_perf if half == "on" else fold_bpftrace)(lines)
    write_folded(stacks, folded)


def draw(folder, half):
    profile = Profile(folder, half)
    title = f"{profile.label}, {NAMES[half]}, {profile.seconds:.0f} s"
    (Path(folder) / f"{half}.svg").write_text(svg_of(profile.folded, title), encoding="utf8")


def main(arguments):
    match arguments:
        case ["fold", ("on" | "off") as half, text, folded]:
            fold(half, text, folded)
        case ["show", folder, ("on" | "off") as half]:
            draw(folder, half)
            print(show(folder, half))
        case ["compare", first, second]:
            print(compare(first, second))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
