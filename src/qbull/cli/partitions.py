"""`qbull partitions`: who reads which partition of a queue, and what waits there."""

from __future__ import annotations

from typing import Any

import click

from qbull.cli.show import ago, print_json, print_table
from qbull.cli.target import Target, as_json, on_target
from qbull.core.job import moment
from qbull.queue import Queue
from qbull.store import inspect
from qbull.wire import moment as written

COLUMNS = (
    ">partition",
    ">waiting",
    ">behind others",
    ">active",
    ">delayed",
    ">failed",
    "oldest waiting",
    "*read by",
)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@on_target
@as_json
def partitions(target: Target, queue_name: str, as_json: bool) -> None:
    """Show the partitions of a queue and who reads them.

    \b
    Example:
      qbull partitions messages

    With --json: a list of {"partition", "readers", "waiting", "inLanes", "active", "delayed", "failed",
    "oldestWaitingAt"}.
    """

    async def main() -> None:
        rows = await _rows(target, await target.queue(queue_name))
        if as_json:
            print_json([{**row, "oldestWaitingAt": written(row["oldestWaitingAt"])} for row in rows])
            return
        print_table(COLUMNS, [_line(row) for row in rows])
        unread = [str(row["partition"]) for row in rows if not row["readers"]]
        if unread:
            click.echo(f"no worker reads partition {', '.join(unread)}", err=True)

    target.run(main)


async def _rows(target: Target, queue: Queue) -> list[dict[str, Any]]:
    serving = {
        id: who.queues[queue.name].partitions
        for id, who in (await target.store.workers()).items()
        if queue.name in who.queues
    }
    rows = []
    for partition in target.store.partitions(queue.settings):
        counts = await inspect.count(partition)
        oldest = counts.oldest_waiting_ms
        rows.append(
            {
                "partition": partition.number,
                "readers": sorted(id for id, numbers in serving.items() if partition.number in numbers),
                "waiting": counts.waiting,
                "inLanes": counts.in_lanes,
                "active": counts.active,
                "delayed": counts.delayed,
                "failed": counts.failed,
                "oldestWaitingAt": moment(oldest) if oldest is not None else None,
            }
        )
    return rows


def _line(row: dict[str, Any]) -> list[object]:
    oldest = row["oldestWaitingAt"]
    numbers = [row[name] for name in ("partition", "waiting", "inLanes", "active", "delayed", "failed")]
    return [*numbers, ago(oldest) if oldest is not None else None, ", ".join(row["readers"]) or None]
