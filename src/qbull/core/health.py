"""Health: the problems of an app, made from facts. Pure; the server's time is one of the facts.

`find_problems` is the only place that decides what a problem is. The API's health check, the dashboard, the
metrics, `qbull doctor` and the alerts all show its list, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from qbull.core.config_warnings import spell_ranges
from qbull.core.health_facts import (
    HealthFacts,
    LostWorker,
    MinuteOutcomes,
    PartitionFacts,
    QueueFacts,
    ServingFacts,
    UnknownTask,
)
from qbull.core.health_problem import PROBLEM_SEVERITIES, HealthProblem, Severity
from qbull.core.layout import index_in_generation
from qbull.core.limit_health import limit_problems
from qbull.core.problems import OpenProblem, ProblemKind, ProblemNotice, text_of

REPORTED_ALERTS: frozenset[ProblemKind] = frozenset({"failed", "repeated", "missed"})
"""Alerts about events, which the present state of the queues does not show."""
REPLACEMENT_SLACK_MS = 30_000
"""A worker may be replaced before its loss is noticed."""
MAX_NAMED_WORKERS = 20
"""Lost workers that a problem names, those lost first."""
MIN_FAILED_ATTEMPTS = 10
"""Fewer failed attempts are no failure rate."""
MIN_FAILURE_RATIO, MAX_FAILURE_RATIO = 0.1, 0.5
"""A smaller share of failed attempts is never a problem; a larger one is, even if it is usual."""
SHORT_RETENTION_SECONDS = 600.0
"""Results that stay for less than that may be gone before somebody asks for them."""
UNUSUAL_FAILURE_FACTOR = 5
"""How far above the usual a failure rate must be."""


class HealthLimits(msgspec.Struct, frozen=True):
    """For how many seconds something may last before it is a problem.

    Args:
        unread_after: a job waits for a worker that reads its partition.
        stale_after: a job waits although workers read its partition, or it waits for a shared limit. The
            queue's `Alert` comes first.
        blocked_after: a lane waits for the next attempt of its first job.
        overdue_after: a schedule is late.
        lost_for: a lost worker that nobody has replaced is reported for this long.
    """

    unread_after: float = 15.0
    stale_after: float = 300.0
    blocked_after: float = 60.0
    overdue_after: float = 60.0
    lost_for: float = 3600.0


DEFAULT_HEALTH_LIMITS = HealthLimits()


def find_problems(
    facts: HealthFacts, limits: HealthLimits = DEFAULT_HEALTH_LIMITS
) -> tuple[HealthProblem, ...]:
    """All problems, the most severe first, and of those the oldest first."""
    found = [problem for queue in facts.queues for problem in _queue_problems(queue, facts.now_ms, limits)]
    found += [_unreadable(queue) for queue in facts.unreadable]
    for limit in facts.limits:
        found += limit_problems(limit, facts.now_ms, limits.stale_after)
    lost = _lost(facts, limits)
    reported = REPORTED_ALERTS if lost else REPORTED_ALERTS | {"lost"}
    found += lost
    found += [
        _reported(one) for one in facts.alerts.open.values() if one.problem.kind in reported and not one.over
    ]
    rank: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: (rank[one.severity], one.since_ms or facts.now_ms)))


def _queue_problems(queue: QueueFacts, now_ms: int, limits: HealthLimits) -> list[HealthProblem]:
    found = [*_halted(queue), *_overdue(queue, now_ms, limits), *_short_retention(queue)]
    if queue.pause is not None:
        return [*_paused(queue), *found]
    found += [*_waiting(queue, now_ms, limits), *_blocked(queue, now_ms, limits), *_failing(queue)]
    for one in queue.unknown:
        if now_ms - one.since_ms >= limits.unread_after * 1000:
            found.append(_unknown(queue.name, one))
    return found


def _waiting(queue: QueueFacts, now_ms: int, limits: HealthLimits) -> list[HealthProblem]:
    """The first that holds: no worker serves the queue, nobody reads some partitions, jobs wait too long."""
    old_ms = now_ms - limits.unread_after * 1000
    old = [one for one in queue.partitions if one.oldest_ms is not None and one.oldest_ms <= old_ms]
    if old and not queue.workers:
        return [_unserved(queue)]
    unread = [one for one in old if _is_unread(one, queue, now_ms, limits)]
    if unread:
        return [_unread(queue, unread)]
    oldest_ms = _oldest_ms(queue.partitions)
    stale_after = limits.stale_after if queue.stale_after is None else queue.stale_after
    if oldest_ms is None or now_ms - oldest_ms < stale_after * 1000:
        return []
    return [_stale(queue.name, oldest_ms, now_ms)]


def _is_unread(partition: PartitionFacts, queue: QueueFacts, now_ms: int, limits: HealthLimits) -> bool:
    """Whether no worker takes jobs of a partition in which one has waited for some time.

    A worker whose slots are all in use does not read: it is busy. One with a free slot should.
    """
    readers = {id: one for id, one in queue.workers.items() if partition.number in one.partitions}
    return not any(_is_reading(id, one, partition, queue, now_ms, limits) for id, one in readers.items())


def _is_reading(
    worker: str,
    serving: ServingFacts,
    partition: PartitionFacts,
    queue: QueueFacts,
    now_ms: int,
    limits: HealthLimits,
) -> bool:
    if serving.blocked or queue.limited:
        return not serving.blocked
    held = sum(one.deliveries.get(worker, 0) for one in queue.partitions)
    begun_ms = serving.since_ms.get(partition.number, 0)
    idle_ms = partition.idle_ms.get(worker, now_ms - begun_ms)
    return held >= serving.slots or idle_ms < limits.unread_after * 1000


def _unreadable(queue: str) -> HealthProblem:
    return HealthProblem(
        "unreadable",
        "its settings on the server cannot be read",
        "a newer version of qbull may have written them; upgrade this process",
        queue,
    )


def _unserved(queue: QueueFacts) -> HealthProblem:
    jobs = sum(one.waiting for one in queue.partitions)
    return HealthProblem(
        "unserved",
        f"{_wait(jobs)} and no worker serves it",
        f'run "qbull worker MODULE:APP --queues {queue.name}"',
        queue.name,
        _oldest_ms(queue.partitions),
        values={"jobs": jobs},
    )


def _unread(queue: QueueFacts, unread: Sequence[PartitionFacts]) -> HealthProblem:
    numbers = tuple(sorted({index_in_generation(one.number) for one in unread}))
    jobs = sum(one.waiting for one in unread)
    taken = {one.number for one in unread}
    readers = [id for id, one in queue.workers.items() if one.partitions & taken]
    where = f"partition{'s' * (len(numbers) > 1)} {spell_ranges(numbers)}"
    if readers:
        remedy = "restart the worker that has stopped reading; a task may block its event loop"
    else:
        remedy = f'start the missing worker; "qbull partitions {queue.name}" shows who reads what'
    return HealthProblem(
        "unread",
        f"{_wait(jobs)} in {where}, and no worker reads {'it' if len(numbers) == 1 else 'them'}",
        remedy,
        queue.name,
        _oldest_ms(unread),
        numbers,
        worker=readers[0] if len(readers) == 1 else None,
        values={"jobs": jobs, "partitions": len(numbers)},
    )


def _stale(queue: str, oldest_ms: int, now_ms: int) -> HealthProblem:
    seconds = (now_ms - oldest_ms) // 1000
    return HealthProblem(
        "stale",
        f"stale, its oldest waiting job could have run {seconds} s ago",
        "add worker processes or concurrency",
        queue,
        oldest_ms,
        values={"seconds": seconds},
    )


def _unknown(queue: str, unknown: UnknownTask) -> HealthProblem:
    lacks = f"asks for {unknown.demand}, which no worker has" if unknown.demand else "no worker knows"
    remedy = "start workers that have that" if unknown.demand else "deploy workers whose code has the task"
    return HealthProblem(
        "unknown",
        f'{_wait(unknown.jobs)} for task "{unknown.task}", which {lacks}',
        f"{remedy}, or cancel its jobs",
        queue,
        unknown.since_ms,
        task=unknown.task,
        values={"jobs": unknown.jobs},
    )


def _blocked(queue: QueueFacts, now_ms: int, limits: HealthLimits) -> list[HealthProblem]:
    lanes = [one for one in queue.blocked if now_ms - one.since_ms >= limits.blocked_after * 1000]
    if not lanes:
        return []
    jobs = sum(one.behind for one in lanes)
    keys = "1 key waits" if len(lanes) == 1 else f"{len(lanes)} keys wait"
    return [
        HealthProblem(
            "blocked",
            f"{keys} for the next attempt of a job that fails, {_wait(jobs)} behind",
            f'see "qbull partitions {queue.name}", then fix, promote or cancel the job that fails',
            queue.name,
            min(one.since_ms for one in lanes),
            values={"keys": len(lanes), "jobs": jobs},
            severity=PROBLEM_SEVERITIES["blocked"],
        )
    ]


def _halted(queue: QueueFacts) -> list[HealthProblem]:
    lanes = queue.halted
    if not lanes.keys:
        return []
    behind = f", {_wait(lanes.behind)} behind" if lanes.behind else ""
    return [
        HealthProblem(
            "halted",
            f"{lanes.keys} {'keys are' if lanes.keys > 1 else 'key is'} halted by a dead letter{behind}",
            f'see "qbull partitions {queue.name}", then retry or remove the dead letter',
            queue.name,
            lanes.since_ms or None,
            values={"keys": lanes.keys, "jobs": lanes.behind},
            severity=PROBLEM_SEVERITIES["halted"],
        )
    ]


def _paused(queue: QueueFacts) -> list[HealthProblem]:
    """A pause is a problem only if jobs wait for its end."""
    assert queue.pause is not None
    jobs = sum(one.waiting for one in queue.partitions)
    if not jobs:
        return []
    since_ms = queue.pause.since_ms
    added = sum(one.enqueued for one in queue.minutes if one.at_ms >= since_ms)
    growing = f", {added:,} of them came in the last {len(queue.minutes)} minutes" if added else ""
    return [
        HealthProblem(
            "paused",
            f"paused, {_wait(jobs)}{growing}",
            f'run "qbull resume {queue.name}"',
            queue.name,
            since_ms,
            by=queue.pause.by or None,
            values={"jobs": jobs, "added": added},
            severity="warning" if added else PROBLEM_SEVERITIES["paused"],
        )
    ]


def _overdue(queue: QueueFacts, now_ms: int, limits: HealthLimits) -> list[HealthProblem]:
    return [
        HealthProblem(
            "overdue",
            f"it has not run for {(now_ms - late.due_ms) // 1000} s",
            f'the workers of its queue fire it; run "qbull worker MODULE:APP --queues {queue.name}"',
            queue.name,
            late.due_ms,
            schedule=late.name,
            values={"seconds": (now_ms - late.due_ms) // 1000},
        )
        for late in queue.late
        if now_ms - late.due_ms > limits.overdue_after * 1000
    ]


def _failing(queue: QueueFacts) -> list[HealthProblem]:
    """The share of attempts that failed in the last minutes is far above the usual."""
    failed = sum(one.failed for one in queue.minutes)
    attempts = failed + sum(one.succeeded for one in queue.minutes)
    if failed < MIN_FAILED_ATTEMPTS:
        return []
    before_failed, before = queue.failed - failed, queue.failed + queue.succeeded - attempts
    usual = max(before_failed, 0) / before if before > 0 else 0.0
    ratio = failed / attempts
    if ratio < MAX_FAILURE_RATIO and ratio < max(MIN_FAILURE_RATIO, usual * UNUSUAL_FAILURE_FACTOR):
        return []
    return [
        HealthProblem(
            "failing",
            f"{failed:,} of {attempts:,} attempts failed in the last {len(queue.minutes)} minutes, "
            f"usually {usual:.0%}",
            f'run "qbull failures {queue.name}" to see the reasons',
            queue.name,
            _since_ms(queue.minutes, "failed"),
            values={"failed": failed, "attempts": attempts, "usual": round(usual * 100)},
            severity=PROBLEM_SEVERITIES["failing"],
        )
    ]


def _short_retention(queue: QueueFacts) -> list[HealthProblem]:
    """So many jobs complete that the count removes results long before their age does.

    Only for a queue with both bounds, such as the default: a count alone is what somebody asked for.
    """
    completed = sum(one.succeeded for one in queue.minutes)
    if queue.kept is None or queue.kept_seconds is None or not completed:
        return []
    seconds = queue.kept * len(queue.minutes) * 60 / completed
    if seconds >= min(queue.kept_seconds, SHORT_RETENTION_SECONDS):
        return []
    return [
        HealthProblem(
            "retention",
            f"completed jobs, their results and their ids stay for about {seconds:,.0f} s, because only "
            f"{queue.kept:,} are kept",
            "set keep=Keep(completed_for=…) to keep them by age alone, or a larger count",
            queue.name,
            _since_ms(queue.minutes, "succeeded"),
            values={"seconds": round(seconds), "kept": queue.kept},
            severity=PROBLEM_SEVERITIES["retention"],
        )
    ]


def _since_ms(minutes: Sequence[MinuteOutcomes], outcome: Literal["succeeded", "failed"]) -> int:
    """The first of the last minutes without a gap in which attempts ended so."""
    since_ms = minutes[-1].at_ms
    for minute in reversed(minutes[:-1]):
        if not getattr(minute, outcome):
            break
        since_ms = minute.at_ms
    return since_ms


def _lost(facts: HealthFacts, limits: HealthLimits) -> list[HealthProblem]:
    """Workers that were lost lately and that no later worker has replaced."""
    later = sorted(facts.started_ms.values())
    missing: list[LostWorker] = []
    for one in sorted(facts.lost, key=lambda one: one.at_ms):
        while later and later[0] < one.at_ms - REPLACEMENT_SLACK_MS:
            later.pop(0)
        if later:
            later.pop(0)
        elif facts.now_ms - one.at_ms < limits.lost_for * 1000:
            missing.append(one)
    if not missing:
        return []
    count = len(missing)
    return [
        HealthProblem(
            "lost",
            f"{count} {'workers were' if count > 1 else 'worker was'} lost and not replaced",
            'see "qbull workers", and the logs of its machine',
            since_ms=missing[0].at_ms,
            worker=missing[-1].worker,
            workers=tuple(one.worker for one in missing[:MAX_NAMED_WORKERS]),
            values={"workers": count},
            severity=PROBLEM_SEVERITIES["lost"],
        )
    ]


def _reported(one: OpenProblem) -> HealthProblem:
    """An alert that is firing."""
    problem = one.problem
    remedies: dict[ProblemKind, str] = {
        "missed": 'see "qbull schedules"',
        "repeated": f'see "qbull failures {problem.queue}"',
        "lost": 'see "qbull workers", and the logs of its machine',
    }
    return HealthProblem(
        problem.kind,
        text_of(ProblemNotice("firing", problem, one.since_ms)),
        remedies.get(problem.kind, f'see "qbull jobs {problem.queue} --state failed"'),
        problem.queue or None,
        one.since_ms,
        schedule=problem.schedule or None,
        task=problem.task or None,
        values={"count": problem.count},
        severity=PROBLEM_SEVERITIES[problem.kind],
    )


def _oldest_ms(partitions: Iterable[PartitionFacts]) -> int | None:
    return min((one.oldest_ms for one in partitions if one.oldest_ms is not None), default=None)


def _wait(jobs: int) -> str:
    return f"{jobs:,} {'jobs wait' if jobs != 1 else 'job waits'}"
