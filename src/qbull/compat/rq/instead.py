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
_USE_ARGUMENTS = (
    "pass it as an argument; for progress and log lines use qbull.current_job().progress_sync(33) "
    "and log_sync(…)"
)
_USE_COMMAND_LINE = "use the command line or the REST API: qbull jobs, failures, redrive, clean"

RQ_CALL_HINTS = {
    "on_stopped": _USE_SETTLED_HOOK,
    "meta": _USE_ARGUMENTS,
    "description": "a job is shown with its task and its arguments; remove it",
    "pipeline": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "webhooks": "use alerts: docs/guides/alerts.md",
    "group_id": "use qbull.group(…, then=…)",
    "queue_class": "pass queue=, a name or a Queue",
}
"""Keywords of enqueue, of @job and of delay."""

RQ_CRON_HINTS = {
    "job_timeout": 'set it for the queue: Queue("NAME", connection=app, default_timeout="3m")',
    "ttl": "a run that is due waits for a worker; remove it",
    "meta": _USE_ARGUMENTS,
    "webhooks": "use alerts: docs/guides/alerts.md",
}
"""Keywords of cron.register."""

RQ_QUEUE_HINTS = {
    "is_async": "use qbull.testing.inline in tests",
    "job_class": _USE_SETTLED_HOOK,
    "death_penalty_class": "job_timeout=… is enough",
}
"""Keywords of Queue."""

RQ_QUEUE_ATTRIBUTE_HINTS: dict[str, str] = {
    "dequeue_any": "run: qbull worker MODULE:APP",
    "push_job_id": "use enqueue_job(job)",
    "run_job": "run: qbull worker MODULE:APP",
}

RQ_JOB_ATTRIBUTE_HINTS = {
    "meta": _USE_ARGUMENTS,
    "save_meta": _USE_ARGUMENTS,
    "get_meta": _USE_ARGUMENTS,
    "save": "an enqueued job cannot be changed",
    "register_dependency": _USE_TASK_CHAIN,
    "latest_result": "use return_value() or exc_info; await app.job(queue, id).info() has all attempts",
    "results": "use return_value() or exc_info; await app.job(queue, id).info() has all attempts",
    "description": "a job is shown with its task and its arguments",
    "args": "arguments travel by name: job.kwargs",
    "ttl": "use app.job(queue, id).info(): expires_at",
    "get_ttl": "use app.job(queue, id).info(): expires_at",
    "result_ttl": RETENTION_HINT,
    "failure_ttl": RETENTION_HINT,
    "perform": "call the function",
    "worker_name": "use await app.job(queue, id).info()",
}

RQ_MODULE_HINTS = {
    "Worker": "run: qbull worker MODULE:APP",
    "SimpleWorker": "run: qbull worker MODULE:APP, or async with app.worker() in tests",
    "Connection": "pass connection=app",
    "push_connection": "pass connection=app",
    "Group": "use qbull.group(…, then=…)",
    "Scheduler": "not needed: workers run delayed jobs when they are due",
    "send_stop_job_command": "use Job.fetch(id, connection=app).cancel()",
    "FailedJobRegistry": "import it from qbull.compat.rq.registry",
}
"""Names that users may try to import."""
