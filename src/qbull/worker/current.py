"""The job that is running here: what a task can ask about itself."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from qbull.core.ids import planned_in
from qbull.core.job import TickBody, created_ms_of, moment
from qbull.errors import NotFound
from qbull.store.partition import Partition


class Running:
    """Kept by the runner for each job; turned into a CurrentJob only when a task asks.

    `lane` is that of the train that it is in; `app` is said where it has no partition, in a process of its own.
    `cancelled` says why it was cancelled, `stopped` that nobody waits for its outcome any more.
    """

    __slots__ = ("app", "body", "cancelled", "id", "lane", "partition", "place", "queue", "record", "stopped")

    def __init__(
        self,
        queue: str,
        partition: Partition | None,
        place: bytes,
        id: bytes,
        record: bytes,
        body: TickBody,
        lane: bytes = b"",
        app: str = "",
    ) -> None:
        self.queue = queue
        self.partition = partition
        self.place = place
        self.id = id
        self.record = record
        self.body = body
        self.lane = lane
        self.app = app
        self.cancelled: str | None = None
        self.stopped = False


running: ContextVar[Running | None] = ContextVar("qbull_running", default=None)


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """`fence` rises with every delivery, so other stores can refuse a write with an older one.

    `schedule` is the schedule that asked for it, and `planned_at` the instant it was planned for, where it is a tick's.
    `cancelled` turns true when the job was cancelled, has run into its timeout, or its worker stops.
    """

    id: str
    queue: str
    task: str
    key: str | None
    attempt: int
    fence: int
    enqueued_at: datetime
    schedule: str | None
    planned_at: datetime | None
    _running: Running = field(repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Is there no use in going on? A plain function cannot be interrupted, but it can ask."""
        return self._running.stopped


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
        _running=now,
    )
