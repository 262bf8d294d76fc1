-- Every job of the queues that ask for it (track=True), as it was last heard of.
CREATE TABLE qbull_jobs (
    job_id        text        NOT NULL,
    queue         text        NOT NULL,
    app           text        NOT NULL,
    task          text        NOT NULL,
    key           text,
    status        text        NOT NULL,
    attempts      integer     NOT NULL,
    error_message text,
    worker        text,
    created_at    timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,
    updated_at    timestamptz NOT NULL,
    version       bigint      NOT NULL,
    PRIMARY KEY (job_id, queue, app)
) WITH (fillfactor = 85);

COMMENT ON TABLE qbull_jobs IS 'qbull: every job of the queues with track=True';
COMMENT ON COLUMN qbull_jobs.status IS 'waiting, delayed, active, completed, failed, cancelled or removed';
COMMENT ON COLUMN qbull_jobs.attempts IS 'the number of started attempts, also those whose worker died';
COMMENT ON COLUMN qbull_jobs.error_message IS 'why it failed, or failed the last time';
COMMENT ON COLUMN qbull_jobs.version IS 'rises with everything that happens to the job; an older report changes nothing';
