"""Detect: read the state of the queues, and write the problems together with the messages about them.

If another process has written since the read, the server refuses the write (lua/alert_raise.lua).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec

from qbull.config import QueueSettings
from qbull.core.alerts import Alert, Alerts
from qbull.core.codec import encode_payload
from qbull.core.health import DEFAULT_HEALTH_LIMITS, HealthLimits, find_problems
from qbull.core.health_problem import HealthProblem
from qbull.core.problems import (
    MAX_REASON_CHARS,
    AlertNotification,
    AlertPolicy,
    CounterReading,
    GaugeReading,
    Problem,
    ProblemKind,
    evaluate_problems,
)
from qbull.core.record import DEFAULT_PRIORITY, ExtendedBody, pack
from qbull.core.redaction import error_kind
from qbull.store.read.health import read_health, registered_queues
from qbull.store.read.inspect import Counts
from qbull.store.store import Store
from qbull.store.verbs import alerts as problem_store
from qbull.store.verbs.alerts import AlertSnapshot
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.schedules import ScheduleLocation, ScheduleStore, in_batches

QUEUE_LIST_SECONDS = 10.0
"""Interval between two reads of the list of queues."""
ALERTED_KINDS: frozenset[ProblemKind] = frozenset(
    {"unserved", "unread", "unknown", "stale", "blocked", "overdue"}
)
"""The problems of the health check that raise alerts. The others have alerts of their own (dead letters,
repeated failures), or somebody has asked for them (pauses)."""
ALERT_EXPIRES_MS = 3_600_000
"""Messages older than an hour are dropped."""
WATCHER_TAKEOVER_SECONDS = 10.0
"""Another process takes over if the current one is silent for this long."""


class ProblemWatcher:
    """Detects the problems of one app.

    Args:
        store: the server.
        alerts: the destinations.
        who: names this process.
        limits: when a queue is unhealthy.
        hides_values: whether the texts of errors are left out, because they may have values of jobs.
    """

    def __init__(
        self,
        store: Store,
        alerts: Alerts,
        who: str,
        limits: HealthLimits = DEFAULT_HEALTH_LIMITS,
        *,
        hides_values: bool = False,
    ) -> None:
        self._store = store
        self._hides_values = hides_values
        self._alerts = alerts
        self._who = who
        self._limits = limits
        self._policy = AlertPolicy(int(alerts.every * 1000), alerts.rate)
        self._queues: list[QueueSettings] = []
        self._listed = -QUEUE_LIST_SECONDS
        self._missed_before: dict[str, int] = {}

    async def look(self) -> bool:
        """Check once, if it is this process's turn; returns whether it was."""
        seen = await problem_store.take_turn(self._store, self._who, WATCHER_TAKEOVER_SECONDS)
        if seen is None:
            return False
        if time.monotonic() - self._listed >= QUEUE_LIST_SECONDS:
            self._queues = await self._alerting()
            self._listed = time.monotonic()
        readings = [reading async for reading in self._readings(seen)]
        state, message = evaluate_problems(seen.state, readings, seen.now_ms, self._policy)
        if state != seen.state or message is not None:
            jobs = [] if message is None else self._jobs(message, seen.rev)
            await problem_store.write(self._store, seen, state, jobs)
        return True

    async def _alerting(self) -> list[QueueSettings]:
        """The queues that raise alerts, also those declared elsewhere."""
        queues, _ = await registered_queues(self._store)
        return [settings for settings in queues if settings.alert is not None]

    async def _readings(self, seen: AlertSnapshot) -> AsyncIterator[CounterReading | GaugeReading]:
        reading = await read_health(self._store, self._queues, self._limits)
        for settings in self._queues:
            assert settings.alert is not None
            counts = reading.counts.get(settings.name)
            if counts is None:
                # Its settings cannot be read any more.
                continue
            yield await self._failed(settings, counts, seen)
            yield await self._missed(settings, counts, seen)
            async for level in self._repeated(settings, settings.alert, seen):
                yield level
        alerts = {settings.name: settings.alert for settings in self._queues if settings.alert is not None}
        for level in _level_readings(find_problems(reading.facts, self._limits), alerts, seen):
            yield level
        total, worker = await problem_store.lost_workers(self._store)
        yield CounterReading(Problem("lost", reason=worker), total, first=total)

    async def _failed(self, settings: QueueSettings, counts: Counts, seen: AlertSnapshot) -> CounterReading:
        problem, total = Problem("failed", settings.name), counts.totals.get("failed", 0)
        before = seen.state.totals.get(problem.name)
        first = (
            total - await problem_store.recently_failed(self._store, settings) if before is None else total
        )
        left = counts.failed if settings.keep.failed != 0 else None
        if total != (first if before is None else before):
            newest = await problem_store.newest_failed(self._store, settings)
            if newest is not None and newest.ending is not None:
                reason = self._shown(newest.ending.error or "")
                problem = Problem("failed", settings.name, newest.body().task, newest.id, reason)
        return CounterReading(problem, total, max(first, 0), left)

    async def _missed(self, settings: QueueSettings, counts: Counts, seen: AlertSnapshot) -> CounterReading:
        problem, total = Problem("missed", settings.name), counts.totals.get("missed", 0)
        before = seen.state.totals.get(problem.name, 0)
        if total > before:
            problem = Problem("missed", settings.name, schedule=await self._which_missed(settings.name))
        return CounterReading(problem, total, first=0)

    async def _which_missed(self, queue: str) -> str:
        """The schedules of a queue that have missed more runs than at the last check."""
        schedules, found = ScheduleStore(self._store), ""
        locations: dict[ScheduleLocation, list[str]] = {}
        for name, location in (await schedules.locations()).items():
            if location.queue == queue:
                locations.setdefault(location, []).append(name)
        for location, names in locations.items():
            for some in in_batches(names):
                for name, plan in (await schedules.read(location, some)).plans.items():
                    if plan.missed > self._missed_before.get(name, 0):
                        found = name
                    self._missed_before[name] = plan.missed
        return found

    async def _repeated(
        self, settings: QueueSettings, alert: Alert, seen: AlertSnapshot
    ) -> AsyncIterator[GaugeReading]:
        found = await problem_store.failures(self._store, settings.name, seen.now_ms)
        for task, failures in found.items():
            reason = self._shown(failures.reason)
            problem = Problem("repeated", settings.name, task, failures.job, reason, failures.many)
            # It is over when none fails any more, not when one fewer does.
            there = problem.name in seen.state.open or (
                alert.repeated is not None and failures.many >= alert.repeated
            )
            yield GaugeReading(problem, there)
        for one in seen.state.open.values():
            problem = one.problem
            if (problem.kind, problem.queue) == ("repeated", settings.name) and problem.task not in found:
                yield await self._quiet(settings, problem)

    async def _quiet(self, settings: QueueSettings, problem: Problem) -> GaugeReading:
        """No attempt of the task has failed lately. Its newest failure may only wait for the next attempt."""
        match await problem_store.state_of(self._store, settings, problem.job):
            case "waiting" | "delayed" | "active":
                return GaugeReading(problem, there=True)
            case "failed":
                return GaugeReading(problem, there=False, resolved=False)
            case "completed" | "cancelled" | None:
                return GaugeReading(problem, there=False)

    def _shown(self, error: str) -> str:
        """An error as messages have it."""
        return error_kind(error) if error and self._hides_values else error[:MAX_REASON_CHARS]

    def _jobs(self, message: AlertNotification, rev: str) -> list[NewJob]:
        """One job for each destination: an unreachable one must not cause duplicates at the others."""
        content = msgspec.to_builtins(message)
        return [
            NewJob(f"{rev}-{destination.label}", f"0 {ALERT_EXPIRES_MS}", _record(destination.label, content))
            for destination in self._alerts.destinations
        ]


