"""Why a job is not running: turns facts about the job and its queue into reasons.

store/read/why.py reads the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from qbull.core.flow import NEVER_DUE_MS, Dependency
from qbull.core.limit_status import LimitStatus
from qbull.core.parking import NeedKind
from qbull.core.rate import Rate
from qbull.core.record import ExtendedBody, State, to_datetime
from qbull.errors import job_not_found

ReasonCode: TypeAlias = Literal[
    "finished", "running", "stopping", "blocked", "paused", "held", "no-worker", "unread", "no-task",
    "no-label", "resource", "due",
    "retry", "put-off", "sleeping", "signal", "called", "behind", "halted", "flow", "parked", "rate", "limit",
    "shared-limit", "busy", "line", "next",
]  # fmt: skip

MAX_AHEAD_COUNT = 1000
"""Deliveries before a job are counted up to this number."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: `text` is for people; `code` and `values` are for programs with their own wording.

    `job` is the job that it waits for.
    """

    code: ReasonCode
    text: str
    job: str | None = None
    worker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    values: dict[str, str | int] = field(default_factory=dict)

    @property
    def at(self) -> datetime | None:
        """The time until which the reason holds, or since which it has held."""
        return self.until or self.since


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job is not running, the most important reason first. `str(why)` is a sentence."""

    id: str
    queue: str
    state: State | None
    reasons: tuple[Reason, ...] = ()

    @property
    def text(self) -> str:
        """The same as `str(why)`."""
        return str(self)

    def __str__(self) -> str:
        if self.state is None:
            return str(job_not_found(self.queue, self.id))
        return "; ".join(reason.text for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class LaneHolder:
    """The job that holds a lane, if it was found, and the number of jobs before the one in question."""

    id: str | None
    state: State | None
    worker: str | None
    position: int


@dataclass(frozen=True, slots=True)
class BlockedLoop:
    """A worker whose event loop stands still, and the task that blocks it, or all that it may be."""

    worker: str
    since: datetime
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitWait:
    """The shared limit that a job waits for, and its use; None if no worker has declared the limit."""

    limit: str
    key: str
    since: datetime
    status: LimitStatus | None = None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about one job and its queue. Times are the server's, in milliseconds."""

    queue: str
    state: State
    body: ExtendedBody
    holds_lane: bool = False
    error: str | None = None
    finished_ms: int = 0
    due_ms: int = 0
    awaits: tuple[Dependency, ...] = ()
    """The jobs of its flow that it still waits for."""
    called: tuple[Dependency, ...] = ()
    """The jobs that it has called and that have not ended."""
    worker: str = ""
    since_ms: int = 0
    stopping: bool = False
    parked: datetime | None = None
    """Since when it waits for a worker that can run it."""
    parked_for: NeedKind = "code"
    limited: LimitWait | None = None
    before: int = 0
    front: LaneHolder | None = None
    paused: tuple[str, datetime] | None = None
    held: tuple[datetime, str] | None = None
    serving: int = 0
    reading: int = 0
    blocked: BlockedLoop | None = None
    """The worker that has the job, or that should read its partition, if its event loop is blocked."""
    partition: str = "0"
    tasks: frozenset[str] = frozenset()
    """The tasks that a live worker can run."""
    demand: str = ""
    """The labels and resources that its task asks for."""
    slots: int = 0
    active: int = 0
    rate: Rate | None = None
    lane_rate: Rate | None = None
    next_start_ms: int = 0
    now_ms: int = 0
    max_active: int | None = None
    used_slots: int = 0


def explain(id: str, facts: JobFacts) -> Why:
    """The reasons, the one to deal with first at the top."""
    if facts.state in ("completed", "failed", "cancelled"):
        reasons = [_finished(facts)]
    elif facts.state == "active":
        reasons = _running(facts)
    else:
        reasons = _queue_reasons(facts) + _job_reasons(facts)
        if not reasons:
            reasons = [Reason("next", "nothing stands in its way; a worker is about to take it")]
    return Why(id, facts.queue, facts.state, tuple(reasons))


def _finished(facts: JobFacts) -> Reason:
    at = to_datetime(facts.finished_ms)
    words = {"completed": "it completed", "failed": "it failed permanently", "cancelled": "it was cancelled"}
    because = f": {facts.error}" if facts.error else ""
    values = _known(state=facts.state, error=facts.error)
    return Reason("finished", f"{words[facts.state]} at {_clock(at)}{because}", since=at, values=values)


def _running(facts: JobFacts) -> list[Reason]:
    since = to_datetime(facts.since_ms)
    text = f"worker {facts.worker} has it since {_clock(since)}"
    reasons = [Reason("running", text, worker=facts.worker, since=since, values=_known(worker=facts.worker))]
    if facts.blocked is not None:
        reasons.append(_blocked(facts.blocked))
    if facts.stopping:
        reasons.append(Reason("stopping", "it was told to stop, and has not yet", worker=facts.worker))
    return reasons


def _blocked(blocked: BlockedLoop) -> Reason:
    by = " or ".join(blocked.tasks) or "a task"
    text = (
        f"the event loop of worker {blocked.worker} is blocked by {by} since {_clock(blocked.since)}; "
        "use a plain function or cpu=True for such work"
    )
    values = _known(worker=blocked.worker, tasks=by)
    return Reason("blocked", text, worker=blocked.worker, since=blocked.since, values=values)


def _queue_reasons(facts: JobFacts) -> list[Reason]:
    reasons = []
    if facts.paused is not None:
        by, since = facts.paused
        text = f'queue "{facts.queue}" is paused, by {by} since {_clock(since)}; resume it'
        reasons.append(Reason("paused", text, since=since, values=_known(by=by)))
    if facts.held is not None:
        until, because = facts.held
        text = f'queue "{facts.queue}" rests until {_clock(until)}, after {because}'
        reasons.append(Reason("held", text, until=until, values=_known(because=because)))
    if not facts.serving:
        text = f'no live worker serves queue "{facts.queue}"; start one with "qbull worker MODULE:APP"'
        reasons.append(Reason("no-worker", text))
    elif not facts.reading and facts.blocked is not None:
        reasons.append(_blocked(facts.blocked))
    elif not facts.reading:
        text = (
            f"none of {facts.serving} live workers reads partition {facts.partition}; "
            f'see "qbull partitions {facts.queue}"'
        )
        values = _known(workers=facts.serving, partition=facts.partition)
        reasons.append(Reason("unread", text, values=values))
    if facts.serving and facts.demand and facts.body.task not in facts.tasks:
        text = (
            f'task "{facts.body.task}" asks for {facts.demand}, and none of {facts.serving} live workers '
            "of the queue has that"
        )
        values = _known(task=facts.body.task, demand=facts.demand, workers=facts.serving)
        reasons.append(Reason("no-label", text, since=facts.parked, values=values))
    elif facts.serving and facts.body.task not in facts.tasks:
        known = ", ".join(sorted(facts.tasks)[:10]) or "none"
        lately = f" since {_clock(facts.parked)}" if facts.parked is not None else ""
        text = f'no live worker of the queue knows task "{facts.body.task}"{lately}; they know: {known}'
        values = _known(task=facts.body.task, tasks=known)
        reasons.append(Reason("no-task", text, since=facts.parked, values=values))
    elif facts.serving and facts.parked is not None and facts.parked_for != "code":
        in_use = facts.parked_for == "resource"
        text = (
            f"it waits for {facts.demand} since {_clock(facts.parked)}"
            f"{'; the tokens are in use' if in_use else '; a worker that has that takes it'}"
        )
        values = _known(task=facts.body.task, demand=facts.demand)
        reasons.append(Reason("resource", text, since=facts.parked, values=values))
    elif facts.serving and facts.parked is not None:
        text = (
            f"the code of the worker that read it at {_clock(facts.parked)} cannot run it; "
            "a worker whose code fits takes it"
        )
        reasons.append(Reason("parked", text, since=facts.parked, values=_known(task=facts.body.task)))
    return reasons


def _job_reasons(facts: JobFacts) -> list[Reason]:
    if facts.state == "delayed":
        return [_delay_reasons(facts)]
    if facts.parked is not None:
        return []
    if facts.limited is not None:
        return [_limit_reason(facts.limited)]
    return [_lane_reasons(facts, facts.front)] if facts.front is not None else _ready_reasons(facts)


def _delay_reasons(facts: JobFacts) -> Reason:
    if facts.awaits:
        return _flow_reasons(facts.awaits)
    until, body = to_datetime(facts.due_ms), facts.body
    if body.waits_for:
        return _signal_reasons(facts)
    if body.suspended == "calling":
        return _call_reasons(facts)
    if body.suspended:
        return Reason("sleeping", f"it sleeps until {_clock(until)}", until=until)
    if body.attempt > 1:
        error = body.history[-1].error if body.history else None
        because = f": {error}" if error is not None else ""
        text = f"attempt {body.attempt - 1} failed, it waits until {_clock(until)} for the next{because}"
        return Reason("retry", text, until=until, values=_known(attempt=body.attempt - 1, error=error))
    if facts.holds_lane and facts.lane_rate is not None:
        text = f"{_key(facts)} has had its starts, {facts.lane_rate}; it waits until {_clock(until)}"
        values = _known(key=body.key, rate=str(facts.lane_rate))
        return Reason("put-off", text, until=until, values=values)
    return Reason("due", f"it is delayed until {_clock(until)}", until=until)


def _signal_reasons(facts: JobFacts) -> Reason:
    names = " or ".join(f'"{name}"' for name in facts.body.waits_for)
    if facts.due_ms >= NEVER_DUE_MS:
        return Reason("signal", f"it waits for the signal {names}", values=_known(signal=names))
    until = to_datetime(facts.due_ms)
    text = f"it waits for the signal {names}, until {_clock(until)}"
    return Reason("signal", text, until=until, values=_known(signal=names))


def _call_reasons(facts: JobFacts) -> Reason:
    if not facts.called:
        return Reason("called", "it waits for a job that it has called, which has just ended")
    first, others = facts.called[0], len(facts.called) - 1
    more = f" and {others} more" if others else ""
    text = f'it has called job {first.id} ({first.task}) of queue "{first.queue}"{more}, and waits for it'
    values = _known(task=first.task, queue=first.queue, others=others)
    return Reason("called", text, job=first.id, values=values)


def _flow_reasons(awaits: tuple[Dependency, ...]) -> Reason:
    first = awaits[0]
    others = f" and {len(awaits) - 1} others of its flow" if len(awaits) > 1 else " of its flow"
    has = f", which did not complete: {first.error}; retry it" if first.error else ""
    text = f'it waits for job {first.id} ({first.task}) of queue "{first.queue}"{others}{has}'
    values = _known(task=first.task, queue=first.queue, others=len(awaits) - 1, error=first.error)
    return Reason("flow", text, job=first.id, values=values)


def _lane_reasons(facts: JobFacts, front: LaneHolder) -> Reason:
    key = _key(facts)
    if front.id is None:
        return Reason("behind", f"others of {key} come first", values=_known(key=facts.body.key))
    if front.state == "failed":
        text = f"{key} is halted: job {front.id} has failed permanently; retry or remove it"
        return Reason("halted", text, job=front.id, values=_known(key=facts.body.key))
    doing = {
        "active": f"worker {front.worker} has",
        "delayed": "is delayed",
        "waiting": "waits for a worker",
    }.get(front.state or "", "has just ended")
    text = f"it is number {front.position} behind job {front.id} of {key}, which {doing}"
    values = _known(key=facts.body.key, position=front.position, state=front.state, worker=front.worker)
    return Reason("behind", text, job=front.id, worker=front.worker, values=values)


def _limit_reason(waits: LimitWait) -> Reason:
    """The rule of the limit that keeps it waiting: the day's budget, the slots, or the rate."""
    key = f' for key "{waits.key}"' if waits.key else ""
    status, rule = waits.status, "no worker uses it any more"
    if status is not None and status.daily is not None and status.spent >= status.daily:
        rule = f"{status.spent:,} of {status.daily:,} for today are spent"
    elif status is not None and status.concurrency is not None and status.running >= status.concurrency:
        rule = f"{status.running} of {status.concurrency} slots are in use"
    elif status is not None and status.rate is not None:
        rule = f"its rate is {status.rate}"
    elif status is not None:
        rule = "it starts in a moment"
    text = f'it waits for limit "{waits.limit}"{key} since {_clock(waits.since)}: {rule}'
    values = _known(limit=waits.limit, key=waits.key or None, rule=rule)
    return Reason("shared-limit", text, since=waits.since, values=values)


def _ready_reasons(facts: JobFacts) -> list[Reason]:
    """The reasons of a job that is ready for the workers."""
    reasons = []
    if facts.rate is not None and facts.next_start_ms > 0:
        until = to_datetime(facts.now_ms + facts.next_start_ms)
        text = f"the rate of the queue, {facts.rate}, is used up until {_clock(until)}"
        reasons.append(Reason("rate", text, until=until, values=_known(rate=str(facts.rate))))
    if facts.max_active is not None and facts.used_slots >= facts.max_active:
        text = f"{facts.used_slots} jobs of the queue run, and max_active is {facts.max_active}"
        reasons.append(Reason("limit", text, values=_known(jobs=facts.used_slots, most=facts.max_active)))
    elif facts.slots and facts.active >= facts.slots:
        text = f"all {facts.slots} slots of the queue's workers are in use"
        reasons.append(Reason("busy", text, values=_known(slots=facts.slots)))
    if facts.before:
        many = f"more than {MAX_AHEAD_COUNT:,}" if facts.before > MAX_AHEAD_COUNT else f"{facts.before}"
        text = f"{many} {'others come' if facts.before > 1 else 'other comes'} first"
        reasons.append(Reason("line", text, values=_known(jobs=facts.before)))
    return reasons


def _known(**values: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in values.items() if value is not None}


def _key(facts: JobFacts) -> str:
    return f'its key "{facts.body.key}"' if facts.body.key is not None else "its lane"


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
