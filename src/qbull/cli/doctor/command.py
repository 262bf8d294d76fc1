"""`qbull doctor`: check everything, and say what to do about each problem."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from qbull.cli.doctor.alerts import check_alerts
from qbull.cli.doctor.durable import check_histories
from qbull.cli.doctor.finding import Finding
from qbull.cli.doctor.health import check_health
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
    """Check server, queues and workers, and suggest remedies.

    \b
    Example:
      qbull doctor
      qbull doctor -A tasks:app
      qbull doctor --json | jq '.findings[] | select(.level == "problem")'

    Each line starts with ok, note or problem; the exit code is 1 if there is a problem. The command changes
    nothing. With --app it also looks for durable jobs in flight that this code cannot continue. With --json:
    {"ok": bool, "findings": [{"level", "subject", "fact", "next"}]}.
    """

    async def main() -> list[Finding]:
        findings = []
        async for finding in _check_all(target):
            findings.append(finding)
            if not as_json:
                click.echo(one_line(finding.line))
        return findings

    findings = target.run(main)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        print_json({"ok": not problems, "findings": [_json(finding) for finding in findings]})
    else:
        click.echo(f"{problems} problem{'s' * (problems > 1)}" if problems else "no problems")
    ctx.exit(1 if problems else 0)


async def _check_all(target: Target) -> AsyncIterator[Finding]:
    reached = False
    async for finding in check_server(target.store, target.app.durability):
        reached = reached or finding.level == "ok"
        yield finding
    if not reached:
        return
    async for finding in check_workers(target.store):
        yield finding
    for name in await target.store.queues():
        async for finding in check_queue(target.store, name, _print_progress):
            yield finding
    async for finding in check_histories(target):
        yield finding
    async for finding in check_health(target.store):
        yield finding
    async for finding in check_schedules(target.app.schedules, target.store):
        yield finding
    async for finding in check_alerts(target.app.alerts, target.store):
        yield finding


def _print_progress(text: str) -> None:
    click.echo(text, err=True)


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "subject": finding.subject,
        "fact": finding.fact,
        "next": finding.next_step,
    }
