"""test/cases.tsv: what goes wrong for users elsewhere, case by case, and the tests that it may not here.

A test is named as pytest names it. The table has the cases of parts B (database to messages) and C
(messages to rows); each is proved by tests that exist, and a test whose docstring names a case is
in that case's row.
"""

import ast
import re

from sources import files, report, text
from test_conformance import lines, pytest_ids

TABLE = "test/cases.tsv"
# Those that must hold at release, and those that are built beside them.
CASES = [f"B{number:02}" for number in range(1, 19)] + [f"C{number:02}" for number in range(1, 11)]
CASE = re.compile(r"\b([A-F]\d\d)\b")


def docstrings_that_name_cases():
    for path in files("test/wire/*.py", "test/crash/*.py"):
        for node in ast.parse(text(path)).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in CASE.findall(ast.get_docstring(node) or ""):
                    yield case, f"{path}::{node.name}"


def test_each_case_has_tests_that_exist():
    tests, rows = set(pytest_ids()), lines(TABLE)
    names = [row[0] for row in rows]
    faults = [f"{case} is missing" for case in CASES if case not in names]
    faults += [f"{case} is there twice" for case in sorted(set(names)) if names.count(case) > 1]
    for case, *proofs in rows:
        if len(proofs) != 1 or not proofs[0].split():
            faults.append(f"{case}: a case and its tests, not {len(proofs)} columns")
        faults += [f"{case}: there is no test {name}" for name in " ".join(proofs).split()
                   if name not in tests]
    report(f"{len(rows)} cases, {sum(len(row[1].split()) for row in rows)} proofs", faults)


def test_tests_that_name_a_case_are_in_its_row():
    rows = {row[0]: row[1].split() for row in lines(TABLE)}
    named = list(docstrings_that_name_cases())
    faults = [f"{test} says {case}, {TABLE} does not" for case, test in named
              if case in rows and test not in rows[case]]
    report(f"{len(named)} docstrings", faults)
