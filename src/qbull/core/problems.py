"""Problems: which are open, which were reported, and which to report now. Pure; the server's time is given.

A watcher reads the state, takes readings, computes the new state here, and writes it if nobody has changed
the state meanwhile (store/lua/alert_raise.lua). So any number of processes may watch, and each problem is
reported once.

A reading is a total that only rises (jobs that failed permanently), or a level that is there or not (a queue
is stale). A total that rises opens a problem, and so does a level. The problem is over when the level is
gone, or when somebody has dealt with the cases of the total. If nobody can deal with them (a missed run), it
is forgotten without a message after a quiet time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from qbull.core.rate import Rate

ProblemKind = Literal[
    "away", "unreadable", "unserved", "unread", "unknown", "stale", "blocked", "halted", "paused", "failing",
    "overdue", "lost", "failed", "repeated", "missed", "retention", "limited", "conflicting",
]  # fmt: skip
"""All kinds of problems. core/health.py finds most of them in the state of the queues."""
NoticeStatus = Literal["firing", "still", "resolved"]

LASTING_KINDS: frozenset[ProblemKind] = frozenset(
    {"unserved", "unread", "unknown", "stale", "blocked", "overdue", "repeated"}
)
"""Alerts about a state. People are told again while it lasts, even if it does not get worse."""
MAX_REPEAT_INTERVAL_MS = 3_600_000
"""A problem that goes on is reported again after an hour at the latest."""
MAX_OPEN_PROBLEMS = 500
"""Maximum number of open problems. Further ones are detected again when there is room."""
MAX_PROBLEMS_IN_MESSAGE = 10
"""Maximum number of problems in one message."""
FORGET_UNSEEN_AFTER_MS = 86_400_000
"""A problem that nobody could check for this long is closed."""
MAX_REASON_CHARS = 300
"""Maximum length of a reason."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is wrong.

    `count` is the number of cases; `task`, `job` and `reason` are of the newest. `fact` is the problem as a
    sentence, if core/health.py has found it.
    """

    kind: ProblemKind
    queue: str = ""
    task: str = ""
    job: str = ""
    reason: str = ""
    count: int = 1
    schedule: str = ""
    fact: str = ""

    @property
    def name(self) -> str:
        """The same problem has the same name, whatever its newest job is."""
        which = {"overdue": self.schedule, "repeated": self.task, "unknown": self.task}.get(self.kind, "")
        return f"{self.kind} {self.queue} {which}".rstrip()


class CounterReading(NamedTuple):
    """A total. `value` only rises; if nothing was known before, it counts from `first`.

    `left`: the number of cases that nobody has dealt with; None if nobody can.
    """

    problem: Problem
    value: int
    first: int
    left: int | None = None


class GaugeReading(NamedTuple):
    """A problem, and whether it exists now.

    `resolved`: if it does not, whether that is good news. Otherwise nobody is told.
    """

    problem: Problem
    there: bool
    resolved: bool = True


class OpenProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A known problem.

    `told_ms` is when it was reported last, or 0; `times` is how often; `told` is the count at that time.
    `left_before` is the number of older cases that nobody had dealt with when it started.
    """

    problem: Problem
    since_ms: int
    seen_ms: int
    rose_ms: int
    told_ms: int = 0
    times: int = 0
    told: int = 0
    over: bool = False
    left_before: int = 0


class AlertState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state: the last totals, the open problems, the times of messages."""

    totals: dict[str, int] = {}
    open: dict[str, OpenProblem] = {}
    sent: list[int] = []


class ProblemNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem in a message."""

    status: NoticeStatus
    problem: Problem
    since_ms: int


