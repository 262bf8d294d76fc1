"""Names of Celery that are not supported, each with a hint at its replacement."""

from __future__ import annotations

from qbull.compat.celery.support import WORKS, Support, differs, refused

CELERY_GUIDE = "from_celery"

_USE_CHAIN = (
    "use qbull.chain(a.step(…), b.step(…)); qbull.current_job().results has the results of earlier steps"
)
_USE_GROUP = (
    "use qbull.group(a.step(…), b.step(…), then=c.step(…)), or task.enqueue_many([…]) if no job waits for all"
)
_USE_MIDDLEWARE = "use qbull.Middleware: around_run() wraps each run, settled() gets its outcome"
_USE_QUEUE_NAME = "name the queue: queue=…"
_USE_PROGRESS = "use qbull.current_job().progress_sync(33), or log_sync(…)"
_ALWAYS_RERUN = "jobs of a dead worker always run again; make the task idempotent"
_USE_QUEUE_RATE = (
    "rate limits belong to a queue and count over all workers: "
    'app.queue("NAME", rate=qbull.Rate(100, per=60)), and queue="NAME" here'
)
_USE_TIME_LIMIT = (
    "an exception cannot be raised in a running thread; use time_limit=…, "
    "or check qbull.current_job().cancelled in the loop"
)
_JSON_ONLY = "arguments and results travel as JSON; nothing is pickled"
_WAITS_FOR_SERVER = "if the server is unavailable, workers wait for it; remove it"
_BEAT_MODELS = (
    'schedules are on the server, not in tables; "qbull drain django-celery-beat" moves them. '
    "Create new ones with app.schedules.upsert(…), or name them in conf.beat_schedule"
)
_USE_INLINE = "call the task like a function, or use qbull.testing.inline in tests"

CELERY_TASK_HINTS = {
    "rate_limit": _USE_QUEUE_RATE,
    "serializer": _JSON_ONLY,
    "acks_late": _ALWAYS_RERUN,
    "reject_on_worker_lost": _ALWAYS_RERUN,
    "acks_on_failure_or_timeout": 'a failed job becomes a dead letter; "qbull redrive" runs it again',
    "track_started": "the state is always stored; remove it",
    "store_errors_even_if_ignored": "errors are always stored; remove it",
    "backend": "results are stored with the jobs; remove it",
    "exchange": _USE_QUEUE_NAME,
    "routing_key": _USE_QUEUE_NAME,
}
"""Keywords of @app.task."""

CELERY_CALL_HINTS = {
    "chain": _USE_CHAIN,
    "chord": _USE_GROUP,
    "shadow": "a job has the name of its task; use a second task with name=…",
    "serializer": _JSON_ONLY,
    "exchange": _USE_QUEUE_NAME,
    "routing_key": _USE_QUEUE_NAME,
    "retry": "an enqueue is retried for up to 10 s automatically; remove it",
    "retry_policy": "an enqueue is retried for up to 10 s automatically; remove it",
    "ignore_result": "set it on the task: @app.task(ignore_result=True)",
    "producer": "the app manages its connections; remove it",
    "connection": "the app manages its connections; remove it",
    "add_to_parent": "a job does not know which jobs it has enqueued; remove it",
    "delivery_mode": 'use task.options(durability="durable").enqueue(…)',
    "reply_to": "the returned handle has the result; remove it",
    "group_id": _USE_GROUP,
    "MessageGroupId": 'jobs with one key run in order: app.queue("NAME", order="key")',
    "MessageDeduplicationId": "give the job an id: task_id=…",
    "root_id": "use App(trace=True)",
    "parent_id": "use App(trace=True)",
}
"""Keywords of apply_async."""

CELERY_RETRY_HINTS = {
    "args": "a retry has the same arguments; enqueue a new job for others",
    "kwargs": "a retry has the same arguments; enqueue a new job for others",
    "throw": "the attempt ends where retry() is called; remove it",
    "queue": "a job stays in its queue; enqueue a new one there",
    "priority": "a job keeps its priority; enqueue a new one with another",
    "expires": "a job that has started does not expire; remove it",
}
"""Keywords of self.retry."""

CELERY_TASK_ATTRIBUTE_HINTS = {
    "send_event": "use queue.events()",
    "add_around": _USE_MIDDLEWARE,
    "on_bound": "a task is bound when it is declared; do it after the declaration",
    "add_to_chord": "the body of a chord waits for a list of jobs that is fixed; use self.replace(group(…)), "
    "whose list of results is one result for the body",
    "add_trail": "a job does not know which jobs it has enqueued",
    "shadow_name": "a job has the name of its task; use a second task with name=…",
    "Request": _USE_MIDDLEWARE,
    "Strategy": _USE_MIDDLEWARE,
    "start_strategy": _USE_MIDDLEWARE,
    "rate_limit": _USE_QUEUE_RATE,
    "backend": "results are stored with the jobs: AsyncResult",
}

