"""Hints: what to write in qbull instead of a call or a keyword that people know from other queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

TASK_HINTS = {
    "delay": "use {task}.enqueue(…)",
    "apply_async": "use {task}.options(delay=60).enqueue(…)",
    "send": "use {task}.enqueue(…)",
    "send_with_options": "use {task}.options(delay=60).enqueue(…)",
    "kiq": "use {task}.enqueue(…)",
    "defer": "use {task}.enqueue(…)",
    "defer_async": "use {task}.enqueue(…)",
    "schedule": "use {task}.options(delay=60).enqueue(…)",
    "s": "use {task}.step(…)",
    "si": "use {task}.step(…)",
    "signature": "use {task}.step(…)",
    "retry": "use qbull.Retry(…) in @queue.task(retry=…), or raise qbull.RetryAfter(seconds)",
}
"""Methods that tasks have in Celery, Dramatiq, taskiq and procrastinate, with what to write here."""

_DECLARE_QUEUE = 'declare a queue first: queue = app.queue("default"), then @queue.task'
_ENQUEUE_TASK = "declare the function with @queue.task, then await function.enqueue(…) or enqueue_sync(…)"
APP_HINTS = {
    "task": _DECLARE_QUEUE,
    "actor": _DECLARE_QUEUE,
    "enqueue": _ENQUEUE_TASK,
    "enqueue_job": _ENQUEUE_TASK,
    "send_task": 'use await app.send("QUEUE", "TASK", {"name": …})',
}
"""The same for methods of an app."""
QUEUE_HINTS = {
    "enqueue": _ENQUEUE_TASK,
    "enqueue_in": "use function.options(delay=60).enqueue(…), with a function of @queue.task",
    "enqueue_at": "use function.options(at=…).enqueue(…), with a function of @queue.task",
    "add": 'use await app.send("QUEUE", "TASK", {"name": …})',
    "process": "run: qbull worker MODULE:APP",
}
"""The same for methods of a queue, as in RQ, SAQ and BullMQ."""
_WAIT_FOR_RESULT = "use await job.result(timeout=10), or app.run_sync(job.result(timeout=10))"
_READ_STATE = "use await job.state(), or app.run_sync(job.state())"
JOB_HINTS = {
    "get": _WAIT_FOR_RESULT,
    "wait": _WAIT_FOR_RESULT,
    "wait_result": _WAIT_FOR_RESULT,
    "result_sync": _WAIT_FOR_RESULT,
    "return_value": _WAIT_FOR_RESULT,
    "ready": _READ_STATE,
    "status": _READ_STATE,
    "get_status": _READ_STATE,
    "revoke": "use await job.cancel()",
    "abort": "use await job.cancel()",
}
"""The same for methods of a job."""
OPTION_HINTS = {
    "countdown": "delay",
    "delay_ms": "delay",
    "eta": "at",
    "run_at": "at",
    "schedule_at": "at",
    "task_id": "id",
    "job_id": "id",
    "job_timeout": "timeout",
    "time_limit": "timeout",
    "_defer_by": "delay",
    "_defer_until": "at",
    "_job_id": "id",
}
"""Options of a call in other queues, with the option of `task.options(…)` that means the same."""
TASK_OPTION_HINTS = {
    "retries": "retry=qbull.Retry(attempts=4)",
    "max_retries": "retry=qbull.Retry(attempts=4)",
    "autoretry_for": "retry=qbull.Retry(…)",
    "rate_limit": "rate=… of app.queue(…), or limit=…",
    "time_limit": "timeout=60",
    "bind": "qbull.current_job() in the function",
    "queue": '@app.queue("NAME").task',
    "priority": "task.options(priority=1)",
    "concurrency": 'app.queue("NAME", concurrency=…)',
}
"""Keywords of a task's declaration in other queues."""


class QueueHints:
    """A queue names the replacement of a method that it does not have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            refuse_unknown(self, name, QUEUE_HINTS)


class JobHints:
    """The same for a job."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            refuse_unknown(self, name, JOB_HINTS)


def refuse_unknown(thing: object, name: str, hints: Mapping[str, str], **words: str) -> NoReturn:
    """Raise AttributeError from `__getattr__`, with a hint if there is one for this name."""
    fact = f"{type(thing).__name__!r} object has no attribute {name!r}"
    if name in hints:
        fact += f"; {hints[name].format(**words) if words else hints[name]}"
    raise AttributeError(fact, name=name, obj=thing)


def explain_keyword(name: str, known: Iterable[str], hints: Mapping[str, str]) -> str:
    """The end of a message about an unknown keyword: the replacement, a similar name, or all names."""
    names = list(known)
    if name in hints:
        return f"use {hints[name]}"
    import difflib  # Here, because only this mistake needs it.

    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]}=?"
    return f"there is: {', '.join(names)}"
