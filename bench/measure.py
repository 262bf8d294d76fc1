"""One function for each figure. All of them treat both contestants alike, and leave nothing on the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles

from bench.contestant import Call, Contestant, Producer, calls
from bench.floor import encode
from bench.server import Server
from bench.worker import PATIENCE, WorkerProcess

TASKS = 50
LOOK = 0.005
"""Seconds between two looks at how many jobs are left."""


def enqueue_bulk(server: Server, contestant: Contestant, jobs: int) -> float:
    """Jobs a second, given to the library as a list."""
    server.clear()
    work = calls(jobs)
    return jobs / asyncio.run(_produce(server, contestant, "plain", lambda producer: producer.bulk(work)))


def enqueue_concurrent(server: Server, contestant: Contestant, jobs: int) -> float:
    """Jobs a second, enqueued one by one in 50 tasks, as the handlers of a web server do."""
    server.clear()
    todo = iter(calls(jobs))

    async def feed(producer: Producer) -> None:
        for call in todo:
            await producer.one(call)

    async def all_feed(producer: Producer) -> None:
        await asyncio.gather(*(feed(producer) for _ in range(TASKS)))

    return jobs / asyncio.run(_produce(server, contestant, "plain", all_feed))


@dataclass(frozen=True)
class Drained:
    """Jobs a second, and processor time for each job in microseconds."""

    rate: float
    server_us: float
    worker_us: float


def drain(
    server: Server, contestant: Contestant, kind: str, jobs: int, keys: int = 1, processes: int = 1
) -> Drained:
    """From the moment in which the waiting workers are told to go until the last job is settled."""
    server.clear()
    fill(server, contestant, kind, calls(jobs, keys))
    with ExitStack() as stack:
        starting = [WorkerProcess(contestant.name, server.url, kind, held=True) for _ in range(processes)]
        workers = [stack.enter_context(worker) for worker in starting]
        drained = run_until(server, contestant, kind, workers, 0)
        reports = [worker.stop() for worker in workers]
    ran, out_of_order = (sum(report[what] for report in reports) for what in ("ran", "out_of_order"))
    if ran != jobs or out_of_order:
        raise RuntimeError(f"{contestant.name}: {ran} of {jobs} {kind} jobs ran, {out_of_order} out of order")
    return drained


def latency(server: Server, contestant: Contestant, samples: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds, from the call of enqueue to the first line of the job in an idle worker."""
    server.clear()

    async def pings(producer: Producer) -> None:
        for _ in range(samples):
            await asyncio.sleep(0.003)  # the worker waits again
            await producer.ping(time.monotonic_ns())

    with WorkerProcess(contestant.name, server.url, "ping", held=False) as worker:
        asyncio.run(_produce(server, contestant, "ping", pings))
        deadline = time.monotonic() + PATIENCE
        while (arrived := worker.pings()) < samples:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{contestant.name}: {arrived} of {samples} pings arrived")
            time.sleep(LOOK)
        waits = worker.stop()["waits_ns"]
    waits = waits[samples // 10 :]  # the first ones open connections
    return median(waits) / 1e6, quantiles(waits, n=100)[98] / 1e6


def bytes_per_job(server: Server, contestant: Contestant, jobs: int) -> float:
    """Memory of the server for each waiting job, without its payload."""
    fill(server, contestant, "plain", calls(10))  # scripts and connections are there
    server.clear()
    work = calls(jobs)
    before = server.memory()
    fill(server, contestant, "plain", work)
    return (server.memory() - before - sum(len(encode(call)) for call in work)) / jobs


@dataclass(frozen=True)
class Idle:
    commands_per_s: float
    cpu_percent: float


def idle(server: Server, contestant: Contestant, kind: str, seconds: float) -> Idle:
    """What a worker process with nothing to do costs; commands inside scripts are counted too."""
    server.clear()
    with WorkerProcess(contestant.name, server.url, kind, held=False) as worker:
        time.sleep(min(seconds, 7))  # what it does once, after its start, is not idling
        cpu, began, commands = worker.cpu(), time.monotonic(), server.commands()
        time.sleep(seconds)
        passed = time.monotonic() - began
        found = Idle((server.commands() - commands - 1) / passed, (worker.cpu() - cpu) / passed * 100)
        worker.stop()
    return found


@dataclass(frozen=True)
class Flat:
    """How many times more a job costs with many waiting than with few; the answers to people at many waiting."""

    drain: float
    enqueue: float
    look_ms: float


def flat(server: Server, contestant: Contestant, few: int, many: int, repeat: int) -> Flat:
    """The server's processor time for `few` jobs, once with about as many waiting and once with `many`."""
    server.clear()
    fill(server, contestant, "plain", calls(few // 2))
    adding, settling = [], []
    with WorkerProcess(contestant.name, server.url, "plain", held=True) as worker:
        for _ in range(repeat):
            adding.append(_cpu(server, lambda: fill(server, contestant, "plain", calls(few))))
            settling.append(_some(server, contestant, worker, few))
        small = median(adding), median(settling)
        for start in range(0, many, 50_000):
            fill(server, contestant, "plain", calls(min(50_000, many - start)))
        adding, settling = [], []
        for _ in range(repeat):
            adding.append(_cpu(server, lambda: fill(server, contestant, "plain", calls(few))))
            settling.append(_some(server, contestant, worker, few))
        look = _cpu(server, lambda: asyncio.run(contestant.look(server.url))) * 1000
    return Flat(median(settling) / small[1], median(adding) / small[0], look)


def fill(server: Server, contestant: Contestant, kind: str, work: Sequence[Call]) -> float:
    """Seconds that the enqueueing took."""
    return asyncio.run(_produce(server, contestant, kind, lambda producer: producer.bulk(work)))


def run_until(
    server: Server, contestant: Contestant, kind: str, workers: Sequence[WorkerProcess], left: int
) -> Drained:
    """Let the workers go until no more than `left` jobs are left."""
    jobs = contestant.left(server.redis, kind)
    cpu = [worker.cpu() for worker in workers]
    server_cpu = server.cpu()
    began = time.perf_counter()
    for worker in workers:
        worker.go()
    while (now_left := contestant.left(server.redis, kind)) > left:
        if time.perf_counter() - began > PATIENCE:
            raise TimeoutError(f"{contestant.name}: {now_left} of {jobs} jobs are left after {PATIENCE:g} s")
        time.sleep(LOOK)
    seconds = time.perf_counter() - began
    server_cpu = server.cpu() - server_cpu
    worker_cpu = sum(worker.cpu() - before for worker, before in zip(workers, cpu, strict=True))
    done = jobs - now_left
    return Drained(done / seconds, server_cpu / done * 1e6, worker_cpu / done * 1e6)


async def _produce(
    server: Server, contestant: Contestant, kind: str, work: Callable[[Producer], Awaitable[None]]
) -> float:
    """Seconds that the work took with a connected producer."""
    async with contestant.producing(server.url, kind) as producer:
        began = time.perf_counter()
        await work(producer)
        return time.perf_counter() - began


def _cpu(server: Server, work: Callable[[], object]) -> float:
    before = server.cpu()
    work()
    return server.cpu() - before


def _some(server: Server, contestant: Contestant, worker: WorkerProcess, jobs: int) -> float:
    """The server's microseconds for each of the next jobs."""
    left = contestant.left(server.redis, "plain")
    drained = run_until(server, contestant, "plain", [worker], left - jobs)
    worker.hold()
    time.sleep(0.1)  # what is on its way arrives
    return drained.server_us
