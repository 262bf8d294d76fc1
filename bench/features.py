"""The features that the bench measures: how each is declared and enqueued, and its goal.

A row is a queue with one task in an app of its own. Its rate is compared with that of another row, most often of
plain asynchronous jobs, measured right before it.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from psycopg_pool import AsyncConnectionPool

import qbull
import qbull.postgres
from bench.contestant import TEXT, Call
from qbull import App, Task

CONCURRENCY = 50
CHUNK = 1000
GROUP_SIZE = 10
STEPS = 20
TEXT_1K = "x" * 1_000
LARGE_TEXT = "x" * 10_000
KEYS = [base64.b64encode(bytes(32)).decode()]
PREFIX = "bench"

What = Literal["drain", "enqueue", "await", "http", "outbox_enqueue", "outbox", "inbox", "track"]
Fill = Callable[[Task[..., Any], Sequence[Call]], Awaitable[None]]


class TwoHooks(qbull.Middleware):
    """Middleware as people write it: one hook around the enqueue and one around the run."""

    @contextmanager
    def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
        call.headers["tenant"] = "t1"
        yield

    @contextmanager
    def around_run(self, job: qbull.CurrentJob) -> Iterator[None]:
        yield


class FirstStart:
    """Says on standard output when the first job of this process has started."""

    is_said = False

    def say(self) -> None:
        if not self.is_said:
            self.is_said = True
            print(time.monotonic(), flush=True)


first_start = FirstStart()


async def noop(n: int, key: str, text: str) -> None: ...


def plain_function(n: int, key: str, text: str) -> None: ...


async def fails_once(n: int, key: str, text: str) -> None:
    if qbull.current_job().attempt == 1:
        first_start.say()
        raise ConnectionError("the first attempt fails")


async def reports(n: int, key: str, text: str) -> None:
    job = qbull.current_job()
    await job.progress(50)
    await job.log("half of it")


@cache
def effect_pool() -> AsyncConnectionPool:
    return AsyncConnectionPool(os.environ["BENCH_DATABASE"], min_size=1, max_size=20, open=False)


async def has_effect(n: int, key: str, text: str) -> None:
    pool = effect_pool()
    await pool.open()
    async with qbull.postgres.once(pool) as connection:
        await connection.execute("INSERT INTO effects VALUES (%s)", (n,))


async def one_step(n: int) -> int:
    return n


async def has_steps(n: int, key: str, text: str) -> None:
    job = qbull.current_job()
    for number in range(STEPS):
        await job.step(one_step, number)


async def chunked(calls: list[Call]) -> None: ...


async def in_bulk(task: Task[..., Any], calls: Sequence[Call]) -> None:
    for start in range(0, len(calls), CHUNK):
        await task.enqueue_many(calls[start : start + CHUNK])


def with_options(**options: Any) -> Fill:
    async def fill(task: Task[..., Any], calls: Sequence[Call]) -> None:
        await in_bulk(task.options(**options), calls)

    return fill


async def as_chunk_parts(task: Task[..., Any], calls: Sequence[Call]) -> None:
    await in_bulk(task, [{"item": call} for call in calls])  # type: ignore[misc]


async def in_groups(task: Task[..., Any], calls: Sequence[Call]) -> None:
    """Groups of ten with one job that waits for them."""
    size = GROUP_SIZE + 1
    for start in range(0, len(calls) - size + 1, size):
        *parts, last = (task.step(**call) for call in calls[start : start + size])
        await qbull.group(*parts, then=last).enqueue()


async def with_priorities(task: Task[..., Any], calls: Sequence[Call]) -> None:
    for start in range(0, len(calls), CHUNK):
        some = calls[start : start + CHUNK]
        for number, priority in enumerate((1, 5, 10)):
            await task.options(priority=priority).enqueue_many(some[number::3])


@dataclass(frozen=True)
class Feature:
    """One row of the table.

    Args:
        meaning: what is measured.
        goal: share of the rate of `beside` that it should reach.
        goal_per_s: the rate that it should reach.
        goal_p50_ms: the most that the median of the waits should be.
        what: "drain" jobs that wait, "enqueue" them in bulk, "await" the result of each in 50 callers, enqueue by
            "http", or one of the measures of bench/postgres_rates.py.
        beside: the row that it is compared with.
        function: the task.
        task: options of the task.
        queue: options of the queue.
        app: makes the options of the app.
        fill: enqueues.
        text: the largest part of the payload.
        keys: number of keys that the jobs have.
        part: part of the jobs of the run; slow rows take fewer.
        with_replica: whether the server needs a replica.
        steps: steps of each job. If there are any, the rate is that of steps.
        from_first_start: whether the clock runs from the first start, because each job has several attempts.
    """

    meaning: str
    goal: float | None = None
    what: What = "drain"
    beside: str = "plain"
    function: Callable[..., Any] = noop
    task: dict[str, Any] = field(default_factory=dict)
    queue: dict[str, Any] = field(default_factory=dict)
    app: Callable[[], dict[str, Any]] = dict
    fill: Fill = in_bulk
    text: str = TEXT
    keys: int = 1_000
    part: float = 1.0
    with_replica: bool = False
    steps: int = 1
    from_first_start: bool = False
    goal_per_s: float | None = None
    goal_p50_ms: float | None = None

    @property
    def runs_alone(self) -> bool:
        """It needs one Redis server and nothing else."""
        return self.what in ("drain", "enqueue", "await") and not self.with_replica

    def declare(self, url: str, database: str = "") -> tuple[App, Task[..., Any]]:
        options = {"database": database} if database and self.what != "inbox" else {}
        app = App(url, prefix=PREFIX, **options, **self.app())
        queue = app.queue("feature", **{"concurrency": CONCURRENCY, **self.queue})
        return app, queue.task(**self.task)(self.function)

    def calls(self, jobs: int) -> list[Call]:
        """Those of the row in a run of so many jobs; the groups of a flow are complete."""
        jobs = int(jobs * self.part)
        jobs -= jobs % (GROUP_SIZE + 1)
        return [{"n": n, "key": f"k{n % self.keys}", "text": self.text} for n in range(jobs)]


def in_order(**queue: Any) -> dict[str, Any]:
    return {"queue": {"order": "key", **queue}, "task": {"key": "{key}"}}


def on_replica(**queue: Any) -> dict[str, Any]:
    return {
        **in_order(**queue),
        "app": lambda: {"durability": "replicated"},
        "with_replica": True,
    }


def middleware(*hooks: Callable[[], qbull.Middleware]) -> dict[str, Any]:
    return {"app": lambda: {"middleware": [hook() for hook in hooks]}}


FEATURES: dict[str, Feature] = {
    "plain": Feature("async def and nothing else; beside the floor with the same payload", beside="floor"),
    "threads": Feature("plain functions in threads", 0.5, function=plain_function, part=0.5),
    "cpu": Feature(
        "cpu=True in two processes",
        0.2,
        function=plain_function,
        task={"cpu": True},
        queue={"concurrency": 2},
        part=0.1,
    ),
    "retried": Feature(
        "each job fails once and is retried at once",
        0.3,
        function=fails_once,
        queue={"retry": qbull.Retry(attempts=2, delays=(0,))},
        part=0.2,
        from_first_start=True,
    ),
    "max_active": Feature("max_active that is never reached", 0.6, queue={"max_active": 1_000}),
    "rate": Feature("a rate limit that is never reached", 0.9, queue={"rate": qbull.Rate(10_000_000, per=1)}),
    "lane_rate": Feature(
        "a rate for each key that is never reached",
        queue={"lane": qbull.Lane(limit=50, rate=qbull.Rate(1_000_000, per=1))},
        task={"key": "{key}"},
        part=0.5,
    ),
    "progress_and_log": Feature("progress and one log line in each job", 0.5, function=reports, part=0.5),
    "flows": Feature("groups of ten and a job that waits for them", 0.6, fill=in_groups, part=0.3),
    "steps": Feature(
        f"durable jobs of {STEPS} steps; steps/s",
        0.4,
        function=has_steps,
        task={"durable": True},
        part=0.1,
        steps=STEPS,
    ),
    "chunks": Feature(
        "a task that takes 100 jobs at once",
        function=chunked,
        task={"chunk": 100},
        queue={"concurrency": 200},
        fill=as_chunk_parts,
    ),
    "priorities": Feature("three priorities", fill=with_priorities),
    "middleware": Feature("two hooks", **middleware(TwoHooks)),
    "compressed": Feature("compressed payloads", **middleware(lambda: qbull.Compressed(over=64))),
    "signed": Feature("signed payloads", **middleware(lambda: qbull.Signed(KEYS))),
    "encrypted": Feature("encrypted payloads", **middleware(lambda: qbull.Encrypted(KEYS))),
    "traced": Feature("OpenTelemetry spans, not exported", app=lambda: {"trace": True}),
    "payload_1k": Feature(
        "payloads of 1 kB; beside the floor with them", beside="floor", text=TEXT_1K, part=0.5
    ),
    "payload_10k": Feature(
        "payloads of 10 kB; beside the floor with them", 0.75, beside="floor", text=LARGE_TEXT, part=0.3
    ),
    "awaited": Feature(
        "enqueue, run, await the result, 50 callers; jobs/s",
        what="await",
        part=0.2,
        goal_per_s=20_000,
        goal_p50_ms=2.5,
    ),
    "enqueue": Feature("enqueue in bulk; beside the floor", what="enqueue", beside="floor_enqueue"),
    "enqueue_10k": Feature(
        "the same with payloads of 10 kB", None, "enqueue", "floor_enqueue", text=LARGE_TEXT, part=0.3
    ),
    "enqueue_delayed": Feature(
        "delayed jobs in bulk", 0.7, "enqueue", "enqueue", fill=with_options(delay=3_600)
    ),
    "enqueue_unique": Feature(
        "unique jobs in bulk", 0.7, "enqueue", "enqueue", fill=with_options(unique=qbull.Unique(window=60))
    ),
    "enqueue_own_ids": Feature("own ids in bulk", None, "enqueue", "enqueue", task={"id": "job-{n}"}),
    "rest_enqueue": Feature(
        "enqueue by HTTP, 1,000 connections; beside an endpoint that does nothing",
        what="http",
        beside="rest_empty",
        part=0.2,
    ),
    "tracked": Feature(
        "every job has a row in PostgreSQL; until all rows are written",
        what="track",
        queue={"track": True},
        part=0.2,
    ),
    "outbox_enqueue": Feature(
        "rows in transactions of 1,000; beside Procrastinate's",
        None,
        "outbox_enqueue",
        "procrastinate_enqueue",
        part=0.1,
    ),
    "outbox": Feature(
        "a worker ships and runs committed rows; beside Procrastinate's",
        None,
        "outbox",
        "procrastinate",
        part=0.2,
    ),
    "inbox": Feature(
        "each job has one effect in PostgreSQL; beside Procrastinate with it",
        None,
        "inbox",
        "procrastinate_effect",
        function=has_effect,
        part=0.05,
    ),
    "replicated_keys": Feature(
        "replicated, 10 jobs for each key, order not confirmed",
        beside="replicated_keys",
        keys=1_000,
        part=0.2,
        **on_replica(confirm_order=False),
    ),
    "confirmed_keys": Feature(
        "the same, order confirmed by the replica",
        beside="replicated_keys",
        keys=1_000,
        part=0.2,
        **on_replica(),
    ),
    "replicated_one_key": Feature(
        "replicated, one key, order not confirmed",
        beside="replicated_one_key",
        keys=1,
        part=0.02,
        **on_replica(confirm_order=False),
    ),
    "confirmed_one_key": Feature(
        "the same, order confirmed by the replica",
        beside="replicated_one_key",
        keys=1,
        part=0.02,
        **on_replica(),
    ),
}
"""In the order of the table. A row stands after the one that it is compared with."""
