"""Calls: the jobs that a durable job calls, and how their outcomes come back.

A call starts with a record in the history of the caller. The same script writes the message that enqueues the
called job (lua/history_write.lua), so there is one job for each call. When it has ended, a message brings its
outcome to the data of the caller, and wakes the caller up. It stays there until the history has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from qbull.core.flow import COMPLETED_LETTER, WAITING_LETTER, Dependency, decode_dependency
from qbull.core.published import PublishedValue
from qbull.errors import JobCancelled, JobFailed

CALL_PREFIX = "call "
"""The start of a call's name in the history."""
CALL_FIELD = b"call:"
"""The start of the name under which the data of the caller has an outcome."""
SIGNALS_FIELD = b"signals"


class CalledJob(msgspec.Struct, array_like=True, frozen=True):
    """The job of a call. It is the content of the record with which the call starts."""

    name: str
    """The name of the call, which no other call has."""
    queue: str
    id: str
    task: str

    @property
    def shown(self) -> dict[str, str]:
        return {"queue": self.queue, "id": self.id}


class StartedCall(NamedTuple):
    """A new call: its name, the details of the job for its caller, and the message that enqueues it."""

    name: str
    told: bytes
    plan: bytes


class HistoryChange(NamedTuple):
    """New records of a history, and everything that changes together with them.

    Attributes:
        records: number and record of each.
        first, last: the records with these numbers and those between them are deleted; none if `first` is
            greater.
        taken: the number of the signal whose value the record has, or 0.
        joined: the name of the call whose outcome the record has, or "".
        call: the call that starts with the record.
        published: the value that the record publishes.
    """

    records: Sequence[tuple[int, bytes]]
    first: int = 1
    last: int = 0
    taken: int = 0
    joined: str = ""
    call: StartedCall | None = None
    published: PublishedValue | None = None


class CallOutcomes(NamedTuple):
    """Outcomes of calls by name, and the number of the newest signal or outcome that the job has got."""

    last: int
    outcomes: Mapping[str, bytes]


encode_called = msgspec.json.Encoder().encode
_decode_called = msgspec.json.Decoder(CalledJob).decode


def decode_called(content: bytes) -> CalledJob:
    """The job of a call. Raises ValueError if the record cannot be read."""
    try:
        return _decode_called(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"the start of a call cannot be read: {error}") from None


def read_outcomes(fields: Mapping[bytes, bytes]) -> CallOutcomes:
    """The outcomes in the data of a job."""
    last = int((fields.get(SIGNALS_FIELD) or b"0").partition(b" ")[0])
    found = {
        name.removeprefix(CALL_FIELD).decode(): stored
        for name, stored in fields.items()
        if name.startswith(CALL_FIELD) and stored[:1] != WAITING_LETTER.encode()
    }
    return CallOutcomes(last, found)


def decode_outcome(stored: bytes) -> tuple[str, Dependency]:
    """How a called job has ended, and its result or error. Raises ValueError if it cannot be read."""
    try:
        return chr(stored[0]), decode_dependency(stored[1:])
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"the outcome of a call cannot be read: {error}") from None


def failure_of(letter: str, told: Dependency) -> JobFailed | JobCancelled | None:
    """The error of a job that has ended with this letter (lua/lib/flow.lua); None if it has completed."""
    if letter == COMPLETED_LETTER:
        return None
    what = f'queue "{told.queue}": job {told.id}'
    if letter in "x-":
        return JobCancelled(f"{what} was cancelled: {told.error}")
    return JobFailed(f"{what} failed: {told.error}", error=told.error or "", stacktrace=told.stacktrace)
