"""Growth: the server's processor time for a job, when there is much more of something on the server.

Each group has sizes, and its goal is the ratio of the largest figure to the smallest. The time is that of the
server while one worker process drains the next jobs, after it has warmed up. `python -m bench --growth` takes about
ten minutes and 6 GB of memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

from bench.contestant import TEXT, Call
from bench.server import Cluster, Server, open_server
from qbull import App, Task
from qbull.store.names import Names

Figure = TypeVar("Figure")

PREFIX = "bench"
CONCURRENCY = 50
CHUNK = 1000
CHUNKS_AT_ONCE = 4
GOAL = 1.15
WARM_UP = 0.05
"""Part of the drained jobs that is not measured."""
LOOK_SECONDS = 0.02
TIMEOUT_SECONDS = 300.0
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Size:
    """What is on the server. `jobs` of `keys` keys wait, spread over the queues; `drained` of them are drained.

    Without keys, jobs have no order.
    """

    jobs: int
    drained: int
    keys: int = 0
    partitions: int = 1
    queues: int = 1
    schedules: int = 0
    delayed: int = 0

    @property
    def takes_long(self) -> bool:
        """Whether it is measured once: with so many jobs the figures differ less."""
        return self.jobs + self.delayed + self.schedules * 10 > 300_000

    def smaller(self, by: int) -> Size:
        """For a quick run."""
        few = {"jobs", "drained", "keys", "schedules", "delayed"}
        return Size(
            **{name: -(-value // by) if name in few else value for name, value in asdict(self).items()}
        )


@dataclass(frozen=True)
class Growth:
    """A group of sizes, by what is shown for each."""

    meaning: str
    sizes: dict[str, Size]


GROWTH = {
    "waiting": Growth(
        "jobs that wait",
        {
            "10,000": Size(20_000, 15_000),
            "1,000,000": Size(1_000_000, 50_000),
            "10,000,000": Size(10_000_000, 50_000),
        },
    ),
    "keys": Growth(
        "keys in order, with 200,000 jobs or one job each",
        {
            "1,000": Size(200_000, 150_000, keys=1_000),
            "10,000": Size(200_000, 150_000, keys=10_000),
            "100,000": Size(200_000, 150_000, keys=100_000),
            "1,000,000": Size(1_000_000, 150_000, keys=1_000_000),
        },
    ),
    "partitions": Growth(
        "partitions of a queue with 100,000 jobs",
        {f"{number:,}": Size(100_000, 80_000, partitions=number) for number in (1, 64, 1_024)},
    ),
    "queues": Growth(
        "queues of a worker with 100,000 jobs",
        {f"{number:,}": Size(100_000, 80_000, queues=number) for number in (1, 10, 100)},
    ),
    "schedules": Growth(
        "schedules of the queue", {f"{n:,}": Size(200_000, 180_000, schedules=n) for n in (0, 100_000)}
    ),
    "delayed": Growth(
        "delayed jobs of the queue", {f"{n:,}": Size(200_000, 180_000, delayed=n) for n in (0, 10_000_000)}
    ),
}


def declare(url: str, size: Size) -> tuple[App, list[Task[..., Any]]]:
    """The app of a size, and the task of each queue."""
    app = App(url, prefix=PREFIX)
    options: dict[str, Any] = {"concurrency": CONCURRENCY, "partitions": size.partitions}
    if size.keys:
        options["order"] = "key"

    async def noop(n: int, key: str, text: str) -> None: ...

    queues = [app.queue(f"growth-{number}", **options) for number in range(size.queues)]
    return app, [queue.task(key="{key}" if size.keys else None)(noop) for queue in queues]


def grow(
    rounds: int, quick: bool, say: Callable[[str], None], only: Sequence[str] = ()
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each group and size the microseconds of the server for a job, and the ratio to the least of the group.

    Each figure is that of a new server: the memory of one that was emptied is in pieces.
    """
    found = {}
    for name, growth in GROWTH.items():
        if only and name not in only:
            continue
        times: dict[str, list[float]] = {shown: [] for shown in growth.sizes}
        for shown, size in growth.sizes.items():
            for _ in range(1 if size.takes_long else rounds):
                with open_server() as server:
                    times[shown].append(server_us(server, size.smaller(200) if quick else size))
                say(f"{growth.meaning}: {shown}: {times[shown][-1]:.2f} us of the server for a job")
        medians = {shown: median(some) for shown, some in times.items()}
        least = min(medians.values())
        found[name] = {
            shown: {"server_us": us, "ratio": us / least, "all": times[shown]}
            for shown, us in medians.items()
        }
    return found


