-- Mappings: what add_mapping accepts, and what it says about the rest. Nothing here needs a client.
\set VERBOSITY terse
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, customer text, total numeric(12,2), paid boolean);
CREATE TABLE shop.log (at timestamptz, line text);
INSERT INTO shop.orders VALUES (1, 'ada', 12.50, true), (2, 'bob', 7, false), (3, NULL, 0.10, NULL);

SELECT pgmqtt.add_mapping('orders', 'shop.orders', $$'orders/' || coalesce(new.id, old.id)$$);
SELECT name, source, topic, payload, filter, operations, qos, retain, properties, on_error, enabled,
       status, message, published, errors FROM pgmqtt.mappings;
SELECT owner = current_user::regrole FROM pgmqtt.mappings;
SELECT * FROM pgmqtt.preview_mapping('orders');
SELECT * FROM pgmqtt.preview_mapping('orders', 'total > 5 AND new.paid');
SELECT * FROM pgmqtt.preview_mapping('orders', "limit" => 1);
SELECT * FROM pgmqtt.preview_mapping('orders', 'true) UNION ALL (SELECT NULL');
SELECT * FROM pgmqtt.preview_mapping('orders', 'new');
SELECT * FROM pgmqtt.preview_mapping('nothing');

-- names and tables
SELECT pgmqtt.add_mapping('orders', 'shop.orders', $$'x'$$);
SELECT pgmqtt.add_mapping('', 'shop.orders', $$'x'$$);
SELECT pgmqtt.add_mapping(NULL, 'shop.orders', $$'x'$$);
SELECT pgmqtt.add_mapping('x', NULL, $$'x'$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', NULL);
SELECT pgmqtt.add_mapping('x', 'shop.nothing', $$'x'$$);
CREATE VIEW shop.view AS SELECT 1 AS id;
SELECT pgmqtt.add_mapping('x', 'shop.view', $$'x'$$);
CREATE TEMP TABLE temporary (id int);
SELECT pgmqtt.add_mapping('x', 'temporary', $$'x'$$);
CREATE UNLOGGED TABLE shop.unlogged (id int);
SELECT pgmqtt.add_mapping('x', 'shop.unlogged', $$'x'$$);
SELECT pgmqtt.add_mapping('x', 'pg_class', $$'x'$$);
SELECT pgmqtt.add_mapping('x', 'pgmqtt.mapping', $$'x'$$);

-- expressions: the message points at the fault
\set VERBOSITY default
\set SHOW_CONTEXT errors
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'orders/' || id$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'orders/' || nonsense$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'orders/' || new.idd$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'orders/' || nosuch(new.id)$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'orders/' ||$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'a', 'b'$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$new.id$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, payload => $$new.total$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, payload => $$new$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, filter => $$new.id$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, properties => $$'{}'$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$(INSERT INTO shop.log VALUES (now()) RETURNING line)$$);
\set VERBOSITY terse

-- the other arguments
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, operations => '{insert,upsert}');
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, operations => '{}');
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, qos => 3);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$, on_error => 'ignore');

-- DELETE needs something to say which row
SELECT pgmqtt.add_mapping('x', 'shop.log', $$'log/' || old.line$$);
SELECT pgmqtt.add_mapping('x', 'shop.log', $$'log'$$, retain => true);
SELECT pgmqtt.add_mapping('log', 'shop.log', $$'log'$$, operations => '{insert}');
SELECT pgmqtt.add_mapping('log2', 'shop.log', $$'log'$$);
SELECT pgmqtt.add_mapping('orders2', 'shop.orders', $$'orders/' || new.id$$);
SELECT name FROM pgmqtt.mappings ORDER BY name;

-- privileges: the mapping is the caller's, and so is what it may read
CREATE ROLE mapping_user;
GRANT pgmqtt_admin TO mapping_user;
GRANT USAGE ON SCHEMA shop TO mapping_user;
CREATE ROLE mapping_nobody;
GRANT USAGE ON SCHEMA shop TO mapping_nobody;
SET ROLE mapping_nobody;
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$);
SELECT count(*) FROM pgmqtt.mappings;
RESET ROLE;
SET ROLE mapping_user;
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$);
INSERT INTO pgmqtt.mapping (name) VALUES ('by hand');
SELECT * FROM pgmqtt.preview_mapping('orders');
RESET ROLE;
GRANT SELECT ON shop.orders TO mapping_user;
CREATE FUNCTION shop.secret() RETURNS text LANGUAGE sql AS $$SELECT 'secret'$$;
REVOKE EXECUTE ON FUNCTION shop.secret() FROM PUBLIC;
SET ROLE mapping_user;
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$shop.secret()$$);
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$(SELECT line FROM shop.log LIMIT 1)$$);
SELECT pgmqtt.add_mapping('mine', 'shop.orders', $$current_user || '/' || coalesce(new.id, old.id)$$);
SELECT * FROM pgmqtt.preview_mapping('mine', 'id = 1');
SELECT name, owner FROM pgmqtt.mappings WHERE name = 'mine';
RESET ROLE;
SELECT topic FROM pgmqtt.preview_mapping('mine', 'id = 1');
ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY;
SET ROLE mapping_user;
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$);
RESET ROLE;
ALTER TABLE shop.orders DISABLE ROW LEVEL SECURITY;

-- read only, also in a preview
CREATE SEQUENCE shop.counter;
CREATE FUNCTION shop.writes(text) RETURNS text LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO shop.log VALUES (now(), $1); RETURN $1; END$$;
SELECT pgmqtt.add_mapping('writes', 'shop.orders', $$shop.writes('x')$$, operations => '{insert}');
SELECT * FROM pgmqtt.preview_mapping('writes');
SELECT count(*) FROM shop.log;

-- the caller's search_path goes with the mapping
SET search_path = shop;
CREATE FUNCTION label(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'order-' || $1$$;
SELECT pgmqtt.add_mapping('path', 'orders', $$label(coalesce(new.id, old.id))$$);
RESET search_path;
SELECT topic FROM pgmqtt.preview_mapping('path');

-- altering and dropping
SELECT pgmqtt.alter_mapping('orders', false);
SELECT name, enabled, status FROM pgmqtt.mappings WHERE name = 'orders';
SELECT pgmqtt.alter_mapping('nothing', true);
SELECT pgmqtt.drop_mapping('nothing');
SELECT pgmqtt.drop_mapping(name) FROM pgmqtt.mappings;
SELECT count(*) FROM pgmqtt.mappings;
SELECT count(*) FROM pg_replication_slots WHERE plugin = 'pgmqtt';

-- rolled back, it was never there
BEGIN;
SELECT pgmqtt.add_mapping('x', 'shop.orders', $$'x'$$);
ROLLBACK;
SELECT count(*) FROM pgmqtt.mappings;

DROP SCHEMA shop CASCADE;
DROP ROLE mapping_user, mapping_nobody;
