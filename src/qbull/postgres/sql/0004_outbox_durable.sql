-- The rows of jobs that have ended, whether or not the relay has committed that it has shipped them.
CREATE INDEX qbull_outbox_durable ON qbull_outbox (app, queue, job_id) WHERE durable;
