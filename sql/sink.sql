-- Sinks: definitions, who may make them, and what is said of a wrong one.
CREATE TABLE reading (site text, at timestamptz, celsius float8);

SELECT pgmqtt.add_sink('temps', 'sensors/{site}/temp',
    $$INSERT INTO reading(site, at, celsius)
      SELECT site, received_at, (json->>'temperature')::float8 FROM msg$$);
SELECT name, filter, qos, on_error, enabled, message, messages, dead_letters, retries, pending
FROM pgmqtt.sinks;
SELECT owner = current_user::regrole AS mine, search_path FROM pgmqtt.sink;

-- names and arguments
SELECT pgmqtt.add_sink('temps', 'a', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('', 'a', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink(NULL, 'a', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', NULL, 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a', NULL);
SELECT pgmqtt.add_sink('x', 'a', 'SELECT 1 FROM msg', qos => 3);
SELECT pgmqtt.add_sink('x', 'a', 'SELECT 1 FROM msg', on_error => 'stall');

-- filters
SELECT pgmqtt.add_sink('x', '', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{b}c', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{}', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{b-c}', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{b}/{B}', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', '{rest...}/a', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{payload}', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a#', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', '$share/g/a', 'SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', '$other/#', 'SELECT 1 FROM msg');

-- statements
SELECT pgmqtt.add_sink('x', 'a', '');
SELECT pgmqtt.add_sink('x', 'a', 'SELECT 1; SELECT 2');
SELECT pgmqtt.add_sink('x', 'a', 'DROP TABLE reading');
SELECT pgmqtt.add_sink('x', 'a', 'COPY reading TO STDOUT');
SELECT pgmqtt.add_sink('x', 'a', 'SELECT topic INTO y FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'COMMIT');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(site) SELCT topic FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO nowhere SELECT topic FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(sight) SELECT topic FROM msg');
SELECT pgmqtt.add_sink('x', 'a/{b}', 'INSERT INTO reading(site) SELECT c FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(site) VALUES (topic)');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(celsius) SELECT json->''a'' FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'SELECT $1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'CALL nothing(topic)');

-- switching and dropping
SELECT pgmqtt.alter_sink('temps', false);
SELECT name, enabled, status FROM pgmqtt.sinks;
SELECT pgmqtt.alter_sink('temps', NULL);
SELECT pgmqtt.alter_sink('none', true);
SELECT pgmqtt.drop_sink('none');
SELECT pgmqtt.redrive('none');
SELECT pgmqtt.drop_sink('temps');
SELECT count(*) FROM pgmqtt.sinks;

-- Rights: EXECUTE comes with pgmqtt_admin; the statement has those of its owner, no more.
CREATE ROLE regress_sink_admin IN ROLE pgmqtt_admin;
CREATE ROLE regress_sink_nobody;
GRANT INSERT (site), SELECT ON reading TO regress_sink_admin;
CREATE TABLE secret (t text);
CREATE PROCEDURE hidden(t text) LANGUAGE sql AS 'SELECT t';
REVOKE ALL ON PROCEDURE hidden(text) FROM PUBLIC;

SET ROLE regress_sink_nobody;
SELECT pgmqtt.add_sink('x', 'a', 'SELECT 1 FROM msg');
SELECT pgmqtt.drop_sink('x');
SELECT pgmqtt.alter_sink('x', true);
SELECT pgmqtt.redrive();
SELECT * FROM pgmqtt.sinks;
SELECT * FROM pgmqtt.dead_letter;

SET ROLE regress_sink_admin;
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO secret SELECT topic FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(celsius) SELECT 1 FROM msg');
SELECT pgmqtt.add_sink('x', 'a', 'CALL hidden(topic)');
SELECT pgmqtt.add_sink('x', 'a', 'INSERT INTO reading(site) SELECT topic FROM msg');
INSERT INTO pgmqtt.sink (name, filter, statement, qos, on_error, owner, search_path)
VALUES ('y', 'a', 'DELETE FROM secret', 1, 'retry', 'postgres', '');
SELECT name, owner FROM pgmqtt.sinks;
SELECT pgmqtt.drop_sink('x');
RESET ROLE;

DROP TABLE secret, reading;
DROP PROCEDURE hidden;
DROP ROLE regress_sink_admin, regress_sink_nobody;