CELERY_REQUEST_ATTRIBUTE_HINTS = {
    "eta": "qbull.current_job().planned_at, for the run of a schedule",
    "expires": "a job that has started does not expire",
    "properties": "request.headers and request.delivery_info have them",
    "root_id": "use App(trace=True)",
    "parent_id": "use App(trace=True)",
    "chain": _USE_CHAIN,
    "chord": _USE_GROUP,
    "group": _USE_GROUP,
    "callbacks": _USE_CHAIN,
    "errbacks": _USE_CHAIN,
    "timelimit": "it is the time_limit in the declaration of the task",
    "time_limit": "it is the time_limit in the declaration of the task",
    "reply_to": "the returned handle has the result",
}

CELERY_REQUEST_CHANGE_HINTS = {
    "chain": "a chain that has started is fixed; raise qbull.Fail(…) to end it, "
    "or pass a value on that tells the next tasks to do nothing",
    "callbacks": "callbacks are fixed when the call is made; raise qbull.Fail(…) to call none",
}
"""Changes of self.request."""


def request_change_hint(name: str) -> str:
    """Return the replacement for `self.request.NAME = …`."""
    return CELERY_REQUEST_CHANGE_HINTS.get(name, "the request cannot be changed; use a variable")


CELERY_RESULT_ATTRIBUTE_HINTS = {
    "graph": "use qbull.chain(…): flow.jobs has all jobs",
    "collect": "use qbull.group(…, then=…): the last job has the results of all",
    "iterdeps": "use qbull.chain(…): flow.jobs has all jobs",
    "then": "use qbull.chain(…)",
    "backend": "results are stored with the jobs",
    "args": "await app.job(queue, id).info() has them",
    "kwargs": "await app.job(queue, id).info() has them",
    "worker": "await app.job(queue, id).info() has it",
}

CELERY_APP_HINTS = {
    "loader": "configure the app in the module that creates it",
    "amqp": "use app.queue(…)",
    "log": "use logging; QBULL_LOG_FORMAT=json and QBULL_LOG_LEVEL",
    "control": "use the command line: qbull workers, cancel, pause, configure",
    "changes": "use app.conf.update(…)",
    "config_source": "use app.config_from_object(…)",
    "namespace": "use app.config_from_object(…, namespace=…)",
    "fixups": "not needed",
    "set_as_current": "@shared_task belongs to the newest app",
    "strict_typing": "arguments are always checked against the signature; remove it",
    "autofinalize": "not needed",
}
"""Keywords of Celery(…)."""

CELERY_APP_ATTRIBUTE_HINTS = {
    "amqp": "use app.queue(…)",
    "backend": "results are stored with the jobs: AsyncResult",
    "worker_main": "run: qbull worker MODULE:APP",
    "start": "run: qbull worker MODULE:APP",
    "Worker": "run: qbull worker MODULE:APP",
    "Beat": "workers run the schedules; there is no beat process",
    "connection": "the app manages its connections",
    "connection_for_write": "the app manages its connections",
    "connection_for_read": "the app manages its connections",
    "connection_or_acquire": "the app manages its connections",
    "producer_or_acquire": "the app manages its connections; use task.enqueue_many([…]) for many jobs",
    "producer_pool": "the app manages its connections; use task.enqueue_many([…]) for many jobs",
    "pool": "the app manages its connections",
    "events": "use queue.events()",
    "steps": "use @app.lifespan, or the signals worker_init and worker_process_init",
    "user_options": "use options of your own program",
    "GroupResult": "use qbull.compat.celery.GroupResult(id, results)",
    "finalize": "not needed",
}

