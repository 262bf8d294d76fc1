"""`qbull cancel`, `retry`, `promote`, `reschedule`, `update`, `signal` and `remove`: act on one job.

`cancel` and `reschedule` also act on all jobs that match (cli/bulk.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from qbull.cli.bulk import ChosenJobs, cancel_many, many, many_with_active, reschedule_many
from qbull.cli.duration import SecondsParam, read_coming_moment
from qbull.cli.enqueue import read_arguments, read_json
from qbull.cli.target import Target, on_target, with_reason
from qbull.job import Job

queue_and_id = (click.argument("queue_name", metavar="QUEUE"), click.argument("id"))


def _one_job(command: Callable[..., None]) -> Callable[..., None]:
    for argument in reversed(queue_and_id):
        command = argument(command)
    return command


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("id", required=False)
@click.option("--reason", default="cancelled", help="Reason, stored with the job and in the audit log.")
@many_with_active
@on_target
def cancel(target: Target, queue_name: str, id: str | None, reason: str, chosen: ChosenJobs) -> None:
    """Cancel a job, or all jobs that match, and stop running ones.

    \b
    Example:
      qbull cancel email 0199c2f0a1b27000b4a1f3c2d5e6f708 --reason "sent by hand"
      qbull cancel email --task remind --after yesterday
      qbull cancel email --all --state delayed

    With ID, prints "cancelled", or "cancelling" if the job runs and its worker was asked to stop it. Without
    ID, prints the number of cancelled jobs.
    """
    chosen.check(id)
    if id is None:
        cancel_many(target, queue_name, chosen, reason)
        return
    _act(target, queue_name, id, lambda job: job.cancel(reason))


@click.command()
@_one_job
@click.option("--payload", metavar="JSON", help='New arguments by name; "-" reads them from standard input.')
@with_reason
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
@with_reason
@on_target
def promote(target: Target, queue_name: str, id: str) -> None:
    """Run a delayed job now.

    \b
    Example:
      qbull promote email 0199c2f0a1b27000b4a1f3c2d5e6f708
    """
    _act(target, queue_name, id, lambda job: job.promote())


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("id", required=False)
@click.option("--delay", type=SecondsParam(), metavar="DURATION", help="Run after this long, such as 2h.")
@click.option("--at", metavar="TIME", help="Run at this time, such as tomorrow or 2030-01-31T12:00:00Z.")
@many
@with_reason
@on_target
def reschedule(
    target: Target, queue_name: str, id: str | None, delay: float | None, at: str | None, chosen: ChosenJobs
) -> None:
    """Change when jobs may run that have not started.

    \b
    Example:
      qbull reschedule email 0199c2f0a1b27000b4a1f3c2d5e6f708 --delay 2h
      qbull reschedule email --task remind --at tomorrow

    With ID, prints the state of the job: "delayed", or "waiting" if it may run now. Without ID, prints the
    number of changed jobs.
    """
    chosen.check(id)
    if (delay is None) == (at is None):
        raise click.UsageError("expected --delay or --at, one of them")
    moment = None if at is None else read_coming_moment("--at", at)
    if id is None:
        reschedule_many(target, queue_name, chosen, delay, moment)
        return
    _act(target, queue_name, id, lambda job: job.reschedule(delay=delay, at=moment))


@click.command()
@_one_job
@click.option(
    "--payload",
    metavar="JSON",
    required=True,
    help='All arguments by name; "-" reads them from standard input.',
)
@with_reason
@on_target
def update(target: Target, queue_name: str, id: str, payload: str) -> None:
    """Change the arguments of a job that has not started.

    \b
    Example:
      qbull update email 0199c2f0a1b27000b4a1f3c2d5e6f708 --payload '{"to": "a@b.c"}'

    Prints the state of the job. With --app the arguments are checked before they are sent, otherwise the
    worker checks them.
    """
    values = read_arguments(payload)
    _act(target, queue_name, id, lambda job: job.update(values))


@click.command()
@_one_job
@click.argument("name")
@click.argument("value", metavar="[JSON]", required=False)
@with_reason
@click.option("--signal-id", help="Of several signals with the same id, the job gets one.")
@on_target
def signal(
    target: Target, queue_name: str, id: str, name: str, value: str | None, signal_id: str | None
) -> None:
    """Send a signal to a durable job.

    \b
    Example:
      qbull signal orders 0199c2f0a1b27000b4a1f3c2d5e6f708 approval '{"by": "ada"}'

    The task gets the value from wait_for(NAME), now or later. "-" reads the value from standard input.
    Without JSON it is null. Prints "sent".
    """
    content = None if value is None else read_json("the value of the signal is", value)
    _act(target, queue_name, id, lambda job: job.signal(name, content, id=signal_id))


@click.command()
@_one_job
@with_reason
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
