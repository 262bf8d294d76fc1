"""`qbull failures`, `redrive` and `clean`: work on many finished jobs, filtered by task, error and time."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, assert_never

import click

from qbull.cli.duration import SecondsParam
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.job_filter import JOB_FILTERS, FilterField, JobFilterArguments
from qbull.core.moment import parse_moment
from qbull.core.record import State
from qbull.manage.search import Redriven
from qbull.views.jobs import FailureGroupView
from qbull.views.shape import to_plain, view_of

F = TypeVar("F", bound=Callable[..., Any])


def read_past_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_moment(value, datetime.now(UTC), None)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _payload(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    path, separator, expected = value.partition("=")
    if not separator or not path:
        raise click.BadParameter(f'"{value}" is not of the form NAME=VALUE; write it like user_id=u1')
    return {path: expected}


def _filter_option(name: str, field: FilterField) -> Callable[[F], F]:
    flag = "--" + name.replace("_", "-")
    match field.kind:
        case "text":
            return click.option(flag, metavar=field.placeholder, help=field.help)
        case "time":
            return click.option(flag, metavar=field.placeholder, callback=read_past_moment, help=field.help)
        case "payload":
            return click.option(flag, metavar=field.placeholder, callback=_payload, help=field.help)
        case _:
            assert_never(field.kind)


def filtered(command: F) -> F:
    """Add the options that filter jobs; the command gets their values as `filters`."""

    @functools.wraps(command)
    def with_filters(**given: Any) -> Any:
        filters = {name: given.pop(name) for name in JOB_FILTERS}
        return command(filters=filters, **given)

    for name, field in reversed(JOB_FILTERS.items()):
        with_filters = _filter_option(name, field)(with_filters)
    return with_filters  # type: ignore[return-value]


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option(
    "--scan",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Number of failed jobs to read, newest first.",
)
@filtered
@on_target
@as_json
def failures(target: Target, queue_name: str, scan: int, filters: JobFilterArguments, as_json: bool) -> None:
    """Group failed jobs by error.

    \b
    Example:
      qbull failures email
      qbull redrive email --fingerprint 6f1c0a2b9d3e

    With --json: a list of {"fingerprint", "error", "count", "tasks", "firstAt", "lastAt", "lastId",
    "lastError"}.
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        groups = await queue.failures(scan=scan, **filters)
        if as_json:
            print_json([to_plain(view_of(FailureGroupView, group)) for group in groups])
        elif groups:
            rows: list[list[object]] = [
                [group.count, group.fingerprint, ", ".join(group.tasks), ago(group.last_at), group.error]
                for group in groups
            ]
            print_table((">jobs", "fingerprint", "tasks", "last", "*error"), rows)
        else:
            click.echo(f'queue "{queue_name}": no matching failed jobs', err=True)

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Maximum number of jobs per second.")
@filtered
@with_reason
@on_target
def redrive(
    target: Target, queue_name: str, limit: int | None, rate: float | None, filters: JobFilterArguments
) -> None:
    """Run failed jobs again, oldest first.

    \b
    Example:
      qbull redrive email
      qbull redrive email --task verify --error-contains timeout --limit 1000 --rate 50

    Prints the number of redriven jobs. If the command is interrupted, run it again to continue.
    """
    progress = _BulkProgress()

    async def main() -> None:
        queue = await target.queue(queue_name)
        count = await queue.redrive(limit=limit, rate=rate, on_step=progress, **filters)
        progress.end()
        click.echo(count)

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option(
    "--state",
    type=click.Choice(("completed", "failed", "cancelled")),
    required=True,
    help="State of the jobs.",
)
@click.option(
    "--older-than",
    type=SecondsParam(),
    required=True,
    metavar="DURATION",
    help="Only jobs that finished at least this long ago, such as 3600, 2h or 7d; 0 for all.",
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs.")
@filtered
@with_reason
@on_target
def clean(
    target: Target,
    queue_name: str,
    state: State,
    older_than: float,
    limit: int | None,
    filters: JobFilterArguments,
) -> None:
    """Delete finished jobs by age.

    \b
    Example:
      qbull clean email --state completed --older-than 7d
      qbull clean email --state failed --older-than 0 --task verify

    Prints the number of deleted jobs. Deleting a dead letter that halts its lane lets the lane continue.
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        click.echo(await queue.clean(state, older_than=older_than, limit=limit, **filters))

    target.run(main)


class _BulkProgress:
    """A progress line that overwrites itself. Silent if stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, step: Redriven) -> None:
        if sys.stderr.isatty():
            self._shown = True
            click.echo(f"\r{step.redriven} redriven, {step.looked_at} looked at", nl=False, err=True)

    def end(self) -> None:
        if self._shown:
            click.echo(err=True)