CELERY_CONF_HINTS = {
    "result_backend": "results are stored with the jobs, on the server of the broker; remove it. "
    "result_expires=… sets how long they are kept; "
    "app.queue(…, track=True) has a row in PostgreSQL for each job",
    "task_serializer": _JSON_ONLY,
    "result_serializer": _JSON_ONLY,
    "event_serializer": _JSON_ONLY,
    "accept_content": _JSON_ONLY,
    "result_accept_content": _JSON_ONLY,
    "enable_utc": "schedules have conf.timezone; remove it",
    "task_acks_late": _ALWAYS_RERUN,
    "task_reject_on_worker_lost": _ALWAYS_RERUN,
    "task_acks_on_failure_or_timeout": "a failed job becomes a dead letter; remove it",
    "task_track_started": "the state is always stored; remove it",
    "task_store_errors_even_if_ignored": "errors are always stored; remove it",
    "task_annotations": "set the options on the tasks",
    "task_default_rate_limit": _USE_QUEUE_RATE,
    "task_create_missing_queues": "queues must be declared: app.queue(…), conf.task_queues, task_routes "
    "or queue=… of a task; remove it",
    "task_queue_max_priority": "priorities are always on; remove it",
    "task_inherit_parent_priority": "set the priority in the call; remove it",
    "task_send_sent_event": "events are always on: queue.events(); remove it",
    "task_compression": "use App(middleware=[qbull.Compressed()])",
    "task_publish_retry": "an enqueue is retried for up to 10 s automatically; remove it",
    "task_publish_retry_policy": "an enqueue is retried for up to 10 s automatically; remove it",
    "broker_transport_options": "there is no visibility timeout: jobs of a dead worker are reclaimed after "
    "QBULL_MIN_IDLE_TIME_MS; for sentinels use redis+sentinel://…",
    "broker_connection_retry_on_startup": _WAITS_FOR_SERVER,
    "broker_connection_retry": _WAITS_FOR_SERVER,
    "broker_connection_max_retries": _WAITS_FOR_SERVER,
    "broker_pool_limit": "connections are made as needed; remove it",
    "broker_heartbeat": "not needed; remove it",
    "broker_use_ssl": "use rediss://…?ssl_ca_certs=…; see docs/guides/security.md",
    "redis_backend_use_ssl": "use rediss://…?ssl_ca_certs=…; see docs/guides/security.md",
    "result_extended": "everything about a job is always stored: await job.info(); remove it",
    "result_persistent": "results are stored with the jobs; remove it",
    "worker_prefetch_multiplier": "a worker prefetches only jobs that it will soon run; remove it",
    "worker_max_tasks_per_child": "run: qbull worker MODULE:APP --max-jobs-per-process 10000",
    "worker_max_memory_per_child": "run: qbull worker MODULE:APP --max-memory-per-process 500MB",
    "worker_pool": "plain functions run in threads, async ones on the loop, cpu=True ones in processes; "
    "remove it",
    "worker_hijack_root_logger": "qbull does not change the root logger; remove it",
    "worker_log_format": "use QBULL_LOG_FORMAT",
    "worker_task_log_format": "use QBULL_LOG_FORMAT",
    "worker_send_task_events": "events are always on: queue.events(); remove it",
    "worker_cancel_long_running_tasks_on_connection_loss": "if another worker has taken over a job, "
    "the outcome of the old run is refused; remove it",
    "worker_disable_rate_limits": _USE_QUEUE_RATE,
    "beat_scheduler": "workers run conf.beat_schedule; they do not read schedules from a database. "
    '"qbull drain django-celery-beat" moves them; app.schedules.upsert(…) creates schedules at run time',
    "beat_schedule_filename": "schedules are on the server; remove it",
    "beat_max_loop_interval": "workers run the schedules; remove it",
    "beat_sync_every": "schedules are on the server; remove it",
}

CELERY_MODULE_HINTS = {
    "Ignore": "return, or raise qbull.Fail(…)",
    "Reject": "raise qbull.Fail(…): the job becomes a dead letter",
    "ChordError": "result.get() raises the exception of the task that failed",
    "solar": "compute the next time and enqueue with at=…",
    "StampingVisitor": "give the call headers=…, or set them in the signal before_task_publish",
    "GroupStampingVisitor": "give the call headers=…, or set them in the signal before_task_publish",
}
"""Names that users may try to import."""

CELERY_PACKAGE_HINTS: dict[str, Support] = {
    "celery.app.control": refused("use the command line: qbull workers, cancel, pause, configure"),
    "celery.apps": refused("run: qbull worker MODULE:APP"),
    "celery.backends": refused("results are stored with the jobs"),
    "celery.beat": refused("workers run conf.beat_schedule; create schedules with app.schedules.upsert(…)"),
    "celery.bin": refused("run: qbull worker MODULE:APP"),
    "celery.contrib.abortable": refused(
        "use result.revoke(terminate=True), and qbull.current_job().cancelled"
    ),
    "celery.contrib.pytest": refused("use the fixtures of pytest_qbull; see docs/guides/testing.md"),
    "celery.contrib.rdb": refused("use qbull run-job; see docs/guides/debugging.md"),
    "celery.contrib.testing": refused("use qbull.testing; see docs/guides/testing.md"),
    "celery.events": refused("use queue.events(); see docs/guides/events.md"),
    "celery.loaders": refused("configure the app in the module that creates it"),
    "celery.worker": refused("the worker is qbull worker; use qbull.Middleware around each run"),
    "django_celery_beat": refused(_BEAT_MODELS),
    "django_celery_results": refused("results are stored with the jobs; use AsyncResult, or qbull jobs"),
    "kombu.Exchange": differs("has no effect; only the name of a kombu.Queue is read"),
    "kombu.Queue": WORKS,
    "kombu.serialization": differs("has no effect: arguments and results travel as JSON"),
    "flower": refused("the dashboard is qbull serve MODULE:APP, at /ui"),
}
"""Modules of Celery without a counterpart, and packages that belong to it."""
