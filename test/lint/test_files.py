"""Files: their size, their names, their twins, and what they may not say."""

import re

from sources import ROOT, files, ours, report, text

MAX_LINES = 500
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}


def test_no_file_is_long():
    looked_at = ours(".h", ".cpp", ".py", ".sh", ".js")
    lines = {path: len(text(path).splitlines()) for path in looked_at}
    faults = [f"{path}: {count} lines, split it" for path, count in lines.items()
              if count > MAX_LINES]
    report(f"{len(looked_at)} files, the longest has {max(lines.values())} lines", faults)


def test_no_file_has_a_vague_name():
    looked_at = files()
    faults = [str(path) for path in looked_at
              if VAGUE & set(re.split(r"[_\-.]", path.stem.lower())) or VAGUE & set(path.parts[:-1])]
    report(f"{len(looked_at)} names", faults)


def test_each_regression_test_has_its_expected_output():
    tests = {path.stem for path in files("sql") if path.suffix == ".sql"
             and not path.name.startswith("pgmqtt--")}
    outputs = {re.sub(r"_\d+$", "", path.stem) if path.stem not in tests else path.stem
               for path in files("expected") if path.suffix == ".out"}
    faults = [f"sql/{name}.sql has no expected/{name}.out" for name in sorted(tests - outputs)]
    faults += [f"expected/{name}.out has no sql/{name}.sql" for name in sorted(outputs - tests)]
    report(f"{len(tests)} regression tests", faults)


def test_each_source_is_compiled():
    """The Makefile takes src/DIR/*.cpp of the folders it names: one level, no other folder.

    loadtest.mk takes loadtest/*.cpp."""
    makefile = text("Makefile")
    folders = set()
    for variable in ("CORE_DIRS", "PG_DIRS"):
        folders |= set(re.search(rf"^{variable}\s*=\s*(.+)$", makefile, re.MULTILINE)[1].split())
    looked_at = [path for path in files("src", "loadtest") if path.suffix in (".cpp", ".cc", ".c")]
    faults = [f"{path} is compiled by nothing" for path in looked_at
              if str(path) != "src/extension.cpp" and str(path.parent) != "loadtest"
              and not (path.suffix == ".cpp" and len(path.parts) == 3 and path.parts[1] in folders)]
    report(f"{len(looked_at)} sources, {len(folders)} folders", faults)


def test_each_header_is_included():
    included = "\n".join(text(path) for path in ours(".h", ".cpp"))
    headers = {path: path.relative_to("src") for path in files("src") if path.suffix == ".h"}
    headers |= {path: path for path in files("loadtest") if path.suffix == ".h"}
    faults = [f"{path} is included by nothing" for path, name in headers.items()
              if f'"{name}"' not in included]
    report(f"{len(headers)} headers", faults)


def test_only_the_harness_runs_make():
    """Tests run beside each other: two makes at once would write the files that others run. Its lock is in
    harness/tree.py."""
    looked_at = [path for path in files("test") if path.suffix == ".py"]
    faults = [f"{path} runs make itself; harness.tree.make does it one at a time" for path in looked_at
              if str(path) != "test/harness/tree.py" and re.search(r"""["']make["'],""", text(path))]
    assert re.search(r"""["']make["'],""", text("test/harness/tree.py")), "the pattern finds nothing"
    report(f"{len(looked_at)} files", faults)


def test_no_merge_was_left_half_done():
    marker = re.compile(r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
    looked_at = files()
    report(f"{len(looked_at)} files", [str(path) for path in looked_at if marker.search(text(path))])


def test_nothing_names_the_machine_it_was_made_on():
    path_of_a_machine = re.compile(r"(?<![\w./$}])/(work|root|home/\w+)/[\w.]|" + re.escape(str(ROOT)))
    looked_at = [path for path in files() if path.suffix not in (".bin", ".png", ".svg")]
    faults = []
    for path in looked_at:
        for number, line in enumerate(text(path).splitlines(), 1):
            if path_of_a_machine.search(line):
                faults.append(f"{path}:{number}: {line.strip()[:100]}")
    report(f"{len(looked_at)} files", faults)