def _level_readings(
    problems: Sequence[HealthProblem], alerts: Mapping[str, Alert], seen: AlertSnapshot
) -> Iterator[GaugeReading]:
    """The problems that are there now, and those that were and are not any more."""
    there = [
        _alert_problem(one, seen.now_ms)
        for one in problems
        if one.kind in ALERTED_KINDS and _is_wanted(one, alerts.get(one.queue or ""))
    ]
    yield from (GaugeReading(problem, True) for problem in there)
    names = {problem.name for problem in there}
    unread = {one.queue for one in problems if one.kind in ("unserved", "unread")}
    for known in seen.state.open.values():
        problem = known.problem
        if problem.kind in ALERTED_KINDS and problem.queue in alerts and problem.name not in names:
            # A stale queue that loses its workers is still stale.
            yield GaugeReading(problem, problem.kind == "stale" and problem.queue in unread)


def _is_wanted(problem: HealthProblem, alert: Alert | None) -> bool:
    return alert is not None and (problem.kind != "stale" or alert.stale_after is not None)


def _alert_problem(one: HealthProblem, now_ms: int) -> Problem:
    late = one.kind in ("stale", "overdue")
    count = (now_ms - (one.since_ms or now_ms)) // 1000 if late else one.values.get("jobs", 1)
    return Problem(
        one.kind,
        one.queue or "",
        one.task or "",
        count=max(count, 1),
        schedule=one.schedule or "",
        fact="" if late else one.fact,
    )


def _record(to: str, content: object) -> bytes:
    payload = encode_payload("send", {"to": to, "message": content})
    return pack(ExtendedBody("send", payload, expires=ALERT_EXPIRES_MS), priority=DEFAULT_PRIORITY, lane=b"")
