"""Options of a canvas: each reaches the tasks that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbull.compat.celery.call_options import CALLBACK_OPTIONS
from qbull.compat.celery.canvas import chain, chord, group
from qbull.compat.celery.signature import Signature, listed
from qbull.errors import ArgumentsError

LAST_TASK_OPTIONS = ("task_id", "link")
"""Options of a chain that belong to its last task."""
HEADER_OPTIONS = ("countdown", "eta")
"""Options of a chord that belong to its header only."""


def with_options(
    given: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """Return a copy in which the arguments and options are those of the tasks that they are for."""
    merged = {**given.options, **options}
    if isinstance(given, chain):
        tasks = [each.clone() for each in given.tasks]
        if tasks:
            first = {n: v for n, v in merged.items() if n not in (*LAST_TASK_OPTIONS, *CALLBACK_OPTIONS)}
            tasks[0] = with_options(tasks[0], args, kwargs, first)
            last = {n: merged[n] for n in LAST_TASK_OPTIONS if n in merged}
            tasks[-1] = _with_last_options(tasks[-1], last)
        return chain(tasks, app=given._app, link_error=listed(merged.get("link_error")))
    if isinstance(given, group):
        refused = [name for name in CALLBACK_OPTIONS if options.get(name)]
        if refused:
            raise ArgumentsError(f"group: {refused[0]}: set it on each task, or use a chord")
        own = {n: v for n, v in merged.items() if n != "task_id"}
        tasks = [with_options(each, args, kwargs, own) for each in given.tasks]
        return group(tasks, app=given._app, task_id=merged.get("task_id"))
    if isinstance(given, chord):
        if given.body is None:
            raise ArgumentsError("chord: it has no body; write chord(header, body) or chord(header)(body)")
        own = {n: v for n, v in merged.items() if n not in (*LAST_TASK_OPTIONS, *CALLBACK_OPTIONS)}
        header = with_options(given.header, args, kwargs, own)
        body_options = {n: v for n, v in merged.items() if n not in (*HEADER_OPTIONS, *CALLBACK_OPTIONS)}
        body = with_options(given.body, (), {}, body_options)
        body = with_errbacks(body, listed(merged.get("link_error")))
        for callback in listed(merged.get("link")):
            body.link(callback)
        return chord(header, body, app=given._app)
    return given.clone(args, kwargs, **options)


def members_of(given: group) -> list[Any]:
    """Return the tasks of a group, with those of the groups in it."""
    return [
        inner
        for each in given.tasks
        for inner in (members_of(with_options(each, (), {}, {})) if isinstance(each, group) else [each])
    ]


def _with_last_options(task: Any, options: Mapping[str, Any]) -> Any:
    callbacks = listed(options.get("link"))
    task = task.clone(**{n: v for n, v in options.items() if n != "link"})
    for callback in callbacks:
        task.link(callback)
    return task


def with_errbacks(task: Any, errbacks: Sequence[Any]) -> Any:
    task = task.clone()
    for errback in errbacks:
        task.link_error(errback)
    return task


def unrolled(part: Any) -> Any:
    """A group of one task in a chain is the task, as in Celery."""
    while isinstance(part, group) and len(part.tasks) == 1:
        part = with_options(part, (), {}, {}).tasks[0]
    return part
