-- What is there to look at, and who may.
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = 'pgmqtt' AND table_name = 'clients' ORDER BY ordinal_position;
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = 'pgmqtt' AND table_name = 'stat_broker' ORDER BY ordinal_position;
SELECT count(*) FROM pgmqtt.clients;
SELECT version, started_at <= now() AS started, clients, sessions, shared_subscriptions
FROM pgmqtt.stat_broker;

-- Every object says what it is, and only pure functions are for everybody.
SELECT p.oid::regprocedure FROM pg_proc p
WHERE pronamespace = 'pgmqtt'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
ORDER BY 1;
SELECT p.oid::regprocedure FROM pg_proc p
WHERE pronamespace = 'pgmqtt'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')
ORDER BY 1;
SELECT c.oid::regclass FROM pg_class c
WHERE relnamespace = 'pgmqtt'::regnamespace AND relkind IN ('r', 'v')
AND (obj_description(c.oid, 'pg_class') IS NULL OR has_table_privilege('public', c.oid, 'SELECT'))
ORDER BY 1;
