"""Names of RQ that are not supported, each with a hint at its replacement."""

from __future__ import annotations

RQ_GUIDE = "from_rq"

RETENTION_HINT = (
    'Retention is a setting of the queue: app.queue("NAME", keep=qbull.Keep(completed_for=500)), '
    'before Queue("NAME", …)'
)
_USE_TASK_CHAIN = "use qbull.chain(a.step(…), b.step(…)) with tasks: queue.task_of(function)"
_USE_SETTLED_HOOK = (
    "use qbull.Middleware: settled() gets the outcome of each run; or fallback= of qbull.chain(…)"
)
_USE_COMMAND_LINE = "use the command line or the REST API: qbull jobs, failures, redrive, clean"

RQ_CALL_HINTS = {
    "on_stopped": _USE_SETTLED_HOOK,
    "pipeline": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "webhooks": "use alerts: docs/guides/alerts.md",
    "group_id": "use Group.create(connection=app).enqueue_many(queue, […])",
    "queue_class": "pass queue=, a name or a Queue",
    "serializer": "arguments and results travel as JSON with their types; remove it",
}
"""Keywords of enqueue, of @job and of delay."""

RQ_CRON_HINTS = {
    "job_timeout": 'set it for the queue: Queue("NAME", connection=app, default_timeout="3m")',
    "ttl": "a run that is due waits for a worker; remove it",
    "meta": "pass it as an argument of the function",
    "description": "a job is shown with its task and its arguments; remove it",
    "webhooks": "use alerts: docs/guides/alerts.md",
}
"""Keywords of cron.register."""

RQ_QUEUE_HINTS = {
    "job_class": _USE_SETTLED_HOOK,
    "death_penalty_class": "job_timeout=… is enough",
    "result_ttl": RETENTION_HINT,
    "failure_ttl": RETENTION_HINT,
}
"""Keywords of Queue."""

RQ_QUEUE_ATTRIBUTE_HINTS: dict[str, str] = {
    "dequeue_any": "run: qbull worker MODULE:APP",
    "push_job_id": "use enqueue_job(job)",
    "run_job": "run: qbull worker MODULE:APP",
}

RQ_JOB_ATTRIBUTE_HINTS = {
    "register_dependency": _USE_TASK_CHAIN,
    "perform": "call the function",
}

RQ_WORKER_HINTS = {
    "exception_handlers": _USE_SETTLED_HOOK,
    "work_horse_killed_handler": "use alerts: docs/guides/alerts.md",
    "disable_default_exception_handler": "a job that fails is a dead letter; remove it",
    "default_result_ttl": RETENTION_HINT,
    "job_class": _USE_SETTLED_HOOK,
    "queue_class": "pass queues as Queue or as names",
}
"""Keywords of Worker."""

RQ_WORK_HINTS = {
    "max_idle_time": "use burst=True, or run: qbull worker MODULE:APP",
    "dequeue_strategy": "queues are served at the same time; use priority within one queue",
}
"""Keywords of Worker.work."""

RQ_WORKER_ATTRIBUTE_HINTS = {
    "all": "run: qbull workers",
    "count": "run: qbull workers",
    "push_exc_handler": _USE_SETTLED_HOOK,
    "request_stop": "send SIGTERM to the process",
}

RQ_MODULE_HINTS = {
    "WorkerPool": "run: qbull worker MODULE:APP --processes 4",
    "SpawnWorker": "run: qbull worker MODULE:APP",
    "Connection": "pass connection=app",
    "push_connection": "pass connection=app",
    "Webhook": "use alerts: docs/guides/alerts.md, or qbull.Middleware: settled() gets each outcome",
    "RateLimit": 'use app.queue("NAME", rate=…): docs/guides/rate_limits.md',
    "Scheduler": "not needed: workers run delayed jobs when they are due",
    "send_stop_job_command": "use Job.fetch(id, connection=app).cancel()",
    "FailedJobRegistry": "import it from qbull.compat.rq.registry",
}
"""Names that users may try to import."""
