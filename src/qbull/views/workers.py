"""Shapes of the fleet: workers, and the server that keeps the jobs."""

from __future__ import annotations

from qbull.views.shape import Said, Shape


class Serving(Shape, kw_only=True):
    """What a worker does for one queue: how many jobs at a time, which partitions it reads."""

    concurrency: int
    partitions: list[int]
    sharing: str
    leaving: bool


class Worker(Shape, kw_only=True):
    """A live worker process. `pod` is the parent that it shares with others, or itself."""

    id: str
    host: str
    pid: int
    pod: str
    queues: dict[str, Serving]


class Workers(Said, kw_only=True):
    workers: list[Worker]


class RunningJob(Shape, kw_only=True):
    """What a worker has at the moment."""

    queue: str
    id: str
    task: str
    key: str | None
    partition: int
    worker: str


class Running(Said, kw_only=True):
    """What the workers have, up to a bound; `more` says that there are others."""

    jobs: list[RunningJob]
    more: bool


class Server(Shape, kw_only=True):
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


class System(Said, kw_only=True):
    """`durability` is how safe a job is when an enqueue was answered; null is as safe as the server's settings make it."""

    app: str
    version: str
    python: str
    topology: str
    durability: str | None
    servers: list[Server]
    clock_skew_ms: float
