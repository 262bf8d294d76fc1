"""Shapes of the fleet: workers, and the server that keeps the jobs."""

from __future__ import annotations

from qbull.core.layout import index_in_generation
from qbull.store.verbs.workers import RegisteredWorker
from qbull.views.shape import AnswerShape, Shape, view_of


class ServingView(Shape, kw_only=True):
    """What a worker does for one queue: how many jobs at a time, which partitions it reads."""

    concurrency: int
    partitions: list[int]
    sharing: str
    leaving: bool


class WorkerView(Shape, kw_only=True):
    """A live worker process. `pod` is the parent that it shares with others, or itself."""

    id: str
    host: str
    pid: int
    pod: str
    queues: dict[str, ServingView]

    @classmethod
    def of(cls, id: str, worker: RegisteredWorker) -> WorkerView:
        return view_of(
            cls,
            worker,
            id=id,
            pod=worker.pod or id,
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
    """What a worker has at the moment."""

    queue: str
    id: str
    task: str
    key: str | None
    partition: int
    worker: str


class RunningView(AnswerShape, kw_only=True):
    """What the workers have, up to a bound; `more` says that there are others."""

    jobs: list[RunningJobView]
    more: bool


class ServerView(Shape, kw_only=True):
    """One primary: what it is, what it uses, and how it keeps what it has."""

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
    """`durability` is how safe a job is when an enqueue was answered; null is as safe as the server's settings make it."""

    app: str
    version: str
    python: str
    topology: str
    durability: str | None
    servers: list[ServerView]
    clock_skew_ms: float
