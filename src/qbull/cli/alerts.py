"""`qbull alerts`: list the destinations of alerts and the open problems, and send a test message."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from qbull.alerts.deliver import send_test_messages
from qbull.cli.schedules import ListingGroup
from qbull.cli.target import Target, as_json, on_target, with_reason
from qbull.cli.terminal import ago, print_json, print_table, short
from qbull.core.problems import OpenProblem, ProblemNotice, subject_of, text_of
from qbull.core.record import to_datetime
from qbull.errors import ConfigError
from qbull.store import audit
from qbull.store.verbs.alerts import read_known_problems

NO_DESTINATION = "no alert destination is configured; set QBULL_SLACK_WEBHOOK_URL or QBULL_ALERT_URLS"
ALERT_COLUMNS = ("since", "problem", "notified", "*reason")


@click.group(cls=ListingGroup)
def alerts() -> None:
    """Show alert destinations and open problems; send a test.

    \b
    Example:
      qbull alerts
      qbull alerts test
    """


@alerts.command("list")
@on_target
@as_json
def list_alerts(target: Target, as_json: bool) -> None:
    """Show where alerts go and which problems are open.

    \b
    Example:
      qbull alerts --json | jq '.problems[].kind'

    With --json: {"to": [{"kind", "host"}], "problems": [{"kind", "queue", "text", "count", "since",
    "said"}]}.
    """

    async def main() -> list[OpenProblem]:
        await target.store.open()
        return list((await read_known_problems(target.store)).open.values())

    problems = target.run(main)
    destinations = target.app.alerts.destinations
    if as_json:
        to = [{"kind": destination.kind, "host": destination.host} for destination in destinations]
        print_json({"to": to, "problems": [_json(one) for one in problems]})
        return
    names = ", ".join(f"{destination.kind} ({destination.host})" for destination in destinations)
    click.echo(f"alerts go to {names}" if destinations else NO_DESTINATION)
    if not problems:
        click.echo("no open problems")
        return
    rows = [
        (
            ago(to_datetime(one.since_ms)),
            f"{subject_of(one.problem)}: {_text(one)}",
            f"{one.times} times" if one.times else "not yet",
            short(one.problem.reason),
        )
        for one in problems
    ]
    print_table(ALERT_COLUMNS, rows)


@alerts.command("test")
@with_reason
@on_target
@click.pass_context
def send_test(ctx: click.Context, target: Target) -> None:
    """Send a test message to each destination.

    \b
    Example:
      QBULL_SLACK_WEBHOOK_URL=https://hooks.slack.com/services/… qbull alerts test
    """
    settings, app = target.app.alerts, target.app.prefix
    if not settings.destinations:
        raise ConfigError(NO_DESTINATION)

    async def main() -> bool:
        async with audit.entry(target.store, "test alerts", "", places=len(settings.destinations)):
            results = await send_test_messages(settings, app)
        for to, error in results:
            click.echo(f"{to.kind} ({to.host}): {'sent' if error is None else f'not sent: {error}'}")
        return all(error is None for _, error in results)

    ctx.exit(0 if target.run(main) else 1)


def _text(one: OpenProblem) -> str:
    return text_of(ProblemNotice("resolved" if one.over else "firing", one.problem, one.since_ms))


def _json(one: OpenProblem) -> dict[str, Any]:
    fields = msgspec.to_builtins(one.problem)
    since = to_datetime(one.since_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {**fields, "text": _text(one), "count": one.problem.count, "since": since, "said": one.times}
