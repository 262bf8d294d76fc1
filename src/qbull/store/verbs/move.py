"""Moving: old partitions drain, and in the new ones each lane starts as soon as it may.

These are the steps that remain after the number of a queue's partitions has changed (layout.py). Workers
(worker/repartition.py) and `qbull repartition` take them. Any number of processes may do so at once, and die
at any point. That is safe for two reasons. The lanes of closed partitions only become fewer, so "this lane
has no jobs here any more" stays true once it was seen. And jobs that move to another partition are numbered
and arrive in the order of their numbers, so the last number that arrived tells for every job whether it was
there before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.layout import Generation, Layout, generation_of, sum_totals
from qbull.core.record import UnreadableRecord, body_of, lane_of
from qbull.core.route import PARTITION_LANE, digest
from qbull.errors import ServerError
from qbull.store.read.drain_status import DrainStatus, drain_status, drain_statuses, read_drain_status
from qbull.store.retry import StoreVerbs, idempotent
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import successor_in
from qbull.store.verbs.confirmed_move import MoveConfirmer
from qbull.store.verbs.layout import change_layout, close_partition, finish_switch, follow_successor
from qbull.store.verbs.older_lanes import OlderLanes
from qbull.store.verbs.partition import MAX_JOBS_PER_CALL, Partition
from qbull.store.verbs.schedules import ScheduleLocation, ScheduleStore, in_batches


class MovingJob(NamedTuple):
    """A job on its way: its number in the partition that it leaves, its record, and its extras."""

    number: int
    id: bytes
    due: bytes
    record: bytes
    ends: bytes
    extras: list[bytes]
    log: list[bytes]
    stream: list[bytes]


class HeldLanes(NamedTuple):
    """Lanes of a partition that are still held, and lanes that were freed."""

    held: int
    freed: int


class PartitionMoves(StoreVerbs):
    """The moves of one queue. `durability` is that of the app."""

    def __init__(self, store: Store, settings: QueueSettings, durability: Durability | None = None) -> None:
        super().__init__(store)
        self._settings = settings
        self._confirmer = MoveConfirmer(store, settings, durability)
        self._older_lanes = OlderLanes(store, settings, self._confirmer)

    def partition(self, number: int) -> Partition:
        return self._store.partition(self._settings, number)

    async def drain_status(self, number: int) -> DrainStatus:
        return await drain_status(self.partition(number))

    async def _drain_statuses(self, generation: Generation) -> list[DrainStatus]:
        return await drain_statuses([self.partition(number) for number in generation.numbers])

    @idempotent
    async def all_steps(self) -> int | None:
        """Take every possible step for all partitions. Returns the number of moved jobs and lanes.

        None if the number of partitions never changed.
        """
        layout = await self.end_switch(await self._store.layout(self._settings))
        if layout.generation == 0:
            return None
        moved = 0
        for older in layout.generations[:-1]:
            for number in older.numbers:
                moved += await self.move_jobs(layout, number)
        await self.announce_lanes(layout)
        for generation in layout.busy:
            for number in generation.numbers:
                cleared = await self.free_all_lanes(layout, number)
                moved += (await self.free_lanes(layout, number)).freed if cleared is None else cleared
        await self.retire(layout)
        return moved

    async def end_switch(self, layout: Layout) -> Layout:
        """Put an agreed change in force: the process that started it may have died."""
        while layout.coming is not None:
            await finish_switch(self._store, self._settings, layout)
            layout = await self._store.layout(self._settings)
        return layout

    # Delayed jobs and schedules move to their new partitions.

    async def move_jobs(self, layout: Layout, source: int) -> int:
        """Move the delayed jobs of a closed partition to their new ones. Returns how many there were.

        Raises if a partition could not accept its jobs, after all others have arrived.
        """
        brought = stay = 0
        while True:
            stay, there, *flat = await self._script("move_out", source, stay, MAX_JOBS_PER_CALL)
            jobs = [MovingJob(int(float(n)), *rest) for n, *rest in _rows(flat, 8)]
            if not jobs and stay >= there:
                await self._move_schedules(layout, source)
                return brought
            if jobs:
                layout, stuck, trouble = await self._move_in_all(layout, source, jobs)
                came = [job.id for job in jobs if job not in stuck]
                await self._script("move_ack", source, *came)
                if trouble is not None:
                    raise trouble
                brought += len(came)

    async def _move_schedules(self, layout: Layout, source: int) -> None:
        names = await self._store.server.call(
            "ZRANGE", self.partition(source).base + "schedules", 0, MAX_JOBS_PER_CALL
        )
        schedules, here = ScheduleStore(self._store), ScheduleLocation(self._settings.name, source)
        for some in in_batches([name.decode() for name in names]):
            await schedules.move_home(here, some, self._settings, layout)

    async def _move_in_all(
        self, layout: Layout, source: int, jobs: Sequence[MovingJob]
    ) -> tuple[Layout, list[MovingJob], ServerError | None]:
        """Add the jobs to the current partitions, unless they have reached an intermediate one.

        Returns the layout in force, the jobs that their partitions could not accept, and the reason.
        """
        while True:
            jobs = await self._skip_intermediate(layout, source, jobs)
            closed: bytes | None = None
            stuck, trouble = list[MovingJob](), None
            for home, some in self._by_home(layout.current, jobs).items():
                try:
                    answer = await self._move_in(home, source, some)
                except ServerError as error:
                    stuck, trouble = stuck + some, error
                    continue
                if answer != 1:
                    closed = answer
            if closed is None:
                return layout, stuck, trouble
            layout = await follow_successor(self._store, self._settings, successor_in(closed))

    async def _move_in(self, home: int, source: int, jobs: Sequence[MovingJob]) -> Any:
        flat: list[bytes | int] = []
        for job in jobs:
            flat += (
                job.number,
                job.id,
                job.due,
                job.record,
                job.ends,
                len(job.extras),
                len(job.log),
                len(job.stream),
            )
            flat += (*job.extras, *job.log, *job.stream)
        return await self._script("move_in", home, source, *flat)

    async def _skip_intermediate(
        self, layout: Layout, source: int, jobs: Sequence[MovingJob]
    ) -> Sequence[MovingJob]:
        """The jobs without those that reached a later generation before it was closed itself."""
        for generation in layout.generations:
            if not generation_of(source) < generation.number < layout.generation:
                continue
            left: list[MovingJob] = []
            for home, some in self._by_home(generation, jobs).items():
                last = await self._store.server.call("HGET", self.partition(home).base + "arrivals", source)
                left += [job for job in some if job.number > int(last or 0)]
            jobs = sorted(left)
        return jobs

    def _by_home(self, generation: Generation, jobs: Iterable[MovingJob]) -> dict[int, list[MovingJob]]:
        homes: dict[int, list[MovingJob]] = defaultdict(list)
        for job in jobs:
            together = affinity_of(self._settings, job.record)
            homes[generation.home_of(together, job.id.decode())].append(job)
        return homes

    # Lanes start in their new partitions when the older ones have no jobs of them.

    async def announce_lanes(self, layout: Layout) -> None:
        """Tell the current partitions which lanes older ones still have. Until then they hold every lane."""
        now = layout.current
        marks = {number: await self._mark(number) for number in now.numbers}
        for mark in marks.values():
            if mark.startswith(b"closed"):  # a failover has lost the layout that followed this one
                await follow_successor(self._store, self._settings, successor_in(mark))
                return
        asking = [number for number, mark in marks.items() if not mark]
        if not asking or not layout.draining:
            return
        for older in layout.draining:
            for number in older.numbers:
                async for lanes in self._older_lanes.scan(number):
                    await self._announce_to_holders(now, asking, older, number, lanes)
        for target in asking:
            await self._script("move_announce_lanes", target, 1)

    async def _announce_to_holders(
        self, now: Generation, asking: Sequence[int], older: Generation, number: int, lanes: Sequence[bytes]
    ) -> None:
        told: dict[int, list[bytes]] = defaultdict(list)
        for lane in lanes:
            if lane == PARTITION_LANE:
                for target in asking:
                    if number in older.homes(lane, now, target):
                        told[target].append(lane)
            else:
                told[now.home(lane[:8])].append(lane)
        for target in asking:
            for start in range(0, len(told[target]), MAX_JOBS_PER_CALL):
                await self._script(
                    "move_announce_lanes", target, 0, *told[target][start : start + MAX_JOBS_PER_CALL]
                )

    async def free_lanes(self, layout: Layout, number: int) -> HeldLanes:
        """Free the lanes of a partition of which the older ones have no jobs left.

        Raises if an older partition could not tell, after all other lanes are free.
        """
        held, freed, cursor = 0, 0, b"0"
        troubles: list[ServerError] = []
        while True:
            cursor, lanes = await self._store.server.call(
                "SSCAN", self.partition(number).base + "held", cursor, "COUNT", MAX_JOBS_PER_CALL
            )
            ahead, trouble = await self._older_lanes.among(layout, number, lanes)
            troubles += [trouble] if trouble is not None else []
            free = [lane for lane in lanes if lane not in ahead]
            if free:
                freed += await self._script("move_free_lanes", number, self._settings.lane_limit, *free)
            held += len(lanes) - len(free)
            if cursor == b"0":
                if troubles:
                    raise troubles[0]
                return HeldLanes(held, freed)

    async def free_all_lanes(self, layout: Layout, number: int) -> int | None:
        """Free all lanes of a partition, if the older ones have none of its lanes. Returns how many it held.

        None if they have some.
        """
        if await self._older_lanes.exist(layout, number):
            return None
        freed, held = 0, 1
        while held:
            some, held = await self._script(
                "move_free_all_lanes", number, self._settings.lane_limit, MAX_JOBS_PER_CALL
            )
            freed += some
        return freed

    # Drained generations are retired, and deleted once they are empty.

    async def retire(self, layout: Layout) -> Layout:
        """Take the next step with each older generation that is ready for it. Returns the new layout."""
        for older in layout.older:
            if older.state == "draining":
                layout = await self._drained(layout, older)
            elif older.state == "drained":
                layout = await self._emptied(layout, older)
            if older.state == "gone":
                layout = await self._forgotten(layout, older)
        return layout

    async def _drained(self, layout: Layout, older: Generation) -> Layout:
        for number, left in zip(older.numbers, await self._drain_statuses(older), strict=True):
            if not left.mark.startswith(b"closed"):  # a failover has lost the mark
                await close_partition(
                    self.partition(number), Generation(older.number + 1, _partitions_after(layout, older))
                )
            if not left.worked_off:
                return layout
        for number in older.numbers:
            base = self.partition(number).base
            if not read_drain_status(await self._confirmer.script("drain_status", base)).worked_off:
                return layout
        await self._keep_starts(older)
        return await self._change(layout, layout.drained(older.number))

    async def _keep_starts(self, older: Generation) -> None:
        """Keep a drained generation until the starts of its lanes no longer count for their rates."""
        rate = self._settings.lane.rate if self._settings.lane is not None else None
        if rate is not None:
            for number in older.numbers:
                flag = self.partition(number).base + "rated"
                await self._store.server.script("set_flag", flag, rate.window_ms // 1000 + 1)

    async def _emptied(self, layout: Layout, older: Generation) -> Layout:
        """Delete an empty generation. Only the oldest may go: the next one knows the jobs moved from it."""
        await self._drop_retention(layout, older)
        if older != layout.older[0]:
            return layout
        tallies = await self._drain_statuses(older)
        if any(tally.jobs or tally.reports for tally in tallies):
            return layout
        totals: dict[str, int] = {}
        for left in tallies:
            totals = sum_totals(totals, left.totals)
        return await self._change(layout, layout.gone(older.number, totals))

    async def _forgotten(self, layout: Layout, older: Generation) -> Layout:
        for number in older.numbers:
            if not await self._script("move_erase", number):
                return layout
        for later in layout.generations:
            for number in later.numbers:
                await self._store.server.call(
                    "HDEL", self.partition(number).base + "arrivals", *older.numbers
                )
        return await self._change(layout, layout.forgotten(older.number))

    async def _drop_retention(self, layout: Layout, older: Generation) -> None:
        """Delete finished jobs of old partitions by age.

        Also by number, once those of the new partitions fill the limit.
        """
        keep = self._store.retention(self._settings.name).in_force(self._settings.keep)
        tallies = await self._drain_statuses(layout.current)
        completed = _retention_left(keep.completed, layout, older, sum(tally.completed for tally in tallies))
        failed = _retention_left(keep.failed, layout, older, sum(tally.failed for tally in tallies))
        for number in older.numbers:
            for _ in range(100):
                await self.partition(number).promote(0, completed, failed)
                tally = await self.drain_status(number)
                if (completed < 0 or tally.completed <= completed) and (failed < 0 or tally.failed <= failed):
                    break

    async def _change(self, layout: Layout, now: Layout) -> Layout:
        if await change_layout(self._store, self._settings, layout, now):
            return now
        return await self._store.layout(self._settings)

    async def _script(self, verb: str, number: int, *arguments: str | bytes | int) -> Any:
        base = self.partition(number).base
        if verb == "move_in":
            return await self._confirmer.script(verb, base, *arguments)
        return await self._store.server.script(verb, base, *arguments)

    async def _mark(self, number: int) -> bytes:
        mark: bytes | None = await self._store.server.call(
            "HGET", self.partition(number).base + "index", "\n"
        )
        return mark or b""


def affinity_of(settings: QueueSettings, record: bytes) -> bytes | None:
    """The lane, key or unique name that decides which partition a job belongs to; None if its id does."""
    lane = lane_of(record)
    if lane and lane != PARTITION_LANE:
        return lane[:8]
    try:
        body = body_of(record)
    except UnreadableRecord:
        return None
    if settings.lane_limit and body.key is not None:
        return digest(body.key)
    return bytes.fromhex(body.unique)[:8] if body.unique else None


def _rows(flat: Sequence[Any], width: int) -> list[Sequence[Any]]:
    return [flat[at : at + width] for at in range(0, len(flat), width)]


def _partitions_after(layout: Layout, older: Generation) -> int:
    """The partition count of the generation after this one."""
    later = [*layout.older, layout.current]
    return next(generation.partitions for generation in later if generation.number > older.number)


def _retention_left(limit: int | None, layout: Layout, older: Generation, kept: int) -> int:
    """The finished jobs that an old partition may still keep, if the new ones keep `kept`."""
    if limit is None:
        return -1
    return max(limit * max(layout.partitions, older.partitions) - kept, 0) // older.partitions
