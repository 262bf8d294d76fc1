"""`qbull cancel`, `retry`, `promote` and `remove`: do something with one job."""

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
@click.option("--reason", default="cancelled", help="Why; it is kept with the job.")
@on_target
def cancel(target: Target, queue_name: str, id: str, reason: str) -> None:
    """Do not run a job, or stop it where it runs.

    \b
    Example:
      qbull cancel email 0199c2f0a1b27000b4a1f3c2d5e6f708 --reason "sent by hand"

    Prints "cancelled", or "cancelling" where its worker has been told.
    """
    _do(target, queue_name, id, lambda job: job.cancel(reason))


@click.command()
@_one_job
@click.option("--payload", metavar="JSON", help='Other arguments, by name; "-" reads them from the input.')
@on_target
def retry(target: Target, queue_name: str, id: str, payload: str | None) -> None:
    """Run a job again that failed or was cancelled.

    \b
    Example:
      qbull retry email 0199c2f0a1b27000b4a1f3c2d5e6f708
      qbull retry email 0199c2f0a1b27000b4a1f3c2d5e6f708 --payload '{"to": "a@b.c"}'

    It keeps its id; its attempts begin anew. With --app other arguments are checked before anything is sent, without it
    by the worker. To run many again: qbull redrive.
    """
    values = None if payload is None else read_arguments(payload)
    _do(target, queue_name, id, lambda job: job.retry(payload=values))


@click.command()
@_one_job
@on_target
def promote(target: Target, queue_name: str, id: str) -> None:
    """Let a delayed job run now.

    \b
    Example:
      qbull promote email 0199c2f0a1b27000b4a1f3c2d5e6f708
    """
    _do(target, queue_name, id, lambda job: job.promote())


@click.command()
@_one_job
@on_target
def remove(target: Target, queue_name: str, id: str) -> None:
    """Forget a job without a trace.

    \b
    Example:
      qbull remove email 0199c2f0a1b27000b4a1f3c2d5e6f708

    A running job is refused. A dead letter that halts its lane lets it go on. To remove many: qbull clean.
    """
    _do(target, queue_name, id, lambda job: job.remove())


def _do(target: Target, queue_name: str, id: str, verb: Callable[[Job[Any]], Awaitable[str]]) -> None:
    """Prints what became of the job, in one word."""

    async def main() -> None:
        queue = await target.queue(queue_name)
        click.echo(await verb(queue.job(id)))

    target.run(main)
