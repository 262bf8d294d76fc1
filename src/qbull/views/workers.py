"""Shapes of workers and job servers."""

from __future__ import annotations

from qbull.core.layout import index_in_generation
from qbull.core.record import to_datetime
from qbull.store.verbs.workers import RegisteredWorker
from qbull.views.shape import AnswerShape, Instant, Shape, view_of


class ServingView(Shape, kw_only=True):
    """A worker's part in one queue: how many jobs it runs concurrently, and the partitions that it reads."""

    concurrency: int
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
    while its event loop runs.
    """

    id: str
    host: str
    pid: int
    pod: str
    queues: dict[str, ServingView]
    blocked: BlockedLoopView | None

    @classmethod
    def of(cls, id: str, worker: RegisteredWorker) -> WorkerView:
        return view_of(
            cls,
            worker,
            id=id,
            pod=worker.pod or id,
            blocked=BlockedLoopView(since=to_datetime(worker.blocked_since_ms), tasks=worker.blocked_by)
            if worker.blocked
            else None,
            queues={
                name: view_of(
                    ServingView,
                    serving,
                    partitions=sorted({index_in_generation(number) for number in serving.partitions}),
                )
                for name, serving in sorted(worker.queues.items())
            },
        )


class WorkersView(AnswerShape, kw_only=True):
    workers: list[WorkerView]


class RunningJobView(Shape, kw_only=True):
    """A running job."""

    queue: str
    id: str
    task: str
    key: str | None
    partition: int
    worker: str


class RunningView(AnswerShape, kw_only=True):
    """The running jobs, up to a limit; `more` if there are others."""

    jobs: list[RunningJobView]
    more: bool


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
