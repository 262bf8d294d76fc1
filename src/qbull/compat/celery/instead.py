"""Instead: what of Celery has no counterpart in the shim, and what to use in its place. One line for each name."""

from __future__ import annotations

GUIDE = "from_celery"

_STEP = "use qbull.chain(a.step(…), b.step(…)); the result of the one before is qbull.current_job().results"
_GROUP = "use qbull.group(a.step(…), b.step(…), then=c.step(…)), or task.enqueue_many([…]) where nothing waits for all"
_MIDDLEWARE = "use qbull.Middleware: around_run is around each run, settled is told what became of it"
_RIGHT_ROUTE = "name the queue: queue=…"
_PROGRESS = "use qbull.current_job().progress_sync(33), or log_sync(…)"
_ATOMIC = "jobs of a dead worker always run again; make the task safe to repeat"
_QUEUE_RATE = 'a rate is of a queue, over all workers: app.queue("NAME", rate=qbull.Rate(100, per=60)), and queue="NAME" here'
_SOFT = "nothing can be raised into a running thread; use time_limit=…, or ask qbull.current_job().cancelled in the loop"
_JSON = "arguments and results travel as JSON; nothing is pickled"
_EAGER = "call the task like a function, or use qbull.testing.inline in tests"

TASK = {
    "rate_limit": _QUEUE_RATE,
    "soft_time_limit": _SOFT,
    "base": _MIDDLEWARE,
    "on_failure": _MIDDLEWARE,
    "on_success": _MIDDLEWARE,
    "on_retry": _MIDDLEWARE,
    "after_return": _MIDDLEWARE,
    "before_start": _MIDDLEWARE,
    "serializer": _JSON,
    "acks_late": _ATOMIC,
    "reject_on_worker_lost": _ATOMIC,
    "acks_on_failure_or_timeout": "a job that fails is a dead letter; qbull redrive sends it round again",
    "track_started": "the state is always kept; remove it",
    "store_errors_even_if_ignored": "errors are always kept; remove it",
    "throws": "all errors are logged alike; remove it",
    "typing": "arguments are always checked against the signature; remove it",
    "backend": "results are kept with the jobs; remove it",
    "trail": "a job does not know which jobs it has enqueued; remove it",
    "send_events": "events are always there: queue.events(); remove it",
    "compression": "use App(middleware=[qbull.Compressed()])",
    "exchange": _RIGHT_ROUTE,
    "routing_key": _RIGHT_ROUTE,
    "shared": "use @shared_task",
    "lazy": "tasks are declared at once; remove it",
}
"""Keywords of @app.task."""

CALL = {
    "link": _STEP,
    "link_error": "use qbull.chain(…, fallback=handler.step(…))",
    "chain": _STEP,
    "chord": _GROUP,
    "soft_time_limit": _SOFT,
    "shadow": "a job has the name of its task; use a second task with name=…",
    "serializer": _JSON,
    "compression": "use App(middleware=[qbull.Compressed()])",
    "exchange": _RIGHT_ROUTE,
    "routing_key": _RIGHT_ROUTE,
    "headers": "use qbull.Middleware: what around_enqueue puts into call.headers is in qbull.current_job().headers",
    "retry": "an enqueue is sent again for up to 10 s by itself; remove it",
    "retry_policy": "an enqueue is sent again for up to 10 s by itself; remove it",
    "ignore_result": "say it of the task: @app.task(ignore_result=True)",
    "producer": "the app has its connections; remove it",
    "connection": "the app has its connections; remove it",
    "add_to_parent": "a job does not know which jobs it has enqueued; remove it",
    "delivery_mode": 'use task.options(durability="durable").enqueue(…)',
    "reply_to": "the handle that is returned has the result; remove it",
    "group_id": _GROUP,
    "root_id": "use App(trace=True)",
    "parent_id": "use App(trace=True)",
}
"""Keywords of apply_async."""

RETRY = {
    "args": "another run has the arguments of the job; enqueue a new one for others",
    "kwargs": "another run has the arguments of the job; enqueue a new one for others",
    "throw": "the attempt ends where retry() is called; leave throw away",
    "queue": "a job stays in its queue; enqueue a new one there",
    "priority": "a job keeps its priority; enqueue a new one with another",
    "expires": "a job that has begun does not expire; remove it",
}
"""Keywords of self.retry."""

