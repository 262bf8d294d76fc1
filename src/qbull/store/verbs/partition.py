"""One partition of a queue: each verb is names, call, typed answer. The atomic change itself is in lua/<verb>.lua.

Every verb may be sent twice: a second enqueue finds the ids, a second settle finds the fence gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from qbull.config import QueueSettings
from qbull.core.layout import Generation, index_in_generation
from qbull.core.rate import Rate
from qbull.core.record import MAX_CRASHES, Ending, State, append_ending, split_ending
from qbull.core.unique import UniqueMode
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.server import Server
from qbull.store.names import DEFAULT_LEVEL, RETURNED_LEVEL
from qbull.store.retry import Retriable, Retrier, idempotent
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.progress import MAX_LOG_LINES, JobUpdate, LogLine, read_log_line

EXPIRED_ERROR = "expired: it had not begun in time"
EXPIRED_ENDING = append_ending(Ending(0, 0.0, "", error=EXPIRED_ERROR))
MAX_JOBS_PER_CALL = 500
"""Jobs in one call at most: it bounds how long a script keeps the server from others."""


class NewJob(NamedTuple):
    """`when` is milliseconds from now, or "@" and a moment in milliseconds."""

    id: str
    when: int | str
    record: bytes


class UniqueJob(NamedTuple):
    """A new job of which only one for each name counts, within its window."""

    id: str
    when: int | str
    record: bytes
    name: str
    mode: UniqueMode
    window_ms: int
    winner: str = ""
    """The job that counts by what an older partition says, and for how many milliseconds."""
    winner_ms: int = 0


class UniqueAnswer(NamedTuple):
    """What counts of several jobs by what a closed partition says: an id, and whether it is the new one.

    `new` is None where that is to be decided elsewhere: then `id` counts here for so many milliseconds more, if there
    is one, and with `moving` it is on its way elsewhere.
    """

    id: str
    new: bool | None
    left_ms: int
    moving: bool


class JobToRetry(NamedTuple):
    """A finished job that is to go round again: where it was seen, and its new record."""

    id: str
    position: bytes
    record: bytes


class CancelMark(NamedTuple):
    """A job that is to stop, and the delivery with which a worker has it."""

    id: bytes
    position: bytes
    reason: str


class PartitionClosed(Exception):
    """The partition takes nothing in any more. `known` are those that it has already; the others go to `successor`.

    Of jobs of which one counts, `counting` is what it says of each.
    """

    def __init__(
        self, known: set[int], successor: Generation, unique_answers: Sequence[UniqueAnswer] = ()
    ) -> None:
        super().__init__(f"closed; its keys are in generation {successor.number} now")
        self.known = known
        self.successor = successor
        self.unique_answers = unique_answers


@dataclass(frozen=True, slots=True)
class Reclaimed:
    deliveries: int
    dead: int
    more: bool


class Promoted(NamedTuple):
    """How many jobs were moved; the seconds until the next one is due, and until the next schedule is."""

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
        retrier: Retrier | None = None,
    ) -> None:
        self.server = server
        self.base = base
        self.number = number
        self.shown = index_in_generation(number)
        self.app = base[1:].removesuffix(f":{settings.name}:{number}}}:")
        self.settings = settings
        self.retrier = retrier
        # Made once: the enqueue path asks for it with each call.
        self._without_retry: Self | None = None
        keep = settings.keep
        self._limit = settings.lane_limit
        self._halt = int(settings.on_failed == "halt")
        self._keep_completed = (_count(keep.completed), _ms(keep.completed_for))
        self._keep_failed = (_count(keep.failed), _ms(keep.failed_for))

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
            token: Made for this call, if callers chose ids: a call that is sent again then gets its first answer.

        Returns:
            The positions of the jobs whose ids were there already.

        Raises:
            PartitionClosed: The partition takes no new jobs.
        """
        flat = [argument for job in jobs for argument in job]
        known = await (confirmed or self.server).script("enqueue", self.base, self._limit, token, *flat)
        if known and isinstance(known[0], bytes):
            raise PartitionClosed(set(known[1:]), successor_in(known[0]))
        return set(known)

    @idempotent
    async def put(self, jobs: Sequence[NewJob], confirmed: ConfirmedServer | None = None) -> set[int]:
        """The same as enqueue, quicker, for jobs that lua/put.lua takes."""
        flat = [argument for id, _, record in jobs for argument in (id, record)]
        is_new = await (confirmed or self.server).script("put", self.base, *flat)
        return set() if is_new else await self.enqueue(jobs, confirmed)

    @idempotent
    async def confirm(self, confirmed: ConfirmedServer) -> None:
        """Wait until everything written here before now is as safe as the profile asks."""
        await confirmed.confirm(self.base)

    @idempotent
    async def has(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids it has."""
        positions = await self.server.call("HMGET", self.base + "index", *ids)
        return {id for id, position in zip(ids, positions, strict=True) if position is not None}

    @idempotent
    async def unique(
        self, jobs: Sequence[UniqueJob], confirmed: ConfirmedServer | None = None
    ) -> list[tuple[str, bool]]:
        """Add what counts of a batch; for each the id of the job that counts, and whether it is new. Raises Closed."""
        flat = [argument for job in jobs for argument in job]
        answer = await (confirmed or self.server).script("unique", self.base, self._limit, *flat)
        if not answer[0].endswith(b"\n"):
            return [(id.decode(), new == 1) for id, new in zip(answer[::2], answer[1::2], strict=True)]
        unique_answers = [
            UniqueAnswer(id.decode(), None if new < 0 else new == 1, max(left, 0), new == -2)
            for id, new, left in zip(answer[1::3], answer[2::3], answer[3::3], strict=True)
        ]
        raise PartitionClosed(set(), successor_in(answer[0]), unique_answers)

    @idempotent
    async def priority_levels(self) -> list[str]:
        """The ready streams that may have jobs, the most urgent first."""
        used = {
            RETURNED_LEVEL,
            DEFAULT_LEVEL,
            *(level.decode() for level in await self.server.call("SMEMBERS", self.base + "bands")),
        }
        return sorted(used)

    @idempotent
    async def settle(self, outcomes: PartitionOutcomes) -> list[bytes]:
        """Write down a batch of outcomes; answers with the ids of those that were stale and changed nothing."""
        stale: list[bytes] = await self.server.script(
            "settle",
            self.base,
            self._limit,
            self._halt,
            *self._keep_completed,
            *self._keep_failed,
            *outcomes.arguments(),
        )
        return stale

    @idempotent
    async def promote(
        self, limit: int = MAX_JOBS_PER_CALL, completed: int = -1, failed: int = -1
    ) -> Promoted:
        """Move what is due to ready, drop what is too old; answers with how many, and when the next is due.

        Of finished jobs no more than so many are kept, where a number is given.
        """
        moved, wait_ms, tick_ms = await self.server.script(
            "promote",
            self.base,
            self._limit,
            limit,
            self._keep_completed[1],
            *self._keep_failed,
            EXPIRED_ENDING,
            completed,
            failed,
        )
        return Promoted(moved, _seconds(wait_ms), _seconds(tick_ms))

    @idempotent
    async def release(self, positions: Sequence[bytes]) -> int:
        """Give back deliveries that will not be run to their end here; answers with the number of jobs."""
        jobs: int = await self.server.script(
            "release", self.base, self._limit, *self._keep_failed, *positions
        )
        return jobs

    @idempotent
    async def reclaim(
        self, worker: str, seal: bytes, started: Sequence[bytes] | None = None, silent: float = 0.0
    ) -> Reclaimed:
        """Take back the deliveries of a dead worker; `started` is what was running.

        Where nobody saw that it is None, and what was handed over within the last `silent` seconds is not suspected.
        """
        blind_ms = int(silent * 1000) if started is None else -1
        taken, dead, more = await self.server.script(
            "reclaim", self.base, self._limit, self._halt, *self._keep_failed,
            worker, 100, MAX_CRASHES, blind_ms, seal, *(started or ()),
        )  # fmt: skip
        return Reclaimed(taken, dead, bool(more) or taken > 0)

    # What people do with single jobs, or with some of them. `token` is made before the first send: a call that is sent
    # again after a lost reply gets the answer that it had.

    @idempotent
    async def cancel(self, seal: bytes, ids: Sequence[str]) -> list[str]:
        """For each "cancelled" (now or before), "cancelling" (a worker has it), "completed", "failed" or "unknown"."""
        answer: bytes = await self.server.script(
            "cancel", self.base, self._limit, *self._keep_failed, seal, *ids
        )
        return answer.decode().split()

    @idempotent
    async def cancel_marks(self) -> list[CancelMark]:
        """The jobs of this partition that workers have and that are to stop."""
        flat = await self.server.call("HGETALL", self.base + "cancelling")
        marks = []
        for id, text in zip(flat[::2], flat[1::2], strict=True):
            position, _, sealed = text.partition(b" ")
            marks.append(CancelMark(id, position, split_ending(sealed)[1].error or ""))
        return marks

    @idempotent
    async def retry(self, token: str, jobs: Sequence[JobToRetry]) -> list[str]:
        """Send finished jobs round again; for each "retried", "moved", "unknown" or the state that it is in instead."""
        flat = [argument for job in jobs for argument in job]
        return await self._words("retry", token, *flat)

    @idempotent
    async def remove(self, token: str, jobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Id and where it was seen (empty: wherever); for each "removed", "active", "moved", "moving" or "unknown"."""
        flat = [argument for job in jobs for argument in job]
        return await self._words("remove", token, *flat)

    @idempotent
    async def promote_one(self, token: str, id: str) -> str:
        """A delayed job may run now; "promoted", "unknown" or the state that it is in instead."""
        return (await self._words("promote_one", token, id))[0]

    @idempotent
    async def clean(self, token: str, state: State, age: float, limit: int) -> tuple[int, bool]:
        """Forget the oldest finished jobs; how many, and whether there may be more of that age."""
        removed, more = await self._words("clean", token, state, int(age * 1000), limit)
        return int(removed), more == "1"

    async def _words(self, verb: str, token: str, *arguments: str | bytes | int) -> list[str]:
        answer: bytes = await self.server.script(verb, self.base, token, self._limit, *arguments)
        return answer.decode().split()

    @idempotent
    async def start(self, expires_ms: int, lane: bytes, rate: Rate | None, unused: int) -> tuple[int, int]:
        """Milliseconds until a job may begin, -1 where it has expired; and how its start was noted, 0: it was not.

        `expires_ms` is a moment or 0, `unused` a start that was noted before and not made, or 0.
        """
        limits = (rate.count, rate.window_ms, min(rate.ahead_ms, 50)) if rate is not None else (0, 0, 0)
        wait_ms, noted = await self.server.script(
            "start_check", self.base, expires_ms, lane, *limits, unused, 1
        )
        return wait_ms, noted

    async def return_start_token(self, lane: bytes, rate: Rate, unused: int) -> None:
        """A start of a lane was noted and is not made. Not to be sent twice: it would be one too many."""
        await self.server.script("start_check", self.base, 0, lane, rate.count, rate.window_ms, 0, unused, 0)

    @idempotent
    async def holds(self, id: bytes, position: bytes, lane: bytes) -> bool:
        """Is this delivery still the one that counts?"""
        if lane:
            state: bytes | None = await self.server.call("HGET", self.base + "trains", lane)
            return state is not None and state.partition(b" ")[0] == position
        return bool(await self.server.call("HGET", self.base + "index", id) == b"r" + position)

    @idempotent
    async def states(self, ids: Sequence[str]) -> str:
        """For each the first letter of where it is (lua/lib/index.lua), "-" for one that is not here."""
        letters: bytes = await self.server.script("states", self.base, *ids)
        return letters.decode()

    @idempotent
    async def report(self, reports: Sequence[bytes]) -> None:
        """Letter and id, and what is said: something that no script has done itself."""
        await self.server.script("reports_add", self.base, *reports)

    @idempotent
    async def reports(self, told: Sequence[bytes], limit: int) -> tuple[list[tuple[bytes, list[bytes]]], int]:
        """Drop the entries that were told; gives those that come then, and how many there are in all."""
        entries, length = await self.server.script("reports_take", self.base, limit, *told)
        return entries, length

    @idempotent
    async def records(self, ids: Sequence[bytes]) -> list[bytes]:
        """The records of jobs that are delayed or behind others of their lane; empty for one that is not."""
        if not ids:
            return []
        positions = await self.server.call("HMGET", self.base + "index", *ids)
        return [
            position[1:] if position is not None and position[:1] in (b"l", b"d", b"m") else b""
            for position in positions
        ]

    @idempotent
    async def mark_isolated(self, job: bytes, position: bytes) -> bool:
        """A suspect is about to run: should it take the worker down, this mark is the proof. False where it is another's by now."""
        return bool(await self.server.script("suspect_start", self.base, job, position))

    @idempotent
    async def update_jobs(self, notes: Sequence[JobUpdate]) -> None:
        """Keep what running jobs say of themselves."""
        flat = [argument for note in notes for argument in note.arguments()]
        await self.server.script("progress_write", self.base, MAX_LOG_LINES, *flat)

    @idempotent
    async def logs(self, id: str, last: int = MAX_LOG_LINES) -> list[LogLine]:
        """The newest lines that a job has logged, in order."""
        return [
            read_log_line(line)
            for line in await self.server.call("LRANGE", f"{self.base}log:{id}", -last, -1)
        ]

    @idempotent
    async def lease(self, worker: str, living: Sequence[str]) -> int:
        """Take the partition for this worker alone, where none of the living has it; the epoch, or 0."""
        epoch: int = await self.server.script(
            "lease", self.base, worker, *(name for name in living if name != worker)
        )
        return epoch

    @idempotent
    async def unlease(self, worker: str) -> None:
        await self.server.script("unlease", self.base, worker)

    @idempotent
    async def ensure_groups(self, levels: Sequence[str]) -> None:
        await self.server.script("consumer_groups", self.base, *levels)


def successor_in(mark: bytes) -> Generation:
    """Where the keys of a partition with this mark are now."""
    _, generation, partitions = mark.split()
    return Generation(int(generation), int(partitions))


def _count(value: int | None) -> int:
    return -1 if value is None else value


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1000)
