"""README.md's table of settings and pg_settings say the same, both ways.

The table has the columns name, unit, default and context (and any more); default is what SHOW says
of an untouched setting; context is reload (sighup), restart (postmaster), superuser or user.
"""

from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
CONTEXTS = {"sighup": "reload", "postmaster": "restart", "superuser": "superuser", "user": "user"}


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").replace("\\|", "\0").split("|")]


def plain(cell):
    cell = cell.strip("`").strip()
    return "" if cell in ("''", "–", "-", "empty") else cell


def documented():
    """name: (unit, default, context) of every pgmqtt.* row of every table with those columns."""
    found, columns = {}, None
    for line in README.read_text(encoding="utf8").splitlines():
        if not line.lstrip().startswith("|"):
            columns = None
            continue
        row = [plain(cell) for cell in cells(line)]
        if columns is None:
            columns = {title.lower(): at for at, title in enumerate(row)}
        elif {"name", "unit", "default", "context"} <= columns.keys() \
                and row[columns["name"]].startswith("pgmqtt."):
            assert row[columns["name"]] not in found, f"twice: {line}"
            found[row[columns["name"]]] = tuple(row[columns[title]]
                                                for title in ("unit", "default", "context"))
    return found


def test_the_table_of_settings(new_server):
    server = new_server(create_extension=False)
    server.configure(**{name: None for name in list(server.conf) if name.startswith("pgmqtt.")})
    server.start()
    rows = server.psql("SELECT name, coalesce(unit, ''), current_setting(name), context, source"
                       " FROM pg_settings WHERE name LIKE 'pgmqtt.%' ORDER BY name").splitlines()
    actual = {}
    for name, unit, default, context, source in (row.split("|") for row in rows):
        assert source == "default", f"{name} is set"
        actual[name] = (unit, default, CONTEXTS.get(context, context))
    assert actual, "pgmqtt has settings"
    written = documented()
    lines = [f"| `{name}` | {unit} | `{default}` | {context} |"
             for name, (unit, default, context) in actual.items()
             if written.get(name) != (unit, default, context)]
    unknown = sorted(written.keys() - actual.keys())
    assert not lines and not unknown, "\n".join(
        ["README.md should say:", *lines, f"and should not name {unknown}"])


def test_each_setting_describes_itself(server):
    silent = server.psql("SELECT name FROM pg_settings WHERE name LIKE 'pgmqtt.%'"
                         " AND coalesce(short_desc, '') = ''")
    assert silent == ""
