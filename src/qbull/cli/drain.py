"""`qbull drain`: move waiting jobs from Celery or RQ into qbull, each exactly once."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json, print_table
from qbull.compat.celery.broker import address_of
from qbull.core.cron import zone_of
from qbull.drain.deliver import JobImporter
from qbull.drain.move import DrainReport, DrainRun, JobSource
from qbull.drain.source import SourceServer
from qbull.errors import NotFound

DRAIN_PROGRESS_SECONDS = 2.0
"""Seconds between two progress lines."""


@dataclass(frozen=True)
class DrainOptions:
    """How jobs are read from the other library, and which queue and task they become."""

    to: str | None
    names: Mapping[str, str]
    unacked: bool
    timezone: str
    key_prefix: str


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in value]
    for old, separator, new in pairs:
        if not (old and separator and new):
            raise click.BadParameter(f'"{old}": give two names of tasks as OLD=NEW', ctx, param)
    return {old: new for old, _, new in pairs}


def _zone(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return zone_of(value).key
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@click.argument("library", type=click.Choice(["celery", "rq"]))
@click.option("--from", "source", required=True, metavar="URL", help="Server that Celery or RQ uses.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Drain only this queue; may be given several times.",
)
@click.option(
    "--to",
    metavar="QUEUE",
    help="Queue to move all jobs to.  [default: the queue of the same name, else the queue of the task]",
)
@click.option(
    "--map",
    "names",
    multiple=True,
    metavar="OLD=NEW",
    callback=_names,
    help="Move jobs of the task OLD to the task NEW; may be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Only report which jobs can be moved.")
@click.option(
    "--unacked",
    is_flag=True,
    help="Celery: also move unacknowledged messages. Use it only if no Celery worker is running.",
)
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    callback=_zone,
    help="Celery: time zone of an eta that has none.",
)
@click.option("--key-prefix", default="", metavar="TEXT", help="Celery: its global_keyprefix, if it is set.")
@on_target
@as_json
def drain(
    target: Target,
    library: str,
    source: str,
    queues: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Move waiting jobs from Celery or RQ into qbull.

    Each job is moved exactly once, even if this command is killed: run it again to continue. Jobs that cannot
    be moved stay in place and are reported with the reason; the exit code is then 1. With --app the arguments
    are checked against the tasks and get their names; without it only calls with keyword arguments can be
    moved.

    \b
    Example:
      qbull drain celery --from redis://localhost:6379/0 --app shop:app --dry-run
      qbull drain rq --from redis://localhost:6379/0 --app shop:app --queue mail
    """
    chosen = DrainOptions(**options)

    async def main() -> int:
        server = SourceServer(address_of(source), library)
        try:
            jobs = _source(library, server, chosen)
            names = list(queues) or await jobs.queues()
            if not names:
                raise NotFound(
                    f"{server.server.address.shown}: no queue of {library} found; name it with --queue NAME"
                )
            importer = JobImporter(target.app, to=chosen.to, names=chosen.names)
            report = await DrainRun(jobs, importer, dry=dry_run, on_step=_DrainProgress()).run(names)
        finally:
            await server.close()
        if as_json:
            print_json(_json(report, dry_run))
        else:
            _print(report, library, dry_run, chosen.unacked)
        return 1 if report.left and not dry_run else 0

    return target.run(main)


def _source(library: str, server: SourceServer, options: DrainOptions) -> JobSource:
    from qbull.drain.celery import CelerySource  # `qbull --help` loads this module and needs no source.
    from qbull.drain.rq import RqSource

    if library == "rq":
        if options.unacked or options.key_prefix:
            raise click.UsageError("--unacked and --key-prefix are for Celery only")
        return RqSource(server)
    return CelerySource(server, zone=options.timezone, prefix=options.key_prefix, unacked=options.unacked)


class _DrainProgress:
    """Print a line every few seconds, on stderr."""

    def __init__(self) -> None:
        self._last_line_at = time.monotonic()

    def __call__(self, report: DrainReport) -> None:
        if time.monotonic() - self._last_line_at < DRAIN_PROGRESS_SECONDS:
            return
        self._last_line_at = time.monotonic()
        click.echo(f"qbull: {report.moved.total():,} moved, {report.left.total():,} left so far", err=True)
        sys.stderr.flush()


def _print(report: DrainReport, library: str, dry: bool, unacked: bool) -> None:
    moved = "can be moved" if dry else "moved"
    rows = [[queue, count] for queue, count in sorted(report.moved.items()) if count]
    if rows:
        print_table(("queue", f">{moved}"), rows)
    click.echo(f"{report.moved.total():,} {moved}, {report.left.total():,} {'would stay' if dry else 'left'}")
    if report.left:
        reasons = [
            [count, queue, task, why, report.examples[queue, task, why]]
            for (queue, task, why), count in report.left.most_common()
        ]
        print_table((">left", "queue", "task", "reason", "example"), reasons)
    if report.held and not unacked:
        click.echo(
            f"qbull: {library} workers hold {report.held:,} messages; stop the workers, and they return "
            "them. If the workers were killed, use --unacked",
            err=True,
        )


def _json(report: DrainReport, dry: bool) -> dict[str, Any]:
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
