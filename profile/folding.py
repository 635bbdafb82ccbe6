"""Folds what perf and bpftrace print into stacks with the microseconds spent in them."""

import re
from collections import Counter

from causes import KERNEL, UNKNOWN

SAMPLE = re.compile(r"^(?P<comm>\S.*?)\s+(?P<tid>\d+)(?:/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:\s+"
                    r"(?P<period>\d+)\s+\S+:")
FRAME = re.compile(r"^\s+[0-9a-f]+\s+(?P<symbol>.*?)\s+\((?P<object>[^()]*(?:\(deleted\))?)\)\s*$")
OFFSET = re.compile(r"\+(0x[0-9a-f]+|\d+)$")
ADDRESS = re.compile(r"^0x[0-9a-f]+$")
BRACKETS = {"(": ")", "<": ">", "[": "]", "{": "}"}
WORKER_STARTS = {"postgres`StartBackgroundWorker", "postgres`BackgroundWorkerMain"}
MAX_DEPTH = 200  # of a folded stack: what lies in between is left out


def without_brackets(text, kinds):
    """Leaves out what stands in brackets of these kinds, nested ones included."""
    out, closing = [], []
    for place, letter in enumerate(text):
        if letter in kinds and not text.startswith(("(anonymous namespace)", "operator"), place) \
                and not text.endswith("operator", 0, place):
            closing.append(BRACKETS[letter])
        elif closing and letter == closing[-1] and not text.endswith("-", 0, place):
            closing.pop()
        elif not closing:
            out.append(letter)
    return "".join(out)


def short_symbol(symbol):
    """A C++ name without arguments, template arguments and lambda signatures: for people, and so that
    both tools give one name to one function."""
    symbol = OFFSET.sub("", symbol.strip())
    symbol = symbol.replace("(anonymous namespace)", "@anonymous").replace("operator()", "operator@call")
    symbol = symbol.replace("::_FUN", "")
    symbol = re.sub(r"\{lambda[^{}]*?\}", "@lambda", flat_lambdas(symbol))
    symbol = re.sub(r"\[clone [^\]]*\]", "", symbol)
    if "::" in symbol or "(" in symbol:
        symbol = without_brackets(symbol, "(<[")
        symbol = re.sub(r"\s+const$", "", symbol.strip())
        words = symbol.split(" ")
        # A template's name begins with its return type.
        symbol = symbol if "operator" in symbol else words[-1]
    symbol = symbol.replace("@anonymous", "(anonymous)").replace("operator@call", "operator()")
    return re.sub(r"\.(isra|part|constprop|cold)(\.\d+)*", "", symbol.replace("@lambda", "{lambda}"))


def flat_lambdas(symbol):
    """Inner lambdas first: {lambda({lambda()#1}&&)#2} would end at the first brace."""
    inner = re.compile(r"\{lambda[^{}]*\}")
    for _ in range(20):
        flat = inner.sub("@lambda", symbol)
        if flat == symbol:
            break
        symbol = flat
    return symbol


def short_object(path):
    path = path.replace(" (deleted)", "")
    if path.startswith("[kernel") or path.startswith("[guest.kernel") or path.endswith(".ko"):
        return KERNEL
    return path.rsplit("/", 1)[-1] or UNKNOWN


def perf_frame(line):
    match = FRAME.match(line)
    if match is None:
        return None
    holder = short_object(match["object"])
    symbol = match["symbol"].strip()
    symbol = UNKNOWN if symbol in ("", UNKNOWN) or ADDRESS.match(symbol) else short_symbol(symbol)
    return f"{holder}`{symbol}".replace(";", ":")


def bounded(stack):
    """Without the postmaster's frames below a worker, which is started from a signal handler up to
    version 15; and of a stack that is too deep (recursion) the outermost and the innermost frames."""
    for place, frame in enumerate(stack):
        if frame in WORKER_STARTS:
            stack = stack[place:]
            break
    half = MAX_DEPTH // 2
    return tuple(stack if len(stack) <= MAX_DEPTH else [*stack[:half], *stack[-half:]])


def fold_perf(lines):
    """Output of perf script: Counter of stacks, in microseconds."""
    folded, stack, period = Counter(), [], None
    for line in lines:
        sample = SAMPLE.match(line)
        if sample:
            stack, period = [], int(sample["period"])
        elif line.strip() and period is not None:
            frame = perf_frame(line)
            if frame:
                stack.append(frame)
        elif period is not None:
            folded[bounded(stack[::-1]) or (f"{UNKNOWN}`{UNKNOWN}",)] += period / 1000
            period = None
    if period is not None:
        folded[bounded(stack[::-1]) or (f"{UNKNOWN}`{UNKNOWN}",)] += period / 1000
    return folded


def bpftrace_frame(line, is_kernel):
    if not is_kernel and FRAME.match(line):
        return perf_frame(line)
    symbol = OFFSET.sub("", line.strip())
    if ADDRESS.match(symbol):
        return f"{KERNEL if is_kernel else UNKNOWN}`{UNKNOWN}"
    return f"{KERNEL if is_kernel else 'user'}`{short_symbol(symbol)}".replace(";", ":")


def fold_bpftrace(lines):
    """Output of off_cpu.bt: Counter of stacks, in microseconds. The user's part lies outside."""
    folded, parts = Counter(), None
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("@off["):
            parts = [[], []]
            place = 0
        elif parts is None:
            continue
        elif line.startswith((" ", "\t")):
            parts[place].append(bpftrace_frame(line, place == 0))
        elif line.startswith(","):
            end = re.match(r"^, (-?\d+)\]: (\d+)$", line)
            if end is None:
                place = min(place + 1, 1)
                continue
            stack = parts[1][::-1] + parts[0][::-1]
            if int(end[1]) not in (1, 2):
                stack.append(f"{KERNEL}`[preempted]")
            folded[bounded(stack)] += int(end[2]) / 1000
            parts = None
    return folded


def write_folded(folded, path):
    with open(path, "w", encoding="utf8") as file:
        for stack, weight in sorted(folded.items()):
            if weight >= 0.5:
                file.write(f"{';'.join(stack)} {weight:.0f}\n")


def read_folded(path):
    folded = Counter()
    with open(path, encoding="utf8") as file:
        for line in file:
            stack, _, weight = line.rstrip("\n").rpartition(" ")
            folded[tuple(stack.split(";"))] += float(weight)
    return folded
