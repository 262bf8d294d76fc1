"""Health checks of `qbull doctor`: the problems that the API's health check reports, in the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.cli.doctor.finding import Finding, note, problem
from qbull.core.health import find_problems
from qbull.errors import ServerError
from qbull.store.read.health import HealthReading, read_health, registered_queues
from qbull.store.read.inspect import Counts
from qbull.store.store import Store


async def check_health(store: Store) -> AsyncIterator[Finding]:
    """Report each problem. A critical one is a problem here too, any other is a note."""
    try:
        queues, unreadable = await registered_queues(store)
        reading = await read_health(store, queues, unreadable=unreadable)
    except ServerError:
        # The checks of the server, the workers and the queues have reported it.
        return
    problems = find_problems(reading.facts)
    for one in problems:
        judge = problem if one.severity == "critical" else note
        yield judge(one.subject, one.fact, one.remedy)
    reported = {one.queue for one in problems if one.kind == "unserved"}
    for name in _without_workers(reading):
        if name not in reported:
            step = f'run "qbull worker MODULE:APP --queues {name}"'
            yield note(f'queue "{name}"', f"{_unfinished(reading.counts[name])} and no worker", step)


def _without_workers(reading: HealthReading) -> list[str]:
    """Queues with jobs and without workers. They are no problem yet if the jobs are new or not due."""
    return [
        queue.name
        for queue in reading.facts.queues
        if not queue.workers and reading.counts[queue.name].unfinished
    ]


def _unfinished(counts: Counts) -> str:
    states = (("waiting", counts.waiting), ("active", counts.active), ("delayed", counts.delayed))
    return ", ".join(f"{n} {state}" for state, n in states if n)
