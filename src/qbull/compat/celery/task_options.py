"""The options of `@app.task` and the priorities of Celery."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from qbull.compat.celery.instead import CELERY_GUIDE, CELERY_RETRY_HINTS, CELERY_TASK_HINTS
from qbull.compat.celery.support import UNLISTED_NAME, UNREADABLE, WORKS, Support, differs, refused
from qbull.compat.refusal import refuse
from qbull.errors import ArgumentsError, DeclarationError

FIXED_TASK_OPTIONS = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "track_started": True,
    "store_errors_even_if_ignored": True,
    "serializer": "json",
    "shared": True,
    "lazy": True,
}
"""Options with only one possible value, because qbull always behaves so; other values are refused."""
HANDLER_OPTIONS = frozenset(("before_start", "on_success", "on_failure", "on_retry", "after_return"))
"""Options that become methods of the task, as in Celery."""
UNUSED_TASK_OPTIONS = {
    "throws": "has no effect: these errors are logged like others",
    "compression": "has no effect; use App(middleware=[qbull.Compressed()])",
    "send_events": "has no effect: events are always on",
    "trail": "has no effect: a job does not know which jobs it has enqueued",
    "typing": "has no effect: arguments are always checked against the signature",
    "abstract": "has no effect: a class is a task only if it is registered",
}
"""Options that change no job, each with the reason."""
UNSUPPORTED_TASK_OPTIONS = frozenset(
    (
        "acks_on_failure",
        "acks_on_timeout",
        "autoregister",
        "delivery_mode",
        "from_config",
        "immediate",
        "mandatory",
        "options",
        "pydantic_context",
        "pydantic_dump_kwargs",
        "pydantic_strict",
        "Request",
        "request_stack",
        "resultrepr_maxsize",
        "retry_on_worker_lost",
        "Strategy",
    )
)
"""Options of Celery without a counterpart and without a hint."""
MIN_SIMILARITY_RATIO = 0.85
DIFFERENT_TASK_OPTIONS = {
    "soft_time_limit": "raises before the next line of Python; a blocking call returns first",
}
"""Options that are kept with a difference."""


@dataclass(frozen=True)
class CeleryTaskOptions:
    """The keywords of `@app.task` that are supported here."""

    name: str = ""
    bind: bool = False
    queue: str | None = None
    priority: int | None = None
    expires: float | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    ignore_result: bool = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    retry_kwargs: Mapping[str, Any] | None = None
    retry_backoff: bool | float = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    pydantic: bool = False
    base: type | None = None
    own_attributes: Mapping[str, Any] = field(default_factory=dict)
    """Options that Celery does not know: it makes them attributes of the task."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CeleryTaskOptions:
        supports = {name: task_option_support(name, value) for name, value in given.items()}
        left = {name: each.note for name, each in supports.items() if each.level == "refused"}
        refuse("task", left, left, DeclarationError, CELERY_GUIDE)
        options = cls(
            **{name: value for name, value in given.items() if name in SUPPORTED_TASK_OPTIONS},
            own_attributes={n: v for n, v in given.items() if n not in CELERY_TASK_OPTIONS},
        )
        refuse(
            "task(retry_kwargs): retry",
            {n: v for n, v in (options.retry_kwargs or {}).items() if n not in ("max_retries", "countdown")},
            CELERY_RETRY_HINTS,
            DeclarationError,
            CELERY_GUIDE,
        )
        return options

    @property
    def has_self(self) -> bool:
        """Whether the function gets the task. It may leave its work to other jobs then: `self.replace(…)`."""
        return self.bind or self.base is not None

    def wait_after(self, retries: int) -> float | None:
        """Return the seconds before the next run; None without a backoff."""
        if not self.retry_backoff:
            return None
        wait = min(self.retry_backoff_max, int(max(1.0, float(self.retry_backoff))) * 2 ** min(retries, 64))
        # The random wait spreads retries; it is no secret.
        return random.randrange(wait + 1) if self.retry_jitter else wait  # noqa: S311


def task_option_support(name: str, value: Any = UNREADABLE) -> Support:
    """How far an option of `@app.task` is kept."""
    if name in DIFFERENT_TASK_OPTIONS:
        return differs(DIFFERENT_TASK_OPTIONS[name])
    if name in UNUSED_TASK_OPTIONS:
        return differs(UNUSED_TASK_OPTIONS[name])
    if name in HANDLER_OPTIONS or name in SUPPORTED_TASK_OPTIONS:
        return WORKS
    if name in FIXED_TASK_OPTIONS and (value is UNREADABLE or value == FIXED_TASK_OPTIONS[name]):
        return WORKS
    if name in CELERY_TASK_OPTIONS:
        return refused(CELERY_TASK_HINTS.get(name, UNLISTED_NAME))
    similar = get_close_matches(name, CELERY_TASK_OPTIONS, 1, MIN_SIMILARITY_RATIO)
    return refused(f"there is no such option; did you mean {similar[0]}?") if similar else WORKS


SUPPORTED_TASK_OPTIONS = frozenset(each.name for each in fields(CeleryTaskOptions)) - {"own_attributes"}
CELERY_TASK_OPTIONS = frozenset(
    (
        *SUPPORTED_TASK_OPTIONS,
        *HANDLER_OPTIONS,
        *FIXED_TASK_OPTIONS,
        *UNUSED_TASK_OPTIONS,
        *UNSUPPORTED_TASK_OPTIONS,
        *CELERY_TASK_HINTS,
    )
)
"""The options that Celery knows. Any other one becomes an attribute of the task."""


def celery_priority_of(priority: int) -> int:
    """Convert a priority of qbull to Celery's. The steps 0, 3, 6 and 9 come back as they were."""
    return {6: 2, 7: 3, 8: 6, 9: 8, 10: 9}.get(priority, 0)


def priority_of(celery: int | None) -> int:
    """Convert a priority. Celery on Redis has 0 (first, the default) to 9; qbull has 1 (first) to 10, 5 by
    default.

    Celery's default becomes qbull's default, so jobs without a priority mix with those of qbull's own tasks.
    Celery's four steps 0, 3, 6 and 9 stay distinct.
    """
    if celery is None:
        return 5
    if not 0 <= celery <= 9:
        raise ArgumentsError(f"priority={celery}: give a whole number from 0 (first) to 9 (last)")
    return 5 + (celery + 1) // 2
