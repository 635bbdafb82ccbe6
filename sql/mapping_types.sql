-- The default payload is typed JSON: what PostgreSQL holds is what the message says (case B01).
SET timezone = 'UTC';
SET client_min_messages = warning;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN percent AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE TABLE typed (
    id int PRIMARY KEY,
    e mood,
    n numeric(38,10),
    free numeric,
    f8 float8,
    f4 real,
    i8 bigint,
    b boolean,
    t text,
    c char(5),
    at timestamptz,
    ts timestamp,
    d date,
    tod time,
    span interval,
    ta text[],
    ia int[][],
    j json,
    jb jsonb,
    raw bytea,
    u uuid,
    r int4range,
    mr int4multirange,
    p pair,
    pct percent,
    doubled int GENERATED ALWAYS AS (id * 2) STORED,
    bx box,
    tv tsvector,
    ip inet,
    bits bit(3),
    x xml
);
INSERT INTO typed VALUES
    (1, 'happy', 12345678901234567890.0123456789, 1e-30, 0.1, 0.1, 9223372036854775807, true,
     E'quote " back \\ tab \t end', 'ab', '2026-01-02 03:04:05.678901+00', '2026-01-02 03:04:05',
     '2026-01-02', '03:04:05.6', '1 year 2 days 03:04:05.000006', '{a,NULL,"b c"}', '{{1,2},{3,NULL}}',
     '{"z": 1,  "a": [1.10, null]}', '{"z": 1, "a": [1.10, null]}', '\x00ff10', '6b3c1f9e-0000-4000-8000-000000000001',
     '[1,5)', '{[1,3),[5,7)}', (7, 'seven'), 42, DEFAULT, '((0,0),(1,1))', 'a:1 b:2', '10.0.0.1/8',
     B'101', '<a>1</a>'),
    (2, NULL, 'NaN', 'Infinity', 'NaN', '-Infinity', NULL, NULL, '', NULL, 'infinity', '-infinity', 'infinity',
     NULL, NULL, '{}', NULL, 'null', 'null', '', NULL, 'empty', '{}', (NULL, NULL), NULL, DEFAULT,
     NULL, NULL, NULL, NULL, NULL);
INSERT INTO typed VALUES (3);
SELECT pgmqtt.add_mapping('typed', 'typed', $$'typed/' || coalesce(new.id, old.id)$$);
SELECT topic, key, value
    FROM pgmqtt.preview_mapping('typed'), json_each(payload::json)
    WHERE key <> 'id' AND (topic <> 'typed/3' OR value::text <> 'null')
    ORDER BY topic, key COLLATE "C";
SELECT count(*) AS "nulls are null" FROM pgmqtt.preview_mapping('typed', 'id = 3'), jsonb_each(payload::jsonb)
    WHERE value = 'null';
SELECT pgmqtt.drop_mapping('typed');

-- payloads of each kind
SELECT pgmqtt.add_mapping('a text', 'typed', $$'x'$$, $$new.t$$);
SELECT pgmqtt.add_mapping('bytes', 'typed', $$'x'$$, $$new.raw$$);
SELECT pgmqtt.add_mapping('json', 'typed', $$'x'$$, $$new.j$$);
SELECT pgmqtt.add_mapping('jsonb', 'typed', $$'x'$$, $$new.jb$$);
SELECT pgmqtt.add_mapping('null', 'typed', $$'x'$$, $$NULL::text$$, retain => true, operations => '{insert,update}');
SELECT m.name, p.* FROM pgmqtt.mappings m, pgmqtt.preview_mapping(m.name, 'id = 1') p ORDER BY m.name;
SELECT pgmqtt.drop_mapping(name) FROM pgmqtt.mappings;
DROP TABLE typed;
DROP TYPE mood, pair;
DROP DOMAIN percent;
