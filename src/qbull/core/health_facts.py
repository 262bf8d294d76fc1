"""Health facts: the state of the queues and workers from which core/health.py makes its verdict.

store/read/health.py reads them. All times are milliseconds on the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbull.core.problems import AlertState


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. `waiting` are its waiting jobs, `oldest_ms` is since when the oldest of them could run.

    `idle_ms` has the time since each worker last read the partition. It is empty if no job has waited long.
    `deliveries` has the number of jobs of this partition that each worker holds.
    """

    number: int
    waiting: int = 0
    oldest_ms: int | None = None
    idle_ms: Mapping[str, int] = field(default_factory=dict)
    deliveries: Mapping[str, int] = field(default_factory=dict)
    lease_owner: str | None = None


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """A live worker of a queue: its slots, and since when it reads each of its partitions.

    A `blocked` one reads nothing, because its event loop stands still.
    """

    slots: int
    partitions: frozenset[int] = frozenset()
    since_ms: Mapping[int, int] = field(default_factory=dict)
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class BlockedLane:
    """A lane whose first job waits for its next attempt. `since_ms` is when that job first failed."""

    since_ms: int
    behind: int


@dataclass(frozen=True, slots=True)
class HaltedLanes:
    """The lanes of a queue that are halted by a dead letter, and the number of jobs behind them."""

    keys: int = 0
    behind: int = 0
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class LateSchedule:
    """A schedule that should have fired at `due_ms`."""

    name: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """A task that no live worker of the queue can run, and its waiting jobs. `demand` has the labels and
    resources that it asks for, if a live worker knows it.
    """

    task: str
    jobs: int
    since_ms: int
    demand: str = ""


@dataclass(frozen=True, slots=True)
class MinuteOutcomes:
    """Attempts of one minute that succeeded and that failed, and the jobs that were enqueued in it."""

    at_ms: int
    succeeded: int = 0
    failed: int = 0
    enqueued: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator has paused the queue."""

    since_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
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
    workers: Mapping[str, ServingFacts] = field(default_factory=dict)
    blocked: tuple[BlockedLane, ...] = ()
    halted: HaltedLanes = HaltedLanes()
    late: tuple[LateSchedule, ...] = ()
    unknown: tuple[UnknownTask, ...] = ()
    minutes: tuple[MinuteOutcomes, ...] = ()
    kept: int | None = None
    kept_seconds: float | None = None
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class LimitFacts:
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


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that died, or whose heartbeats have stopped."""

    worker: str
    host: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """All queues and workers of an app. `started_ms` has the start of each live worker.

    `unreadable` has the queues whose settings on the server cannot be read.
    """

    now_ms: int
    queues: tuple[QueueFacts, ...] = ()
    unreadable: tuple[str, ...] = ()
    started_ms: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[LostWorker, ...] = ()
    alerts: AlertState = field(default_factory=AlertState)
    limits: tuple[LimitFacts, ...] = ()
