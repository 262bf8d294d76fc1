-- Jobs that were enqueued in a transaction. The relay ships them to the queue and deletes them; a durable one stays
-- until its job has finished.
CREATE TABLE qbull_outbox (
    seq           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app           text        NOT NULL,
    queue         text        NOT NULL,
    job_id        text        NOT NULL,
    task          text        NOT NULL,
    key           text,
    payload       json        NOT NULL,
    options       json        NOT NULL,
    durable       boolean     NOT NULL DEFAULT false,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at       timestamptz,
    error_message text
) WITH (
    -- Rows come and go all the time; what is dead must not lie in front of what is alive.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.1
);

COMMENT ON TABLE qbull_outbox IS 'qbull: jobs on their way to the queue';
COMMENT ON COLUMN qbull_outbox.app IS 'the prefix of the app that the job belongs to';
COMMENT ON COLUMN qbull_outbox.durable IS 'the row stays until the job has finished';
COMMENT ON COLUMN qbull_outbox.error_message IS 'why the relay will never ship this row';

CREATE INDEX qbull_outbox_unsent ON qbull_outbox (app, seq) WHERE sent_at IS NULL AND error_message IS NULL;
CREATE INDEX qbull_outbox_sent ON qbull_outbox (app, queue, job_id) WHERE sent_at IS NOT NULL;
