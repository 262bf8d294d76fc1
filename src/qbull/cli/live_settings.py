"""`qbull configure`, `reset` and `settings`: change a queue's settings while it runs."""

from __future__ import annotations

from typing import Any

import click

from qbull.cli.pause import by
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table, span
from qbull.config import Keep
from qbull.core.moment import parse_duration
from qbull.core.rate import Rate
from qbull.core.retry import Retry
from qbull.queue import Queue
from qbull.store.verbs.live_settings import LIVE_SETTING_TYPES
from qbull.views.live_settings import SettingsShape
from qbull.views.shape import to_plain

NO_LIMIT: Any = object()
"""The value of an option that was given as "none", to tell it from an option that was not given."""


def _max_active(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None or value == "none":
        return NO_LIMIT if value else None
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(
            f'"{value}": give a number of jobs, 1 or more, or none', ctx, param
        ) from None


def parse_rate(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Parse a rate: `100/60` is Rate(100, per=60)."""
    if value is None or value == "none":
        return NO_LIMIT if value else None
    count, _, per = value.partition("/")
    try:
        return Rate(int(count), float(per or 1))
    except ValueError:
        raise click.BadParameter(
            f'"{value}": give starts and seconds, for example 100/60, or none', ctx, param
        ) from None


def _retry(ctx: click.Context, param: click.Parameter, value: str | None) -> Retry | None:
    """Parse a retry policy: `1,5,15` is Retry(delays=(1, 5, 15)), `none` is a single attempt."""
    if value is None:
        return None
    if value == "none":
        return Retry(attempts=1)
    try:
        return Retry(delays=tuple(float(wait) for wait in value.split(",")))
    except ValueError:
        raise click.BadParameter(
            f'"{value}": give the seconds between attempts, for example 1,5,15, or none', ctx, param
        ) from None


def _timeout(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None or value == "none":
        return NO_LIMIT if value else None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or none", ctx, param) from None


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> Keep | None:
    """Parse a retention: `completed=1000,failed_for=30d` is Keep(completed=1000, failed_for=2592000)."""
    if value is None:
        return None
    given: dict[str, Any] = {}
    try:
        for part in value.split(","):
            name, _, amount = part.strip().replace("-", "_").partition("=")
            given[name] = parse_duration(amount) if name.endswith("_for") else int(amount)
        return Keep(**given)
    except (ValueError, TypeError):
        raise click.BadParameter(
            f'"{value}": give completed, failed, completed_for and failed_for, '
            "for example completed=1000,failed_for=30d",
            ctx,
            param,
        ) from None


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option("--concurrency", type=int, help="Number of jobs that each worker process runs at a time.")
@click.option(
    "--max-active",
    metavar="N|none",
    callback=_max_active,
    help="Maximum number of running jobs over all workers.",
)
@click.option(
    "--rate",
    metavar="100/60|none",
    callback=parse_rate,
    help="Maximum number of starts over all workers, per number of seconds.",
)
@click.option(
    "--retry",
    metavar="1,5,15|none",
    callback=_retry,
    help="Seconds between attempts for all tasks of the queue; none for a single attempt.",
)
@click.option(
    "--timeout",
    metavar="DURATION|none",
    callback=_timeout,
    help="Time that one attempt may take, for all tasks of the queue.",
)
@click.option(
    "--keep",
    metavar="RETENTION",
    callback=_keep,
    help="How long finished jobs stay: completed=1000,completed_for=1d,failed_for=30d.",
)
@by
@with_reason
@on_target
def configure(target: Target, queue_name: str, by: str | None, **given: Any) -> None:
    """Change settings of a queue for all its workers.

    These settings override the code until "qbull reset".

    \b
    Example:
      qbull configure email --concurrency 20
      qbull configure email --rate 100/60 --max-active none --retry none
      qbull configure email --timeout 90s --keep completed=1000,failed_for=7d
    """
    values = {name: value for name, value in given.items() if value not in (None, NO_LIMIT)}
    values |= {name: None for name, value in given.items() if value is NO_LIMIT}

    async def main() -> None:
        queue = await target.queue(queue_name)
        await queue.configure(**values, by=by)
        await _print(queue)

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("settings", nargs=-1, metavar="[SETTING]…")
@by
@with_reason
@on_target
def reset(target: Target, queue_name: str, settings: tuple[str, ...], by: str | None) -> None:
    """Reset settings of a queue to those in its code.

    Without SETTING, resets all of them. A pause stays in effect.

    \b
    Example:
      qbull reset email
      qbull reset email concurrency
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        await queue.reset(*settings, by=by)
        await _print(queue)

    target.run(main)


@click.command()
@click.argument("queue_name", metavar="QUEUE")
@click.option("--history", is_flag=True, help="Show the last changes, newest first.")
@on_target
@as_json
def settings(target: Target, queue_name: str, history: bool, as_json: bool) -> None:
    """Show the effective settings of a queue and their changes.

    \b
    Example:
      qbull settings email
      qbull settings email --history
    """

    async def main() -> None:
        queue = await target.queue(queue_name)
        if as_json:
            print_json(to_plain(SettingsShape.of(queue_name, await queue.live(), await queue.changes())))
        elif not history:
            await _print(queue)
        elif changes := await queue.changes():
            rows = [[ago(c.at), c.by, c.setting, _text(c.before), _text(c.after)] for c in changes]
            print_table(("when", "by", "setting", "before", "after"), rows)
        else:
            click.echo(f'queue "{queue_name}": no changes yet', err=True)

    target.run(main)


async def _print(queue: Queue) -> None:
    live = await queue.live()
    rows: list[list[object]] = []
    for name in ("paused", *LIVE_SETTING_TYPES):
        value = live.paused if name == "paused" else getattr(live.settings, name)
        changed = live.changed.get(name)
        origin = "the code" if changed is None else f"{changed.by}, {ago(changed.at)}"
        rows.append([name, _text(value), origin])
    print_table(("setting", "value", "set by"), rows)


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "yes" if value else "no"
        case Retry(delays=delays) if delays:
            return f"{value.attempts} attempts, waits {', '.join(f'{wait:g}' for wait in delays)} s"
        case Retry(attempts=1):
            return "1 attempt"
        case Keep():
            return _retention_text(value)
        case Retry():
            return f"{value.attempts} attempts, {value.backoff} from {value.delay:g} s"
    return str(value)


def _retention_text(keep: Keep) -> str:
    """For example: completed 1000 for 1 d, failed for 30 d."""
    parts = []
    for state in ("completed", "failed"):
        count, seconds = getattr(keep, state), getattr(keep, f"{state}_for")
        parts.append(state + (f" {count}" if count is not None else ""))
        parts[-1] += f" for {span(seconds)}" if seconds is not None else ""
    return ", ".join(parts)
