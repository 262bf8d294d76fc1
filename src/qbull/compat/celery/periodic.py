"""Periodic tasks: entries of beat_schedule and calls of add_periodic_task, as schedules of qbull."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.crontab import rule_of
from qbull.compat.celery.instead import CELERY_GUIDE
from qbull.compat.celery.support import UNLISTED_NAME, WORKS, Support, differs, refused
from qbull.compat.celery.task import CeleryTask
from qbull.compat.refusal import refuse
from qbull.errors import ConfigError, DeclarationError
from qbull.task import Task

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

MAX_SCHEDULE_NAME_CHARS = 100
ENTRY_FIELDS = ("task", "schedule", "args", "kwargs", "options", "relative")
UNUSED_ENTRY_OPTIONS = {
    "expires": "has no effect: a schedule does not run again while its last job waits",
    "expire_seconds": "has no effect: a schedule does not run again while its last job waits",
    "compression": "has no effect; use App(middleware=[qbull.Compressed()])",
    "ignore_result": "has no effect here; set it on the task",
}
"""Options of an entry that change no job, each with the reason."""
CELERY_ENTRY_HINTS = {"priority": "schedule another task that enqueues this one with the priority"}
"""Options of an entry that are refused."""


def schedule_name(name: str) -> str:
    """Return the name of an entry with the characters that a schedule may have in its name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:MAX_SCHEDULE_NAME_CHARS] or "schedule"


def entry_option_support(name: str) -> Support:
    """How far an option of an entry of beat_schedule is kept."""
    if name == "queue":
        return WORKS
    if name in UNUSED_ENTRY_OPTIONS:
        return differs(UNUSED_ENTRY_OPTIONS[name])
    return refused(CELERY_ENTRY_HINTS.get(name, UNLISTED_NAME))


def declare_schedule(app: Celery, name: str, entry: Mapping[str, Any]) -> None:
    """Declare a schedule as an entry of beat_schedule describes it."""
    refuse(
        f'beat_schedule "{name}": entry',
        {n: v for n, v in entry.items() if n not in ENTRY_FIELDS},
        {},
        ConfigError,
        CELERY_GUIDE,
    )
    options = dict(entry.get("options") or {})
    queue = options.get("queue")
    unkept = {n: v for n, v in options.items() if entry_option_support(n).level == "refused"}
    refuse(f'beat_schedule "{name}": options', unkept, CELERY_ENTRY_HINTS, ConfigError, CELERY_GUIDE)
    if entry.get("relative"):
        raise ConfigError(f'beat_schedule "{name}": relative=True: all workers use the same times; remove it')
    for needed in ("task", "schedule"):
        if needed not in entry:
            raise ConfigError(f'beat_schedule "{name}": it has no "{needed}"')
    if entry["task"] not in app.tasks:
        raise DeclarationError(
            f'beat_schedule "{name}": no task "{entry["task"]}" is declared; '
            f"declared tasks: {', '.join(sorted(app.tasks)) or 'none'}"
        )
    task = app.tasks[entry["task"]]
    home = app.home_of(task.name, queue or task.traits.queue)
    arguments = _by_name(name, task, entry.get("args") or (), entry.get("kwargs") or {})
    rule = rule_of(name, entry["schedule"], app.conf.zone)
    app.declared[schedule_name(name)] = Task(home, home.tasks[task.name]).schedule(
        schedule_name(name), rule, arguments
    )


def _by_name(
    name: str, task: CeleryTask, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    try:
        return inspect.signature(task.spec.function).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise DeclarationError(f'beat_schedule "{name}": task "{task.name}": {error}') from None
