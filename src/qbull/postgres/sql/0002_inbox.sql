-- Jobs that have had their effect: the mark is committed with it, or not at all. A row that is not done says which
-- delivery of the job was the last to try, so that an earlier one which wakes up late is refused.
CREATE TABLE qbull_inbox (
    app       text        NOT NULL,
    queue     text        NOT NULL,
    job_id    text        NOT NULL,
    origin    bigint      NOT NULL DEFAULT 0,
    step      text        NOT NULL DEFAULT '',
    fence     bigint      NOT NULL,
    done      boolean     NOT NULL,
    result    json,
    marked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, queue, app, origin, step)
);

COMMENT ON TABLE qbull_inbox IS 'qbull: jobs that have had their effect';
COMMENT ON COLUMN qbull_inbox.origin IS 'which job it is, where an id may be given again: when it was enqueued, or its row in the outbox';
COMMENT ON COLUMN qbull_inbox.fence IS 'the delivery that had the effect, or the last one that tried; it rises';

CREATE INDEX qbull_inbox_marked_at ON qbull_inbox (marked_at);
