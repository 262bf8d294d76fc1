"""`qbull limits`: list the shared limits with their use, and change them while everything runs."""

from __future__ import annotations

from typing import Any

import click

from qbull.cli.live_settings import NO_LIMIT, parse_rate
from qbull.cli.pause import by
from qbull.cli.schedules import ListingGroup
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table
from qbull.core.limit_status import LimitStatus
from qbull.core.limits import LIMIT_SETTINGS
from qbull.views.limits import LimitView
from qbull.views.shape import to_plain


def _count(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None or value == "none":
        return NO_LIMIT if value else None
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f'"{value}": give a whole number, 1 or more, or none', ctx, param) from None


@click.group(cls=ListingGroup)
def limits() -> None:
    """List shared limits with their use, and change them.

    \b
    Example:
      qbull limits
      qbull limits set openai --rate 100/60 --concurrency 5
      qbull limits reset openai
    """


@limits.command("list")
@on_target
@as_json
def list_limits(target: Target, as_json: bool) -> None:
    """List the shared limits, their use, and the jobs that wait.

    \b
    Example:
      qbull limits --json | jq '.[] | select(.waiting > 0) | .name'

    A value with a star was changed at run time. With --json: a list of {"name", "rate": {"count", "per"},
    "concurrency", "daily", "changed": names of values, "running", "used", "spent", "waiting", "since",
    "queues": waiting jobs by queue, "keys": [{"key", "running", "used", "spent", "waiting"}], "granted",
    "returned"}.
    """

    async def main() -> None:
        found = await target.app.limits.all()
        if as_json:
            print_json([to_plain(LimitView.of(status)) for status in found])
        elif found:
            _print(found)
        else:
            click.echo("no shared limits; a worker declares those of its tasks when it starts", err=True)

    target.run(main)


@limits.command("show")
@click.argument("name")
@on_target
def show_limit(target: Target, name: str) -> None:
    """Show one limit: the queues that wait for it, and the keys with the most use.

    \b
    Example:
      qbull limits show crm
    """

    async def main() -> None:
        status = await target.app.limits.get(name)
        _print([status])
        if status.queues:
            click.echo()
            print_table(("queue", ">waiting jobs"), [list(pair) for pair in status.queues.items()])
        if status.keys:
            click.echo()
            rows = [[one.key, one.running, one.used, one.spent, one.waiting] for one in status.keys]
            print_table(("*key", ">running", ">in the window", ">today", ">waiting jobs"), rows)

    target.run(main)


@limits.command("set")
@click.argument("name")
@click.option(
    "--rate",
    metavar="500/60|none",
    callback=parse_rate,
    help="Weight that may start over all workers, per number of seconds.",
)
@click.option("--concurrency", metavar="N|none", callback=_count, help="Jobs that run at a time.")
@click.option("--daily", metavar="N|none", callback=_count, help="Weight that may start in a day, by UTC.")
@by
@with_reason
@on_target
def set_limit(target: Target, name: str, by: str | None, **given: Any) -> None:
    """Change a limit for all workers at once.

    The values override the code until "qbull limits reset".

    \b
    Example:
      qbull limits set openai --rate 100/60 --concurrency 5
      qbull limits set openai --daily none
    """
    values = {
        setting: None if value is NO_LIMIT else value for setting, value in given.items() if value is not None
    }

    async def main() -> None:
        await target.app.limits.configure(name, **values, by=by)
        _print([await target.app.limits.get(name)])

    target.run(main)


@limits.command("reset")
@click.argument("name")
@click.argument("settings", metavar="[SETTING]...", nargs=-1, type=click.Choice(LIMIT_SETTINGS))
@by
@with_reason
@on_target
def reset_limit(target: Target, name: str, settings: tuple[str, ...], by: str | None) -> None:
    """Return a limit to the values of the code.

    \b
    Example:
      qbull limits reset openai
      qbull limits reset openai rate
    """

    async def main() -> None:
        await target.app.limits.reset(name, *settings, by=by)
        _print([await target.app.limits.get(name)])

    target.run(main)


def _print(found: list[LimitStatus]) -> None:
    columns = ("limit", "window", "slots", "today", ">waiting jobs", "oldest")
    print_table(columns, [_row(one) for one in found])


def _row(status: LimitStatus) -> list[object]:
    rate, daily = status.rate, status.daily
    window = None if rate is None else f"{status.used:,}/{rate.count:,} in {rate.per:g} s"
    slots = None if status.concurrency is None else f"{status.running}/{status.concurrency}"
    today = f"{status.spent:,}" if daily is None else f"{status.spent:,}/{daily:,}"
    return [
        status.name,
        *(
            f"{text or 'none'} *" if setting in status.changed else text
            for setting, text in zip(LIMIT_SETTINGS, (window, slots, today), strict=True)
        ),
        status.waiting,
        None if status.since is None else ago(status.since),
    ]
