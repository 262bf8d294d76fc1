"""Search: find jobs of a queue, group the dead letters, redrive and clean them. Methods of `Queue` call this.

Every call to the server is bounded, even with a million dead letters. Jobs that were redriven or removed are
no longer in the list, so an interrupted caller continues by calling again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from qbull.core.cascades import root_cause
from qbull.core.failures import fingerprint, normal_form
from qbull.core.job_filter import JobFilter, JobFilterArguments
from qbull.core.job_info import JobInfo
from qbull.core.job_query import parse_query
from qbull.core.options import Options
from qbull.core.record import STATES, State, to_datetime
from qbull.errors import MAX_COUNT, MAX_DELAY_SECONDS, ArgumentsError
from qbull.manage import bulk
from qbull.manage.bulk import BulkOperation, BulkStep, error_of, run_bulk
from qbull.manage.patching import ArgumentPatch
from qbull.store.audit import audited, of_queue
from qbull.store.read import unfinished
from qbull.store.read.finished import FinishedPosition, TimeSpan, merged
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.read.inspect import StoredJob, counts, server_time
from qbull.store.read.pages import ReadBudget, with_progress
from qbull.store.verbs.partition import Partition

if TYPE_CHECKING:
    from qbull.queue import Queue

MAX_SEARCHED_JOBS = 5_000
"""Maximum number of jobs that one search reads. A page may have fewer jobs than its limit, and a cursor."""

_SCAN_CURSOR = re.compile(r"[0-9]{1,5}:[0-9]{1,20}:[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs.

    Args:
        jobs: the jobs of the page.
        next: the cursor of the next page; None if there is none.
    """

    jobs: list[JobInfo]
    next: str | None


