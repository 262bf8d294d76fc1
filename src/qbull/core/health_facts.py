"""Health facts: the state of the queues and workers from which core/health.py makes its verdict.

store/read/health.py reads them. All times are milliseconds on the server's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from qbull.core.problems import AlertState


class PartitionFacts(msgspec.Struct, frozen=True):
    """One partition. `waiting` are its waiting jobs, `oldest_ms` is since when the oldest of them could run.

    `idle_ms` has the time since each worker last read the partition. It is empty if no job has waited long.
    `deliveries` has the number of jobs of this partition that each worker holds.
    """

    number: int
    waiting: int = 0
    oldest_ms: int | None = None
    idle_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    deliveries: Mapping[str, int] = msgspec.field(default_factory=dict)
    lease_owner: str | None = None


class ServingFacts(msgspec.Struct, frozen=True):
    """A live worker of a queue: its slots, and since when it reads each of its partitions.

    A `blocked` one reads nothing, because its event loop stands still.
    """

    slots: int
    partitions: frozenset[int] = frozenset()
    since_ms: Mapping[int, int] = msgspec.field(default_factory=dict)
    blocked: bool = False


class BlockedLane(msgspec.Struct, frozen=True):
    """A lane whose first job waits for its next attempt. `since_ms` is when that job first failed."""

    since_ms: int
    behind: int


class HaltedLanes(msgspec.Struct, frozen=True):
    """The lanes of a queue that are halted by a dead letter, and the number of jobs behind them."""

    keys: int = 0
    behind: int = 0
    since_ms: int = 0


class LateSchedule(msgspec.Struct, frozen=True):
    """A schedule that should have fired at `due_ms`."""

    name: str
    due_ms: int


class UnknownTask(msgspec.Struct, frozen=True):
    """A task that no live worker of the queue can run, and its waiting jobs. `demand` has the labels and
    resources that it asks for, if a live worker knows it.
    """

    task: str
    jobs: int
    since_ms: int
    demand: str = ""


class MinuteOutcomes(msgspec.Struct, frozen=True):
    """Attempts of one minute that succeeded and that failed, and the jobs that were enqueued in it."""

    at_ms: int
    succeeded: int = 0
    failed: int = 0
    enqueued: int = 0


class Pause(msgspec.Struct, frozen=True):
    """An operator has paused the queue."""

    since_ms: int
    by: str


class QueueFacts(msgspec.Struct, frozen=True):
    """One queue.

    Args:
        name: its name.
        stale_after: seconds that a job may wait, by the queue's alert.
        limited: a rate, max_active or a hold keeps jobs waiting on purpose.
        pause: set if the queue is paused.
        partitions: those that may have unfinished jobs.
        workers: its live workers that are not leaving, by id.
        blocked: lanes whose first job waits for its next attempt.
        halted: lanes that are halted by a dead letter.
        late: schedules that should have fired.
        unknown: tasks that no live worker knows.
        minutes: the last minutes, the oldest first.
        kept: how many completed jobs the queue keeps, in all partitions; None without a bound.
        kept_seconds: for how long it keeps them; None without a bound.
        succeeded: all attempts that have ever succeeded.
        failed: all attempts that have ever failed.
    """

    name: str
    stale_after: float | None = None
    limited: bool = False
    pause: Pause | None = None
    partitions: tuple[PartitionFacts, ...] = ()
    workers: Mapping[str, ServingFacts] = msgspec.field(default_factory=dict)
    blocked: tuple[BlockedLane, ...] = ()
    halted: HaltedLanes = HaltedLanes()
    late: tuple[LateSchedule, ...] = ()
    unknown: tuple[UnknownTask, ...] = ()
    minutes: tuple[MinuteOutcomes, ...] = ()
    kept: int | None = None
    kept_seconds: float | None = None
    succeeded: int = 0
    failed: int = 0

    def held_jobs(self) -> Counter[str]:
        """How many jobs of this queue each worker has."""
        held: Counter[str] = Counter()
        for one in self.partitions:
            held.update(one.deliveries)
        return held


class LimitFacts(msgspec.Struct, frozen=True):
    """A shared limit.

    Args:
        name: its name.
        waiting: jobs that wait for it.
        since_ms: when the first of them started to wait; None if none waits.
        is_spent: whether the budget of the day is used up.
        declarations: the different values with which the code of live workers declares it.
    """

    name: str
    waiting: int = 0
    since_ms: int | None = None
    is_spent: bool = False
    declarations: tuple[str, ...] = ()


class LostWorker(msgspec.Struct, frozen=True):
    """A worker that died, or whose heartbeats have stopped."""

    worker: str
    host: str
    at_ms: int


class HealthFacts(msgspec.Struct, frozen=True):
    """All queues and workers of an app. `started_ms` has the start of each live worker.

    `unreadable` has the queues whose settings on the server cannot be read.
    """

    now_ms: int
    queues: tuple[QueueFacts, ...] = ()
    unreadable: tuple[str, ...] = ()
    started_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    lost: tuple[LostWorker, ...] = ()
    alerts: AlertState = msgspec.field(default_factory=AlertState)
    limits: tuple[LimitFacts, ...] = ()
