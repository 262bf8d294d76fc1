"""Detect: read the state of the queues, and write the problems together with the messages about them.

If another process has written since the read, the server refuses the write (lua/alert_raise.lua).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec

from qbull.config import QueueSettings
from qbull.core.alerts import Alert, Alerts
from qbull.core.codec import encode_payload
from qbull.core.problems import (
    MAX_REASON_CHARS,
    AlertNotification,
    AlertPolicy,
    CounterReading,
    GaugeReading,
    Problem,
    evaluate_problems,
)
from qbull.core.record import DEFAULT_PRIORITY, ExtendedBody, pack
from qbull.errors import ServerAway, ServerError
from qbull.store.read.inspect import Counts
from qbull.store.store import Store
from qbull.store.verbs import alerts as problem_store
from qbull.store.verbs import live_settings
from qbull.store.verbs.alerts import AlertSnapshot
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.schedules import SCHEDULE_BATCH_SIZE, ScheduleLocation, ScheduleStore, in_batches
from qbull.store.verbs.tick import first_due_ms

SLOW_CHECK_SECONDS = 10.0
"""Interval between two reads of things that change rarely: the list of queues, late schedules."""
OVERDUE_SCHEDULE_SECONDS = 60.0
"""How late a scheduled run may be."""
ALERT_EXPIRES_MS = 3_600_000
"""Messages older than an hour are dropped."""
WATCHER_TAKEOVER_SECONDS = 10.0
"""Another process takes over if the current one is silent for this long."""


class ProblemWatcher:
    """Detects the problems of one app. `who` names this process."""

    def __init__(self, store: Store, alerts: Alerts, who: str) -> None:
        self._store = store
        self._alerts = alerts
        self._who = who
        self._policy = AlertPolicy(int(alerts.every * 1000), alerts.rate)
        self._queues: list[QueueSettings] = []
        self._rarely = -SLOW_CHECK_SECONDS
        self._missed_before: dict[str, int] = {}

    async def look(self) -> bool:
        """Check once, if it is this process's turn; returns whether it was."""
        seen = await problem_store.take_turn(self._store, self._who, WATCHER_TAKEOVER_SECONDS)
        if seen is None:
            return False
        rarely = time.monotonic() - self._rarely >= SLOW_CHECK_SECONDS
        if rarely:
            self._queues = await self._alerting()
            self._rarely = time.monotonic()
        readings = [reading async for reading in self._readings(seen, rarely)]
        state, message = evaluate_problems(seen.state, readings, seen.now_ms, self._policy)
        if state != seen.state or message is not None:
            jobs = [] if message is None else self._jobs(message, seen.rev)
            await problem_store.write(self._store, seen, state, jobs)
        return True

    async def _alerting(self) -> list[QueueSettings]:
        """The queues that raise alerts, also those declared elsewhere."""
        found = []
        for name in await self._store.queues():
            try:
                settings = await self._store.settings(name)
            except ServerAway:
                raise
            except ServerError:  # A newer qbull wrote them.
                continue
            if settings.alert is not None:
                found.append(settings)
        return found

    async def _readings(
        self, seen: AlertSnapshot, rarely: bool
    ) -> AsyncIterator[CounterReading | GaugeReading]:
        for settings in self._queues:
            assert settings.alert is not None
            counts = await problem_store.counts(self._store, settings)
            yield await self._failed(settings, counts, seen)
            yield await self._missed(settings, counts, seen)
            yield await self._stale(settings, settings.alert, counts, seen)
            async for level in self._repeated(settings, settings.alert, seen):
                yield level
            if rarely:
                async for level in self._overdue(settings, seen):
                    yield level
        total, worker = await problem_store.lost_workers(self._store)
        yield CounterReading(Problem("lost", reason=worker), total, first=total)

    async def _failed(self, settings: QueueSettings, counts: Counts, seen: AlertSnapshot) -> CounterReading:
        problem, total = Problem("failed", settings.name), counts.totals.get("failed", 0)
        before = seen.state.totals.get(problem.name)
        first = (
            total - await problem_store.recently_failed(self._store, settings) if before is None else total
        )
        rested = not counts.failed and settings.keep.failed != 0
        if total != (first if before is None else before):
            newest = await problem_store.newest_failed(self._store, settings)
            if newest is not None and newest.ending is not None:
                reason = (newest.ending.error or "")[:MAX_REASON_CHARS]
                problem = Problem("failed", settings.name, newest.body().task, newest.id, reason)
        return CounterReading(problem, total, max(first, 0), rested)

    async def _missed(self, settings: QueueSettings, counts: Counts, seen: AlertSnapshot) -> CounterReading:
        problem, total = Problem("missed", settings.name), counts.totals.get("missed", 0)
        before = seen.state.totals.get(problem.name, 0)
        if total > before:
            problem = Problem("missed", settings.name, schedule=await self._which_missed(settings.name))
        return CounterReading(problem, total, first=0)

    async def _which_missed(self, queue: str) -> str:
        """The schedules of a queue that have missed more runs than at the last check."""
        schedules, found = ScheduleStore(self._store), ""
        places: dict[ScheduleLocation, list[str]] = {}
        for name, place in (await schedules.locations()).items():
            if place.queue == queue:
                places.setdefault(place, []).append(name)
        for place, names in places.items():
            for some in in_batches(names):
                for name, plan in (await schedules.read(place, some)).plans.items():
                    if plan.missed > self._missed_before.get(name, 0):
                        found = name
                    self._missed_before[name] = plan.missed
        return found

    async def _stale(
        self, settings: QueueSettings, alert: Alert, counts: Counts, seen: AlertSnapshot
    ) -> GaugeReading:
        waited = 0 if counts.oldest_waiting_ms is None else (seen.now_ms - counts.oldest_waiting_ms) // 1000
        stale = alert.stale_after is not None and waited >= alert.stale_after
        if stale and await live_settings.is_paused(self._store, settings.name):
            stale = False
        return GaugeReading(Problem("stale", settings.name, count=max(waited, 1)), stale)

    async def _repeated(
        self, settings: QueueSettings, alert: Alert, seen: AlertSnapshot
    ) -> AsyncIterator[GaugeReading]:
        found = await problem_store.failures(self._store, settings.name, seen.now_ms)
        for task, failures in found.items():
            problem = Problem("repeated", settings.name, task, failures.job, failures.reason, failures.many)
            # It is over when none fails any more, not when one fewer does.
            there = problem.name in seen.state.open or (
                alert.repeated is not None and failures.many >= alert.repeated
            )
            yield GaugeReading(problem, there)
        for one in seen.state.open.values():
            problem = one.problem
            if (problem.kind, problem.queue) == ("repeated", settings.name) and problem.task not in found:
                yield GaugeReading(problem, there=False)

    async def _overdue(self, settings: QueueSettings, seen: AlertSnapshot) -> AsyncIterator[GaugeReading]:
        late: set[str] = set()
        schedules = ScheduleStore(self._store)
        partitions = await self._store.partitions(settings)
        for partition, due in zip(partitions, await first_due_ms(partitions), strict=True):
            if due is None or due > seen.now_ms:
                continue
            look = await schedules.read(
                ScheduleLocation(settings.name, partition.number), (), due=SCHEDULE_BATCH_SIZE
            )
            for name, plan in look.plans.items():
                schedule = plan.schedule
                if schedule is None or plan.next_ms is None or plan.paused_ms is not None:
                    continue
                seconds = (look.now_ms - schedule.due(plan.next_ms)) / 1000
                if seconds > OVERDUE_SCHEDULE_SECONDS and not _held(schedule.catch_up):
                    late.add(name)
                    yield GaugeReading(
                        Problem("overdue", settings.name, schedule.task, count=int(seconds), schedule=name),
                        True,
                    )
        for one in seen.state.open.values():
            problem = one.problem
            if (problem.kind, problem.queue) == ("overdue", settings.name) and problem.schedule not in late:
                yield GaugeReading(problem, there=False)

    def _jobs(self, message: AlertNotification, rev: str) -> list[NewJob]:
        """One job for each destination: an unreachable one must not cause duplicates at the others."""
        content = msgspec.to_builtins(message)
        return [
            NewJob(f"{rev}-{place.label}", f"0 {ALERT_EXPIRES_MS}", _record(place.label, content))
            for place in self._alerts.destinations
        ]


def _held(catch_up: str) -> bool:
    """With catch_up="all" a scheduled run waits for the one before it: it is late on purpose."""
    return catch_up == "all"


def _record(to: str, content: object) -> bytes:
    payload = encode_payload("send", {"to": to, "message": content})
    return pack(ExtendedBody("send", payload, expires=ALERT_EXPIRES_MS), priority=DEFAULT_PRIORITY, lane=b"")
