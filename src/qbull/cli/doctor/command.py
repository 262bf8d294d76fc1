"""`qbull doctor`: is everything as it must be, and if not, what to do?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from qbull.cli.doctor.alerts import check_alerts
from qbull.cli.doctor.finding import Finding
from qbull.cli.doctor.queues import check_queue, check_workers
from qbull.cli.doctor.schedules import check_schedules
from qbull.cli.doctor.server import check_server
from qbull.cli.target import Target, as_json, on_target
from qbull.cli.terminal import print_json
from qbull.observe.log import one_line


@click.command()
@on_target
@as_json
@click.pass_context
def doctor(ctx: click.Context, target: Target, as_json: bool) -> None:
    """Check server, queues and workers, and say what to do.

    \b
    Example:
      qbull doctor
      qbull doctor --json | jq '.findings[] | select(.level == "problem")'

    Each line begins with ok, note or problem; a problem exits with 1. Nothing is changed. With --json:
    {"ok": bool, "findings": [{"level", "subject", "fact", "next"}]}.
    """

    async def main() -> list[Finding]:
        found = []
        async for finding in _examine(target):
            found.append(finding)
            if not as_json:
                click.echo(one_line(finding.line))
        return found

    found = target.run(main)
    problems = sum(finding.level == "problem" for finding in found)
    if as_json:
        print_json({"ok": not problems, "findings": [_wire(finding) for finding in found]})
    else:
        click.echo(f"{problems} problem{'s' * (problems > 1)}" if problems else "no problems")
    ctx.exit(1 if problems else 0)


async def _examine(target: Target) -> AsyncIterator[Finding]:
    reached = False
    async for finding in check_server(target.store, target.app.durability):
        reached = reached or finding.level == "ok"
        yield finding
    if not reached:
        return
    async for finding in check_workers(target.store):
        yield finding
    for name in await target.store.queues():
        async for finding in check_queue(target.store, name, _say):
            yield finding
    async for finding in check_schedules(target.app.schedules, target.store):
        yield finding
    async for finding in check_alerts(target.app.alerts, target.store):
        yield finding


def _say(text: str) -> None:
    click.echo(text, err=True)


def _wire(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "subject": finding.subject,
        "fact": finding.fact,
        "next": finding.next_step,
    }
