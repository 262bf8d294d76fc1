"""`qbull queues` and `qbull stats`: list the queues and show their counts."""

from __future__ import annotations

from typing import Any

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, print_json, print_table, table, watch, watch_json
from qbull.core.record import to_datetime
from qbull.queue import Queue
from qbull.store.read.inspect import Counts
from qbull.views.queues import StatsView
from qbull.views.shape import to_plain

redraw = click.option("--watch", "watching", is_flag=True, help="Refresh every second until Ctrl-C.")

QUEUE_COLUMNS = (
    "queue",
    ">waiting",
    ">active",
    ">delayed",
    ">completed",
    ">failed",
    ">workers",
    "oldest waiting",
)


@click.command()
@on_target
@as_json
@redraw
def queues(target: Target, as_json: bool, watching: bool) -> None:
    """List the queues with their counts.

    \b
    Example:
      qbull queues --watch
      qbull queues --json | jq '.[] | select(.failed > 0) | .name'

    With --json: a list with one entry per queue, each as "qbull stats --json" prints it.
    """

    async def read() -> list[dict[str, Any]]:
        return [to_plain(StatsView.of(queue.name, await queue.stats())) for queue in await target.queues()]

    async def rows() -> list[list[object]]:
        serving = await _serving(target)
        return [_row(queue, await queue.stats(), serving) for queue in await target.queues()]

    async def draw() -> Any:
        return table(QUEUE_COLUMNS, await rows())

    async def main() -> None:
        if watching:
            await (watch_json(read) if as_json else watch(draw))
        elif as_json:
            print_json(await read())
        elif listed := await rows():
            print_table(QUEUE_COLUMNS, listed)
        else:
            click.echo("no queues yet; a queue appears with its first job or worker", err=True)

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@on_target
@as_json
@redraw
def stats(target: Target, queue_name: str, as_json: bool, watching: bool) -> None:
    """Show the counts and settings of one queue.

    \b
    Example:
      qbull stats email
      qbull stats email --json

    With --json: {"name", "waiting", "active", "completed", "failed", "delayed", "paused", "total",
    "cancelled", "isPaused", "oldestWaitingAt"}. The first six counts add up to "total". In a paused queue,
    "paused" is the number of jobs that wait, and "waiting" is 0.
    """

    async def read() -> Any:
        stats = await (await target.queue(queue_name)).stats()
        return to_plain(StatsView.of(queue_name, stats))

    async def draw() -> Any:
        return table((queue_name, ""), await _facts(target, queue_name))

    async def main() -> None:
        if watching:
            await (watch_json(read) if as_json else watch(draw))
        elif as_json:
            print_json(await read())
        else:
            print_table((queue_name, ""), await _facts(target, queue_name))

    target.run(main)


def _row(queue: Queue, counts: Counts, serving: dict[str, int]) -> list[object]:
    return [
        queue.name,
        counts.waiting,
        counts.active,
        counts.delayed,
        counts.completed,
        counts.failed,
        serving.get(queue.name, 0),
        _oldest(counts),
    ]


async def _facts(target: Target, name: str) -> list[tuple[str, object]]:
    queue = await target.queue(name)
    counts, settings = await queue.stats(), queue.settings
    return [
        ("waiting", counts.waiting),
        ("active", counts.active),
        ("delayed", counts.delayed),
        ("completed", counts.completed),
        ("failed", counts.failed),
        ("total", counts.total),
        ("cancelled", counts.cancelled),
        ("paused", "yes" if counts.paused else "no"),
        ("oldest waiting", _oldest(counts)),
        ("workers", (await _serving(target)).get(name, 0)),
        ("partitions", settings.partitions),
        ("order", f"by {settings.order}" if settings.order else "none"),
        ("attempts", settings.retry.attempts),
        ("tasks", ", ".join(await target.store.tasks(name)) or "none"),
    ]


def _oldest(counts: Counts) -> str | None:
    return None if counts.oldest_waiting_ms is None else ago(to_datetime(counts.oldest_waiting_ms))


async def _serving(target: Target) -> dict[str, int]:
    """Return the number of live workers of each queue."""
    await target.store.open()
    served = [name for who in (await target.store.workers()).values() for name in who.queues]
    return {name: served.count(name) for name in set(served)}