TASK_ATTRIBUTES = {
    "s": f"{_STEP}, or write the call where it belongs: task.delay(…)",
    "si": "use task.step(…) in qbull.chain(…) or qbull.group(…)",
    "signature": _STEP,
    "subtask": _STEP,
    "chunks": "use task.enqueue_many([…])",
    "map": "use task.enqueue_many([…])",
    "starmap": "use task.enqueue_many([…])",
    "apply": _EAGER,
    "run": "call the task like a function",
    "update_state": _PROGRESS,
    "send_event": "use queue.events()",
    "replace": "enqueue the other task, and return",
    "add_around": _MIDDLEWARE,
    "on_failure": _MIDDLEWARE,
    "on_success": _MIDDLEWARE,
    "on_retry": _MIDDLEWARE,
    "after_return": _MIDDLEWARE,
    "rate_limit": _QUEUE_RATE,
    "backend": "results are kept with the jobs: AsyncResult",
}

REQUEST_ATTRIBUTES = {
    "args": "the arguments are those of the function",
    "kwargs": "the arguments are those of the function",
    "delivery_info": "qbull.current_job().queue names the queue",
    "hostname": '"qbull workers" shows who runs what',
    "headers": "qbull.current_job().headers",
    "eta": "qbull.current_job().planned_at, for the tick of a schedule",
    "root_id": "use App(trace=True)",
    "parent_id": "use App(trace=True)",
    "chain": _STEP,
    "chord": _GROUP,
    "group": _GROUP,
    "callbacks": _STEP,
    "errbacks": _STEP,
    "timelimit": "it is what the task was declared with",
    "correlation_id": "use self.request.id",
    "reply_to": "the handle that is returned has the result",
}

RESULT_ATTRIBUTES = {
    "children": "a job does not know which jobs it has enqueued; a flow does: flow.jobs",
    "parent": "use qbull.chain(…): flow.jobs has all of them",
    "graph": "use qbull.chain(…): flow.jobs has all of them",
    "collect": "use qbull.group(…, then=…): the last job has the results of all",
    "iterdeps": "use qbull.chain(…): flow.jobs has all of them",
    "then": "use qbull.chain(…)",
    "as_tuple": "keep the id",
    "backend": "results are kept with the jobs",
    "args": "await app.job(queue, id).info() has them",
    "kwargs": "await app.job(queue, id).info() has them",
    "retries": "await app.job(queue, id).info() has the attempt",
    "worker": "await app.job(queue, id).info() has it",
}

APP = {
    "loader": "set it up where the app is made",
    "amqp": "use app.queue(…)",
    "log": "use logging; QBULL_LOG_FORMAT=json and QBULL_LOG_LEVEL",
    "control": "use the command line: qbull workers, cancel, pause, configure",
    "task_cls": _MIDDLEWARE,
    "changes": "use app.conf.update(…)",
    "config_source": "use app.config_from_object(…)",
    "namespace": "use app.config_from_object(…, namespace=…)",
    "fixups": "not needed",
    "set_as_current": "@shared_task belongs to the app that was made last",
    "strict_typing": "arguments are always checked against the signature; remove it",
    "autofinalize": "not needed",
}
"""Keywords of Celery(…)."""

APP_ATTRIBUTES = {
    "control": "use the command line: qbull workers, cancel, pause, configure",
    "Task": _MIDDLEWARE,
    "amqp": "use app.queue(…)",
    "backend": "results are kept with the jobs: AsyncResult",
    "add_periodic_task": "use app.conf.beat_schedule, or @queue.cron(…)",
    "on_after_configure": "use app.conf.beat_schedule, or @queue.cron(…)",
    "on_after_finalize": "use app.conf.beat_schedule, or @queue.cron(…)",
    "signature": _STEP,
    "canvas": _STEP,
    "worker_main": "run: qbull worker MODULE:APP",
    "start": "run: qbull worker MODULE:APP",
    "Worker": "run: qbull worker MODULE:APP",
    "Beat": "workers fire the ticks; there is no beat",
    "connection": "the app has its connections",
    "GroupResult": "use qbull.group(…, then=…)",
    "register_task": _MIDDLEWARE,
    "set_default": "@shared_task belongs to the app that was made last",
    "set_current": "@shared_task belongs to the app that was made last",
    "finalize": "not needed",
}

