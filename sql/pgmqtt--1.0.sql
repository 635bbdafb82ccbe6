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
    enabled     boolean NOT NULL DEFAULT true,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgmqtt.mapping IS 'CDC mappings: committed rows to publishes. Change through pgmqtt.add_mapping and its siblings';

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
    received_at timestamptz
);
ALTER TABLE pgmqtt.dead_letter REPLICA IDENTITY NOTHING;
ALTER TABLE pgmqtt.dead_letter ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE pgmqtt.dead_letter IS 'Rows that a mapping could not evaluate and messages that a sink could not store';
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('pgmqtt.dead_letter_id_seq', '');

REVOKE ALL ON ALL TABLES IN SCHEMA pgmqtt FROM PUBLIC;
GRANT SELECT ON pgmqtt.mapping, pgmqtt.sink TO pgmqtt_admin, pgmqtt_monitor, pg_monitor;
GRANT SELECT, DELETE ON pgmqtt.dead_letter TO pgmqtt_admin;

-- ------------------------------------------------------------------------------------------------
-- Inner workings.

-- Checks that this is the database of pgmqtt.database and wakes the workers when CREATE EXTENSION
-- commits.
CREATE FUNCTION pgmqtt.extension_created() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'pgmqtt_extension_created';
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

-- ------------------------------------------------------------------------------------------------
-- Publishing from SQL.
--   @publish@

-- ------------------------------------------------------------------------------------------------
-- CDC mappings: rows to topics.
--   @mapping@

-- ------------------------------------------------------------------------------------------------
-- Sinks: topics to rows.
--   @sink@

-- ------------------------------------------------------------------------------------------------
-- Watching.
--   @watching@
