"""Periodic tasks: entries of beat_schedule and calls of add_periodic_task, as schedules of qbull."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.crontab import rule_of
from qbull.compat.celery.instead import CELERY_GUIDE
from qbull.compat.celery.task import CeleryTask
from qbull.compat.refusal import refuse
from qbull.errors import ConfigError, DeclarationError
from qbull.task import Task

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

MAX_SCHEDULE_NAME_CHARS = 100


def schedule_name(name: str) -> str:
    """Return the name of an entry with the characters that a schedule may have in its name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:MAX_SCHEDULE_NAME_CHARS] or "schedule"


def declare_schedule(app: Celery, name: str, entry: Mapping[str, Any]) -> None:
    """Declare a schedule as an entry of beat_schedule describes it."""
    known = ("task", "schedule", "args", "kwargs", "options", "relative")
    refuse(
        f'beat_schedule "{name}": entry',
        {n: v for n, v in entry.items() if n not in known},
        {},
        ConfigError,
        CELERY_GUIDE,
    )
    options = dict(entry.get("options") or {})
    queue = options.pop("queue", None)
    instead = {
        "expires": 'runs do not pile up: overlap="skip"; remove it',
        "priority": "schedule another task that enqueues this one with the priority",
    }
    refuse(f'beat_schedule "{name}": options', options, instead, ConfigError, CELERY_GUIDE)
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
