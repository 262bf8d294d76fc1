"""`qbull schedules` and `qbull run`: what runs when, and what a person can do about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from qbull.cli.duration import SecondsParam
from qbull.cli.enqueue import read_arguments
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, print_json, print_table, short
from qbull.errors import ArgumentsError
from qbull.schedules import ScheduleInfo
from qbull.views.schedules import ScheduleView
from qbull.views.shape import to_plain, view_of

SCHEDULE_COLUMNS = (
    "schedule",
    "queue",
    "task",
    "when",
    "next run",
    "last run",
    "outcome",
    ">fired",
    ">missed",
    "*problem",
)


class ListingGroup(click.Group):
    """A group that lists where no command of it is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListingGroup)
def schedules() -> None:
    """List the schedules with their next runs, and steer them.

    \b
    Example:
      qbull schedules
      qbull schedules --json
      qbull schedules pause daily-report
    """


@schedules.command("list")
@on_target
@as_json
def list_schedules(target: Target, as_json: bool) -> None:
    """List them, with their next and their last run.

    \b
    Example:
      qbull schedules --json | jq '.[] | select(.missed > 0) | .name'

    With --json: a list of {"name", "queue", "task", "cron", "every", "tz", "args", "key", "catchUp", "catchUpLimit",
    "overlap", "jitter", "start", "end", "source", "paused", "next": five times, "lastRun": {"jobId", "plannedAt",
    "firedAt", "state", "error"}, "fired", "skipped", "missed", "problem"}.
    """

    async def main() -> None:
        found = await target.app.schedules.list()
        if as_json:
            print_json([to_plain(view_of(ScheduleView, info)) for info in found])
        elif found:
            print_table(SCHEDULE_COLUMNS, [_row(info) for info in found])
        else:
            click.echo(
                'no schedules; declare one with @queue.cron("0 9 * * *") or "qbull schedules put"', err=True
            )

    target.run(main)


@schedules.command()
@click.argument("name")
@click.argument("task", metavar="QUEUE/TASK")
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option("--cron", help='When, as five fields, six with seconds, or a name: "0 9 * * *", "@daily".')
@click.option("--every", type=float, metavar="SECONDS", help="Or every so many seconds.")
@click.option("--tz", help="In which time zone.  [default: TZ, else UTC]")
@click.option("--catch-up", type=click.Choice(["skip", "one", "all"]), default="skip", show_default=True, help="What becomes of ticks that were missed.")  # fmt: skip
@click.option("--overlap", type=click.Choice(["skip", "allow"]), help="What becomes of a tick while the run before goes on.  [default: skip; allow with --catch-up all]")  # fmt: skip
@click.option(
    "--jitter", type=float, default=0.0, metavar="SECONDS", help="Spread each tick by up to so much."
)
@click.option("--start", metavar="TIME", help="No tick before: 2026-01-31T09:00:00+01:00.")
@click.option("--end", metavar="TIME", help="No tick after.")
@on_target
@as_json
def put(
    target: Target,
    name: str,
    task: str,
    arguments: str,
    start: str | None,
    end: str | None,
    as_json: bool,
    **rule: Any,
) -> None:
    """Make a schedule at run time, or change it.

    \b
    Example:
      qbull schedules put nightly maintenance/clean '{"older_than": 86400}' --cron "30 2 * * *" --tz Europe/Berlin
      qbull schedules put sync erp/sync --every 300

    What is said here wins over the code until "qbull schedules remove". With --app the arguments are checked.
    """
    args = read_arguments(arguments)
    rule |= {"start": _moment("--start", start), "end": _moment("--end", end)}

    async def main() -> None:
        info = await target.app.schedules.upsert(name, task, args=args, **rule)
        if as_json:
            print_json(to_plain(view_of(ScheduleView, info)))
        else:
            click.echo(f"{name}: next run {_time(info.next[0]) if info.next else 'never'}")

    target.run(main)


@schedules.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@on_target
@as_json
def preview(target: Target, name: str, count: int, as_json: bool) -> None:
    """Show the next runs of a schedule.

    \b
    Example:
      qbull schedules preview daily-report --count 10

    With --json: a list of times.
    """

    async def main() -> None:
        instants = await target.app.schedules.preview(name, count)
        if as_json:
            print_json(to_plain(instants))
        for at in [] if as_json else instants:
            click.echo(f"{_time(at)}  {ago(at)}")

    target.run(main)


@schedules.command()
@click.argument("name")
@on_target
def pause(target: Target, name: str) -> None:
    """Fire no ticks of a schedule until it is resumed."""
    target.run(lambda: target.app.schedules.pause(name))


@schedules.command()
@click.argument("name")
@on_target
def resume(target: Target, name: str) -> None:
    """Go on with the next tick. Those within the pause are not caught up."""
    target.run(lambda: target.app.schedules.resume(name))


@schedules.command()
@click.argument("name")
@on_target
def remove(target: Target, name: str) -> None:
    """Take away what was made at run time; what the code declares is as in the code again."""
    target.run(lambda: target.app.schedules.remove(name))


@click.command()
@click.argument("name", metavar="SCHEDULE")
@click.option(
    "--wait", type=SecondsParam(), metavar="SECONDS", help="Wait so long for its result, and print that."
)
@on_target
def run(target: Target, name: str, wait: float | None) -> None:
    """Run a schedule now and print the job's id.

    It runs beside its plan, also while the schedule is paused. With --wait its result is printed.

    \b
    Example:
      qbull run daily-report
    """

    async def main() -> None:
        job = await target.app.schedules.run(name)
        if wait is None:
            click.echo(job.id)
        else:
            print_json(await job.result(wait))

    target.run(main)


def _row(info: ScheduleInfo) -> list[object]:
    when = info.cron if info.cron is not None else f"every {info.every:g} s"
    upcoming = "paused" if info.paused else _time(info.next[0]) if info.next else "ended"
    last = info.last
    return [
        info.name,
        info.queue,
        info.task,
        when,
        upcoming,
        None if last is None else ago(last.fired_at),
        None if last is None else last.state or "not kept",
        info.fired,
        info.missed,
        info.problem or short(last.error if last is not None and last.error else "", 200),
    ]


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentsError(f"{option} {text}: give a time such as 2026-01-31T09:00:00+01:00") from None
