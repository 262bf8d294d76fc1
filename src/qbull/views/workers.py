"""Shapes of workers and job servers."""

from __future__ import annotations

from collections.abc import Mapping

from qbull.core.layout import index_in_generation
from qbull.core.record import to_datetime
from qbull.store.verbs.workers import ProcessUsage, RegisteredWorker
from qbull.views.shape import AnswerShape, Instant, Shape, instant, view_of


class ServingView(Shape, kw_only=True):
    """A worker's part in one queue: how many jobs it runs concurrently, how many it has now, and the
    partitions that it reads.
    """

    concurrency: int
    busy: int
    partitions: list[int]
    sharing: str
    leaving: bool


class BlockedLoopView(Shape, kw_only=True):
    """A worker whose event loop stands still: since when, and the task that blocks it, or all that it may
    be.
    """

    since: Instant
    tasks: list[str]


class WorkerView(Shape, kw_only=True):
    """A live worker process. `pod` is the supervisor that it shares with others, or itself. `blocked` is null
    while its event loop runs. `version` is empty and `started_at` null for workers of older releases.
    `resources` has the number of tokens that all workers on its host share. `memory_bytes` and `cpu_percent`
    (of one core) are those of the process and its child processes as of its last heartbeat; null if unknown.
    """

    id: str
    host: str
    pid: int
    pod: str
    version: str
    started_at: Instant | None
    queues: dict[str, ServingView]
    blocked: BlockedLoopView | None
    labels: dict[str, str]
    resources: dict[str, int]
    memory_bytes: int | None
    cpu_percent: float | None

    @classmethod
    def of(
        cls,
        id: str,
        worker: RegisteredWorker,
        usage: ProcessUsage | None,
        busy: Mapping[str, Mapping[str, int]],
    ) -> WorkerView:
        """`busy` has the number of jobs by queue and worker."""
        return view_of(
            cls,
            worker,
            id=id,
            started_at=instant(worker.started_ms or None),
            pod=worker.pod or id,
            memory_bytes=None if usage is None else usage.memory_bytes,
            cpu_percent=None if usage is None else usage.cpu_percent,
            blocked=BlockedLoopView(since=to_datetime(worker.blocked_since_ms), tasks=worker.blocked_by)
            if worker.blocked
            else None,
            queues={
                name: view_of(
                    ServingView,
                    serving,
                    busy=busy.get(name, {}).get(id, 0),
                    partitions=sorted({index_in_generation(number) for number in serving.partitions}),
                )
                for name, serving in sorted(worker.queues.items())
            },
        )


class LostWorkerView(Shape, kw_only=True):
    """A worker of the last day that died, or whose heartbeats have stopped."""

    id: str
    host: str
    pid: int
    version: str
    started_at: Instant | None
    lost_at: Instant
    queues: list[str]


class WorkersView(AnswerShape, kw_only=True):
    """The live workers, and those lost within a day, the newest first."""

    workers: list[WorkerView]
    lost: list[LostWorkerView]


class RunningJobView(Shape, kw_only=True):
    """A running job. `started_at` is when its worker got it."""

    queue: str
    id: str
    task: str
    key: str | None
    partition: int
    worker: str
    attempt: int
    progress: float | None
    started_at: Instant | None


class RunningView(AnswerShape, kw_only=True):
    """The running jobs, the longest first, up to a limit; `more` if there are others, `total` is how many
    there are.
    """

    jobs: list[RunningJobView]
    more: bool
    total: int


class ServerView(Shape, kw_only=True):
    """One primary: version, memory, persistence and load."""

    address: str
    product: str
    version: str
    uptime_seconds: int
    used_memory: int
    max_memory: int
    eviction: str
    append_only: bool
    fsync: str | None
    replicas: int
    connected_clients: int
    commands_per_second: int
    last_save_ok: bool


class SystemView(AnswerShape, kw_only=True):
    """The job servers. `durability` is the profile in force when an enqueue returns; null: as the server is
    configured.
    """

    app: str
    version: str
    python: str
    topology: str
    durability: str | None
    servers: list[ServerView]
    clock_skew_ms: float
