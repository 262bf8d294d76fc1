"""The verbs of one partition: each takes names, makes one call and returns a typed answer.

The atomic change itself is in lua/<verb>.lua. Verbs that are marked as idempotent may be sent twice: a second
enqueue finds the ids, a second settle finds the fence gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from qbull.config import QueueSettings
from qbull.core.failures import kind_of_ending
from qbull.core.layout import index_in_generation
from qbull.core.rate import Rate
from qbull.core.record import Ending, State, append_ending, split_ending
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.server import Server
from qbull.store.names import DEFAULT_LEVEL, RETURNED_LEVEL
from qbull.store.retention import QueueRetention, RetentionArguments
from qbull.store.retry import Retriable, Retrier, idempotent
from qbull.store.verbs.closed_partition import PartitionClosed, successor_in
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.progress import MAX_LOG_LINES, JobUpdate, LogLine, read_log_line
from qbull.store.verbs.unique import UniqueAnswer, UniqueJob

EXPIRED_ERROR = "expired: it did not start in time"
EXPIRED_ENDING = append_ending(Ending(0, 0.0, "", error=EXPIRED_ERROR))
MAX_JOBS_PER_CALL = 500
"""Jobs in one call. The limit bounds how long a script blocks the server."""
_IS_NEW: dict[bytes, bool | None] = {b"new": True, b"known": False, b"elsewhere": None, b"moving": None}
"""The words of lua/unique.lua. None: another partition decides."""


class NewJob(NamedTuple):
    """A job to enqueue. `when` is a delay in milliseconds, or "@" and a time in milliseconds."""

    id: str
    when: int | str
    record: bytes


class JobToRetry(NamedTuple):
    """A finished job to run again: its position when it was read, and its new record."""

    id: str
    position: bytes
    record: bytes


class CancelMark(NamedTuple):
    """A job that must stop, and the delivery with which a worker has it."""

    id: bytes
    position: bytes
    reason: str


class Reclaimed(msgspec.Struct, frozen=True):
    deliveries: int
    dead: int
    more: bool


class Promoted(NamedTuple):
    """How many jobs were moved, and the seconds until the next job and the next schedule are due."""

    moved: int
    wait: float | None
    tick: float | None


class Partition(Retriable):
    def __init__(
        self,
        server: Server,
        base: str,
        number: int,
        settings: QueueSettings,
        retention: QueueRetention,
        retrier: Retrier | None = None,
    ) -> None:
        self.server = server
        self.base = base
        self.retention = retention
        self.number = number
        self.shown = index_in_generation(number)
        self.app = base[1:].removesuffix(f":{settings.name}:{number}}}:")
        self.settings = settings
        self.retrier = retrier
        # Made once: the enqueue path asks for it with each call.
        self._without_retry: Self | None = None
        self._limit = settings.lane_limit
        self._ordered = int(settings.order is not None)
        self._halt = int(settings.on_failed == "halt")

    @property
    def failed_retention(self) -> RetentionArguments:
        """How many failed jobs stay, and for how long."""
        return self.retention.failed(self.settings.keep)

    @property
    def without_retry(self) -> Self:
        if self.retrier is None:
            return self
        if self._without_retry is None:
            self._without_retry = super().without_retry
        return self._without_retry

    @idempotent
    async def enqueue(
        self, jobs: Sequence[NewJob], confirmed: ConfirmedServer | None = None, token: str = ""
    ) -> set[int]:
        """Add a batch of jobs.

        Args:
            jobs: The jobs, in order.
            confirmed: The server that confirms the write; None for no confirmation.
            token: Made for this call, if callers chose ids: a call that is sent again gets its first answer.

        Returns:
            The positions of the jobs whose ids were there already.

        Raises:
            PartitionClosed: The partition takes no new jobs.
        """
        flat = [argument for job in jobs for argument in job]
        server = confirmed or self.server
        word, *known = await server.script("enqueue", self.base, self._limit, token, *flat)
        if word != b"added":
            raise PartitionClosed(set(known), successor_in(word))
        return set(known)

    @idempotent
    async def put(self, jobs: Sequence[NewJob], confirmed: ConfirmedServer | None = None) -> set[int]:
        """Like enqueue, but faster, for plain jobs (lua/put.lua)."""
        flat = [argument for id, _, record in jobs for argument in (id, record)]
        is_new = await (confirmed or self.server).script("put", self.base, *flat)
        return set() if is_new else await self.enqueue(jobs, confirmed)

    @idempotent
    async def confirm(self, confirmed: ConfirmedServer) -> None:
        """Wait until everything written here before now is as safe as the profile asks."""
        await confirmed.confirm(self.base)

    @idempotent
    async def has(self, ids: Sequence[str]) -> set[str]:
        """The ids among these that the partition has."""
        positions = await self.server.call("HMGET", self.base + "index", *ids)
        return {id for id, position in zip(ids, positions, strict=True) if position is not None}

    @idempotent
    async def unique(
        self, jobs: Sequence[UniqueJob], confirmed: ConfirmedServer | None = None
    ) -> list[tuple[str, bool]]:
        """Add the unique jobs that win; returns for each the winner's id and whether it is new.

        Raises PartitionClosed.
        """
        flat = [argument for job in jobs for argument in job]
        mark, *answer = await (confirmed or self.server).script("unique", self.base, self._limit, *flat)
        if mark == b"open":
            return [(id.decode(), word == b"new") for id, word in zip(answer[::2], answer[1::2], strict=True)]
        unique_answers = [
            UniqueAnswer(id.decode(), _IS_NEW[word], max(left, 0), word == b"moving")
            for id, word, left in zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        ]
        raise PartitionClosed(set(), successor_in(mark), unique_answers)

    @idempotent
    async def priority_levels(self) -> list[str]:
        """The priority levels that may have jobs, the most urgent first."""
        used = await self.server.call("SMEMBERS", self.base + "bands")
        return sorted({RETURNED_LEVEL, DEFAULT_LEVEL, *(level.decode() for level in used)})

    @idempotent
    async def settle(self, outcomes: PartitionOutcomes) -> list[bytes]:
        """Record a batch of outcomes; returns the ids whose delivery was stale, for which nothing changed."""
        stale: list[bytes] = await self.server.script("settle", self.base, *self.settle_arguments(outcomes))
        return stale

    def settle_arguments(self, outcomes: PartitionOutcomes) -> list[str | bytes | int]:
        """The arguments of lua/settle.lua."""
        completed, failed = self.retention.completed(self.settings.keep), self.failed_retention
        return [self._limit, self._ordered, self._halt, *completed, *failed, *outcomes.arguments()]

    @idempotent
    async def promote(
        self, limit: int = MAX_JOBS_PER_CALL, completed: int = -1, failed: int = -1
    ) -> Promoted:
        """Move due jobs to ready and drop finished jobs that are too old.

        If `completed` or `failed` is given, at most that many finished jobs are kept.
        """
        moved, wait_ms, tick_ms = await self.server.script(
            "promote",
            self.base,
            self._limit,
            limit,
            self.retention.completed(self.settings.keep)[1],
            *self.failed_retention,
            EXPIRED_ENDING,
            completed,
            failed,
        )
        return Promoted(moved, _seconds(wait_ms), _seconds(tick_ms))

    @idempotent
    async def release(self, worker: str, positions: Sequence[bytes]) -> int:
        """Return deliveries that this worker has and will not finish; returns the number of jobs."""
        await self.retention.refresh()
        jobs: int = await self.server.script(
            "release", self.base, self._limit, *self.failed_retention, worker, *positions
        )
        return jobs

    @idempotent
    async def reclaim(
        self, worker: str, ending: bytes, started: Sequence[bytes] | None = None, silent: float = 0.0
    ) -> Reclaimed:
        """Take back the deliveries of a dead worker; `started` lists the jobs that were running.

        If nobody knows what was running, it is None, and deliveries of the last `silent` seconds are not
        suspected.
        """
        await self.retention.refresh()
        blind_ms = int(silent * 1000) if started is None else -1
        taken, dead, more = await self.server.script(
            "reclaim", self.base, self._limit, self._halt, *self.failed_retention,
            worker, 100, self.settings.max_crashes, blind_ms, kind_of_ending(ending), ending,
            *(started or ()),
        )  # fmt: skip
        return Reclaimed(taken, dead, bool(more) or taken > 0)

    # Operations on single jobs. The caller makes `token` before the first send: a call that is sent again
    # after a lost reply gets the first answer.

    @idempotent
    async def cancel(self, ending: bytes, ids: Sequence[str]) -> list[str]:
        """Cancel jobs.

        Each is "cancelled", "cancelling" (a worker has it), "completed", "failed" or "unknown".
        """
        await self.retention.refresh()
        answer: bytes = await self.server.script(
            "cancel", self.base, self._limit, *self.failed_retention, ending, *ids
        )
        return answer.decode().split()

    @idempotent
    async def cancel_marks(self) -> list[CancelMark]:
        """The jobs of this partition that workers have and must stop."""
        flat = await self.server.call("HGETALL", self.base + "cancelling")
        marks = []
        for id, text in zip(flat[::2], flat[1::2], strict=True):
            position, _, ending = text.partition(b" ")
            marks.append(CancelMark(id, position, split_ending(ending)[1].error or ""))
        return marks

    @idempotent
    async def retry(self, token: str, jobs: Sequence[JobToRetry]) -> list[str]:
        """Run finished jobs again.

        Each is "retried", "moved", "unknown" or its state if that does not allow it.
        """
        flat = [argument for job in jobs for argument in job]
        return await self._words("retry", token, *flat)

    @idempotent
    async def remove(self, token: str, jobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Remove jobs, given by id and position (empty: any).

        Each is "removed", "active", "moved", "moving" or "unknown".
        """
        flat = [argument for job in jobs for argument in job]
        return await self._words("remove", token, *flat)

    @idempotent
    async def promote_one(self, token: str, id: str) -> str:
        """Let a delayed job run now; "promoted", "unknown" or its state if that does not allow it."""
        return (await self._words("promote_one", token, id))[0]

    @idempotent
    async def reschedule(self, token: str, id: str, when: int | str) -> str:
        """Change when a job may run: "rescheduled" and its state, or the word of lua/reschedule.lua."""
        return " ".join(await self._words("reschedule", token, id, when))

    @idempotent
    async def update(self, token: str, id: str, task: bytes, payload: bytes) -> str:
        """Change the arguments of a job: "updated" and its state, or the word of lua/update.lua."""
        return " ".join(await self._words("update", token, id, task, payload))

    @idempotent
    async def clean(self, token: str, state: State, age: float, limit: int) -> tuple[int, bool]:
        """Delete the oldest finished jobs; returns how many, and whether there may be more of that age."""
        removed, more = await self._words("clean", token, state, int(age * 1000), limit)
        return int(removed), more == "1"

    async def _words(self, verb: str, token: str, *arguments: str | bytes | int) -> list[str]:
        answer: bytes = await self.server.script(verb, self.base, token, self._limit, *arguments)
        return answer.decode().split()

    @idempotent
    async def start(
        self, expires_ms: int, lane: bytes, rate: Rate | None, unused: int, older: Sequence[bytes] = ()
    ) -> tuple[int, int, int] | None:
        """Milliseconds until a job may start, its start token or 0, and milliseconds until it expires.

        None if it has expired. `expires_ms` is a time or 0. `unused` is a start token that was taken before
        and not used, or 0. `older` has the logs of the lane's starts in earlier partitions.
        """
        limits = (rate.count, rate.window_ms, min(rate.ahead_ms, 50)) if rate is not None else (0, 0, 0)
        word, wait_ms, noted, left_ms = await self.server.script(
            "start_check", self.base, expires_ms, lane, *limits, unused, 1, *older
        )
        return None if word == b"expired" else (wait_ms, noted, left_ms)

    async def return_start_token(self, lane: bytes, rate: Rate, unused: int) -> None:
        """Return an unused start token of a lane. Never sent twice: that would return one too many."""
        await self.server.script("start_check", self.base, 0, lane, rate.count, rate.window_ms, 0, unused, 0)

    @idempotent
    async def holds(self, id: bytes, position: bytes, lane: bytes) -> bool:
        """Whether this delivery still holds the job."""
        if lane:
            state: bytes | None = await self.server.call("HGET", self.base + "trains", lane)
            return state is not None and state.partition(b" ")[0] == position
        return bool(await self.server.call("HGET", self.base + "index", id) == b"r" + position)

    @idempotent
    async def states(self, ids: Sequence[str]) -> str:
        """The state letter of each job (lua/lib/index.lua), "-" for a job that is not here."""
        letters: bytes = await self.server.script("states", self.base, *ids)
        return letters.decode()

    @idempotent
    async def report(self, reports: Sequence[bytes]) -> None:
        """Add reports for events that no script has reported itself: letter and id, then the text."""
        await self.server.script("reports_add", self.base, *reports)

    @idempotent
    async def reports(self, told: Sequence[bytes], limit: int) -> tuple[list[tuple[bytes, list[bytes]]], int]:
        """Drop the entries that were written; returns the next ones, and how many there are in total."""
        entries, length = await self.server.script("reports_take", self.base, limit, *told)
        return entries, length

    @idempotent
    async def records(self, ids: Sequence[bytes]) -> list[bytes]:
        """The records of jobs that are delayed or wait in their lane; empty for any other job."""
        if not ids:
            return []
        positions = await self.server.call("HMGET", self.base + "index", *ids)
        return [
            position[1:] if position is not None and position[:1] in (b"l", b"d", b"m") else b""
            for position in positions
        ]

    @idempotent
    async def mark_isolated(self, job: bytes, position: bytes) -> bool:
        """Mark a suspect before it runs alone. False if the delivery belongs to another worker by now."""
        return bool(await self.server.script("suspect_start", self.base, job, position))

    @idempotent
    async def take_over(self, position: bytes, holder: str, taker: str) -> bool:
        """Take over a delivery that the worker `holder` has not started. False if it has not got it."""
        return bool(await self.server.script("take_over", self.base, position, holder, taker))

    @idempotent
    async def update_jobs(self, notes: Sequence[JobUpdate]) -> None:
        """Store the progress and log lines of running jobs."""
        flat = [argument for note in notes for argument in note.arguments()]
        await self.server.script("progress_write", self.base, MAX_LOG_LINES, *flat)

    @idempotent
    async def logs(self, id: str, last: int = MAX_LOG_LINES) -> list[LogLine]:
        """The newest log lines of a job, in order."""
        lines = await self.server.call("LRANGE", f"{self.base}log:{id}", -last, -1)
        return [read_log_line(line) for line in lines]

    @idempotent
    async def lease(self, worker: str, living: Sequence[str]) -> int:
        """Lease the partition to this worker if no live worker has it; returns the epoch, or 0."""
        others = (name for name in living if name != worker)
        epoch: int = await self.server.script("lease", self.base, worker, *others)
        return epoch

    @idempotent
    async def unlease(self, worker: str) -> None:
        await self.server.script("unlease", self.base, worker)

    @idempotent
    async def ensure_groups(self, levels: Sequence[str]) -> None:
        await self.server.script("consumer_groups", self.base, *levels)


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000
