"""What `qbull doctor` asks of alerts: where do they go, do they arrive, and what is wrong now?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.alerts.deliver import missing_package
from qbull.alerts.destinations import type_of
from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.core.alerts import Alerts
from qbull.core.problems import ProblemNotice, subject_of, text_of
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.alerts import ALERT_QUEUE, newest_failed, read_known_problems


async def check_alerts(alerts: Alerts, store: Store) -> AsyncIterator[Finding]:
    try:
        asking = [name for name in await store.queues() if (await store.settings(name)).alert is not None]
        failed = await newest_failed(store, ALERT_QUEUE)
    except ServerError:
        return  # said of the queues and scripts already
    for finding in _where(alerts, asking):
        yield finding
    if failed is not None and failed.ending is not None:
        step = f'run "qbull alerts test", then "qbull clean {ALERT_QUEUE.name} --state failed"'
        yield note("alerts", f"some were not sent, the last because {failed.ending.error}", step)
    for one in (await read_known_problems(store)).open.values():
        said = ProblemNotice("firing", one.problem, one.since_ms)
        yield note("alerts", f"{subject_of(one.problem)}: {text_of(said)}", 'see "qbull alerts"')


def _where(alerts: Alerts, asking: list[str]) -> list[Finding]:
    places = alerts.destinations
    if not places:
        if not asking:
            return []
        step = "set SLACK_WEBHOOK_URL or QBULL_ALERT_URLS for the workers and here"
        return [note("alerts", f"of {_queues(asking)} have no place to go to", step)]
    found = [
        problem("alerts", lacks, "then restart the workers")
        for to in places
        if (lacks := missing_package(to))
    ]
    if any(type_of(to.kind).signed for to in places) and alerts.secret is None:
        step = "set QBULL_ALERT_SECRET here and at the receiver"
        found.append(note("alerts", "what goes to webhooks is not signed", step))
    if not asking:
        step = "give a queue alert=True"
        return [*found, note("alerts", "no queue asks for them; only lost workers are said", step)]
    shown = ", ".join(f"{to.kind} ({to.host})" for to in places)
    return [*found, ok("alerts", f"of {_queues(asking)} go to {shown}")]


def _queues(names: list[str]) -> str:
    return f'queue "{names[0]}"' if len(names) == 1 else f"{len(names)} queues"
