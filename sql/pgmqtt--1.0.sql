-- pgmqtt 1.0: everything CREATE EXTENSION makes, in the order a reader meets it.
-- Contract: names, parameters and defaults here are public (README, SQL reference).
\echo Use "CREATE EXTENSION pgmqtt" to load this file. \quit

-- ------------------------------------------------------------------------------------------------
-- Roles. They belong to the cluster, so they may exist already and they outlive DROP EXTENSION.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'pgmqtt_admin') THEN
        CREATE ROLE pgmqtt_admin NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'pgmqtt_monitor') THEN
        CREATE ROLE pgmqtt_monitor NOLOGIN;
    END IF;
END
$$;

-- Made here and not by the control file, so that it belongs to the extension and goes with it.
CREATE SCHEMA pgmqtt;
GRANT USAGE ON SCHEMA pgmqtt TO PUBLIC;

-- ------------------------------------------------------------------------------------------------
-- Configuration: what pg_dump carries. Written by the functions below, which check; a change wakes
-- the workers at its commit.

CREATE TABLE pgmqtt.mapping (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    source      regclass NOT NULL,
    topic       text NOT NULL,
    payload     text,
    filter      text,
    operations  text[] NOT NULL,
    qos         int NOT NULL CHECK (qos BETWEEN 0 AND 2),
    retain      boolean NOT NULL,
    properties  text,
    on_error    text NOT NULL CHECK (on_error IN ('skip', 'stall')),
    owner       regrole NOT NULL,
    search_path text NOT NULL,
    calls       text[],
    enabled     boolean NOT NULL DEFAULT true,
    enabled_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    had_slot    boolean NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgmqtt.mapping IS 'CDC mappings: committed rows to publishes. Change through pgmqtt.add_mapping and its siblings';
COMMENT ON COLUMN pgmqtt.mapping.calls IS 'Functions outside of pg_catalog that the expressions may call, and their owners: those that they called when they were added; NULL: any';
COMMENT ON COLUMN pgmqtt.mapping.enabled_at IS 'When the mapping was added or switched on: a replication slot that was there later (pgmqtt.cdc_slot.at) has held its changes';
COMMENT ON COLUMN pgmqtt.mapping.had_slot IS 'Whether the replication slot was there already at that moment';

CREATE TABLE pgmqtt.cdc_slot (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    confirmed_lsn pg_lsn NOT NULL,
    system_identifier bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON COLUMN pgmqtt.cdc_slot.at IS 'When it was last seen';
COMMENT ON TABLE pgmqtt.cdc_slot IS 'That the mappings have a replication slot, and that everything before confirmed_lsn was published (as of the last minute): should it be gone, changes are missing, see pgmqtt.gap';

CREATE TABLE pgmqtt.gap (
    mapping     int PRIMARY KEY,
    after_lsn   pg_lsn,
    before_lsn  pg_lsn,
    noticed_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE pgmqtt.gap IS 'Mappings (id) whose replication slot was gone: changes committed between the two positions are not published. Ends with pgmqtt.snapshot_mapping() of all rows, or when the mapping is switched off';

CREATE TABLE pgmqtt.sink (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    filter      text COLLATE "C" NOT NULL,
    statement   text NOT NULL,
    qos         int NOT NULL CHECK (qos BETWEEN 0 AND 2),
    on_error    text NOT NULL CHECK (on_error IN ('dead_letter', 'retry')),
    owner       regrole NOT NULL,
    search_path text NOT NULL,
    enabled     boolean NOT NULL DEFAULT true,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgmqtt.sink IS 'Sinks: publishes to rows. Change through pgmqtt.add_sink and its siblings';

SELECT pg_catalog.pg_extension_config_dump('pgmqtt.mapping', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.cdc_slot', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.gap', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.sink', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.mapping_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.sink_id_seq', '');

-- ------------------------------------------------------------------------------------------------
-- State that the workers keep. REPLICA IDENTITY NOTHING: nobody replicates it logically. Topics are
-- MQTT's bytes (UTF-8 whatever the database's encoding), so they are stored as bytes.

CREATE TABLE pgmqtt.retained_message (
    topic_hash  bigint NOT NULL,
    topic       bytea NOT NULL,
    payload     bytea NOT NULL,
    qos         smallint NOT NULL,
    properties  bytea NOT NULL,
    stored_at   timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX retained_message_topic_hash ON pgmqtt.retained_message (topic_hash);
ALTER TABLE pgmqtt.retained_message REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.retained_message ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE pgmqtt.retained_message IS 'Retained messages. topic_hash is xxHash64 (XXH3) of topic: a topic of 65,535 bytes does not fit a btree';

-- Sessions that outlive their connection (section 4.1 of MQTT 5.0). The ids are the broker's. Only the
-- store worker writes here, a cycle at a time; the broker reads it all when it starts.

CREATE TABLE pgmqtt.session (
    session_id       bigint PRIMARY KEY,
    client_id        bytea NOT NULL,
    username         bytea NOT NULL,
    created_at       timestamptz NOT NULL,
    disconnected_at  timestamptz NOT NULL,
    expiry_interval  bigint NOT NULL,
    will_topic       bytea NOT NULL,
    will_payload     bytea NOT NULL,
    will_qos         smallint NOT NULL,
    will_retain      boolean NOT NULL,
    will_properties  bytea NOT NULL,
    will_received_at timestamptz NOT NULL,
    will_expires_at  timestamptz NOT NULL,
    will_delay       bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500);
ALTER TABLE pgmqtt.session REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.session IS 'Sessions that outlive their connection. username is empty for anonymous clients, disconnected_at infinity while connected, expiry_interval in seconds (4294967295: never), will_topic empty without a will';

CREATE TABLE pgmqtt.session_subscription (
    session_id          bigint NOT NULL,
    filter_hash         bigint NOT NULL,
    filter              bytea NOT NULL,
    qos                 smallint NOT NULL,
    no_local            boolean NOT NULL,
    retain_as_published boolean NOT NULL,
    retain_handling     smallint NOT NULL,
    subscription_id     bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 500);
CREATE INDEX session_subscription_session ON pgmqtt.session_subscription (session_id, filter_hash);
ALTER TABLE pgmqtt.session_subscription REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.session_subscription IS 'Subscriptions of the sessions in pgmqtt.session. filter_hash is xxHash64 (XXH3) of filter: a filter of 65,535 bytes does not fit a btree; subscription_id is 0 without one';

-- The queue is a log (src/README.md). Two of them, each a pool of eight segments; a segment is a pair of
-- tables that only the store worker writes: it appends to the youngest pair and truncates the oldest
-- when nobody needs it any more. So there is neither an index nor a dead row, nothing for vacuum to do,
-- and TRUNCATE makes the table's age young again: autovacuum is off, except against wraparound. The
-- parents hold nothing, they show all segments of both logs.
CREATE TABLE pgmqtt.message (
    message_id  bigint NOT NULL,
    topic       bytea NOT NULL,
    payload     bytea NOT NULL,
    qos         smallint NOT NULL,
    retain      boolean NOT NULL,
    properties  bytea NOT NULL,
    received_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);
ALTER TABLE pgmqtt.message REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.message ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE pgmqtt.message IS 'Messages queued for sessions, each once for all of them, and those whose segment is not truncated yet. Only the store worker writes here';

CREATE TABLE pgmqtt.queue_log (
    batch       bigint NOT NULL,
    part        int NOT NULL,
    entries     bytea NOT NULL
);
ALTER TABLE pgmqtt.queue_log REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.queue_log ALTER COLUMN entries SET STORAGE MAIN;
COMMENT ON TABLE pgmqtt.queue_log IS 'What became of the messages: packed, see pgmqtt.delivery and pgmqtt.received_packet for what they say. Only the store worker writes here';

DO $$
DECLARE
    log      text[];
    segment  int;
    name     text;
BEGIN
    FOREACH log SLICE 1 IN ARRAY ARRAY[['', ''], ['unlogged', 'unlogged_']] LOOP
        FOR segment IN 1..8 LOOP
            FOREACH name IN ARRAY ARRAY['message', 'queue'] LOOP
                EXECUTE pg_catalog.format(
                    'CREATE %s TABLE pgmqtt.%I () INHERITS (pgmqtt.%I) WITH (autovacuum_enabled = off, '
                    'toast.autovacuum_enabled = off)', log[1], log[2] || name || '_' || segment,
                    CASE name WHEN 'queue' THEN 'queue_log' ELSE name END);
                EXECUTE pg_catalog.format('ALTER TABLE pgmqtt.%I REPLICA IDENTITY NOTHING',
                                          log[2] || name || '_' || segment);
                EXECUTE pg_catalog.format('COMMENT ON TABLE pgmqtt.%I IS %L',
                    log[2] || name || '_' || segment,
                    pg_catalog.format('Segment %s of a log of pgmqtt.%s: filled, and truncated when '
                        'nothing in it is needed', segment,
                        CASE name WHEN 'queue' THEN 'queue_log' ELSE name END));
            END LOOP;
        END LOOP;
    END LOOP;
END
$$;

-- What pgmqtt.durability does not say for all topics.
CREATE TABLE pgmqtt.durability_rule (
    filter      text COLLATE "C" PRIMARY KEY,
    durability  text NOT NULL CHECK (durability IN ('durable', 'async', 'unlogged'))
);
COMMENT ON TABLE pgmqtt.durability_rule IS 'Durability of the messages whose topics match a filter. Change through pgmqtt.set_durability';
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.durability_rule', '');

-- Publishing from SQL and what comes of failures.

CREATE TABLE pgmqtt.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY,
    xid         xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    topic       bytea NOT NULL,
    payload     bytea NOT NULL,
    qos         smallint NOT NULL,
    retain      boolean NOT NULL,
    properties  bytea NOT NULL,
    at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (xid, id)
);
ALTER TABLE pgmqtt.outbox REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.outbox ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE pgmqtt.outbox IS 'Publishes of pgmqtt.publish() on their way to the broker';

CREATE TABLE pgmqtt.outbox_commit (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid         xid8 NOT NULL
);
ALTER TABLE pgmqtt.outbox_commit REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.outbox_commit IS 'Order of the transactions that published, taken as they begin to commit';

CREATE TABLE pgmqtt.command (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action      smallint NOT NULL,
    client_id   bytea NOT NULL,
    reason      smallint NOT NULL,
    at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
ALTER TABLE pgmqtt.command REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.command IS 'Calls of pgmqtt.disconnect() (action 1) and pgmqtt.delete_session() (2) on their way to the broker';

CREATE TABLE pgmqtt.dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      text NOT NULL CHECK (source IN ('mapping', 'sink')),
    name        text COLLATE "C" NOT NULL,
    topic       text,
    payload     bytea,
    properties  jsonb,
    client_id   text,
    lsn         pg_lsn,
    sqlstate    text NOT NULL,
    message     text NOT NULL,
    attempts    int NOT NULL DEFAULT 1,
    at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    qos         smallint,
    retain      boolean,
    username    text,
    received_at timestamptz,
    message_key text
);
ALTER TABLE pgmqtt.dead_letter REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.dead_letter ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE pgmqtt.dead_letter IS 'Rows that a mapping could not evaluate and messages that a sink could not store';
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.dead_letter_id_seq', '');

-- Not dumped: sessions are not.
CREATE TABLE pgmqtt.sink_message_key (
    session_id         bigint NOT NULL,
    packet_id          int NOT NULL,
    session_created_at timestamptz NOT NULL,
    fingerprint        bigint NOT NULL,
    message_key        text NOT NULL,
    PRIMARY KEY (session_id, packet_id)
) WITH (fillfactor = 50);
ALTER TABLE pgmqtt.sink_message_key REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.sink_message_key IS 'The last message that came under each packet identifier of a session and went to a sink that reads msg.message_key: what a repetition of it is known by';

CREATE TABLE pgmqtt.sink_received (
    session_id         bigint NOT NULL,
    packet_id          int NOT NULL,
    session_created_at timestamptz NOT NULL,
    fingerprint        bigint NOT NULL,
    PRIMARY KEY (session_id, packet_id)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 500);
ALTER TABLE pgmqtt.sink_received REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.sink_received IS 'QoS 2 messages that a sink has stored, until their PUBREL: written in the transaction of the rows, so none is stored twice';

-- Not dumped: each database has its own.
CREATE TABLE pgmqtt.snapshot_key (
    key         bytea NOT NULL
);
INSERT INTO pgmqtt.snapshot_key
    SELECT pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) || pg_catalog.uuid_send(pg_catalog.gen_random_uuid());
ALTER TABLE pgmqtt.snapshot_key REPLICA IDENTITY NOTHING;
COMMENT ON TABLE pgmqtt.snapshot_key IS 'What tells the rows of pgmqtt.snapshot_mapping() in the WAL from messages that anybody can write there. A secret of this database';

REVOKE ALL ON ALL TABLES IN SCHEMA pgmqtt FROM PUBLIC;
GRANT SELECT ON pgmqtt.mapping, pgmqtt.cdc_slot, pgmqtt.gap, pgmqtt.sink, pgmqtt.durability_rule TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
GRANT SELECT, DELETE ON pgmqtt.dead_letter TO pgmqtt_admin;

-- ------------------------------------------------------------------------------------------------
-- Inner workings.

-- Which scripts made these objects: `make` puts in what the library compares (pg/extension.h). A
-- script that updates replaces it in the same way.
CREATE FUNCTION pgmqtt.schema_fingerprint() RETURNS text
    LANGUAGE sql IMMUTABLE AS $$SELECT '@SCHEMA_FINGERPRINT@'$$;
REVOKE ALL ON FUNCTION pgmqtt.schema_fingerprint() FROM PUBLIC;
COMMENT ON FUNCTION pgmqtt.schema_fingerprint() IS 'Of the scripts that made the extension; a library of another build serves nothing';

-- Checks that this is the database of pgmqtt.database and wakes the workers when CREATE EXTENSION
-- commits.
CREATE FUNCTION pgmqtt.extension_created() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'pgmqtt_extension_created';
COMMENT ON FUNCTION pgmqtt.extension_created() IS 'Wakes the workers when CREATE EXTENSION commits';
REVOKE ALL ON FUNCTION pgmqtt.extension_created() FROM PUBLIC;
SELECT pgmqtt.extension_created();

CREATE FUNCTION pgmqtt.configuration_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'pgmqtt_configuration_changed';
REVOKE ALL ON FUNCTION pgmqtt.configuration_changed() FROM PUBLIC;
COMMENT ON FUNCTION pgmqtt.configuration_changed() IS 'Wakes the workers at the commit of a change of mappings or sinks, also of a pg_restore';

CREATE TRIGGER configuration_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pgmqtt.mapping
    FOR EACH STATEMENT EXECUTE FUNCTION pgmqtt.configuration_changed();
CREATE TRIGGER configuration_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pgmqtt.sink
    FOR EACH STATEMENT EXECUTE FUNCTION pgmqtt.configuration_changed();
CREATE TRIGGER configuration_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pgmqtt.durability_rule
    FOR EACH STATEMENT EXECUTE FUNCTION pgmqtt.configuration_changed();

-- ------------------------------------------------------------------------------------------------
-- Publishing from SQL.
CREATE FUNCTION pgmqtt.publish(topic text, payload bytea, qos int DEFAULT 0,
    retain boolean DEFAULT false, properties jsonb DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_publish_bytea';
COMMENT ON FUNCTION pgmqtt.publish(text, bytea, int, boolean, jsonb) IS 'Publishes a message when this transaction commits';
REVOKE ALL ON FUNCTION pgmqtt.publish(text, bytea, int, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.publish(text, bytea, int, boolean, jsonb) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.publish(topic text, payload text, qos int DEFAULT 0,
    retain boolean DEFAULT false, properties jsonb DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_publish_text';
COMMENT ON FUNCTION pgmqtt.publish(text, text, int, boolean, jsonb) IS 'Publishes a message when this transaction commits';
REVOKE ALL ON FUNCTION pgmqtt.publish(text, text, int, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.publish(text, text, int, boolean, jsonb) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.publish(topic text, payload jsonb, qos int DEFAULT 0,
    retain boolean DEFAULT false, properties jsonb DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_publish_jsonb';
COMMENT ON FUNCTION pgmqtt.publish(text, jsonb, int, boolean, jsonb) IS 'Publishes a message when this transaction commits';
REVOKE ALL ON FUNCTION pgmqtt.publish(text, jsonb, int, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.publish(text, jsonb, int, boolean, jsonb) TO pgmqtt_admin;

-- ------------------------------------------------------------------------------------------------
-- CDC mappings: rows to topics. topic, payload, filter and properties are SQL expressions over new, old,
-- op, lsn, xid, commit_ts, absent, partition and seq; they run as the mapping's owner, who is the caller of add_mapping.
CREATE FUNCTION pgmqtt.add_mapping(
    name text,
    source regclass,
    topic text,
    payload text DEFAULT NULL,
    filter text DEFAULT NULL,
    operations text[] DEFAULT '{insert,update,delete}',
    qos int DEFAULT 1,
    retain boolean DEFAULT false,
    properties text DEFAULT NULL,
    on_error text DEFAULT 'skip'
) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_add_mapping';
COMMENT ON FUNCTION pgmqtt.add_mapping(text, regclass, text, text, text, text[], int, boolean, text, text) IS 'Publishes the committed changes of a table; in force when the COMMIT returns';
REVOKE ALL ON FUNCTION pgmqtt.add_mapping(text, regclass, text, text, text, text[], int, boolean, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.add_mapping(text, regclass, text, text, text, text[], int, boolean, text, text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.drop_mapping(name text) RETURNS void
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_drop_mapping';
COMMENT ON FUNCTION pgmqtt.drop_mapping(text) IS 'Removes a mapping; the replication slot goes with the last one';
REVOKE ALL ON FUNCTION pgmqtt.drop_mapping(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.drop_mapping(text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.alter_mapping(name text, enabled boolean) RETURNS void
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_alter_mapping';
COMMENT ON FUNCTION pgmqtt.alter_mapping(text, boolean) IS 'Switches a mapping off and on; what is committed while it is off is not published';
REVOKE ALL ON FUNCTION pgmqtt.alter_mapping(text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.alter_mapping(text, boolean) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.preview_mapping(name text, predicate text DEFAULT NULL, "limit" int DEFAULT 10,
    OUT topic text, OUT payload text, OUT qos int, OUT retain boolean) RETURNS SETOF record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_preview_mapping';
COMMENT ON FUNCTION pgmqtt.preview_mapping(text, text, int) IS 'What a mapping would publish for the rows that are there now, with op SNAPSHOT; publishes nothing';
REVOKE ALL ON FUNCTION pgmqtt.preview_mapping(text, text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.preview_mapping(text, text, int) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.snapshot_mapping(name text, predicate text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_snapshot_mapping';
COMMENT ON FUNCTION pgmqtt.snapshot_mapping(text, text) IS 'Publishes the rows that are in the table now through a mapping, with op SNAPSHOT, in order with its changes, when this transaction commits. Holds up writers of the table until then. Returns how many rows it gave to the mapping';
REVOKE ALL ON FUNCTION pgmqtt.snapshot_mapping(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.snapshot_mapping(text, text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.mapping_status(id int, enabled boolean,
    OUT status text, OUT message text, OUT published bigint, OUT errors bigint) RETURNS record
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_mapping_status';
COMMENT ON FUNCTION pgmqtt.mapping_status(int, boolean) IS 'How a mapping is doing; see pgmqtt.mappings';
REVOKE ALL ON FUNCTION pgmqtt.mapping_status(int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.mapping_status(int, boolean) TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE VIEW pgmqtt.mappings AS
    SELECT m.name, m.source, m.topic, m.payload, m.filter, m.operations, m.qos, m.retain, m.properties,
           m.on_error, m.owner, m.enabled,
           CASE WHEN g.mapping IS NOT NULL AND s.status = 'streaming' THEN 'gap' ELSE s.status END AS status,
           CASE WHEN g.mapping IS NULL THEN s.message
                ELSE pg_catalog.concat_ws('; ', s.message, pg_catalog.format(
                    'changes committed %sbefore %s are missing, because the replication slot was gone (dropped, '
                    'or not here after a promotion, an upgrade or a restore); publish the table''s state anew: '
                    'SELECT pgmqtt.snapshot_mapping(%L)',
                    'after ' || g.after_lsn || ' and ', coalesce(g.before_lsn::text, 'now'), m.name)) END AS message,
           s.published, s.errors, m.created_at
    FROM pgmqtt.mapping m
    CROSS JOIN LATERAL pgmqtt.mapping_status(m.id, m.enabled) s
    LEFT JOIN pgmqtt.gap g ON g.mapping = m.id;
COMMENT ON VIEW pgmqtt.mappings IS 'Mappings, how they are doing, and what they published since the server started';
GRANT SELECT ON pgmqtt.mappings TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

-- What pgmqtt.stat_cdc and pgmqtt.stat_mappings show, from shared memory.
CREATE FUNCTION pgmqtt.stat_cdc_values(
    OUT state text,
    OUT started_at timestamptz,
    OUT transactions bigint,
    OUT changes bigint,
    OUT published bigint,
    OUT filtered bigint,
    OUT errors bigint,
    OUT batches bigint,
    OUT batch_p50_ms float8,
    OUT batch_p99_ms float8,
    OUT decoded_lsn pg_lsn,
    OUT confirmed_lsn pg_lsn,
    OUT last_commit_lsn pg_lsn,
    OUT last_commit_at timestamptz,
    OUT lag_bytes bigint,
    OUT lag_seconds float8,
    OUT waiting_bytes bigint,
    OUT spilled_bytes bigint
) RETURNS record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_stat_cdc';
COMMENT ON FUNCTION pgmqtt.stat_cdc_values() IS 'How the stream of changes does; see pgmqtt.stat_cdc';
REVOKE ALL ON FUNCTION pgmqtt.stat_cdc_values() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.stat_cdc_values() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
CREATE VIEW pgmqtt.stat_cdc AS SELECT * FROM pgmqtt.stat_cdc_values();
COMMENT ON VIEW pgmqtt.stat_cdc IS 'The stream of changes that feeds the mappings; one row, counters since the server started. changes are decoded rows, once for each mapped relation they belong to; batch times are of the latest 256 batches; last_commit is the latest transaction that was evaluated; lag_bytes is WAL that is flushed and not confirmed to the slot, lag_seconds the age of the oldest transaction that is decoded and not yet with the broker (both NULL unless streaming); waiting_bytes are decoded and not evaluated, spilled_bytes is what of that was ever written to a file';

CREATE FUNCTION pgmqtt.stat_mapping_values(id int,
    OUT rows bigint,
    OUT published bigint,
    OUT filtered bigint,
    OUT errors bigint,
    OUT last_commit_lsn pg_lsn,
    OUT last_commit_at timestamptz,
    OUT batch_p50_ms float8,
    OUT batch_p99_ms float8
) RETURNS record
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_stat_mapping';
COMMENT ON FUNCTION pgmqtt.stat_mapping_values(int) IS 'How one mapping does; see pgmqtt.stat_mappings';
REVOKE ALL ON FUNCTION pgmqtt.stat_mapping_values(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.stat_mapping_values(int) TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
CREATE VIEW pgmqtt.stat_mappings AS
    SELECT m.name, v.rows, v.published, v.filtered, v.errors, v.last_commit_lsn, v.last_commit_at,
           CASE WHEN m.enabled THEN c.lag_seconds END AS lag_seconds, v.batch_p50_ms, v.batch_p99_ms
    FROM pgmqtt.mapping m
    CROSS JOIN pgmqtt.stat_cdc_values() c
    CROSS JOIN LATERAL pgmqtt.stat_mapping_values(m.id) v;
COMMENT ON VIEW pgmqtt.stat_mappings IS 'What each mapping did since the server started or the mapping was made: rows it was evaluated for, messages it published, rows its filter left out, rows that failed. Batch times are what the mapping took of the latest 256 batches that had rows for it; lag_seconds is the stream''s, which all mappings share. NULL beyond 256 mappings';
GRANT SELECT ON pgmqtt.stat_cdc, pgmqtt.stat_mappings TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

-- ------------------------------------------------------------------------------------------------
-- Sinks: topics to rows.

CREATE INDEX dead_letter_sink ON pgmqtt.dead_letter (name, id) WHERE source = 'sink';

CREATE FUNCTION pgmqtt.add_sink(name text, filter text, statement text, qos int DEFAULT 1,
    on_error text DEFAULT 'dead_letter') RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_add_sink';
COMMENT ON FUNCTION pgmqtt.add_sink(text, text, text, int, text) IS 'Runs a statement over batches of messages whose topics match a filter. The statement reads them as relation msg and runs as the caller of this function';
REVOKE ALL ON FUNCTION pgmqtt.add_sink(text, text, text, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.add_sink(text, text, text, int, text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.drop_sink(name text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_drop_sink';
COMMENT ON FUNCTION pgmqtt.drop_sink(text) IS 'Removes a sink; messages that still wait for it become dead letters';
REVOKE ALL ON FUNCTION pgmqtt.drop_sink(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.drop_sink(text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.alter_sink(name text, enabled boolean) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_alter_sink';
COMMENT ON FUNCTION pgmqtt.alter_sink(text, boolean) IS 'Stops or starts a sink; messages that still wait when it stops become dead letters';
REVOKE ALL ON FUNCTION pgmqtt.alter_sink(text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.alter_sink(text, boolean) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.redrive(sink text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_redrive';
COMMENT ON FUNCTION pgmqtt.redrive(text) IS 'Runs the dead letters of a sink, or of all, through its statement again, in order and in this transaction. Those that are stored now are deleted; returns how many';
REVOKE ALL ON FUNCTION pgmqtt.redrive(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.redrive(text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.sink_status(OUT sink_id int, OUT status text, OUT message text,
    OUT messages bigint, OUT dead_letters bigint, OUT retries bigint, OUT pending bigint,
    OUT batches bigint, OUT lag_seconds float8, OUT batch_p50_ms float8, OUT batch_p99_ms float8)
    RETURNS SETOF record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_sink_status';
COMMENT ON FUNCTION pgmqtt.sink_status() IS 'What the sink worker says about its sinks; no rows while it does not run. Views pgmqtt.sinks and pgmqtt.stat_sinks show it';
REVOKE ALL ON FUNCTION pgmqtt.sink_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.sink_status() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

-- messages, retries and pending since the sink worker started; dead_letters: what is there now.
CREATE VIEW pgmqtt.sinks AS
    SELECT s.name, s.filter, s.statement, s.qos, s.on_error, s.owner, s.enabled,
           CASE WHEN NOT s.enabled THEN 'disabled' ELSE coalesce(w.status, 'stopped') END AS status,
           w.message,
           coalesce(w.messages, 0) AS messages,
           (SELECT count(*) FROM pgmqtt.dead_letter d
            WHERE d.source = 'sink' AND d.name = s.name) AS dead_letters,
           coalesce(w.retries, 0) AS retries,
           coalesce(w.pending, 0) AS pending,
           s.created_at
    FROM pgmqtt.sink s LEFT JOIN pgmqtt.sink_status() w ON w.sink_id = s.id;
COMMENT ON VIEW pgmqtt.sinks IS 'Sinks and how they are: status is active, waiting (a transient error), error (the statement cannot run), disabled or stopped (the worker does not run)';
GRANT SELECT ON pgmqtt.sinks TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE VIEW pgmqtt.stat_sinks AS
    SELECT s.name, w.status, w.messages - w.dead_letters AS rows, w.dead_letters AS errors, w.retries,
           w.pending, w.lag_seconds, w.batches, w.batch_p50_ms, w.batch_p99_ms
    FROM pgmqtt.sink s LEFT JOIN pgmqtt.sink_status() w ON w.sink_id = s.id;
COMMENT ON VIEW pgmqtt.stat_sinks IS 'What each sink did since the sink worker started: messages that its statement stored (rows), those that became dead letters (errors), transactions that must be tried again (retries). pending messages are with the worker and not stored, as of the last batch; lag_seconds is the age of the oldest; more may wait with their publishers. Batch times, with the COMMIT, are of the latest 256 batches. NULL while the worker does not run and beyond 256 sinks';
GRANT SELECT ON pgmqtt.stat_sinks TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

-- ------------------------------------------------------------------------------------------------
-- Steering.

CREATE FUNCTION pgmqtt.set_durability(filter text, durability text) RETURNS void
    LANGUAGE c VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'pgmqtt_set_durability';
COMMENT ON FUNCTION pgmqtt.set_durability(text, text) IS 'For messages whose topics match a filter, in place of pgmqtt.durability: durable, async or unlogged; NULL takes that back';
REVOKE ALL ON FUNCTION pgmqtt.set_durability(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.set_durability(text, text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.disconnect(client_id text, reason int DEFAULT 152) RETURNS void
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_disconnect';
COMMENT ON FUNCTION pgmqtt.disconnect(text, int) IS 'Closes the connection of a client when this transaction commits; an MQTT 5.0 client is told the reason. Its session stays as if the connection had been lost';
REVOKE ALL ON FUNCTION pgmqtt.disconnect(text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.disconnect(text, int) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.delete_session(client_id text) RETURNS void
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_delete_session';
COMMENT ON FUNCTION pgmqtt.delete_session(text) IS 'Ends the session of a client, connected or not, with its subscriptions and queue, when this transaction commits';
REVOKE ALL ON FUNCTION pgmqtt.delete_session(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.delete_session(text) TO pgmqtt_admin;

CREATE FUNCTION pgmqtt.clear_retained(filter text) RETURNS bigint
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_clear_retained';
COMMENT ON FUNCTION pgmqtt.clear_retained(text) IS 'Clears the retained messages whose topics match a filter, at once and whatever becomes of this transaction; subscribers get the empty message that says so. Returns how many';
REVOKE ALL ON FUNCTION pgmqtt.clear_retained(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.clear_retained(text) TO pgmqtt_admin;

-- ------------------------------------------------------------------------------------------------
-- Watching.
CREATE FUNCTION pgmqtt.topic_matches(filter text, topic text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'pgmqtt_topic_matches';
COMMENT ON FUNCTION pgmqtt.topic_matches(text, text) IS 'Whether an MQTT topic filter matches a topic name';

CREATE FUNCTION pgmqtt.message_properties(encoded bytea) RETURNS jsonb
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'pgmqtt_message_properties';
COMMENT ON FUNCTION pgmqtt.message_properties(bytea) IS 'Stored MQTT 5.0 message properties as jsonb; NULL when there are none';
REVOKE ALL ON FUNCTION pgmqtt.message_properties(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.message_properties(bytea) TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE VIEW pgmqtt.retained AS
    SELECT pg_catalog.convert_from(r.topic, 'UTF8') AS topic, r.payload, r.qos::int AS qos,
           pgmqtt.message_properties(r.properties) AS properties, r.stored_at,
           NULLIF(r.expires_at, 'infinity') AS expires_at
    FROM pgmqtt.retained_message r
    WHERE r.expires_at > pg_catalog.now();
COMMENT ON VIEW pgmqtt.retained IS 'Retained messages, as a new subscriber would get them';

-- Reads the whole log.
CREATE FUNCTION pgmqtt.queued_deliveries(OUT session_id bigint, OUT sequence bigint,
    OUT message_id bigint, OUT state smallint, OUT sent boolean, OUT qos smallint, OUT retain boolean,
    OUT subscription_ids bytea, OUT bytes bigint, OUT expires_at timestamptz, OUT logged boolean)
    RETURNS SETOF record
    LANGUAGE c STABLE ROWS 10000 AS 'MODULE_PATHNAME', 'pgmqtt_queued_deliveries';
COMMENT ON FUNCTION pgmqtt.queued_deliveries() IS 'What the queue''s log says is not acknowledged. View pgmqtt.delivery shows it';
REVOKE ALL ON FUNCTION pgmqtt.queued_deliveries() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.queued_deliveries() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE FUNCTION pgmqtt.queued_sessions(OUT session_id bigint, OUT queued bigint,
    OUT queued_bytes bigint, OUT oldest_queued_at timestamptz) RETURNS SETOF record
    LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'pgmqtt_queued_sessions';
COMMENT ON FUNCTION pgmqtt.queued_sessions() IS 'How much the queue''s log says is not acknowledged. View pgmqtt.sessions shows it';
REVOKE ALL ON FUNCTION pgmqtt.queued_sessions() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.queued_sessions() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE FUNCTION pgmqtt.received_packets(OUT session_id bigint, OUT packet_id int,
    OUT message_id bigint) RETURNS SETOF record
    LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'pgmqtt_received_packets';
COMMENT ON FUNCTION pgmqtt.received_packets() IS 'What the queue''s log says of QoS 2 publishes. View pgmqtt.received_packet shows it';
REVOKE ALL ON FUNCTION pgmqtt.received_packets() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.received_packets() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;

CREATE VIEW pgmqtt.delivery AS
    SELECT d.session_id, d.sequence, d.message_id, d.state, d.sent, d.qos, d.retain,
           d.subscription_ids, d.bytes, NULLIF(d.expires_at, 'infinity') AS expires_at, d.logged
    FROM pgmqtt.queued_deliveries() d JOIN pgmqtt.session s USING (session_id);
COMMENT ON VIEW pgmqtt.delivery IS 'Messages that a session has not acknowledged. (sequence - 1) mod 65535 + 1 is the packet identifier; state is 1, or 2 when PUBREC came; subscription_ids are four bytes each; bytes are those of the message';

CREATE VIEW pgmqtt.received_packet AS
    SELECT p.session_id, p.packet_id
    FROM pgmqtt.received_packets() p JOIN pgmqtt.session s USING (session_id);
COMMENT ON VIEW pgmqtt.received_packet IS 'QoS 2 publishes of a session that came and whose PUBREL has not';

CREATE VIEW pgmqtt.sessions AS
    SELECT pg_catalog.convert_from(s.client_id, 'UTF8') AS client_id,
           NULLIF(pg_catalog.convert_from(s.username, 'UTF8'), '') AS username,
           s.disconnected_at = 'infinity' AS connected, s.created_at,
           NULLIF(s.disconnected_at, 'infinity') AS disconnected_at,
           CASE WHEN s.disconnected_at < 'infinity' AND s.expiry_interval < 4294967295
                THEN s.disconnected_at + pg_catalog.make_interval(secs => s.expiry_interval)
           END AS expires_at,
           n.subscriptions, COALESCE(q.queued, 0) AS queued,
           COALESCE(q.queued_bytes, 0) AS queued_bytes, q.oldest_queued_at
    FROM pgmqtt.session s
    CROSS JOIN LATERAL (
        SELECT count(*) AS subscriptions
        FROM pgmqtt.session_subscription u WHERE u.session_id = s.session_id) n
    LEFT JOIN pgmqtt.queued_sessions() q USING (session_id);
COMMENT ON VIEW pgmqtt.sessions IS 'Sessions that outlive their connection, and what is stored for them. Sessions that end with their connection are not stored and not shown';

CREATE VIEW pgmqtt.subscriptions AS
    SELECT pg_catalog.convert_from(s.client_id, 'UTF8') AS client_id,
           CASE WHEN f.share_group IS NULL THEN f.filter
                ELSE pg_catalog.substr(f.filter, length('$share//') + length(f.share_group) + 1)
           END AS filter,
           u.qos::int AS qos, u.no_local, u.retain_as_published,
           u.retain_handling::int AS retain_handling,
           NULLIF(u.subscription_id, 0) AS subscription_id, f.share_group
    FROM pgmqtt.session_subscription u
    JOIN pgmqtt.session s USING (session_id)
    CROSS JOIN LATERAL (SELECT pg_catalog.convert_from(u.filter, 'UTF8') AS whole) w
    CROSS JOIN LATERAL (
        SELECT w.whole AS filter,
               CASE WHEN pg_catalog.starts_with(w.whole, '$share/')
                    THEN pg_catalog.split_part(w.whole, '/', 2) END AS share_group) f;
COMMENT ON VIEW pgmqtt.subscriptions IS 'Subscriptions of the sessions in pgmqtt.sessions; a shared one by its filter and its group';

-- Raises while the broker does not run: no rows would mean that nobody is connected.
CREATE FUNCTION pgmqtt.client_rows(
    OUT client_id text,
    OUT username text,
    OUT addr inet,
    OUT port int,
    OUT transport text,
    OUT protocol text,
    OUT connected_at timestamptz,
    OUT last_packet_at timestamptz,
    OUT keep_alive int,
    OUT clean_start boolean,
    OUT session_expiry bigint,
    OUT subscriptions bigint,
    OUT inflight_out bigint,
    OUT inflight_in bigint,
    OUT queued bigint,
    OUT queued_bytes bigint,
    OUT messages_in bigint,
    OUT messages_out bigint,
    OUT bytes_in bigint,
    OUT bytes_out bigint,
    OUT dropped bigint,
    OUT throttled boolean
) RETURNS SETOF record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_client_rows';
COMMENT ON FUNCTION pgmqtt.client_rows() IS 'Asks the broker who is connected; see pgmqtt.clients';
REVOKE ALL ON FUNCTION pgmqtt.client_rows() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.client_rows() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
CREATE VIEW pgmqtt.clients AS SELECT * FROM pgmqtt.client_rows();
COMMENT ON VIEW pgmqtt.clients IS 'Connected clients, as the broker sees them at this moment. username is NULL for anonymous clients; keep_alive and session_expiry are in seconds (4294967295: never); messages are PUBLISH packets of this connection, dropped also counts what the session lost while its client was away; throttled: not read at the moment, because it sends more than can be stored or reads less than it asks for';

-- Columns after listening: PGMQTT_BROKER_COUNTERS and PGMQTT_BROKER_GAUGES of src/broker/counters.h,
-- in that order.
CREATE FUNCTION pgmqtt.stat_broker_values(
    OUT version text,
    OUT started_at timestamptz,
    OUT listening boolean,
    OUT accepted bigint,
    OUT connects bigint,
    OUT connects_refused bigint,
    OUT disconnects bigint,
    OUT connections_lost bigint,
    OUT takeovers bigint,
    OUT keep_alive_timeouts bigint,
    OUT malformed bigint,
    OUT packets_in bigint,
    OUT packets_out bigint,
    OUT bytes_in bigint,
    OUT bytes_out bigint,
    OUT publishes_in bigint,
    OUT publishes_out bigint,
    OUT publish_bytes_in bigint,
    OUT publish_bytes_out bigint,
    OUT publishes_from_sql bigint,
    OUT dropped_slow_qos0 bigint,
    OUT dropped_queue_full bigint,
    OUT dropped_too_large bigint,
    OUT dropped_expired bigint,
    OUT dropped_retained_limit bigint,
    OUT dropped_missing bigint,
    OUT publishes_overdue bigint,
    OUT publishes_refused bigint,
    OUT sessions_expired bigint,
    OUT pauses bigint,
    OUT clients bigint,
    OUT clients_maximum bigint,
    OUT sessions bigint,
    OUT subscriptions bigint,
    OUT shared_subscriptions bigint,
    OUT retained bigint,
    OUT retained_bytes bigint,
    OUT queued bigint,
    OUT queued_bytes bigint,
    OUT inflight bigint,
    OUT pending bigint,
    OUT memory bigint,
    OUT memory_maximum bigint
) RETURNS record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'pgmqtt_stat_broker';
COMMENT ON FUNCTION pgmqtt.stat_broker_values() IS 'Counters of the broker; see pgmqtt.stat_broker';
REVOKE ALL ON FUNCTION pgmqtt.stat_broker_values() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pgmqtt.stat_broker_values() TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
CREATE VIEW pgmqtt.stat_broker AS SELECT * FROM pgmqtt.stat_broker_values();
COMMENT ON VIEW pgmqtt.stat_broker IS 'Counters since the broker started, and what is true now; one row';

GRANT SELECT ON pgmqtt.delivery, pgmqtt.received_packet TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
GRANT SELECT ON pgmqtt.retained, pgmqtt.clients, pgmqtt.sessions, pgmqtt.subscriptions, pgmqtt.stat_broker TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
