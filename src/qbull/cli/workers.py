"""`qbull workers`: list the live worker processes."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json, print_table
from qbull.errors import NotFound
from qbull.store.read.health import read_health, registered_queues
from qbull.store.read.usage import worker_usage
from qbull.store.store import Store
from qbull.views.shape import to_plain
from qbull.views.workers import BlockedLoopView, WorkerView


@click.command()
@on_target
@as_json
@click.option("--here", is_flag=True, help="List only workers of this machine; exit with 1 if there is none.")
def workers(target: Target, as_json: bool, here: bool) -> None:
    """List the live worker processes.

    \b
    Example:
      qbull workers
      qbull workers --here        # for health checks: is a worker of this container alive?

    With --json: a list of {"id", "host", "pid", "pod", "queues": {name: {"concurrency", "busy",
    "partitions", "sharing", "leaving"}}, "blocked": {"since", "tasks"} or null, "labels", "resources",
    "memoryBytes", "cpuPercent"}. With --here, "busy" is 0.
    """

    async def main() -> None:
        await target.store.open()
        found = await target.store.workers()
        usage = await worker_usage(target.store, list(found))
        busy = await _busy(target.store) if as_json and not here else {}
        living = [
            WorkerView.of(id, who, usage.get(id), busy)
            for id, who in sorted(found.items())
            if not here or who.host == socket.gethostname()
        ]
        if as_json:
            print_json(to_plain(living))
        elif living:
            rows = [[worker.id, worker.host, worker.pid, _queues(worker)] for worker in living]
            heads = ["worker", "host", ">process", "*queues (jobs at a time)"]
            if any(worker.labels or worker.resources for worker in living):
                heads.append("*labels and resources")
                rows = [[*row, _offer(worker)] for row, worker in zip(rows, living, strict=True)]
            print_table(heads, rows)
            for worker in living:
                if worker.blocked is not None:
                    click.echo(_blocked(worker.id, worker.blocked))
        elif not here:
            click.echo('no worker is running; start one with "qbull worker MODULE:APP"', err=True)
        if here and not living:
            raise NotFound(f'no worker of "{socket.gethostname()}" is alive; see its log')

    target.run(main)


async def _busy(store: Store) -> dict[str, Mapping[str, int]]:
    """How many jobs each worker has, by queue and worker."""
    readable, _ = await registered_queues(store)
    reading = await read_health(store, readable)
    return {queue.name: queue.held_jobs() for queue in reading.facts.queues}


def _blocked(worker: str, blocked: BlockedLoopView) -> str:
    tasks = " or ".join(blocked.tasks) or "a task"
    return f"worker {worker}: {tasks} has blocked its event loop since {blocked.since:%Y-%m-%d %H:%M:%S} UTC"


def _offer(worker: WorkerView) -> str:
    return ", ".join(
        [
            *(f"{name}={value}" for name, value in worker.labels.items()),
            *(f"resource {name}={count}" for name, count in worker.resources.items()),
        ]
    )


def _queues(worker: WorkerView) -> str:
    return ", ".join(f"{name} ({serving.concurrency})" for name, serving in worker.queues.items())