def filter_of(given: JobFilterArguments) -> JobFilter:
    """The filter of a call. Times in a query are relative to now; its dates are those of this machine."""
    query = given.get("query")
    if isinstance(query, str):
        query = parse_query(query, datetime.now(UTC), None)
    return JobFilter(**cast(Any, {**given, "query": query}))


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dead letters that failed for the same reason.

    Args:
        fingerprint: names the reason.
        error: the error without its details.
        count: number of dead letters.
        tasks: names of their tasks.
        first_at: when the oldest of them failed.
        last_at: when the newest of them failed.
        last: the id of the newest.
        last_error: the error of the newest.
    """

    fingerprint: str
    error: str
    count: int
    tasks: tuple[str, ...]
    first_at: datetime
    last_at: datetime
    last: str
    last_error: str

    @property
    def cascade(self) -> bool:
        """Whether they failed because another job of their flow did."""
        return root_cause(self.last_error) is not None


@dataclass(frozen=True, slots=True)
class Redriven:
    """The progress of a redrive: `redriven` dead letters were retried, of `looked_at` that were read.

    `refused` stay dead letters because a patch does not fit them; `refusal` says why, for the first one.
    """

    redriven: int
    looked_at: int
    refused: int = 0
    refusal: str | None = None


async def search(
    queue: Queue,
    state: State,
    limit: int,
    cursor: str | None,
    job_filter: JobFilter,
    budget: ReadBudget | None = None,
) -> Page:
    """One page of the jobs of a state that match a filter; a short one if the budget is spent before."""
    if state not in STATES:
        raise ArgumentsError(f"state {state!r}: use one of {', '.join(STATES)}")
    _check_count("limit", limit, limit=1000)
    partitions = await queue._partitions()
    look = _search_finished if state in FINISHED_STATES else _search_unfinished
    wanted = _Wanted(state, job_filter, limit, budget)
    found, after = await look(partitions, wanted, cursor)
    return Page([queue._info(job) for job in await with_progress(partitions, found)], after)


async def failures(queue: Queue, scan: int, job_filter: JobFilter) -> list[FailureGroup]:
    """The newest `scan` dead letters, grouped by the reason of their failure."""
    _check_count("scan", scan)
    return await _groups(await queue._partitions(), job_filter, scan)


@audited("redrive", of_queue)
async def redrive(
    queue: Queue,
    limit: int | None,
    rate: float | None,
    on_step: Callable[[Redriven], object] | None,
    job_filter: JobFilter,
    patch: Mapping[str, Any] | None = None,
) -> int:
    """Retry dead letters, the oldest first; returns how many."""
    if limit is not None:
        _check_count("limit", limit)
    if rate is not None and not 0 < rate < float("inf"):
        raise ArgumentsError(f"rate={rate!r}: give a number of jobs in a second, more than 0")
    patching = None if patch is None else ArgumentPatch(queue, patch)
    act = bulk.retry if patching is None else patching.retry
    operation = BulkOperation(act, "failed", job_filter, limit=limit, rate=rate)

    def step(now: BulkStep) -> None:
        if on_step is not None:
            refusals = () if patching is None else (patching.refused, patching.refusal)
            on_step(Redriven(*now, *refusals))

    return await run_bulk(queue.app._client(), await queue._partitions(), operation, step)


@audited("clean", of_queue)
async def clean(
    queue: Queue, state: State, older_than: float, limit: int | None, job_filter: JobFilter
) -> int:
    """Delete finished jobs that ended more than `older_than` seconds ago; returns how many."""
    _check_finished(state)
    if limit is not None:
        _check_count("limit", limit)
    if not 0 <= older_than <= MAX_DELAY_SECONDS:
        raise ArgumentsError(f"older_than={older_than!r}: give a number of seconds from 0")
    operation = BulkOperation(bulk.remove, state, job_filter, older_than, limit)
    return await run_bulk(queue.app._client(), await queue._partitions(), operation)


@audited("cancel jobs", of_queue)
async def cancel(queue: Queue, state: State, reason: str, limit: int | None, job_filter: JobFilter) -> int:
    """Cancel jobs that have not ended; returns how many."""
    if state not in ("waiting", "delayed", "active"):
        raise ArgumentsError(f"state {state!r}: use waiting, delayed or active")
    return await _run(queue, BulkOperation(bulk.cancelling(reason), state, job_filter, limit=limit))


@audited("purge", of_queue)
async def purge(queue: Queue, state: State, limit: int | None, job_filter: JobFilter) -> int:
    """Delete jobs that have not started; returns how many."""
    if state not in ("waiting", "delayed"):
        raise ArgumentsError(f"state {state!r}: use waiting or delayed")
    return await _run(queue, BulkOperation(bulk.remove, state, job_filter, limit=limit))


@audited("reschedule jobs", of_queue)
async def reschedule(
    queue: Queue, state: State, when: Mapping[str, Any], limit: int | None, job_filter: JobFilter
) -> int:
    """Change when jobs may run that have not started, to `delay` or `at`; returns how many."""
    if state not in ("waiting", "delayed"):
        raise ArgumentsError(f"state {state!r}: use waiting or delayed")
    action = bulk.rescheduling(*await reschedule_times(queue, Options(**when)))
    return await _run(queue, BulkOperation(action, state, job_filter, limit=limit))


async def reschedule_times(queue: Queue, when: Options) -> tuple[int, int]:
    """The new time of all jobs and the current time, in milliseconds of the server's clock."""
    if (when.delay is None) == (when.at is None):
        raise ArgumentsError("reschedule: give delay or at, one of them")
    now_ms = int(await server_time((await queue._partitions())[0]) * 1000)
    if when.at is not None:
        return int(when.at.timestamp() * 1000), now_ms
    return now_ms + int((when.delay or 0.0) * 1000), now_ms


async def _run(queue: Queue, operation: BulkOperation) -> int:
    if operation.limit is not None:
        _check_count("limit", operation.limit)
    return await run_bulk(queue.app._client(), await queue._partitions(), operation)


class _Wanted(msgspec.Struct, frozen=True):
    """The jobs of a page: their state, a filter, how many, and how many bytes."""

    state: State
    filter: JobFilter
    limit: int
    budget: ReadBudget | None

    def is_full(self, found: Sequence[StoredJob], looked: int) -> bool:
        """Whether the page ends here."""
        is_spent = self.budget is not None and self.budget.is_spent
        return len(found) >= self.limit or looked >= MAX_SEARCHED_JOBS or is_spent

    def spend(self, jobs: Sequence[StoredJob]) -> None:
        """Count jobs of the page. The page ends after the one that spends the budget."""
        if self.budget is not None:
            for job in jobs:
                self.budget.spend(job)