CONF = {
    "result_backend": "results are kept with the jobs, on the same server; remove it",
    "task_serializer": _JSON,
    "result_serializer": _JSON,
    "event_serializer": _JSON,
    "accept_content": _JSON,
    "result_accept_content": _JSON,
    "enable_utc": "schedules have conf.timezone; remove it",
    "task_acks_late": _ATOMIC,
    "task_reject_on_worker_lost": _ATOMIC,
    "task_acks_on_failure_or_timeout": "a job that fails is a dead letter; remove it",
    "task_track_started": "the state is always kept; remove it",
    "task_store_errors_even_if_ignored": "errors are always kept; remove it",
    "task_soft_time_limit": _SOFT,
    "task_always_eager": _EAGER,
    "task_eager_propagates": _EAGER,
    "task_annotations": "say it of the tasks",
    "task_default_rate_limit": _QUEUE_RATE,
    "task_create_missing_queues": "a queue is declared: app.queue(…), conf.task_queues, task_routes or queue=… of a task; remove it",
    "task_queue_max_priority": "priorities are always there; remove it",
    "task_inherit_parent_priority": "say the priority of the call; remove it",
    "task_send_sent_event": "events are always there: queue.events(); remove it",
    "task_compression": "use App(middleware=[qbull.Compressed()])",
    "task_publish_retry": "an enqueue is sent again for up to 10 s by itself; remove it",
    "task_publish_retry_policy": "an enqueue is sent again for up to 10 s by itself; remove it",
    "broker_transport_options": "no visibility timeout: jobs of a dead worker come back after MIN_IDLE_TIME_MS; sentinels are redis+sentinel://…",
    "broker_connection_retry_on_startup": "remove it; a worker that loses its server waits for it, and one that never reached it says so and ends",
    "broker_connection_retry": "remove it; a worker that loses its server waits for it, and one that never reached it says so and ends",
    "broker_connection_max_retries": "remove it; a worker that loses its server waits for it, and one that never reached it says so and ends",
    "broker_pool_limit": "connections are made as needed; remove it",
    "broker_heartbeat": "not needed; remove it",
    "broker_use_ssl": "use rediss://…?ssl_ca_certs=…; see docs/guides/security.md",
    "redis_backend_use_ssl": "use rediss://…?ssl_ca_certs=…; see docs/guides/security.md",
    "result_extended": "everything about a job is always kept: await job.info(); remove it",
    "result_persistent": "results are kept with the jobs; remove it",
    "worker_prefetch_multiplier": "a worker holds what it can run and no more for long; remove it",
    "worker_max_tasks_per_child": "use cpu=True for what leaks memory, or restart workers one after the other",
    "worker_max_memory_per_child": "let the service manager restart workers that grow too large",
    "worker_pool": "plain functions run in threads, async ones on the loop, cpu=True ones in processes; remove it",
    "worker_hijack_root_logger": "logging is left alone; remove it",
    "worker_log_format": "use QBULL_LOG_FORMAT",
    "worker_task_log_format": "use QBULL_LOG_FORMAT",
    "worker_send_task_events": "events are always there: queue.events(); remove it",
    "worker_cancel_long_running_tasks_on_connection_loss": "a run whose job was taken over is refused its outcome; remove it",
    "worker_disable_rate_limits": _QUEUE_RATE,
    "beat_scheduler": "workers fire the ticks; schedules made at run time are app.schedules.upsert(…)",
    "beat_schedule_filename": "schedules are on the server; remove it",
    "beat_max_loop_interval": "workers fire the ticks; remove it",
    "beat_sync_every": "schedules are on the server; remove it",
}

MODULE = {
    "chain": _STEP,
    "group": _GROUP,
    "chord": _GROUP,
    "signature": _STEP,
    "subtask": _STEP,
    "Signature": _STEP,
    "chunks": "use task.enqueue_many([…])",
    "xmap": "use task.enqueue_many([…])",
    "xstarmap": "use task.enqueue_many([…])",
    "Task": _MIDDLEWARE,
    "signals": _MIDDLEWARE,
    "task_prerun": _MIDDLEWARE,
    "task_postrun": _MIDDLEWARE,
    "task_failure": _MIDDLEWARE,
    "task_success": _MIDDLEWARE,
    "task_retry": _MIDDLEWARE,
    "before_task_publish": _MIDDLEWARE,
    "after_task_publish": _MIDDLEWARE,
    "current_task": "use qbull.current_job(), or bind=True",
    "get_task_logger": "use logging.getLogger(__name__); current_job().log_sync(…) keeps lines with the job",
    "GroupResult": "use qbull.group(…, then=…)",
    "ResultSet": "use qbull.group(…, then=…)",
    "SoftTimeLimitExceeded": _SOFT,
    "Ignore": "return, or raise qbull.Fail(…)",
    "Reject": "raise qbull.Fail(…): it goes to the dead letters",
    "solar": "compute the next moment and enqueue with at=…",
}
"""Names that one may try to import."""
