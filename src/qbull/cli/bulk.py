"""`qbull purge`, and the parts of `qbull cancel` and `qbull reschedule` that work on many jobs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from qbull.cli.dead_letters import filtered
from qbull.cli.target import Target, on_target, with_reason
from qbull.core.job_filter import JobFilterArguments
from qbull.core.record import State

NOT_STARTED_STATES: tuple[State, ...] = ("waiting", "delayed")


@dataclass(frozen=True)
class ChosenJobs:
    """All jobs of some states that match, instead of one job by its id."""

    every: bool
    states: tuple[State, ...]
    filters: JobFilterArguments

    def check(self, id: str | None) -> None:
        """Refuse a command that names neither a job nor a filter, or both."""
        is_bulk = self.every or bool(self.states) or any(self.filters.values())
        if id is None and not (self.every or any(self.filters.values())):
            raise click.UsageError("expected the id of a job, a filter such as --task, or --all")
        if id is not None and is_bulk:
            raise click.UsageError("expected the id of one job, or filters for many; omit one of them")


def _choosing(states: tuple[State, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that choose many jobs of these states; the command gets them as `chosen`."""

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @filtered
        @functools.wraps(command)
        def with_chosen(
            every: bool, states: tuple[State, ...], filters: JobFilterArguments, **rest: Any
        ) -> None:
            command(chosen=ChosenJobs(every, states, filters), **rest)

        state = click.option(
            "--state",
            "states",
            type=click.Choice(states),
            multiple=True,
            help="Without ID: state of the jobs; may be given several times.  [default: waiting and delayed]",
        )
        every = click.option("--all", "every", is_flag=True, help="Without ID: all jobs of the given states.")
        return every(state(with_chosen))

    return declare


many = _choosing(NOT_STARTED_STATES)
many_with_active = _choosing((*NOT_STARTED_STATES, "active"))


def cancel_many(target: Target, queue_name: str, chosen: ChosenJobs, reason: str) -> None:
    """Cancel all jobs that match, and print their number."""

    async def main() -> None:
        queue = await target.queue(queue_name)
        states = chosen.states or NOT_STARTED_STATES
        click.echo(sum([await queue.cancel(state, reason=reason, **chosen.filters) for state in states]))

    target.run(main)


def reschedule_many(
    target: Target, queue_name: str, chosen: ChosenJobs, delay: float | None, at: datetime | None
) -> None:
    """Change when all jobs may run that match, and print their number."""

    async def main() -> None:
        queue = await target.queue(queue_name)
        # Delayed jobs first: a waiting job that is rescheduled becomes a delayed one.
        states = sorted(chosen.states or NOT_STARTED_STATES)
        done = [await queue.reschedule(state, delay=delay, at=at, **chosen.filters) for state in states]
        click.echo(sum(done))

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
