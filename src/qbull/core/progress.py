"""Progress: how far a job is, as its task reports it and as the server stores it.

The stored form is a text: the percentage, then the number that is done and the total, then the note. Parts
that are missing at the end are left out, so that a percentage alone is a number.
"""

from __future__ import annotations

from typing import NamedTuple

from qbull.errors import ArgumentsError

MAX_NOTE_CHARS = 200


class Progress(NamedTuple):
    """How far a job is. `done` and `total` are in a unit of the task; both are None for a percentage."""

    percent: float
    done: float | None = None
    total: float | None = None
    note: str | None = None

    def packed(self) -> str:
        """The stored form."""
        text = f"{self.percent:g}"
        if self.done is None and self.note is None:
            return text
        counts = "- -" if self.done is None else f"{self.done!r} {self.total!r}"
        return f"{text} {counts}" if self.note is None else f"{text} {counts} {self.note}"

    def shown(self) -> str:
        """For people: `25 % (5 of 20), reading rows`."""
        text = f"{self.percent:.3g} %"
        if self.done is not None and self.total is not None:
            text += f" ({_number(self.done):,} of {_number(self.total):,})"
        return text if self.note is None else f"{text}, {self.note}"


def make_progress(done: float, total: float | None = None, note: str | None = None) -> Progress:
    """Check a report of a task. Without a total, `done` is a percentage."""
    if note is not None:
        note = str(note)[:MAX_NOTE_CHARS].encode("utf-8", "replace").decode() or None
    if total is None:
        if not _is_number(done) or not 0 <= done <= 100:
            raise ArgumentsError(f"progress {done!r}: give a number from 0 to 100, or a number and a total")
        return Progress(done, None, None, note)
    if not _is_number(total) or not 0 < total < float("inf"):
        raise ArgumentsError(f"progress: total={total!r}: give a number that is more than 0")
    if not _is_number(done) or not 0 <= done <= total:
        raise ArgumentsError(f"progress {done!r} of {total!r}: give a number from 0 to {total!r}")
    return Progress(100 * done / total, done, total, note)


def read_progress(stored: bytes) -> Progress | None:
    """The progress from its stored form; None if the job has reported none."""
    if not stored:
        return None
    percent, *rest = stored.decode("utf-8", "replace").split(" ", 3)
    done, total, note = (*rest, None, None, None)[:3]
    return Progress(
        _number(float(percent)),
        None if done in (None, "-") else _number(float(done)),
        None if total in (None, "-") else _number(float(total)),
        note,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value
