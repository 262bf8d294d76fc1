"""The job that is running here: what a task can ask about itself."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from qbull.core.job import TickBody, created_ms_of, moment
from qbull.core.schedule import planned_in
from qbull.errors import NotFound
from qbull.store.partition import Partition


class Running(NamedTuple):
    """Kept by the runner for each job; turned into a CurrentJob only when a task asks."""

    queue: str
    partition: Partition | None
    place: bytes
    id: bytes
    record: bytes
    body: TickBody
    lane: bytes = b""
    """Of the train that it is in."""
    app: str = ""
    """Said where it has no partition, in a process of its own."""


running: ContextVar[Running | None] = ContextVar("qbull_running", default=None)


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """`fence` rises with every delivery, so other stores can refuse a write with an older one.

    `schedule` is the schedule that asked for it, and `planned_at` the instant it was planned for, where it is a tick's.
    """

    id: str
    queue: str
    task: str
    key: str | None
    attempt: int
    fence: int
    enqueued_at: datetime
    schedule: str | None = None
    planned_at: datetime | None = None


def entry_ms(place: bytes) -> int:
    """The time of the entry, on the server's clock."""
    return int(place[1:].partition(b"-")[0])


def fence_of(place: bytes) -> int:
    """The entry `<milliseconds>-<sequence>` as one number that fits 64 bits and rises with it."""
    milliseconds, _, sequence = place[1:].partition(b"-")
    return int(milliseconds) << 20 | min(int(sequence), 0xFFFFF)


def current_job() -> CurrentJob:
    """The job whose task is running now."""
    now = running.get()
    if now is None:
        raise NotFound("no job is running here; current_job() is for code inside a task")
    return CurrentJob(
        id=now.id.decode(),
        queue=now.queue,
        task=now.body.task,
        key=now.body.key,
        attempt=now.body.attempt,
        fence=fence_of(now.place),
        enqueued_at=moment(created_ms_of(now.record) or entry_ms(now.place)),
        schedule=now.body.schedule,
        planned_at=planned_in(now.id.decode()) if now.body.schedule is not None else None,
    )
