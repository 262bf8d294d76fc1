"""`qbull failures`, `redrive` and `clean`: work on many finished jobs, filtered by task, error and time."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, assert_never

import click
import msgspec

from qbull.cli.duration import SecondsParam, read_past_moment
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.job_filter import JOB_FILTERS, FilterField, JobFilterArguments
from qbull.core.job_query import JobQuery, parse_query
from qbull.core.merge_patch import check_patch
from qbull.core.record import State
from qbull.errors import ArgumentsError
from qbull.manage.acknowledge import KnownError, states
from qbull.manage.patching import PatchedJob, preview_patch
from qbull.manage.search import FailureGroup, Redriven, filter_of
from qbull.views.errors import AcknowledgedView
from qbull.views.jobs import FailureGroupView
from qbull.views.shape import to_plain, view_of

F = TypeVar("F", bound=Callable[..., Any])


def _payload(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    path, separator, expected = value.partition("=")
    if not separator or not path:
        raise click.BadParameter(f'"{value}" is not of the form NAME=VALUE; write it like user_id=u1')
    return {path: expected}


def _patch(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return check_patch(msgspec.json.decode(value))
    except (msgspec.DecodeError, ArgumentsError) as error:
        raise click.BadParameter(str(error)) from None


def _query(ctx: click.Context, param: click.Parameter, value: str | None) -> JobQuery | None:
    if value is None:
        return None
    try:
        return parse_query(value, datetime.now(UTC), None)
    except ArgumentsError as error:
        raise click.BadParameter(str(error)) from None


def _filter_option(name: str, field: FilterField) -> Callable[[F], F]:
    flag = "--" + name.replace("_", "-")
    match field.kind:
        case "text":
            return click.option(flag, metavar=field.placeholder, help=field.help)
        case "time":
            return click.option(flag, metavar=field.placeholder, callback=read_past_moment, help=field.help)
        case "payload":
            return click.option(flag, metavar=field.placeholder, callback=_payload, help=field.help)
        case "query":
            return click.option(flag, metavar=field.placeholder, callback=_query, help=field.help)
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
    "lastError", "acknowledged"}; the last is null, or {"by", "at", "note", "returned"}.
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        groups = await queue.failures(scan=scan, **filters)
        known = await states(queue, {group.fingerprint for group in groups})
        if as_json:
            print_json([_group_json(group, known.get(group.fingerprint)) for group in groups])
        elif groups:
            _print_groups(groups, known)
        else:
            click.echo(f'queue "{queue_name}": no matching failed jobs', err=True)

    target.run(main)


def _group_json(group: FailureGroup, known: KnownError | None) -> dict[str, Any]:
    noted = (
        None
        if known is None
        else to_plain(view_of(AcknowledgedView, known.acknowledgement, returned=known.returned))
    )
    return {**to_plain(view_of(FailureGroupView, group)), "acknowledged": noted}


def _print_groups(groups: list[FailureGroup], known: Mapping[str, KnownError]) -> None:
    rows: list[list[object]] = [
        [group.count, group.fingerprint, ", ".join(group.tasks), ago(group.last_at), group.error]
        for group in groups
    ]
    print_table((">jobs", "fingerprint", "tasks", "last", "*error"), rows)
    for name, one in known.items():
        noted, back = one.acknowledgement, "" if one.returned is None else "; it is back"
        click.echo(f"{name} was acknowledged by {noted.by} {ago(noted.at)}: {noted.note}{back}")


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of jobs.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Maximum number of jobs per second.")
@click.option(
    "--patch", metavar="JSON", callback=_patch, help="Changes of the arguments, as a JSON merge patch."
)
@click.option(
    "--preview",
    is_flag=True,
    help="Show the arguments of five jobs before and after --patch; change nothing.",
)
@filtered
@with_reason
@on_target
def redrive(
    target: Target,
    queue_name: str,
    filters: JobFilterArguments,
    patch: dict[str, Any] | None,
    preview: bool,
    **pace: Any,
) -> None:
    """Run failed jobs again, oldest first.

    \b
    Example:
      qbull redrive email
      qbull redrive email --task verify --error-contains timeout --limit 1000 --rate 50
      qbull redrive email --task verify --patch '{"server": "smtp2", "trace": null}' --preview

    Prints the number of redriven jobs. If the command is interrupted, run it again to continue.

    --patch sets arguments, and deletes those that are null. The new arguments are checked like a call of the
    task. A job that they do not fit stays a dead letter; the command then exits with 1.
    """
    if preview and patch is None:
        raise click.UsageError("--preview needs --patch")
    progress = _BulkProgress()

    async def main() -> None:
        queue = await target.queue(queue_name)
        if preview and patch is not None:
            _show_preview(await preview_patch(queue, patch, "failed", filter_of(filters)))
            return
        count = await queue.redrive(patch=patch, on_step=progress, **pace, **filters)
        progress.end()
        click.echo(count)
        if progress.last is not None and progress.last.refused:
            raise click.ClickException(
                f"{progress.last.refused} jobs stay dead letters; the first: {progress.last.refusal}"
            )

    target.run(main)


def _show_preview(jobs: list[PatchedJob]) -> None:
    for one in jobs:
        click.echo(f"{one.job.id} ({one.job.body().task})")
        for sign, value in (("-", one.before), ("+", one.after)):
            if value is not None:
                click.echo(f"  {sign} {msgspec.json.encode(value).decode()}")
        if one.refusal is not None:
            click.echo(f"  refused: {one.refusal}")
    if not jobs:
        click.echo("no matching failed jobs", err=True)


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
        self.last: Redriven | None = None

    def __call__(self, step: Redriven) -> None:
        self.last = step
        if sys.stderr.isatty():
            self._shown = True
            click.echo(f"\r{step.redriven} redriven, {step.looked_at} looked at", nl=False, err=True)

    def end(self) -> None:
        if self._shown:
            click.echo(err=True)
