"""`qbull pause` and `qbull resume`: stop and continue one queue, or all of them."""

from __future__ import annotations

import asyncio

import click

from qbull.cli.duration import SecondsParam
from qbull.cli.target import Target, on_target, with_reason
from qbull.queue import Queue

by = click.option("--by", help="Your name for the history.  [default: user@host]")
all_queues = click.option("--all", "every", is_flag=True, help="All queues that the server knows.")


@click.command()
@click.argument("queue_name", metavar="[QUEUE]", required=False)
@all_queues
@click.option(
    "--wait",
    type=SecondsParam(),
    metavar="DURATION",
    help="Wait this long for running jobs to end, such as 90s or 10m; fail if some still run.",
)
@by
@with_reason
@on_target
def pause(target: Target, queue_name: str | None, every: bool, wait: float | None, by: str | None) -> None:
    """Pause a queue, or all: start no more of its jobs.

    Running jobs finish normally. Waiting jobs stay in the queue until it is resumed.

    \b
    Example:
      qbull pause email
      qbull pause --all --wait 10m
    """

    async def main() -> None:
        queues = await _chosen(target, queue_name, every)
        for queue in queues:
            await queue.pause(by=by)
            command = "qbull resume --all" if every else f"qbull resume {queue.name}"
            click.echo(f'queue "{queue.name}": paused; run "{command}" to resume it')
        if wait is not None:
            await asyncio.gather(*(queue.pause(wait=wait, by=by) for queue in queues))
            click.echo("no job is running")

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="[QUEUE]", required=False)
@all_queues
@by
@with_reason
@on_target
def resume(target: Target, queue_name: str | None, every: bool, by: str | None) -> None:
    """Resume a paused queue, or all.

    \b
    Example:
      qbull resume email
      qbull resume --all
    """

    async def main() -> None:
        for queue in await _chosen(target, queue_name, every):
            await queue.resume(by=by)
            click.echo(f'queue "{queue.name}": resumed')

    target.run(main)


async def _chosen(target: Target, queue_name: str | None, every: bool) -> list[Queue]:
    if (queue_name is not None) == every:
        raise click.UsageError("name a queue, or give --all")
    return await target.queues() if queue_name is None else [await target.queue(queue_name)]
