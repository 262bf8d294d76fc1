"""Schedules with the API of `rq cron`. Workers run them, so no scheduler process is needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qbull.app import App
from qbull.compat.refusal import refuse
from qbull.compat.rq.enqueue_options import RqEnqueueOptions
from qbull.compat.rq.functions import name_of
from qbull.compat.rq.instead import RQ_CRON_HINTS, RQ_GUIDE
from qbull.compat.rq.queue import Queue
from qbull.errors import ArgumentsError


class CronScheduler:
    """`CronScheduler(connection=app).register(report, "default", cron="0 9 * * *")`.

    Args:
        connection: The app.
    """

    def __init__(self, connection: App) -> None:
        self.connection = connection

    def register(
        self,
        func: Callable[..., Any],
        queue_name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Declare a schedule.

        Args:
            func: The function, which is registered with the queue.
            queue_name: The name of the queue.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.
            options: As in `register` of this module.
        """
        register(func, queue_name, args, kwargs, connection=self.connection, **options)


def register(
    func: Callable[..., Any],
    queue_name: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    connection: App,
    interval: int | None = None,
    cron: str | None = None,
    name: str = "",
    **others: Any,
) -> None:
    """Declare a schedule in the module that workers load.

    Args:
        func: The function, which is registered with the queue.
        queue_name: The name of the queue.
        args: Positional arguments of the function.
        kwargs: Keyword arguments of the function.
        connection: The app.
        interval: Seconds between two runs.
        cron: A cron expression, instead of an interval.
        name: The name of the schedule; by default that of the function.
        others: `result_ttl` and `failure_ttl` as in `enqueue`. Others are refused, with a hint.
    """
    refuse(
        "cron.register",
        {n: v for n, v in others.items() if v is not None and n not in ("result_ttl", "failure_ttl")},
        RQ_CRON_HINTS,
        ArgumentsError,
        RQ_GUIDE,
    )
    if (interval is None) == (cron is None):
        raise ArgumentsError("cron.register: give either interval=SECONDS or cron=EXPRESSION")
    queue = Queue(queue_name, connection=connection)
    RqEnqueueOptions.of("cron.register", others).check_retention(queue.queue)
    queue.register(func)
    by_name = _by_name(func, args or (), kwargs or {})
    task: Any = queue.task_of(func)
    if cron is not None:
        queue.queue.cron(cron, name=name or name_of(func), args=by_name)(task)
    else:
        assert interval is not None
        queue.queue.cron(name=name or name_of(func), args=by_name, every=interval)(task)


def _by_name(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, as schedules have them."""
    signature = inspect.signature(func)
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in signature.parameters.values()):
        raise ArgumentsError(
            f'cron.register: "{name_of(func)}" takes *args or **kwargs, which a schedule cannot have; '
            "register a function without them"
        )
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ArgumentsError(f'cron.register: "{name_of(func)}": {error}') from None
