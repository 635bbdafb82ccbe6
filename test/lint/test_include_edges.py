"""The floors hold: each folder of src/ includes only what architecture allows it to know."""

import re

from sources import files, includes, report, text

STD = re.compile(r"^[a-z_0-9]+$")  # <vector>, <cstdint>: no slash, no .h
CORE = {  # folder: the folders it may include, and the libraries
    "base": ({"base"}, {"xxhash.h", "sys/uio.h"}),
    "mqtt": ({"base", "mqtt"}, set()),
    "broker": ({"base", "mqtt", "broker"}, set()),
    "net": ({"base", "net"}, None),  # sockets, mbedTLS, wslay: any system header but PostgreSQL's
}
FEATURES = {"store", "sink", "cdc", "auth", "functions"}
BELOW_FEATURES = {"pg", "broker", "mqtt", "base"}
POSTGRES = re.compile(r"^(postgres|fmgr|miscadmin|libpq|access/|catalog/|executor/|nodes/|parser/|"
                      r"postmaster/|replication/|storage/|utils/|tcop/|commands/|pgstat|port/|c\.h)")


def sources(folder):
    return [path for path in files(f"src/{folder}") if path.suffix in (".h", ".cpp")]


def edges(folder):
    """(path, line, is_quoted, target) of every include in a folder of src/."""
    return [(path, line, quoted, target) for path in sources(folder)
            for quoted, target, line in includes(path)]


def test_the_floors_below_postgres_include_only_each_other():
    faults, count = [], 0
    for folder, (allowed, libraries) in CORE.items():
        for path, line, quoted, target in edges(folder):
            count += 1
            if quoted:
                fine = target.split("/")[0] in allowed and "/" in target
            else:
                fine = (STD.match(target) or libraries is None or target in libraries) \
                    and not POSTGRES.match(target)
            if not fine:
                faults.append(f"{path}:{line}: {folder} may not include {target}")
    report(f"{count} includes of {', '.join(CORE)}", faults)


def test_no_postgres_header_below_pg():
    faults, count = [], 0
    for folder in CORE:
        for path, line, _, target in edges(folder):
            count += 1
            if POSTGRES.match(target) or target.startswith("pg/"):
                faults.append(f"{path}:{line}: {target}")
    report(f"{count} includes looked at for PostgreSQL headers", faults)


def test_features_do_not_include_each_other():
    faults, count = [], 0
    for folder in sorted(FEATURES):
        for path, line, quoted, target in edges(folder):
            count += 1
            if quoted and "/" in target and target.split("/")[0] in FEATURES | CORE.keys() | {
                    "workers"} and target.split("/")[0] not in BELOW_FEATURES | {folder}:
                faults.append(f"{path}:{line}: {folder} may not include {target}")
    report(f"{count} includes of {', '.join(sorted(FEATURES))}", faults)


def test_pg_knows_no_feature():
    faults = [f"{path}:{line}: pg may not include {target}"
              for path, line, quoted, target in edges("pg")
              if quoted and target.split("/")[0] in FEATURES | {"workers", "net"}]
    report(f"{len(sources('pg'))} files of src/pg", faults)


def test_only_pg_catches_errors():
    catchers = re.compile(r"\b(PG_TRY|PG_CATCH|PG_FINALLY|sigsetjmp|PG_exception_stack)\b")
    looked_at = [path for path in files("src") if path.suffix in (".h", ".cpp")
                 and path.parts[1] != "pg"]
    faults = []
    for path in looked_at:
        for number, line in enumerate(text(path).splitlines(), 1):
            if catchers.search(line.split("//")[0]):
                faults.append(f"{path}:{number}: {line.strip()}")
    report(f"{len(looked_at)} files outside src/pg looked at for PG_TRY", faults)
