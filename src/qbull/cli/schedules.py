"""`qbull schedules` and `qbull run`: list schedules, change them, and run one now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from qbull.cli.duration import SecondsParam, read_coming_moment, wait_for_result
from qbull.cli.enqueue import read_arguments
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table, short
from qbull.core.schedule_info import ScheduleInfo
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
    """A group that runs its command `list` if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListingGroup)
def schedules() -> None:
    """List schedules with their next runs, and change them.

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
    """List the schedules with their next and last runs.

    \b
    Example:
      qbull schedules --json | jq '.[] | select(.missed > 0) | .name'

    With --json: a list of {"name", "queue", "task", "cron", "every", "tz", "args", "key", "catchUp",
    "catchUpLimit", "overlap", "jitter", "start", "end", "source", "paused", "next": five times, "lastRun":
    {"jobId", "plannedAt", "firedAt", "state", "error"}, "fired", "skipped", "missed", "problem"}.
    """

    async def main() -> None:
        infos = await target.app.schedules.list()
        if as_json:
            print_json([to_plain(view_of(ScheduleView, info)) for info in infos])
        elif infos:
            print_table(SCHEDULE_COLUMNS, [_row(info) for info in infos])
        else:
            click.echo(
                'no schedules; declare one with @queue.cron("0 9 * * *") or "qbull schedules put"', err=True
            )

    target.run(main)


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    return None if value is None else read_coming_moment(param.opts[0], value)


@schedules.command()
@click.argument("name")
@click.argument("task", metavar="QUEUE/TASK")
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option(
    "--cron",
    help='Cron expression with five fields, six with seconds, or a name: "0 9 * * *", "@daily".',
)
@click.option(
    "--every",
    type=SecondsParam(),
    metavar="DURATION",
    help="Time between two runs, such as 300 or 5m, instead of --cron.",
)
@click.option("--tz", help="Time zone of the cron expression.  [default: TZ, else UTC]")
@click.option(
    "--catch-up",
    type=click.Choice(["skip", "one", "all"]),
    default="skip",
    show_default=True,
    help="How to handle missed runs.",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "allow"]),
    help="Whether a run may start while the previous one is unfinished."
    "  [default: skip; allow with --catch-up all]",
)
@click.option(
    "--jitter",
    type=SecondsParam(),
    default=0.0,
    metavar="DURATION",
    help="Maximum random delay that is added to each run.",
)
@click.option(
    "--start",
    metavar="TIME",
    callback=_moment,
    help="Schedule no runs before this time, such as 2030-01-31, tomorrow or 2h.",
)
@click.option("--end", metavar="TIME", callback=_moment, help="Schedule no runs after this time.")
@with_reason
@on_target
@as_json
def put(target: Target, name: str, task: str, arguments: str, as_json: bool, **rule: Any) -> None:
    """Create or change a schedule at run time.

    \b
    Example:
      qbull schedules put nightly maintenance/clean '{"days": 1}' --cron "30 2 * * *" --tz Europe/Berlin
      qbull schedules put sync erp/sync --every 5m

    This schedule overrides one of the same name in the code until "qbull schedules remove". With --app the
    arguments are checked.
    """
    args = read_arguments(arguments)

    async def main() -> None:
        info = await target.app.schedules.upsert(name, task, args=args, **rule)
        if as_json:
            print_json(to_plain(view_of(ScheduleView, info)))
        else:
            click.echo(f"{name}: next run {_time(info.next[0]) if info.next else 'never'}")

    target.run(main)


@schedules.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Number of runs.")
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
@with_reason
@on_target
def pause(target: Target, name: str) -> None:
    """Pause a schedule: it has no runs until it is resumed."""
    target.run(lambda: target.app.schedules.pause(name))


@schedules.command()
@click.argument("name")
@with_reason
@on_target
def resume(target: Target, name: str) -> None:
    """Resume a schedule. Runs that fell into the pause are skipped."""
    target.run(lambda: target.app.schedules.resume(name))


@schedules.command()
@click.argument("name")
@with_reason
@on_target
def remove(target: Target, name: str) -> None:
    """Remove a schedule made at run time. One that the code declares is reset to the code."""
    target.run(lambda: target.app.schedules.remove(name))


@click.command()
@click.argument("name", metavar="SCHEDULE")
@wait_for_result
@with_reason
@on_target
def run(target: Target, name: str, wait: float | None) -> None:
    """Run a schedule now and print the job's id.

    This run is in addition to the planned ones and works for a paused schedule too. With --wait the result is
    printed.

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
        None if last is None else last.state or "expired",
        info.fired,
        info.missed,
        info.problem or short(last.error if last is not None and last.error else "", 200),
    ]


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"
