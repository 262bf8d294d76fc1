"""`qbull repartition`: change the number of a queue's partitions while it is in use, and show progress."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType

import click

from qbull.cli.target import Target, on_target, with_reason
from qbull.core.layout import MAX_PARTITIONS
from qbull.queue import Queue
from qbull.store.read.drain_status import Repartitioning
from qbull.store.verbs.move import PartitionMoves

REPARTITION_POLL_SECONDS = 0.25
REPARTITION_LOG_SECONDS = 5.0
"""Seconds between two progress lines if the output is not a terminal."""


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("partitions", type=click.IntRange(1, MAX_PARTITIONS), metavar="N")
@click.option(
    "--no-wait", is_flag=True, help="Do not wait until the workers have emptied the old partitions."
)
@with_reason
@on_target
def repartition(target: Target, queue_name: str, partitions: int, no_wait: bool) -> None:
    """Change the number of partitions of a queue in use.

    No job is lost, and jobs of one key keep their order. The new number takes effect at once; the workers run
    the jobs that are left in the old partitions. This command shows the progress. You can stop it at any time
    and run it again, also with another number.

    \b
    Example:
      qbull repartition messages 16
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        before = (await target.store.layout(queue.settings)).partitions
        await queue.repartition(partitions)
        if before != partitions:
            click.echo(f'queue "{queue.name}": {before} → {partitions} partitions, effective now')
        if not no_wait:
            await _watch(target, queue)
        left = await queue.repartitioning()
        if left is None:
            click.echo(f'queue "{queue.name}": {partitions} partitions; the old ones are empty')
        else:
            click.echo(f'queue "{queue.name}": {_status_text(left)}; the workers continue')

    target.run(main)


async def _watch(target: Target, queue: Queue) -> None:
    """Show how much is left until the old partitions are empty, and help to move it."""
    moves = PartitionMoves(target.app._client().store, queue.settings, target.app.durability)
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
            return f'no worker serves it; run "qbull worker MODULE:APP --queues {queue.name}"'
    elif left.halted:
        return (
            f'{left.halted} keys are halted by a dead letter; see "qbull partitions {queue.name}", '
            "then retry or remove it"
        )
    return None


def _status_text(left: Repartitioning) -> str:
    old = " and ".join(str(count) for count in left.before)
    halted = f", {left.halted} of them halted" if left.halted else ""
    return f"{left.jobs:,} jobs and {left.keys:,} keys are left in the old {old} partitions{halted}"


class _RepartitionProgress:
    """A progress bar in a terminal, otherwise a line every few seconds."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._peak = 1
        self._last_line_at = float("-inf")
        self._last_hint: str | None = None
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
                self._bar.update(self._task, total=self._peak, completed=self._peak)
            self._bar.stop()

    def show(self, left: Repartitioning, hint: str | None) -> None:
        if hint is not None and hint != self._last_hint:
            click.echo(f'queue "{self._queue}": {hint}', err=True)
        self._last_hint = hint
        amount = left.jobs + left.keys
        self._peak = max(self._peak, amount)
        if self._bar is not None:
            self._bar.update(
                self._task, total=self._peak, completed=self._peak - amount, description=_status_text(left)
            )
        elif time.monotonic() - self._last_line_at >= REPARTITION_LOG_SECONDS:
            self._last_line_at = time.monotonic()
            click.echo(f'queue "{self._queue}": {_status_text(left)}')