class AlertNotification(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to people. `more` is the number of problems that it omits for lack of space."""

    at_ms: int
    said: list[ProblemNotice]
    more: int = 0


class AlertPolicy(NamedTuple):
    """How often problems are reported."""

    every_ms: int
    rate: Rate


def evaluate_problems(
    state: AlertState, readings: Iterable[CounterReading | GaugeReading], now_ms: int, policy: AlertPolicy
) -> tuple[AlertState, AlertNotification | None]:
    """The state after these readings, and the message to send."""
    totals, known = dict(state.totals), dict(state.open)
    for reading in readings:
        if isinstance(reading, CounterReading):
            _apply_counter(totals, known, reading, now_ms, policy)
        else:
            _apply_gauge(known, reading, now_ms)
    known = {name: one for name, one in known.items() if now_ms - one.seen_ms < FORGET_UNSEEN_AFTER_MS}
    sent = [at for at in state.sent if now_ms - policy.rate.per * 1000 < at <= now_ms]
    due = [name for name, one in known.items() if _is_due(one, now_ms, policy)]
    message = None
    if due and len(sent) < policy.rate.count:
        message = _message([known[name] for name in due], now_ms)
        sent.append(now_ms)
        for name in due:
            known[name] = _mark_notified(known[name], now_ms)
    known = {name: one for name, one in known.items() if not (one.over and one.told_ms == now_ms)}
    return AlertState(totals, known, sent), message


def _apply_counter(
    totals: dict[str, int],
    known: dict[str, OpenProblem],
    reading: CounterReading,
    now_ms: int,
    policy: AlertPolicy,
) -> None:
    problem, name = reading.problem, reading.problem.name
    before = totals.get(name, reading.first)
    # If the total is lower than before, the server has lost its data.
    rise = reading.value - before if before <= reading.value else reading.value
    there = known.get(name)
    is_told = there is not None and there.told_ms > 0 and there.problem.count <= there.told
    is_quiet = there is not None and is_told and now_ms - there.rose_ms >= policy.every_ms
    if rise > 0 and there is None and len(known) >= MAX_OPEN_PROBLEMS:
        return
    totals[name] = reading.value
    if rise > 0:
        if there is None or is_quiet:
            told = msgspec.structs.replace(problem, count=rise)
            left_before = max((reading.left or 0) - rise, 0)
            known[name] = OpenProblem(told, now_ms, now_ms, now_ms, left_before=left_before)
        else:
            told = msgspec.structs.replace(problem, count=rise + there.problem.count)
            known[name] = msgspec.structs.replace(
                there, problem=told, seen_ms=now_ms, rose_ms=now_ms, over=False
            )
    elif there is not None and reading.left is None and is_quiet:
        del known[name]
    elif there is not None:
        over = reading.left is not None and reading.left <= there.left_before
        known[name] = msgspec.structs.replace(there, seen_ms=now_ms, over=there.over or over)


def _apply_gauge(known: dict[str, OpenProblem], reading: GaugeReading, now_ms: int) -> None:
    name = reading.problem.name
    there = known.get(name)
    if reading.there and there is None:
        if len(known) < MAX_OPEN_PROBLEMS:
            known[name] = OpenProblem(reading.problem, now_ms, now_ms, now_ms)
    elif reading.there and there is not None:
        known[name] = msgspec.structs.replace(
            there, problem=reading.problem, seen_ms=now_ms, rose_ms=now_ms, over=False
        )
    elif there is not None and there.told_ms and reading.resolved:
        known[name] = msgspec.structs.replace(there, seen_ms=now_ms, over=True)
    elif there is not None:
        del known[name]  # It was over before anybody was told, or there is nothing good to tell.


def _is_due(one: OpenProblem, now_ms: int, policy: AlertPolicy) -> bool:
    if one.over or not one.told_ms:
        return True
    goes_on = one.problem.count > one.told or one.problem.kind in LASTING_KINDS
    wait = min(policy.every_ms * 2 ** min(one.times - 1, 20), max(MAX_REPEAT_INTERVAL_MS, policy.every_ms))
    return goes_on and not 0 <= now_ms - one.told_ms < wait


def _mark_notified(one: OpenProblem, now_ms: int) -> OpenProblem:
    return msgspec.structs.replace(one, told_ms=now_ms, times=one.times + 1, told=one.problem.count)


def _message(due: Sequence[OpenProblem], now_ms: int) -> AlertNotification:
    """New problems first, resolved ones last."""
    said = [ProblemNotice(_status(one), one.problem, one.since_ms) for one in due]
    order: dict[NoticeStatus, int] = {"firing": 0, "still": 1, "resolved": 2}
    said.sort(key=lambda each: (order[each.status], -each.problem.count))
    return AlertNotification(
        now_ms, said[:MAX_PROBLEMS_IN_MESSAGE], max(len(said) - MAX_PROBLEMS_IN_MESSAGE, 0)
    )


def _status(one: OpenProblem) -> NoticeStatus:
    if not one.told_ms:
        return "firing"  # Even if it is over by now, because nobody was told.
    return "resolved" if one.over else "still"


_PROBLEM_TEXTS: dict[ProblemKind, tuple[str, str]] = {
    "failed": ("{n} {jobs} failed permanently", "all dealt with; {n} {jobs} had failed permanently"),
    "repeated": ("{n} attempts failed within five minutes", "its attempts no longer fail"),
    "missed": ("{n} {ticks} missed", "no more ticks were missed; {n} were"),
    "lost": ("{n} {workers} lost", "no more workers were lost; {n} were"),
    "unserved": ("{n} {jobs} wait and no worker serves it", "a worker serves it again"),
    "unread": (
        "{n} {jobs} wait in partitions that no worker reads",
        "workers read all its partitions again",
    ),
    "unknown": ("{n} {jobs} wait for a task that no worker knows", "a worker knows its task again"),
    "stale": ("its oldest job has waited for {n} s", "its jobs start again"),
    "blocked": ("{n} {jobs} wait behind a job that fails", "no key waits for a job that fails"),
    "overdue": ("it has not run for {n} s", "it runs again"),
}
"""The start and the end of each kind of alert. A problem that has a fact is told with it."""


def text_of(said: ProblemNotice) -> str:
    """A sentence for a problem, or for its end."""
    n, over = said.problem.count, said.status == "resolved"
    if said.problem.fact and not over:
        return said.problem.fact
    one = n == 1
    return _PROBLEM_TEXTS[said.problem.kind][over].format(
        n=f"{n:,}",
        jobs="job" if one else "jobs",
        ticks="tick was" if one else "ticks were",
        workers="worker was" if one else "workers were",
    )


def subject_of(problem: Problem) -> str:
    """The queue, task or schedule that has the problem, for people."""
    match problem.kind:
        case "missed" | "overdue":
            return f'schedule "{problem.schedule}"' if problem.schedule else f'queue "{problem.queue}"'
        case "repeated":
            return f'task "{problem.task}" of queue "{problem.queue}"'
        case "lost":
            return "workers"
        case _:
            return f'queue "{problem.queue}"'
