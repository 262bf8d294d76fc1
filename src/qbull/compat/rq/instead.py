"""Names of RQ that are not supported, each with a hint at its replacement."""

from __future__ import annotations

RQ_GUIDE = "from_rq"

_USE_RETENTION = (
    'retention is a setting of the queue: app.queue("NAME", keep=qbull.Keep(completed_for=500)), '
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
    "result_ttl": _USE_RETENTION,
    "failure_ttl": _USE_RETENTION,
    "depends_on": _USE_TASK_CHAIN,
    "on_stopped": _USE_SETTLED_HOOK,
    "meta": _USE_ARGUMENTS,
    "description": "a job is shown with its task and its arguments; remove it",
    "unique": "ids are always unique: a second job with the same id adds nothing; remove it",
    "pipeline": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "webhooks": "use alerts: docs/guides/alerts.md",
    "group_id": "use qbull.group(…, then=…)",
    "queue_class": "pass queue=, a name or a Queue",
}
"""Keywords of enqueue, of @job and of delay."""

RQ_QUEUE_HINTS = {
    "is_async": "use qbull.testing.inline in tests",
    "job_class": _USE_SETTLED_HOOK,
    "serializer": "arguments and results travel as JSON; nothing is pickled",
    "death_penalty_class": "job_timeout=… is enough",
}
"""Keywords of Queue."""

RQ_QUEUE_ATTRIBUTE_HINTS = {
    "empty": "use the dashboard, or POST /api/queues/NAME/operations",
    "delete": 'a queue that nobody declares has no workers; "qbull queues" shows what is left',
    "enqueue_many": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "prepare_data": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "deferred_job_registry": _USE_COMMAND_LINE,
}

RQ_JOB_ATTRIBUTE_HINTS = {
    "meta": _USE_ARGUMENTS,
    "save_meta": _USE_ARGUMENTS,
    "get_meta": _USE_ARGUMENTS,
    "save": "an enqueued job cannot be changed",
    "dependency": _USE_TASK_CHAIN,
    "dependencies": _USE_TASK_CHAIN,
    "dependent_ids": _USE_TASK_CHAIN,
    "register_dependency": _USE_TASK_CHAIN,
    "latest_result": "use return_value() or exc_info; await app.job(queue, id).info() has all attempts",
    "results": "use return_value() or exc_info; await app.job(queue, id).info() has all attempts",
    "description": "a job is shown with its task and its arguments",
    "args": "arguments travel by name: job.kwargs",
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
    "cancel_job": "use Job.fetch(id, connection=app).cancel()",
    "requeue_job": "use Job.fetch(id, connection=app).requeue()",
    "send_stop_job_command": "use Job.fetch(id, connection=app).cancel()",
    "FailedJobRegistry": "import it from qbull.compat.rq.registry",
}
"""Names that users may try to import."""
