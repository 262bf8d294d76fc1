"""`qbull drain`: move the jobs that wait in Celery or RQ into qbull, each once."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json, print_table
from qbull.compat.celery.app import address_of
from qbull.core.cron import zone_of
from qbull.drain.celery import CelerySource
from qbull.drain.deliver import JobImporter
from qbull.drain.move import DrainReport, DrainRun, JobSource
from qbull.drain.rq import RqSource
from qbull.drain.source import SourceServer
from qbull.errors import NotFound

DRAIN_PROGRESS_SECONDS = 2.0
"""Seconds between two lines of progress."""


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in value]
    for old, there, new in pairs:
        if not (old and there and new):
            raise click.BadParameter(f'"{old}": give OLD=NEW, the names of tasks', ctx, param)
    return {old: new for old, _, new in pairs}


def _zone(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return zone_of(value).key
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@click.argument("library", type=click.Choice(["celery", "rq"]))
@click.option("--from", "source", required=True, metavar="URL", help="The server that Celery or RQ uses.")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be given several times."
)
@click.option(
    "--to",
    metavar="QUEUE",
    help="The queue for all of them.  [default: the one of the same name, else the task's]",
)
@click.option(
    "--map", "names", multiple=True, metavar="OLD=NEW", callback=_names, help="The task NEW is meant by OLD."
)
@click.option("--dry-run", is_flag=True, help="Only say what could be moved and what not.")
@click.option(
    "--unacked", is_flag=True, help="Celery: also what workers have taken. Only when none runs any more."
)
@click.option(
    "--timezone", default="UTC", show_default=True, callback=_zone, help="Celery: of an eta that has none."
)
@click.option(
    "--key-prefix", default="", metavar="TEXT", help="Celery: its global_keyprefix, where it has one."
)
@on_target
@as_json
def drain(
    target: Target,
    library: str,
    source: str,
    queues: tuple[str, ...],
    to: str | None,
    names: dict[str, str],
    dry_run: bool,
    unacked: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Move the jobs that wait in Celery or RQ into queues of qbull.

    Each is moved once, whatever is killed at whatever moment: run it again, and it goes on. What cannot be moved is
    left where it is and reported with the reason; then the exit code is 1. With --app the arguments are checked against the
    tasks, and get their names; without it only calls with named arguments can be moved.

    \b
    Example:
      qbull drain celery --from redis://localhost:6379/0 --app shop:app --dry-run
      qbull drain rq --from redis://localhost:6379/0 --app shop:app --queue mail
    """

    async def main() -> int:
        old = SourceServer(address_of(source), library)
        try:
            made = _source(library, old, unacked, options)
            found = list(queues) or await made.queues()
            if not found:
                raise NotFound(
                    f"{old.server.address.shown}: no queue of {library} is there; name it with --queue NAME"
                )
            moving = DrainRun(
                made, JobImporter(target.app, to=to, names=names), dry=dry_run, on_step=_DrainProgress()
            )
            report = await moving.run(found)
        finally:
            await old.close()
        if as_json:
            print_json(_wire(report, dry_run))
        else:
            _print(report, library, dry_run, unacked)
        return 1 if report.left and not dry_run else 0

    return target.run(main)


def _source(library: str, old: SourceServer, unacked: bool, options: dict[str, Any]) -> JobSource:
    if library == "rq":
        if unacked or options["key_prefix"]:
            raise click.UsageError("--unacked and --key-prefix are Celery's")
        return RqSource(old)
    return CelerySource(old, zone=options["timezone"], prefix=options["key_prefix"], unacked=unacked)


class _DrainProgress:
    """A line now and then, on stderr."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, report: DrainReport) -> None:
        if time.monotonic() - self._said < DRAIN_PROGRESS_SECONDS:
            return
        self._said = time.monotonic()
        click.echo(f"qbull: {report.moved.total():,} so far, {report.left.total():,} left", err=True)
        sys.stderr.flush()


def _print(report: DrainReport, library: str, dry: bool, unacked: bool) -> None:
    word = "can be moved" if dry else "moved"
    rows = [[queue, count] for queue, count in sorted(report.moved.items()) if count]
    if rows:
        print_table(("queue", f">{word}"), rows)
    click.echo(f"{report.moved.total():,} {word}, {report.left.total():,} {'would stay' if dry else 'left'}")
    if report.left:
        lines = [
            [count, queue, task, why, report.examples[queue, task, why]]
            for (queue, task, why), count in report.left.most_common()
        ]
        print_table((">left", "queue", "task", "because", "for example"), lines)
    if report.held and not unacked:
        click.echo(
            f"qbull: {report.held:,} messages are with {library} workers; stop these, and they give them back; "
            "of workers that were killed: --unacked",
            err=True,
        )


def _wire(report: DrainReport, dry: bool) -> dict[str, Any]:
    return {
        "dryRun": dry,
        "moved": report.moved.total(),
        "queues": dict(report.moved),
        "left": [
            {
                "queue": queue,
                "task": task,
                "count": count,
                "reason": why,
                "example": report.examples[queue, task, why],
            }
            for (queue, task, why), count in report.left.most_common()
        ],
        "unacknowledged": report.held,
    }
