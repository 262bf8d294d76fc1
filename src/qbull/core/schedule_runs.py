"""Schedule runs: the newest runs of a schedule with their outcomes. The server keeps 30 of each schedule.

A run outlives its job: a nightly report that completed three weeks ago is still here, though its job is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from qbull.core.digits import whole_number
from qbull.core.record import State, to_datetime

RunOutcome = Literal[State, "skipped", "missed"]
"""The state of a run's job. A run is "skipped" if the one before had not ended, and "missed" if no worker was
there in time: these two have no job.
"""

OUTCOME_LETTERS: dict[str, RunOutcome] = {
    "c": "completed",
    "f": "failed",
    "x": "cancelled",
    "s": "skipped",
    "m": "missed",
}


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a schedule.

    Args:
        job_id: the id of its job; None if it has none.
        fired_at: when it started, or should have.
        outcome: how it ended, or the state of its job; None if the job has left nothing behind.
        duration_ms: milliseconds that its last attempt took, if it has ended.
    """

    job_id: str | None
    fired_at: datetime
    outcome: RunOutcome | None
    duration_ms: float | None


class EndedRun(NamedTuple):
    """The end of a run, as a worker notes it."""

    schedule: str
    id: bytes
    letter: str
    duration_ms: float


def read_runs(packed: str | None) -> list[PastRun]:
    """The runs as the server has them (store/lua/lib/schedule_runs.lua), the newest first.

    Lines that cannot be read are left out: another version may have written them.
    """
    found = []
    for line in reversed((packed or "").splitlines()):
        at_ms, id, letter, duration = (line.split(" ") + [""] * 4)[:4]
        if (fired_ms := whole_number(at_ms)) is not None:
            outcome = OUTCOME_LETTERS.get(letter)
            has_job = outcome not in ("skipped", "missed")
            took = float(duration or 0) if has_job and outcome is not None else None
            found.append(PastRun(id if has_job else None, to_datetime(fired_ms), outcome, took))
    return found
