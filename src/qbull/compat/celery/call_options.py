"""The options of `apply_async` and of `self.retry`."""

from __future__ import annotations

from qbull.compat.celery.instead import CELERY_CALL_HINTS, CELERY_RETRY_HINTS
from qbull.compat.celery.support import UNLISTED_NAME, WORKS, Support, differs, refused

CALL_OPTIONS = frozenset(
    (
        "task_id",
        "countdown",
        "eta",
        "queue",
        "priority",
        "expires",
        "time_limit",
        "soft_time_limit",
        "headers",
    )
)
"""Options of `apply_async` that each job has."""
CALLBACK_OPTIONS = ("link", "link_error")
"""Options that a canvas has."""
UNUSED_CALL_OPTIONS = {
    "compression": "has no effect; use App(middleware=[qbull.Compressed()])",
    "retry": "has no effect: an enqueue is retried for up to 10 s",
    "retry_policy": "has no effect: an enqueue is retried for up to 10 s",
    "add_to_parent": "has no effect: a job does not know which jobs it has enqueued",
}
"""Options that change no job, each with the reason."""
RETRY_OPTIONS = frozenset(("exc", "countdown", "eta", "max_retries"))
"""Options of `self.retry`."""


def call_option_support(name: str) -> Support:
    """How far an option of `apply_async` is kept."""
    if name in CALL_OPTIONS or name in CALLBACK_OPTIONS or name in ("args", "kwargs"):
        return WORKS
    if name in UNUSED_CALL_OPTIONS:
        return differs(UNUSED_CALL_OPTIONS[name])
    return refused(CELERY_CALL_HINTS.get(name, UNLISTED_NAME))


def retry_option_support(name: str) -> Support:
    """How far an option of `self.retry` is kept."""
    if name in RETRY_OPTIONS:
        return WORKS
    return refused(CELERY_RETRY_HINTS.get(name, UNLISTED_NAME))
