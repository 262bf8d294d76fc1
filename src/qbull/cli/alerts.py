"""`qbull alerts`: where alerts go, what is wrong now, and whether a message arrives."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from qbull.alerts.deliver import send_test_messages
from qbull.cli.schedules import ListingGroup
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import ago, print_json, print_table, short
from qbull.core.problems import OpenProblem, ProblemNotice, subject_of, text_of
from qbull.core.record import to_datetime
from qbull.errors import ConfigError
from qbull.store.verbs.alerts import read_known_problems

ALERT_COLUMNS = ("since", "what", "said", "*reason")


@click.group(cls=ListingGroup)
def alerts() -> None:
    """Show where alerts go and what is wrong now; send a test.

    \b
    Example:
      qbull alerts
      qbull alerts test
    """


@alerts.command("list")
@on_target
@as_json
def list_alerts(target: Target, as_json: bool) -> None:
    """Show where alerts go and what is wrong now.

    \b
    Example:
      qbull alerts --json | jq '.problems[].kind'

    With --json: {"to": [{"kind", "host"}], "problems": [{"kind", "queue", "text", "count", "since", "said"}]}.
    """

    async def main() -> list[OpenProblem]:
        await target.store.open()
        return list((await read_known_problems(target.store)).open.values())

    found = target.run(main)
    places = target.app.alerts.destinations
    if as_json:
        to = [{"kind": place.kind, "host": place.host} for place in places]
        print_json({"to": to, "problems": [_wire(one) for one in found]})
        return
    named = ", ".join(f"{place.kind} ({place.host})" for place in places)
    click.echo(
        f"alerts go to {named}" if places else "alerts go nowhere; set SLACK_WEBHOOK_URL or QBULL_ALERT_URLS"
    )
    if not found:
        click.echo("nothing is wrong, as far as is known")
        return
    rows = [
        (
            ago(to_datetime(one.since_ms)),
            f"{subject_of(one.problem)}: {_text(one)}",
            f"{one.times} times" if one.times else "not yet",
            short(one.problem.reason),
        )
        for one in found
    ]
    print_table(ALERT_COLUMNS, rows)


@alerts.command("test")
@on_target
@click.pass_context
def send_test(ctx: click.Context, target: Target) -> None:
    """Send a message to each place, and say what came of it.

    \b
    Example:
      SLACK_WEBHOOK_URL=https://hooks.slack.com/services/… qbull alerts test
    """
    settings, app = target.app.alerts, target.app.prefix
    if not settings.destinations:
        raise ConfigError("alerts go nowhere; set SLACK_WEBHOOK_URL or QBULL_ALERT_URLS")

    async def main() -> bool:
        tried = await send_test_messages(settings, app)
        for place, error in tried:
            click.echo(f"{place.kind} ({place.host}): {'sent' if error is None else f'not sent: {error}'}")
        return all(error is None for _, error in tried)

    ctx.exit(0 if target.run(main) else 1)


def _text(one: OpenProblem) -> str:
    return text_of(ProblemNotice("resolved" if one.over else "firing", one.problem, one.since_ms))


def _wire(one: OpenProblem) -> dict[str, Any]:
    fields = msgspec.to_builtins(one.problem)
    since = to_datetime(one.since_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {**fields, "text": _text(one), "count": one.problem.count, "since": since, "said": one.times}
