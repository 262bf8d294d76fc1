"""States that a Celery task reports while it runs: `self.update_state(state="PROGRESS", meta={…})`.

A state is a line in the log of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from qbull.compat.exact_values import as_it_was, with_types
from qbull.errors import ArgumentsError, PayloadError
from qbull.store.verbs.progress import MAX_LOG_LINE_CHARS, LogLine
from qbull.worker.current import current_job

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask

STATE_LINE_START = "celery state "
STATE_LOOKBACK_LINES = 100
"""How many of the last log lines are searched for a state."""


class ReportedState(NamedTuple):
    """A state that a running task has reported."""

    state: str
    meta: Any


def report_state(task: CeleryTask, task_id: str | None, state: str | None, meta: Any) -> None:
    """Log the state of the running job. A task that runs without a job reports nothing."""
    request = task.request
    if request.called_directly or request.is_eager:
        return
    if task_id is not None and task_id != request.id:
        raise ArgumentsError(f"update_state(task_id={task_id!r}): a task reports only its own state")
    try:
        text = msgspec.json.encode([state or "PENDING", with_types(meta)]).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise PayloadError(f"update_state: meta cannot be encoded: {error}") from None
    if len(STATE_LINE_START) + len(text) > MAX_LOG_LINE_CHARS:
        raise PayloadError(
            f"update_state: meta takes {len(text):,} characters, the limit is about {MAX_LOG_LINE_CHARS:,}; "
            "store the data elsewhere and report a reference"
        )
    job = current_job()
    counts = _counts_in(meta)
    if counts is not None:
        job.progress_sync(*counts)
    job._log_soon(STATE_LINE_START + text)


def reported_in(lines: Sequence[LogLine], attempt: int) -> ReportedState | None:
    """Return the last state among the log lines of an attempt."""
    for line in reversed(lines):
        if line.attempt == attempt and line.text.startswith(STATE_LINE_START):
            state, meta = msgspec.json.decode(line.text.removeprefix(STATE_LINE_START))
            return ReportedState(state, as_it_was(meta))
    return None


def _counts_in(meta: Any) -> tuple[float, float] | None:
    if not isinstance(meta, Mapping):
        return None
    done, total = meta.get("current"), meta.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float):
        return None
    return (done, total) if 0 <= done <= total and 0 < total < inf else None
