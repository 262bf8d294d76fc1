"""Instead: what of RQ has no counterpart in the shim, and what to use in its place. One line for each name."""

from __future__ import annotations

GUIDE = "from_rq"

_KEEP = 'finished jobs stay as the queue says: app.queue("NAME", keep=qbull.Keep(completed_for=500)), before Queue("NAME", …)'
_CHAIN = "use qbull.chain(a.step(…), b.step(…)) with tasks: queue.task_of(function)"
_MIDDLEWARE = "use qbull.Middleware: settled is told what became of each run; or fallback= of qbull.chain(…)"
_META = "pass it as an argument; progress and lines are qbull.current_job().progress_sync(33) and log_sync(…)"
_CLI = "use the command line or the REST API: qbull jobs, failures, redrive, clean"

CALL = {
    "result_ttl": _KEEP,
    "failure_ttl": _KEEP,
    "depends_on": _CHAIN,
    "on_success": _MIDDLEWARE,
    "on_failure": _MIDDLEWARE,
    "on_stopped": _MIDDLEWARE,
    "meta": _META,
    "description": "a job is shown with its task and its arguments; remove it",
    "repeat": "use @queue.cron(every=…), or app.schedules.upsert(…)",
    "unique": "an id is taken while its job is there: the second one adds nothing; remove it",
    "pipeline": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "webhooks": "use alerts: docs/guides/alerts.md",
    "group_id": "use qbull.group(…, then=…)",
    "queue_class": "give queue=, a name or a Queue",
}
"""Keywords of enqueue, of @job and of delay."""

QUEUE = {
    "is_async": "use qbull.testing.inline in tests",
    "job_class": _MIDDLEWARE,
    "serializer": "arguments and results travel as JSON; nothing is pickled",
    "death_penalty_class": "job_timeout=… is enough",
}
"""Keywords of Queue."""

QUEUE_ATTRIBUTES = {
    "empty": "use the dashboard, or POST /api/queues/NAME/operations",
    "delete": 'a queue that nobody declares has no workers; "qbull queues" shows what is left',
    "jobs": _CLI,
    "job_ids": _CLI,
    "get_jobs": _CLI,
    "get_job_ids": _CLI,
    "enqueue_many": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "prepare_data": "use task.enqueue_many_sync([…]) of queue.task_of(function)",
    "enqueue_job": "use job.requeue()",
    "remove": "use job.delete()",
    "failed_job_registry": "use qbull failures, qbull jobs NAME --state failed",
    "finished_job_registry": _CLI,
    "started_job_registry": _CLI,
    "deferred_job_registry": _CLI,
    "scheduled_job_registry": _CLI,
    "canceled_job_registry": _CLI,
    "all": "use app.queues",
}

JOB_ATTRIBUTES = {
    "meta": _META,
    "save_meta": _META,
    "get_meta": _META,
    "save": "a job cannot be changed when it is enqueued",
    "dependency": _CHAIN,
    "dependencies": _CHAIN,
    "dependent_ids": _CHAIN,
    "register_dependency": _CHAIN,
    "latest_result": "use return_value(), exc_info; all attempts are in await app.job(queue, id).info()",
    "results": "use return_value(), exc_info; all attempts are in await app.job(queue, id).info()",
    "description": "a job is shown with its task and its arguments",
    "args": "arguments travel by name: job.kwargs",
    "perform": "call the function",
    "worker_name": "await app.job(queue, id).info() has it",
    "create": "use queue.enqueue(…)",
}

MODULE = {
    "Worker": "run: qbull worker MODULE:APP",
    "SimpleWorker": "run: qbull worker MODULE:APP, or async with app.worker() in tests",
    "Connection": "give connection=app",
    "push_connection": "give connection=app",
    "Callback": _MIDDLEWARE,
    "Repeat": "use @queue.cron(every=…), or app.schedules.upsert(…)",
    "Group": "use qbull.group(…, then=…)",
    "Scheduler": "workers let delayed jobs run when they are due",
    "cancel_job": "use Job.fetch(id, connection=app).cancel()",
    "requeue_job": "use Job.fetch(id, connection=app).requeue()",
    "send_stop_job_command": "use Job.fetch(id, connection=app).cancel()",
    "FailedJobRegistry": "use qbull failures, qbull jobs NAME --state failed",
}
"""Names that one may try to import."""
