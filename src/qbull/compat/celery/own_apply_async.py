"""Tasks with an `apply_async` of their own: a class that adds headers or arguments to each call.

A canvas calls the override for each of its tasks, and takes over the call that the override makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from qbull.errors import ArgumentsError

if TYPE_CHECKING:
    from qbull.compat.celery.signature import Signature
    from qbull.compat.celery.task import CeleryTask


class CallCapture:
    """Takes the call of a task that its override makes, instead of a job.

    Args:
        task: The task.
    """

    def __init__(self, task: CeleryTask) -> None:
        self.task = task
        self.call: tuple[list[Any], dict[str, Any], dict[str, Any]] | None = None

    def take(
        self,
        task: CeleryTask,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> bool:
        """Take the call, unless it is one of another task or a second one."""
        if task is not self.task or self.call is not None:
            return False
        given = {name: value for name, value in options.items() if value is not None}
        self.call = list(args or ()), dict(kwargs or {}), given
        return True


call_capture: ContextVar[CallCapture | None] = ContextVar("qbull_celery_call_capture", default=None)


def as_its_task_calls_it(given: Signature) -> Signature:
    """Return the call that the task's own `apply_async` makes of a signature."""
    task = given.type
    if given.is_called or not task._has_own_apply_async:
        return given
    capture = CallCapture(task)
    token = call_capture.set(capture)
    try:
        task.apply_async(tuple(given.args), dict(given.kwargs), **given.options)
    finally:
        call_capture.reset(token)
    if capture.call is None:
        raise ArgumentsError(
            f'task "{task.name}": its own apply_async makes no call with super().apply_async(…), '
            "so it cannot be a part of a chain, a group or a chord"
        )
    called: Signature = given.clone()
    called.is_called = True
    called["args"], called["kwargs"], called["options"] = capture.call
    return called
