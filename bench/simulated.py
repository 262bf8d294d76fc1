"""Many idle workers in one process: `python -m bench.simulated`, and the handle that the bench holds.

Each of them is the real worker with its own id, connections, registration, heartbeats, sharing and sweeps. They run
no jobs, so nobody has to watch whether a job blocks their event loop, and they compute equal shares once: the shares
are a pure function of the registry, and elsewhere each process computes them on a core of its own. The process says
"starting", and "ready" when all have started. Then it waits for "stop". It ends when the bench is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import uvloop

from qbull import App
from qbull.core.sharing import ShareMember
from qbull.store.store import Store
from qbull.worker import lease
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.process.crash_board import CrashBoard
from qbull.worker.worker import Supervision, Worker

PREFIX = "bench"
QUEUE = "simulated"
STARTS_AT_ONCE = 50
REMEMBERED_SHARES = 20
TIMEOUT_SECONDS = 150.0
Shares = dict[str, list[int]]


@dataclass(frozen=True)
class Crowd:
    """The ids of its workers start with `name`. A worker without heartbeats for `min_idle` seconds is dead."""

    name: str
    workers: int
    partitions: int
    min_idle: float = 30.0


class SimulatedWorkers:
    """`with SimulatedWorkers(url, crowd) as workers`: starting inside, killed afterwards."""

    def __init__(self, url: str, crowd: Crowd) -> None:
        self.crowd = crowd
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.simulated", json.dumps(asdict(crowd))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "BENCH_URL": url, "MIN_IDLE_TIME_MS": str(int(crowd.min_idle * 1000))},
        )

    def __enter__(self) -> SimulatedWorkers:
        try:
            self._hear("starting")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until_ready(self) -> None:
        self._hear("ready")

    def stop(self) -> None:
        """Tell all workers to stop in an orderly way. Does not wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], TIMEOUT_SECONDS)[0]:
            raise TimeoutError(f'simulated workers have not said "{word}" for {TIMEOUT_SECONDS:g} s')
        if (said := self._process.stdout.readline().decode().strip()) != word:
            raise RuntimeError(f'simulated workers said "{said}" instead of "{word}"')


class _NothingToWatch:
    """The loop watch of a worker that runs no jobs."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class IdleWorker:
    """One real worker without jobs, and its heartbeat on the same event loop."""

    def __init__(self, app: App, name: str) -> None:
        self.worker = Worker(
            app._make_store,
            app._assignments(),
            sharing=app.environment.worker_sharing(),
            min_idle=app.environment.min_idle,
            supervision=Supervision(name, CrashBoard.make(1)),
        )
        self.worker._loop_watch = _NothingToWatch()
        self._beating: list[asyncio.Task[None]] = []
        self._store: Store | None = None

    async def start(self) -> None:
        self._store, heartbeat = self.worker._make_heartbeat()
        await heartbeat.send()
        self._beating = [start_actor(heartbeat.run)]
        await self.worker.start()

    async def stop(self) -> None:
        await stop_actors(self._beating)  # a late heartbeat would bring it back
        await self.worker.stop()
        if self._store is not None:
            await self._store.close()


def declare(url: str, partitions: int) -> App:
    app = App(url, prefix=PREFIX)

    async def noop() -> None: ...

    app.queue(QUEUE, partitions=partitions, concurrency=1).task(noop)
    return app


def computed_once(
    assign: Callable[[int, Mapping[str, ShareMember]], Shares],
) -> Callable[[int, Mapping[str, ShareMember]], Shares]:
    """The same function, which remembers its latest answers."""
    found: dict[tuple[int, frozenset[tuple[str, ShareMember]]], Shares] = {}

    def shares(partitions: int, readers: Mapping[str, ShareMember]) -> Shares:
        asked = partitions, frozenset(readers.items())
        if asked not in found:
            while len(found) >= REMEMBERED_SHARES:
                del found[next(iter(found))]
            found[asked] = assign(partitions, readers)
        return found[asked]

    return shares


async def live(url: str, crowd: Crowd) -> None:
    """Start the workers, and stop them when the bench says so."""
    logging.disable(logging.WARNING)  # hundreds of them notice the same
    lease.assign_partitions = computed_once(lease.assign_partitions)
    loop = asyncio.get_running_loop()
    app = declare(url, crowd.partitions)
    workers = [IdleWorker(app, f"{crowd.name}-{number:04}") for number in range(crowd.workers)]
    at_once = asyncio.Semaphore(STARTS_AT_ONCE)

    async def start(worker: IdleWorker) -> None:
        async with at_once:
            await worker.start()

    say("starting")
    listening = loop.run_in_executor(None, sys.stdin.readline)
    began = time.monotonic()
    await asyncio.gather(*(start(worker) for worker in workers))
    print(f"{crowd.workers} workers of {crowd.name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    say("ready")
    if await listening:
        await asyncio.gather(*(worker.stop() for worker in workers))
        say("stopped")
    os._exit(0)  # nobody waits for the others any more


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live(os.environ["BENCH_URL"], Crowd(**json.loads(sys.argv[1]))))
