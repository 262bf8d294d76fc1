"""Task classes: `@app.task(base=…)`, `Celery(task_cls=…)` and tasks that are classes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qbull.compat.celery.instead import CELERY_TASK_HINTS
from qbull.compat.celery.task import CeleryTask
from qbull.compat.celery.task_options import (
    FIXED_TASK_OPTIONS,
    HANDLER_OPTIONS,
    SUPPORTED_TASK_OPTIONS,
    UNUSED_TASK_OPTIONS,
    CeleryTaskOptions,
)
from qbull.core.task import TaskSpec
from qbull.errors import DeclarationError
from qbull.queue import Queue

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

TASK_OPTION_NAMES = frozenset(
    (
        *SUPPORTED_TASK_OPTIONS,
        *FIXED_TASK_OPTIONS,
        *UNUSED_TASK_OPTIONS,
        *CELERY_TASK_HINTS,
    )
)


def class_options(kind: type, *, is_base: bool = False) -> dict[str, Any]:
    """Return the options of `@app.task` that a class has as attributes. A base has no name of a task."""
    if not isinstance(kind, type) or not issubclass(kind, CeleryTask):
        raise DeclarationError(f"base={kind!r}: give a subclass of qbull.compat.celery.Task")
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, CeleryTask) and each is not CeleryTask:
            found.update({n: v for n, v in vars(each).items() if n in TASK_OPTION_NAMES})
    if is_base:
        found.pop("name", None)
    return found


def with_handlers(given: dict[str, Any], default_base: type) -> dict[str, Any]:
    """Turn handlers such as `@app.task(on_failure=…)` into methods of a class of their own."""
    handlers = {name: given[name] for name in given if name in HANDLER_OPTIONS}
    if not handlers:
        return given
    base = given.get("base") or default_base
    others = {name: value for name, value in given.items() if name not in handlers}
    return {**others, "base": type(base.__name__, (base,), handlers)}


def make_task(
    app: Celery, queue: Queue, spec: TaskSpec, traits: CeleryTaskOptions, made: CeleryTask | None
) -> CeleryTask:
    """Make the task of an app, or complete one that the user has made."""
    kind: Any = traits.base or app.Task
    task: CeleryTask = kind.__new__(kind) if made is None else made
    CeleryTask.__init__(task, app, queue, spec, traits)
    for name, value in traits.own_attributes.items():
        if hasattr(CeleryTask, name) or name in vars(task):
            raise DeclarationError(f"task({name}=…): a task has this attribute already; use another name")
        setattr(task, name, value)
    if made is None and kind.__init__ is not CeleryTask.__init__:
        kind.__init__(task)
    return task
