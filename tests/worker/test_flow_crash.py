"""Flows while producers and workers are killed all the time: every flow that was begun comes to its end, each of its jobs completes once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import flow_processes

from conftest import eventually
from qbull.store.read import inspect
from qbull.store.store import Store

SECONDS = float(os.environ.get("FLOW_SECONDS", "3"))
EVERY = float(os.environ.get("FLOW_KILL_EVERY", "0.4"))
HERE = Path(__file__).parent


class FlowProcesses:
    """Processes of which one is killed now and then, and another takes its place."""

    def __init__(self, url: str, directory: Path) -> None:
        self.log = directory / "log"
        self.taken = directory / "taken"
        self.killed = 0
        self._environment = os.environ | {
            "FLOW_PROCESSES_URL": url,
            "FLOW_PROCESSES_LOG": str(self.log),
            "MIN_IDLE_TIME_MS": "1000",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        self._names = iter(range(1_000_000))
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, role: str) -> None:
        with self.taken.open("ab") as taken, self.log.with_suffix(".err").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "flow_processes.py"), role, f"p{next(self._names)}"],
                env=self._environment, stdout=taken, stderr=errors,
            )  # fmt: skip
        self._processes.append((role, process))

    def kill_one(self) -> None:
        role, process = self._processes.pop(random.randrange(len(self._processes)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.killed += 1
        self.start(role)

    def end(self, role: str) -> None:
        for _, process in [one for one in self._processes if one[0] == role]:
            process.kill()
            process.wait()
        self._processes = [one for one in self._processes if one[0] != role]

    def noted(self) -> Counter[tuple[str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter((word, flow) for word, flow in (line.split() for line in lines))


async def unfinished(store: Store) -> int:
    left = 0
    for queue in (flow_processes.upper, flow_processes.lower):
        for partition in await store.partitions(queue.settings):
            count = await inspect.count(partition)
            left += count.unfinished + await store.server.call("XLEN", partition.base + "outgoing")
    return left


async def test_killed_producers_and_workers_lose_and_double_no_flow(
    server_url: str, store: Store, tmp_path: Path
) -> None:
    processes = FlowProcesses(server_url, tmp_path)
    try:
        for role in ("worker", "worker", "producer", "producer"):
            processes.start(role)
        await eventually(
            lambda: asyncio.to_thread(lambda: len(processes.noted()) > flow_processes.JOBS), within=60
        )

        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(random.uniform(0.5, 1.5) * EVERY)
            processes.kill_one()
        processes.end("producer")

        async def all_ended() -> bool:
            return await unfinished(store) == 0

        await eventually(all_ended, within=60)
    finally:
        processes.end("producer")
        processes.end("worker")

    noted = processes.noted()
    taken = set(processes.taken.read_text().split())
    begun = {flow for _, flow in noted}
    ended = {flow for word, flow in noted if word == "last"}
    completed, failed = 0, 0
    for queue in (flow_processes.upper, flow_processes.lower):
        for partition in await store.partitions(queue.settings):
            count = await inspect.count(partition)
            completed, failed = completed + count.totals.get("completed", 0), failed + count.failed
    print(
        f"killed {processes.killed}, flows taken {len(taken)}, begun {len(begun)}, ended {len(ended)}, "
        f"jobs completed {completed}, failed {failed}, run again {sum(noted.values()) - len(noted)}"
    )
    assert taken - ended == set()
    assert begun == ended
    assert (completed, failed) == (len(ended) * flow_processes.JOBS, 0)
