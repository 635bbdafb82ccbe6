"""test/conformance.tsv: each clause of MQTT that binds a server, and the tests that prove it.

The clauses are in test/clauses.tsv (id, version, whom it binds, paraphrase). A test is named as
pytest names it (test/wire/test_connect.py::test_disconnect_closes), as GoogleTest does
(WillTest.ComesWhenTheTransportBreaks), or as a row of a packet table (publish.tsv:qos_3_v5).
"""

import ast
import re

from sources import files, report, text

TABLE, CLAUSES = "test/conformance.tsv", "test/clauses.tsv"
GTEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def lines(path):
    return [line.split("\t") for line in text(path).splitlines() if line and line[0] != "#"]


def server_clauses():
    return {(clause, version) for clause, version, binds, _ in lines(CLAUSES)[1:]
            if binds in ("server", "both")}


def pytest_ids():
    for path in files("test/*.py"):
        if path.name.startswith("test_"):
            for node in ast.parse(text(path)).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield f"{path}::{node.name}"


def existing_tests():
    found = set(pytest_ids())
    for path in files("test/unit/*.cpp"):
        found |= {f"{suite}.{name}" for suite, name in GTEST.findall(text(path))}
    for path in files("test/packets/*.tsv"):
        found |= {f"{path.name}:{row[0]}" for row in lines(path)}
    return found


def test_each_server_clause_is_in_the_table_once():
    listed = [(row[0], row[1]) for row in lines(TABLE)]
    clauses = server_clauses()
    faults = [f"{clause} of {version} is missing" for clause, version in sorted(clauses - set(listed))]
    faults += [f"{clause} of {version} is no server clause"
               for clause, version in sorted(set(listed) - clauses)]
    faults += [f"{clause} of {version} is there twice" for clause, version in sorted(set(listed))
               if listed.count((clause, version)) > 1]
    report(f"{len(clauses)} clauses", faults)


def test_each_clause_has_tests_that_exist_or_a_reason():
    tests, faults, proved = existing_tests(), [], 0
    for clause, version, *rest in lines(TABLE):
        if rest[0] == "-":
            if len(rest) != 2 or len(rest[1]) < 10:
                faults.append(f"{clause} of {version}: no test and no reason")
            continue
        proved += 1
        faults += [f"{clause} of {version}: there is no test {name}"
                   for name in rest[0].split() if name not in tests]
        if len(rest) != 1 or not rest[0].strip():
            faults.append(f"{clause} of {version}: a test or a reason, not both")
    report(f"{proved} clauses proved by tests, {len(lines(TABLE)) - proved} cannot apply", faults)
