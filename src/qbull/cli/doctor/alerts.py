"""Alert checks of `qbull doctor`: are there destinations, and do messages arrive?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.alerts.deliver import missing_package
from qbull.alerts.destinations import type_of
from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.alerts import Alerts
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.alerts import ALERT_QUEUE, newest_failed


async def check_alerts(alerts: Alerts, store: Store) -> AsyncIterator[Finding]:
    """Check the destinations of alerts, and alerts that could not be sent."""
    try:
        queues = [name for name in await store.queues() if (await store.settings(name)).alert is not None]
        failed = await newest_failed(store, ALERT_QUEUE)
    except ServerError:
        # The checks of the queues and scripts have reported it.
        return
    for finding in _check_destinations(alerts, queues):
        yield finding
    if failed is not None and failed.ending is not None:
        step = f'run "qbull alerts test", then "qbull clean {ALERT_QUEUE.name} --state failed"'
        yield note("alerts", f"some were not sent, the last one because of: {failed.ending.error}", step)


def _check_destinations(alerts: Alerts, queues: list[str]) -> list[Finding]:
    """`queues` are those that have alerts."""
    destinations = alerts.destinations
    if not destinations:
        if not queues:
            return []
        step = "set QBULL_SLACK_WEBHOOK_URL or QBULL_ALERT_URLS for the workers and here"
        return [note("alerts", f"those of {_queues(queues)} have no destination", step)]
    findings = [
        problem("alerts", missing, "then restart the workers")
        for to in destinations
        if (missing := missing_package(to))
    ]
    if any(type_of(to.kind).signed for to in destinations) and alerts.secret is None:
        step = "set QBULL_ALERT_SECRET here and at the receiver"
        findings.append(note("alerts", "messages to webhooks are not signed", step))
    if not queues:
        step = "declare a queue with alert=True"
        return [*findings, note("alerts", "no queue has alerts; only lost workers are reported", step)]
    shown = ", ".join(f"{to.kind} ({to.host})" for to in destinations)
    return [*findings, ok("alerts", f"those of {_queues(queues)} go to {shown}")]


def _queues(names: list[str]) -> str:
    return f'queue "{names[0]}"' if len(names) == 1 else f"{len(names)} queues"
