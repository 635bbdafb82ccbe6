"""Unchanged TOASTed columns (B02) under each replica identity: absent or right, never null; no old row
that says more than the WAL has."""

import pytest

BIG = "(SELECT jsonb_build_object('v', string_agg(md5(i::text), '')) FROM generate_series(1, 1600) i)"
BIG_BYTES = 1600 * 32  # beyond 50 kB, and it does not compress below a page


@pytest.fixture
def table(server, name):
    """make(identity, mapping): id is the key, big is in the TOAST table."""
    def make(identity, topic, **options):
        server.psql(f"""
            CREATE TABLE {name} (id int PRIMARY KEY, code text NOT NULL, n int, big jsonb);
            ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL;
            CREATE UNIQUE INDEX {name}_code ON {name} (code);
            ALTER TABLE {name} REPLICA IDENTITY {identity.format(name=name)};
            SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$,
                $$jsonb_build_array(to_jsonb(new) - coalesce(absent, '{{}}'), old, absent)$$,
                operations => '{options.get("operations", "{insert,update,delete}")}');
            INSERT INTO {name} VALUES (1, 'a', 1, {BIG})""")
        return name
    return make


IDENTITIES = {
    # UPDATE of n, of the key, of big; DELETE: (what new has of big, old, absent)
    "DEFAULT": {"key": {"id": 1, "code": None, "n": None, "big": None}},
    "USING INDEX {name}_code": {"key": {"id": None, "code": "a", "n": None, "big": None}},
    "FULL": {"key": "whole"},
    "NOTHING": {"key": None},
}


@pytest.mark.parametrize("identity", IDENTITIES)
def test_an_update_of_another_column(server, sub, topic, table, identity):
    """B02: the 50 kB value is in the WAL under FULL only; elsewhere it is absent, and not null."""
    operations = "{insert,update}" if identity == "NOTHING" else "{insert,update,delete}"
    name = table(identity, topic, operations=operations)
    inserted, (row, old, absent) = sub.json_message()
    assert (inserted, len(row["big"]["v"]), old, absent) == (f"{topic}/INSERT", BIG_BYTES, None, None)
    server.psql(f"UPDATE {name} SET n = 2")
    _, (row, old, absent) = sub.json_message()
    if identity == "FULL":
        assert len(row.pop("big")["v"]) == BIG_BYTES and absent is None
        assert len(old.pop("big")["v"]) == BIG_BYTES and old == {"id": 1, "code": "a", "n": 1}
    else:
        assert "big" not in row and old is None and absent == ["big"]
    assert row == {"id": 1, "code": "a", "n": 2}


@pytest.mark.parametrize("identity", IDENTITIES)
def test_an_update_of_the_key(server, sub, topic, table, identity):
    """B02: old is there as far as the identity goes."""
    operations = "{insert,update}" if identity == "NOTHING" else "{insert,update,delete}"
    name = table(identity, topic, operations=operations)
    sub.message()
    server.psql(f"UPDATE {name} SET id = 2, code = 'b'")
    _, (row, old, absent) = sub.json_message()
    key = IDENTITIES[identity]["key"]
    if key == "whole":
        assert len(old["big"]["v"]) == len(row["big"]["v"]) == BIG_BYTES and absent is None
    else:
        assert old == key and absent == ["big"] and "big" not in row
    assert (row["id"], row["code"], row["n"]) == (2, "b", 1)


@pytest.mark.parametrize("identity", [one for one in IDENTITIES if one != "NOTHING"])
def test_a_delete(server, sub, topic, table, identity):
    """B02: the old row of a DELETE, with what is not known said to be absent."""
    name = table(identity, topic)
    sub.message()
    server.psql(f"DELETE FROM {name}")
    _, (row, old, absent) = sub.json_message()
    assert row is None
    key = IDENTITIES[identity]["key"]
    if key == "whole":
        assert len(old["big"]["v"]) == BIG_BYTES and absent is None
    else:
        assert old == key
        assert set(absent) == {column for column, value in key.items() if value is None}


def test_a_delete_without_identity_is_refused_at_the_creation(server, table, topic, name):
    """B02: not found out with the first row."""
    server.psql(f"CREATE TABLE {name} (id int); ALTER TABLE {name} REPLICA IDENTITY NOTHING")
    with pytest.raises(RuntimeError, match="does not say which row"):
        server.psql(f"SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || old.id$$)")


def test_values_that_change_between_toasted_and_inline(server, sub, topic, table):
    """B02: each UPDATE of the column itself carries its value, whatever it was before."""
    name = table("DEFAULT", topic)
    sub.message()
    for value, wanted in (("'{}'", {}), (BIG, BIG_BYTES), ("NULL", None), (BIG, BIG_BYTES)):
        server.psql(f"UPDATE {name} SET big = {value}")
        _, (row, _, absent) = sub.json_message()
        assert absent is None
        assert (len(row["big"]["v"]) if isinstance(wanted, int) else row["big"]) == wanted


def test_many_toasted_columns_and_a_toasted_key(server, sub, topic, name):
    """B02: the key itself is always there; of the others, each on its own."""
    big = "(SELECT string_agg(md5({}::text || i), '') FROM generate_series(1, 70) i)"
    server.psql(f"""
        CREATE TABLE {name} (k text PRIMARY KEY, a text, b text, n int);
        ALTER TABLE {name} ALTER k SET STORAGE EXTERNAL, ALTER a SET STORAGE EXTERNAL,
            ALTER b SET STORAGE EXTERNAL;
        SELECT pgmqtt.add_mapping('{name}', '{name}', $$'{topic}/' || op$$);
        INSERT INTO {name} VALUES ({big.format(1)}, {big.format(2)}, {big.format(3)}, 1);
        UPDATE {name} SET n = 2; UPDATE {name} SET a = 'small'; DELETE FROM {name}""")
    _, inserted = sub.json_message()
    assert [len(inserted[column]) for column in "kab"] == [2240] * 3, "the premise"
    assert sub.json_message()[1].keys() <= {"k", "n"}
    _, updated = sub.json_message()
    assert updated["a"] == "small" and "b" not in updated
    assert sub.json_message() == (f"{topic}/DELETE", {"k": inserted["k"]})