def server_us(server: Server, size: Size) -> float:
    """The server's microseconds for a job."""
    asyncio.run(fill(server.url, size))
    before, after, jobs = drained(server, size, lambda _: server.cpu())
    return (after - before) / jobs * 1e6


def drained(
    server: Server | Cluster, size: Size, look: Callable[[int], Figure]
) -> tuple[Figure, Figure, int]:
    """What `look` finds after the warm-up and at the end, and the number of jobs that were drained between.

    `look` receives the id of the worker's process.
    """
    names = [
        Names(PREFIX).partition(f"growth-{queue}", partition) + "stats"
        for queue in range(size.queues)
        for partition in range(size.partitions)
    ]

    def completed() -> int:
        with server.redis.pipeline(transaction=False) as counted:
            for name in names:
                counted.hmget(name, "completed", "failed")
            counts = [[int(n or 0) for n in some] for some in counted.execute()]
        if failed := sum(some[1] for some in counts):
            raise RuntimeError(f"{failed} jobs failed")
        return sum(some[0] for some in counts)

    deadline = time.monotonic() + TIMEOUT_SECONDS
    with worker(server, size) as pid:
        before, begun = look(pid), 0
        while (done := completed()) < size.drained:
            if not begun and size.drained * WARM_UP < done < size.drained / 2:
                before, begun = look(pid), done
            if time.monotonic() > deadline:
                raise TimeoutError(f"{done} of {size.drained} jobs are done after {TIMEOUT_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)
        return before, look(pid), done - begun


async def fill(url: str, size: Size) -> None:
    """Enqueue the jobs of a size."""
    app, tasks = declare(url, size)
    at_once = asyncio.Semaphore(CHUNKS_AT_ONCE)

    async def enqueue(task: Task[..., Any], calls: list[Call]) -> None:
        async with at_once:
            await task.enqueue_many(calls)

    async with app:
        later = [task.options(delay=DAY_SECONDS) for task in tasks]
        for some, jobs in ((later, size.delayed), (tasks, size.jobs)):
            for start in range(0, jobs, CHUNK * CHUNKS_AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for number in range(start, min(start + CHUNK * CHUNKS_AT_ONCE, jobs), CHUNK):
                        calls = _calls(number, min(number + CHUNK, jobs), size.keys)
                        group.create_task(enqueue(some[number // CHUNK % len(some)], calls))
        for start in range(0, size.schedules, CHUNK):
            async with asyncio.TaskGroup() as group:
                for number in range(start, min(start + CHUNK, size.schedules)):
                    args = _calls(number, number + 1, 0)[0]
                    group.create_task(
                        app.schedules.upsert(
                            f"schedule-{number}", tasks[0], cron="0 0 1 1 *", args=dict(args)
                        )
                    )


def _calls(start: int, end: int, keys: int) -> list[Call]:
    return [{"n": n, "key": f"k{n % (keys or 1)}", "text": TEXT} for n in range(start, end)]


@contextmanager
def worker(server: Server | Cluster, size: Size) -> Iterator[int]:
    """A worker process; gives its id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.growth", json.dumps(asdict(size))],
        stdin=subprocess.PIPE,
        env={**os.environ, "BENCH_URL": server.url},
    )
    assert process.stdin is not None
    try:
        yield process.pid
    finally:
        process.kill()  # it would drain the rest first
        process.wait()
        process.stdin.close()


async def _work(size: Size) -> None:
    """A worker process that ends when its standard input does, so that it never outlives the bench."""
    app, _ = declare(os.environ["BENCH_URL"], size)
    async with app, app.worker():
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_work(Size(**json.loads(sys.argv[1]))))
