"""What /proc says about processes. Tests end only processes they started, each by its pid."""

import os


def _stat_fields(pid):
    """The fields of /proc/PID/stat from the state on; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    fields = _stat_fields(pid)
    return fields is not None and fields[0] != "Z"


def children_of(pid):
    running = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [child for child in running
            if (fields := _stat_fields(child)) and int(fields[1]) == pid and fields[0] != "Z"]


def cpu_seconds(pid):
    """User and system time of a process so far."""
    fields = _stat_fields(pid)
    if fields is None:
        raise ProcessLookupError(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