async def _search_finished(
    partitions: Sequence[Partition], wanted: _Wanted, cursor: str | None
) -> tuple[list[StoredJob], str | None]:
    """The newest first, over all partitions."""
    found: list[StoredJob] = []
    looked, where, queue = 0, wanted.filter, partitions[0].settings.name
    async with aclosing(merged(partitions, wanted.state, _span(where), _position_of(cursor))) as jobs:
        async for place, job in jobs:
            looked += 1
            if bulk.matches(job, where, queue):
                found.append(job)
                wanted.spend([job])
            if wanted.is_full(found, looked):
                return found, str(place)
    return found, None


async def _search_unfinished(
    partitions: Sequence[Partition], wanted: _Wanted, cursor: str | None
) -> tuple[list[StoredJob], str | None]:
    """One partition after the other.

    A cursor consists of the partition, the position in it, and the number of jobs that were returned from
    there.
    """
    if cursor is not None and not _SCAN_CURSOR.fullmatch(cursor):
        raise _wrong_cursor(cursor)
    at, inner, skip = (cursor or "0:0:0").split(":")
    if int(inner) >= 1 << 64:
        raise _wrong_cursor(cursor or "")
    found: list[StoredJob] = []
    looked, given, state, queue = 0, int(skip), wanted.state, partitions[0].settings.name
    there = await counts(partitions[int(at) :])
    for n in range(int(at), len(partitions)):
        if not getattr(there[n - int(at)], state):
            continue
        begin = inner if n == int(at) else unfinished.SCAN_START
        async with aclosing(unfinished.scan_unfinished(partitions[n], state, begin)) as steps:
            async for met in steps:
                looked += met.looked
                some = [job for job in met.jobs if bulk.matches_unfinished(job, wanted.filter, queue)]
                old, room = min(given, len(some)), wanted.limit - len(found)
                given -= old
                found += some[old : old + room]
                wanted.spend(some[old : old + room])
                if len(some) - old > room:
                    return found, f"{n}:{begin}:{old + room}"
                begin = met.cursor
                if wanted.is_full(found, looked):
                    return found, _following(n, begin, len(partitions))
    return found, None


def _following(n: int, inner: str, partitions: int) -> str | None:
    if inner != unfinished.SCAN_END:
        return f"{n}:{inner}:0"
    return f"{n + 1}:{unfinished.SCAN_START}:0" if n + 1 < partitions else None


async def _groups(partitions: Sequence[Partition], wanted: JobFilter, most: int) -> list[FailureGroup]:
    """The newest dead letters by error, the most frequent first."""
    by: dict[str, FailureGroup] = {}
    looked = 0
    async with aclosing(merged(partitions, "failed", _span(wanted))) as jobs:
        async for _, job in jobs:
            looked += 1
            if bulk.matches(job, wanted, partitions[0].settings.name):
                name = fingerprint(wanted.shown(job.body(), error_of(job)))
                by[name] = _with_failure(by.get(name), name, job)
            if looked >= most:
                break
    return sorted(by.values(), key=lambda group: (-group.count, group.first_at))


def _position_of(cursor: str | None) -> FinishedPosition | None:
    try:
        return None if cursor is None else FinishedPosition.parse(cursor)
    except ValueError:
        raise _wrong_cursor(cursor or "") from None


def _wrong_cursor(cursor: str) -> ArgumentsError:
    return ArgumentsError(f"cursor={cursor[:80]!r}: give the `next` of the page before")


def _with_failure(group: FailureGroup | None, name: str, job: StoredJob) -> FailureGroup:
    """The group with one more job, which is older than all others in it."""
    at, task = to_datetime(job.finished_ms or 0), job.body().task
    if group is None:
        error = error_of(job)
        return FailureGroup(name, normal_form(error), 1, (task,), at, at, job.id, error)
    tasks = group.tasks if task in group.tasks else tuple(sorted((*group.tasks, task)))
    return replace(group, count=group.count + 1, tasks=tasks, first_at=at)


def _check_finished(state: State) -> None:
    if state not in ("completed", "failed", "cancelled"):
        raise ArgumentsError(f"state {state!r}: use completed, failed or cancelled")


def _check_count(name: str, value: int, limit: int = MAX_COUNT) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise ArgumentsError(f"{name}={value!r}: give a whole number from 1 to {limit:,}")


def _span(wanted: JobFilter) -> TimeSpan:
    return TimeSpan(wanted.after_ms, wanted.before_ms)
