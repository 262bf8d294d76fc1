"""`qbull purge`, and the part of `qbull cancel` that works on many jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from qbull.cli.dead_letters import filtered
from qbull.cli.target import Target, on_target, with_reason
from qbull.core.job_filter import JobFilterArguments
from qbull.core.record import State

NOT_STARTED_STATES: tuple[State, ...] = ("waiting", "delayed")


def cancel_many(
    target: Target, queue_name: str, states: Sequence[State], reason: str, filters: JobFilterArguments
) -> None:
    """Cancel all jobs of these states that match, and print their number."""

    async def main() -> None:
        queue = await target.queue(queue_name)
        click.echo(sum([await queue.cancel(state, reason=reason, **filters) for state in states]))

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option(
    "--state",
    "states",
    type=click.Choice(NOT_STARTED_STATES),
    multiple=True,
    help="State of the jobs; may be given twice.  [default: waiting and delayed]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@filtered
@with_reason
@on_target
def purge(
    target: Target, queue_name: str, states: tuple[State, ...], yes: bool, filters: JobFilterArguments
) -> None:
    """Delete jobs that have not started.

    \b
    Example:
      qbull purge email
      qbull purge email --state delayed --task remind --yes

    Prints the number of deleted jobs. Running and finished jobs stay. Nothing remains of a deleted job; to
    keep a record of it, use "qbull cancel". To delete finished jobs, use "qbull clean".
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        chosen = states or NOT_STARTED_STATES
        if not yes:
            _confirm(
                f'Delete all {" and ".join(chosen)} jobs of queue "{queue_name}" that match permanently?'
            )
        click.echo(sum([await queue.purge(state, **filters) for state in chosen]))

    target.run(main)


def _confirm(question: str) -> None:
    """Ask a person. A script has to say --yes."""
    if not sys.stdin.isatty():
        raise click.UsageError("purge deletes jobs permanently; confirm it with --yes")
    click.confirm(question, abort=True, err=True)
