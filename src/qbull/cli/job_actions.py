"""`qbull cancel`, `retry`, `promote` and `remove`: act on one job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from qbull.cli.enqueue import read_arguments
from qbull.cli.target import Target, on_target
from qbull.job import Job

queue_and_id = (click.argument("queue_name", metavar="QUEUE"), click.argument("id"))


def _one_job(command: Callable[..., None]) -> Callable[..., None]:
    for argument in reversed(queue_and_id):
        command = argument(command)
    return command


@click.command()
@_one_job
@click.option("--reason", default="cancelled", help="Reason, stored with the job.")
@on_target
def cancel(target: Target, queue_name: str, id: str, reason: str) -> None:
    """Cancel a job, and stop it if it is running.

    \b
    Example:
      qbull cancel email 0199c2f0a1b27000b4a1f3c2d5e6f708 --reason "sent by hand"

    Prints "cancelled", or "cancelling" if the job runs and its worker was asked to stop it.
    """
    _act(target, queue_name, id, lambda job: job.cancel(reason))


@click.command()
@_one_job
@click.option("--payload", metavar="JSON", help='New arguments by name; "-" reads them from standard input.')
@on_target
def retry(target: Target, queue_name: str, id: str, payload: str | None) -> None:
    """Run a failed or cancelled job again.

    \b
    Example:
      qbull retry email 0199c2f0a1b27000b4a1f3c2d5e6f708
      qbull retry email 0199c2f0a1b27000b4a1f3c2d5e6f708 --payload '{"to": "a@b.c"}'

    The job keeps its id and starts at attempt 1 again. With --app new arguments are checked before they are
    sent, otherwise the worker checks them. To run many jobs again, use "qbull redrive".
    """
    values = None if payload is None else read_arguments(payload)
    _act(target, queue_name, id, lambda job: job.retry(payload=values))


@click.command()
@_one_job
@on_target
def promote(target: Target, queue_name: str, id: str) -> None:
    """Run a delayed job now.

    \b
    Example:
      qbull promote email 0199c2f0a1b27000b4a1f3c2d5e6f708
    """
    _act(target, queue_name, id, lambda job: job.promote())


@click.command()
@_one_job
@on_target
def remove(target: Target, queue_name: str, id: str) -> None:
    """Delete a job permanently.

    \b
    Example:
      qbull remove email 0199c2f0a1b27000b4a1f3c2d5e6f708

    A running job cannot be deleted. Deleting a dead letter that halts its lane lets the lane continue. To
    delete many jobs, use "qbull clean".
    """
    _act(target, queue_name, id, lambda job: job.remove())


def _act(target: Target, queue_name: str, id: str, action: Callable[[Job[Any]], Awaitable[str]]) -> None:
    """Act on a job and print the outcome in one word."""

    async def main() -> None:
        queue = await target.queue(queue_name)
        click.echo(await action(queue.job(id)))

    target.run(main)
