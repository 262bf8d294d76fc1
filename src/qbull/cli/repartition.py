"""`qbull repartition`: change the number of a queue's partitions while it is used, and show how far that is."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType

import click

from qbull.cli.target import Target, on_target
from qbull.core.layout import MAX_PARTITIONS
from qbull.queue import Queue
from qbull.store.read.drain_status import Repartitioning
from qbull.store.verbs.move import PartitionMoves

REPARTITION_POLL_SECONDS = 0.25
REPARTITION_LOG_SECONDS = 5.0
"""Seconds between two lines where the output is no terminal."""


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("partitions", type=click.IntRange(1, MAX_PARTITIONS), metavar="N")
@click.option(
    "--no-wait", is_flag=True, help="Do not wait until old partitions are worked off; the workers do that."
)
@on_target
def repartition(target: Target, queue_name: str, partitions: int, no_wait: bool) -> None:
    """Change the number of a queue's partitions while it is used.

    Nothing is lost, jobs of one key keep their order. The new number is in force at once; jobs that are in old
    partitions are worked off there by the workers. This command shows how far that is. It may be ended at any time, and
    called again, also with another number.

    \b
    Example:
      qbull repartition messages 16
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        before = (await target.store.layout(queue.settings)).partitions
        await queue.repartition(partitions)
        if before != partitions:
            click.echo(f'queue "{queue.name}": {before} → {partitions} partitions, in force now')
        if not no_wait:
            await _watch(target, queue)
        left = await queue.repartitioning()
        if left is None:
            click.echo(f'queue "{queue.name}": {partitions} partitions; nothing is left in old ones')
        else:
            click.echo(f'queue "{queue.name}": {_line(left)}; the workers go on with it')

    target.run(main)


async def _watch(target: Target, queue: Queue) -> None:
    """Show what is left until nothing is, and help with it."""
    moves = PartitionMoves(target.app._client().store, queue.settings)
    with _RepartitionProgress(queue.name) as display:
        while True:
            await moves.all_steps()
            left = await queue.repartitioning()
            if left is None:
                return
            display.show(left, await _hint(target, queue, left))
            await asyncio.sleep(REPARTITION_POLL_SECONDS)


async def _hint(target: Target, queue: Queue, left: Repartitioning) -> str | None:
    if left.jobs:
        served = any(queue.name in who.queues for who in (await target.store.workers()).values())
        if not served:
            return f'no worker reads it; run "qbull worker MODULE:APP --queues {queue.name}"'
    elif left.halted:
        return (
            f'{left.halted} keys are halted by a dead letter; see "qbull partitions {queue.name}", '
            "then retry or remove it"
        )
    return None


def _line(left: Repartitioning) -> str:
    old = " and ".join(str(count) for count in left.before)
    halted = f", {left.halted} of them halted" if left.halted else ""
    return f"{left.jobs:,} jobs and {left.keys:,} keys are left in the old {old} partitions{halted}"


class _RepartitionProgress:
    """A bar in a terminal, else a line now and then."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._most = 1
        self._said = float("-inf")
        self._hinted: str | None = None
        self._bar = None
        if sys.stdout.isatty():
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
            )
            self._task = self._bar.add_task(f'queue "{queue}"', total=1)

    def __enter__(self) -> _RepartitionProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            if kind is None:
                self._bar.update(self._task, total=self._most, completed=self._most)
            self._bar.stop()

    def show(self, left: Repartitioning, hint: str | None) -> None:
        if hint is not None and hint != self._hinted:
            click.echo(f'queue "{self._queue}": {hint}', err=True)
        self._hinted = hint
        amount = left.jobs + left.keys
        self._most = max(self._most, amount)
        if self._bar is not None:
            self._bar.update(
                self._task, total=self._most, completed=self._most - amount, description=_line(left)
            )
        elif time.monotonic() - self._said >= REPARTITION_LOG_SECONDS:
            self._said = time.monotonic()
            click.echo(f'queue "{self._queue}": {_line(left)}')
