-- What a sink's statement sees and does. redrive() runs the same code as the worker, without a broker:
-- a dead letter of a sink is a message.
CREATE FUNCTION message(sink text, topic text, payload bytea, properties jsonb DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO pgmqtt.dead_letter (source, name, topic, payload, properties, client_id, sqlstate,
                                    message, qos, retain, username, received_at)
    VALUES ('sink', sink, topic, payload, properties, 'client', '00000', '', 1, true, 'user',
            '2024-02-29 12:00:00.123456+00')
$$;
CREATE FUNCTION message(sink text, topic text, payload text, properties jsonb DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    SELECT message(sink, topic, convert_to(payload, 'UTF8'), properties)
$$;
CREATE VIEW letters AS
    SELECT name, topic, payload, sqlstate, message, attempts FROM pgmqtt.dead_letter ORDER BY id;
SET TimeZone = 'UTC';

-- every column of msg
CREATE TABLE seen (a text, rest text, whole jsonb);
SELECT pgmqtt.add_sink('columns', 'x/{a}/{Rest...}',
    'INSERT INTO seen SELECT a, rest, to_jsonb(msg) FROM msg');
SELECT message('columns', 'x/A/b/c', '{"k": [1, 2.50]}',
    '{"content_type": "application/json", "response_topic": "r", "correlation_data": "c",
      "user_properties": {"unit": "C", "tag": ["a", "b\"\\"]}}');
SELECT message('columns', 'x/A', '');
SELECT message('columns', 'x//', '\xff'::bytea);
SELECT pgmqtt.redrive('columns');
SELECT a, rest, jsonb_pretty(whole) FROM seen;
SELECT count(*) FROM letters;
SELECT pgmqtt.drop_sink('columns');

-- json is NULL for what jsonb cannot hold, text is NULL for what is not UTF-8: nothing raises
CREATE TABLE poison (n int GENERATED ALWAYS AS IDENTITY, text text, json jsonb, size int);
SELECT pgmqtt.add_sink('poison', 'p', $$
    INSERT INTO poison (text, json, size) SELECT text, json, length(payload) FROM msg$$);
SELECT message('poison', 'p', payload) FROM unnest(ARRAY[
    '{"a": "\u0000"}', '{"a": "\ud800"}', '{"a": NaN}', '{"a": 1e400}', '{"a": 1e400000}', '{"a": ',
    '', ' ', 'null', '"text"', '{"a": 1, "a": 2}', '[1] x']) payload;
SELECT message('poison', 'p', payload) FROM unnest(ARRAY[
    '\xff', '\x00', '\xc080', '\xeda080', '\x7b2261223a22ff227d']::bytea[]) payload;
SELECT message('poison', 'p', repeat('[', 100000));
SELECT message('poison', 'p', '[' || repeat('1,', 2000000) || '1]');
SELECT pgmqtt.redrive();
SELECT n, left(text, 20) AS text, left(json::text, 20) AS json, size FROM poison ORDER BY n;
SELECT pgmqtt.drop_sink('poison');

-- Good rows are stored in order, guilty messages stay with SQLSTATE and bytes.
CREATE TABLE good (n int GENERATED ALWAYS AS IDENTITY, v int PRIMARY KEY CHECK (v <> 666),
                   parent int);
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1);
ALTER TABLE good ADD FOREIGN KEY (parent) REFERENCES parent DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION refuse_13() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.v = 13 THEN RAISE 'thirteen' USING ERRCODE = 'P1313'; END IF;
    IF NEW.v = 14 THEN EXECUTE 'SELECT * FROM nowhere'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_13 BEFORE INSERT ON good FOR EACH ROW EXECUTE FUNCTION refuse_13();
SELECT pgmqtt.add_sink('good', 'g/{parent}', $$
    INSERT INTO good (v, parent) SELECT text::int, parent::int FROM msg$$);
SELECT message('good', 'g/1', v::text) FROM generate_series(1, 20) v;
SELECT message('good', 'g/1', v) FROM unnest(ARRAY['666', 'x', '3', '', '99999999999', '21']) v;
SELECT message('good', 'g/2', '22');
SELECT message('good', 'g/one', '23');
SELECT message('good', 'g/1', '24');
SELECT pgmqtt.redrive('good');
SELECT string_agg(v::text, ' ' ORDER BY n) FROM good;
SELECT * FROM letters;
INSERT INTO parent VALUES (2);
SELECT pgmqtt.redrive('good');
SELECT topic, sqlstate, attempts FROM letters;
-- all or nothing with the caller
DELETE FROM good WHERE v = 3;
BEGIN;
SELECT pgmqtt.redrive('good');
ROLLBACK;
SELECT count(*) FROM good WHERE v = 3;
SELECT count(*), max(attempts) FROM letters;
SELECT name, dead_letters FROM pgmqtt.sinks;

-- the statement itself cannot run: nothing is a message's fault
ALTER TABLE good RENAME TO moved;
SELECT pgmqtt.redrive('good');
SELECT count(*), max(attempts) FROM letters;
ALTER TABLE moved RENAME TO good;
-- planned again after DDL
ALTER TABLE good DROP CONSTRAINT good_v_check;
ALTER TABLE good ALTER v TYPE bigint;
SELECT pgmqtt.redrive('good');
SELECT string_agg(v::text, ' ' ORDER BY n) FROM good WHERE n > 20;
SELECT pgmqtt.drop_sink('good');
-- dead letters of a sink that is gone stay
SELECT pgmqtt.redrive();
DELETE FROM pgmqtt.dead_letter;

-- UPDATE, DELETE, MERGE, SELECT of a function, RETURNING, WITH, CALL
CREATE TABLE latest (topic text PRIMARY KEY, value text);
CREATE FUNCTION note(t text, v text) RETURNS void LANGUAGE sql AS
    'INSERT INTO latest VALUES (t, v) ON CONFLICT DO NOTHING';
CREATE PROCEDURE note_procedure(t text, v jsonb, at timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO latest VALUES (t, v->>'v' || ' ' || at);
END $$;
SELECT pgmqtt.add_sink('function', 'f', 'SELECT note(topic, text) FROM msg');
SELECT pgmqtt.add_sink('update', 'u/{t}', 'UPDATE latest SET value = text FROM msg WHERE latest.topic = t');
SELECT pgmqtt.add_sink('delete', 'd/{t}', 'DELETE FROM latest USING msg WHERE latest.topic = t');
SELECT pgmqtt.add_sink('merge', 'm/#', $$
    MERGE INTO latest USING (SELECT DISTINCT ON (topic) * FROM msg ORDER BY topic, text DESC) m
    ON latest.topic = m.topic
    WHEN MATCHED THEN UPDATE SET value = m.text
    WHEN NOT MATCHED THEN INSERT VALUES (m.topic, m.text)$$);
SELECT pgmqtt.add_sink('returning', 'r', $$
    WITH new AS (INSERT INTO latest SELECT topic, text FROM msg RETURNING topic)
    SELECT * FROM new JOIN msg USING (topic)$$);
SELECT pgmqtt.add_sink('call', 'c/{t}', 'CALL note_procedure(t, msg.json, received_at)');
SELECT pgmqtt.add_sink('upsert', 'up', $$
    INSERT INTO latest SELECT topic, text FROM msg
    ON CONFLICT (topic) DO UPDATE SET value = excluded.value$$);
SELECT pgmqtt.add_sink('subquery', 's', $$
    INSERT INTO latest SELECT 's', (SELECT string_agg(m.text, ',') FROM (SELECT text) m) FROM msg$$);
SELECT message('function', 'f', '1'), message('merge', 'm/1', '1'), message('merge', 'm/1', '2'),
    message('returning', 'r', 'ret'), message('call', 'c/called', '{"v": 7}'),
    message('call', 'c/called', '{"v": 8}'), message('upsert', 'up', '1'),
    message('upsert', 'up', '2'), message('subquery', 's', 'sub');
SELECT pgmqtt.redrive();
SELECT * FROM latest ORDER BY topic;
SELECT * FROM letters;
DELETE FROM pgmqtt.dead_letter;
SELECT message('update', 'u/f', 'updated'), message('delete', 'd/r', '');
SELECT pgmqtt.redrive();
SELECT * FROM latest ORDER BY topic;
-- a right that was taken away is the statement's fault
CREATE ROLE regress_sink_owner IN ROLE pgmqtt_admin;
SET ROLE regress_sink_owner;
SELECT pgmqtt.add_sink('owned', 'o', 'CALL note_procedure(topic, json, received_at)');
RESET ROLE;
SELECT message('owned', 'o', '{}');
SELECT pgmqtt.redrive('owned');
SELECT sqlstate, message FROM letters;
REVOKE EXECUTE ON PROCEDURE note_procedure FROM PUBLIC;
SELECT pgmqtt.redrive('owned');
GRANT INSERT ON latest TO regress_sink_owner;
GRANT EXECUTE ON PROCEDURE note_procedure TO regress_sink_owner;
SELECT pgmqtt.redrive('owned');

-- values are values
CREATE TABLE plain (a text, b text);
SELECT pgmqtt.add_sink('plain', 'q/{a}', 'INSERT INTO plain SELECT a, text FROM msg');
SELECT message('plain', 'q/' || v, v) FROM unnest(ARRAY[
    $$x'); DROP TABLE plain;--$$, 'a"b', '$1', '%s', '{payload}', 'a\b', 'é', '}']) v;
SELECT pgmqtt.redrive('plain');
SELECT a, a = b AS same FROM plain;

-- An owner cannot rise: it is itself in the statement, in triggers of the table, at the end.
CREATE TABLE who (what text, who text);
GRANT INSERT ON who TO PUBLIC;
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO who VALUES (TG_WHEN || TG_ARGV[0], current_user);
    RETURN NULL;
END $$;
CREATE TABLE told (t text);
GRANT INSERT, SELECT ON told TO regress_sink_owner;
CREATE TRIGGER tell AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION tell(' row');
CREATE CONSTRAINT TRIGGER tell_late AFTER INSERT ON told DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell(' deferred');
SET ROLE regress_sink_owner;
SELECT pgmqtt.add_sink('told', 't', 'INSERT INTO told SELECT current_user FROM msg');
RESET ROLE;
SELECT message('told', 't', '');
SELECT pgmqtt.redrive('told');
SELECT * FROM told;
SELECT * FROM who;

SELECT pgmqtt.drop_sink(name) FROM (SELECT name FROM pgmqtt.sink ORDER BY id) s;
SELECT count(*) FROM letters;
RESET TimeZone;
DROP VIEW letters;
DROP FUNCTION message(text, text, bytea, jsonb), message(text, text, text, jsonb), note;
DROP PROCEDURE note_procedure;
DROP TABLE seen, poison, good, parent, latest, plain, who, told;
DROP FUNCTION refuse_13, tell;
DROP ROLE regress_sink_owner;
