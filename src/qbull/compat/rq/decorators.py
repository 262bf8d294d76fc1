"""@job: register a function, and enqueue calls of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from qbull.app import App
from qbull.compat.rq.enqueue_options import RqEnqueueOptions
from qbull.compat.rq.job import Job
from qbull.compat.rq.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])


def job(
    queue: Queue | str,
    connection: App | None = None,
    timeout: int | str | None = None,
    **others: Any,
) -> Callable[[F], F]:
    """`@job("mail", connection=app)`: register the function, and add `delay` and `enqueue` to it.

    Args:
        queue: The queue, or its name.
        connection: The app, if the queue is given by its name.
        timeout: Seconds that one run may take, or for example "3m".
        others: The other options of `enqueue`.
    """
    options = RqEnqueueOptions.of("@job", {"job_timeout": timeout} | others)
    home = queue if isinstance(queue, Queue) else Queue(queue, connection=connection)

    def declare(function: F) -> F:
        home.register(function)

        def delay(*args: Any, **kwargs: Any) -> Job:
            given = {n: kwargs.pop(n) for n in ("job_id", "at_front", "depends_on", "retry") if n in kwargs}
            declared = {field.name: getattr(options, field.name) for field in fields(RqEnqueueOptions)}
            both = {name: value for name, value in declared.items() if value is not None} | given
            return home._send(function, args, kwargs, RqEnqueueOptions.of("delay", both))

        function.delay = function.enqueue = delay  # type: ignore[attr-defined]
        return function

    return declare
