"""Router: send placed jobs to the partitions of their queues, even while the number of partitions changes.

A change of the number makes a new generation of partitions (core/layout.py). The older ones refuse new jobs
and name their successor. The router then reads the layout again and sends the jobs to their new partitions,
so that callers never see a generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.ids import new_token
from qbull.core.layout import Generation, Layout
from qbull.core.unique import UniqueWindow
from qbull.errors import ConfigError, NotConfirmed, ServerAway
from qbull.store.batch import Batcher
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import partitions_holding
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import PartitionClosed
from qbull.store.verbs.deposit import deposit, has_id
from qbull.store.verbs.layout import follow_successor
from qbull.store.verbs.partition import MAX_JOBS_PER_CALL, NewJob, Partition
from qbull.store.verbs.unique import UniqueAnswer, UniqueJob

MOVING_JOB_TIMEOUT_SECONDS = 5.0
"""How long to wait for a job that is on its way to another partition."""
MOVING_JOB_POLL_SECONDS = 0.02
"""Pause between two looks for such a job."""
SWITCH_TIMEOUT_SECONDS = 30.0
"""How long a producer that may not read waits for others to finish a change of the partitions."""
LAYOUT_REREAD_SECONDS = 60.0
"""How often to ask again whether a queue still has older partitions."""


class PlacedJob(msgspec.Struct, frozen=True, gc=False):
    """A complete job and the partition that it goes to.

    Args:
        number: the partition.
        job: the job as the server takes it.
        affinity: the digest that decides its partition, if it must stay with others: in a queue with lanes,
            that of its key.
        has_custom_id: whether the caller chose the id.
        plain: whether lua/put.lua can store it.
        unique: set if only one of several such jobs counts.
    """

    number: int
    job: NewJob
    affinity: bytes | None = None
    has_custom_id: bool = False
    plain: bool = False
    unique: UniqueWindow | None = None

    def partition_in(self, generation: Generation) -> int:
        """The partition of this job in a generation."""
        return generation.home_of(self.affinity, self.job.id)

    def window_partition_in(self, generation: Generation) -> int:
        """The partition that knows whether this job counts."""
        assert self.unique is not None
        return generation.home(self.affinity or bytes.fromhex(self.unique.name)[:8])

    def moved_to(self, layout: Layout) -> PlacedJob:
        """The same job with its partition in the current generation."""
        return msgspec.structs.replace(self, number=self.partition_in(layout.current))


class JobRouter:
    """The partitions of each queue, and the sending of jobs to them."""

    def __init__(self, store: Store, write_only: bool = False) -> None:
        self._store = store
        self._write_only = write_only
        self._batchers: dict[tuple[str, int, Durability | None], Batcher[PlacedJob, bool | None]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._registered: dict[tuple[str, Durability | None], int] = {}
        self._registering = asyncio.Lock()
        self._layouts: dict[str, Layout] = {}
        self._declared: dict[str, QueueSettings] = {}
        self._read_at: dict[str, float] = {}

    # Which partitions a queue has.

    def partition(self, settings: QueueSettings, number: int) -> Partition:
        """One partition of a queue, with these settings."""
        name = (settings.name, number)
        partition = self._partitions.get(name)
        if partition is None or partition.settings is not settings:
            partition = self._partitions[name] = self._store.partition(settings, number)
        return partition

    async def partitions(self, settings: QueueSettings) -> list[Partition]:
        """All partitions that may hold jobs of the queue, the oldest generation first.

        Jobs move towards newer generations, so reading in this order misses none. The partitions have the
        settings of the server: a caller that only operates a queue need not declare its order, and must not
        break it.
        """
        layout = await self.layout(settings)
        settings = self._declared[settings.name]
        return [self.partition(settings, n) for generation in layout.generations for n in generation.numbers]

    async def layout(self, settings: QueueSettings) -> Layout:
        """Read the layout from the server."""
        self._declared[settings.name], layout = await self._store.registered(settings)
        return self._remember(settings, layout)

    def totals(self, settings: QueueSettings, counted: dict[str, int]) -> dict[str, int]:
        """The counts of the current partitions, plus those of removed ones."""
        return self._layouts[settings.name].in_all(counted)

    def registered(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None
    ) -> Layout | None:
        """The layout, if the queue was registered before with these tasks."""
        if self._registered.get((settings.name, durability)) == len(tasks):
            return self._layouts[settings.name]
        return None

    async def register(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None = None
    ) -> Layout:
        """Register the queue and its tasks on the server, once, and return its layout."""
        async with self._registering:  # One after the other, so that concurrent calls keep their order.
            layout = self.registered(settings, tasks, durability)
            if layout is None:
                layout = await self._store.register(settings, list(tasks), durability)
                self._remember(settings, layout)
                self._registered[settings.name, durability] = len(tasks)
                self._declared[settings.name] = settings
            return layout

    async def candidates(self, settings: QueueSettings, id: str) -> AsyncGenerator[Partition, None]:
        """The partitions that may hold a job: the likeliest first, then all others that know the id."""
        layout = self._layouts.get(settings.name) or await self.layout(settings)
        settings = self._declared.get(settings.name, settings)
        first = self.partition(settings, layout.home_of_id(id))
        yield first
        now = await self.layout(settings)
        # One generation after the other: a job that moves is in the newer one first.
        for generation in now.generations:
            others = [self.partition(settings, number) for number in generation.numbers]
            # With older generations around, the job may have moved to the first partition meanwhile.
            if not layout.older and first in others:
                others.remove(first)
            for partition in await partitions_holding(others, id):
                yield partition

    def _remember(self, settings: QueueSettings, layout: Layout) -> Layout:
        self._layouts[settings.name] = layout
        self._read_at[settings.name] = asyncio.get_running_loop().time()
        return layout

    async def _follow_successor(self, settings: QueueSettings, successor: Generation) -> None:
        """Take over the layout with this generation, after a partition has named it as its successor."""
        layout = await follow_successor(self._store, settings, successor)
        self._remember(settings, layout)

    # Sending jobs to their partitions.

    async def send(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], durability: Durability | None
    ) -> list[tuple[str, bool]]:
        """Add jobs in few calls, those of one partition in the given order.

        For each call the answer is the id of its job and whether the job is new. Either all jobs are unique
        or none.
        """
        if jobs and jobs[0].unique is not None:
            if self._write_only:
                raise ConfigError(
                    "App(write_only=True): a unique job has to read the earlier one. "
                    "Use an id of your own, or an app that may read."
                )
            return await self._send_unique(settings, jobs, durability)
        confirmed = self._confirmed(durability)
        created: dict[int, bool] = {}
        while len(created) < len(jobs):
            left = [(at, placed.number) for at, placed in enumerate(jobs) if at not in created]
            for number, some in _batches(left):
                partition = self.partition(settings, number)
                sent = await self._send_batch(partition, confirmed, [jobs[at] for at in some])
                created |= {at: new for at, new in zip(some, sent, strict=True) if new is not None}
            if len(created) < len(jobs):
                jobs = [placed.moved_to(self._layouts[settings.name]) for placed in jobs]
        return [(placed.job.id, created[at]) for at, placed in enumerate(jobs)]

    async def send_one(
        self, settings: QueueSettings, placed: PlacedJob, durability: Durability | None
    ) -> bool:
        """Add one job, in a batch with concurrent calls of the same durability. Return whether it is new."""
        while True:
            batcher = self._batchers.get((settings.name, placed.number, durability))
            if batcher is None:
                batcher = self._batcher(self.partition(settings, placed.number), durability)
            created = await batcher.add(placed)
            if created is not None:
                return created
            placed = placed.moved_to(self._layouts[settings.name])

    def _confirmed(self, durability: Durability | None) -> ConfirmedServer | None:
        return self._store.confirmed(durability) if durability is not None else None

    def _batcher(
        self, partition: Partition, durability: Durability | None
    ) -> Batcher[PlacedJob, bool | None]:
        settings = partition.settings
        batcher: Batcher[PlacedJob, bool | None] = Batcher(
            partial(self._send_batch, partition, self._confirmed(durability)),
            MAX_JOBS_PER_CALL,
            in_order=settings.lane_limit > 0,
        )
        self._batchers[settings.name, partition.number, durability] = batcher
        return batcher

    async def _send_batch(
        self, partition: Partition, confirmed: ConfirmedServer | None, jobs: Sequence[PlacedJob]
    ) -> list[bool | None]:
        """Whether each job is new; None if the partition is closed and the job must go elsewhere."""
        settings = partition.settings
        layout = self._layouts.get(settings.name) or await self.layout(settings)
        try:
            if not layout.older:
                return await self._add(partition, jobs, confirmed)
            older = await self._in_older(settings, jobs, confirmed)
            sent = iter(
                await self._add(partition, [one for one in jobs if one.job.id not in older], confirmed)
            )
        except NotConfirmed as error:
            raise error.of(settings.name, *(placed.job.id for placed in jobs)) from None
        return [False if placed.job.id in older else next(sent) for placed in jobs]

    async def _add(
        self, partition: Partition, jobs: Sequence[PlacedJob], confirmed: ConfirmedServer | None
    ) -> list[bool | None]:
        if not jobs:
            return []
        if self._write_only:
            return await self._deposit(partition, jobs, confirmed)
        new: bool | None = True
        verb: Callable[..., Awaitable[set[int]]] = partition.put
        for placed in jobs:
            if not placed.plain:
                has_custom_ids = any(placed.has_custom_id for placed in jobs)
                verb = partial(partition.enqueue, token=new_token() if has_custom_ids else "")
                break
        try:
            known = await verb([placed.job for placed in jobs], confirmed)
        except PartitionClosed as closed:
            known, new = closed.known, None
            await self._follow_successor(partition.settings, closed.successor)
        answers = [new] * len(jobs)
        # An id that was made for this call is there already because the call was sent before: the job is new.
        for n in known:
            answers[n] = not jobs[n].has_custom_id
        return answers

    async def _deposit(
        self, partition: Partition, jobs: Sequence[PlacedJob], confirmed: ConfirmedServer | None
    ) -> list[bool | None]:
        """The same without a right to read. Others finish a change of the partitions; this waits for them."""
        has_custom_ids = any(placed.has_custom_id for placed in jobs)
        token = new_token() if has_custom_ids else ""
        known = await deposit(partition, [placed.job for placed in jobs], confirmed, token)
        if known is None:
            await self._await_successor(partition.settings)
            return [None] * len(jobs)
        return [not placed.has_custom_id or at not in known for at, placed in enumerate(jobs)]

    async def _await_successor(self, settings: QueueSettings) -> None:
        """Wait until the layout has the generation that follows the one which is known here."""
        clock = asyncio.get_running_loop().time
        generation, until = self._layouts[settings.name].generation, clock() + SWITCH_TIMEOUT_SECONDS
        while (await self.layout(settings)).generation <= generation:
            if clock() > until:
                raise ServerAway(
                    f'queue "{settings.name}": the change of its partitions does not end. '
                    f'Run "qbull repartition {settings.name} …" again, then try again.'
                )
            await asyncio.sleep(MOVING_JOB_POLL_SECONDS)

    async def _in_older(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], confirmed: ConfirmedServer | None
    ) -> set[str]:
        """The ids chosen by callers that partitions of older generations hold.

        These partitions take no new jobs: an id that is not there now never will be. A job that moves away
        from them is in its new partition first.
        """
        chosen = [placed for placed in jobs if placed.has_custom_id]
        if not chosen:
            return set()
        if asyncio.get_running_loop().time() - self._read_at[settings.name] > LAYOUT_REREAD_SECONDS:
            await self.layout(settings)
        there: set[str] = set()
        for generation in self._layouts[settings.name].generations[:-1]:
            homes = ((at, placed.partition_in(generation)) for at, placed in enumerate(chosen))
            for number, some in _batches(homes):
                older = self.partition(settings, number)
                ids = await self._held_ids(older, [chosen[at].job.id for at in some])
                if ids and confirmed is not None:
                    await older.confirm(confirmed)
                there |= ids
        return there

    async def _held_ids(self, partition: Partition, ids: Sequence[str]) -> set[str]:
        if self._write_only:
            return {id for id in ids if await has_id(partition, id)}
        return await partition.has(ids)

    async def _send_unique(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], durability: Durability | None
    ) -> list[tuple[str, bool]]:
        """Add the jobs that count; for each call the id of the job that counts, and whether it is new."""
        calls, confirmed = _UniqueCalls(jobs), self._confirmed(durability)
        until = asyncio.get_running_loop().time() + MOVING_JOB_TIMEOUT_SECONDS
        while calls.open:
            layout = self._layouts.get(settings.name) or await self.layout(settings)
            # A job that counts in an older partition counts until its window ends.
            for generation in layout.generations:
                for number, some in _batches(calls.partitions(generation)):
                    partition = self.partition(settings, number)
                    asked = [calls.asked[at] for at in some]
                    calls.note(some, await self._ask_unique(partition, asked, confirmed))
                if calls.moving:
                    break
            if calls.moving:
                if asyncio.get_running_loop().time() > until:
                    raise ServerAway(
                        f'queue "{settings.name}": a job does not arrive in its new partition; try again'
                    )
                calls.moving = False
                await asyncio.sleep(MOVING_JOB_POLL_SECONDS)
        return [calls.answers[at] for at in range(len(jobs))]

    async def _ask_unique(
        self, partition: Partition, jobs: Sequence[UniqueJob], confirmed: ConfirmedServer | None
    ) -> Sequence[UniqueAnswer]:
        settings = partition.settings
        try:
            found = await partition.unique(jobs, confirmed)
        except NotConfirmed as error:
            raise error.of(settings.name, *(job.id for job in jobs)) from None
        except PartitionClosed as closed:
            if closed.successor.number > self._layouts[settings.name].generation:
                await self._follow_successor(settings, closed.successor)
            return closed.unique_answers
        return [UniqueAnswer(id, new, 0, False) for id, new in found]


class _UniqueCalls:
    """Unique jobs that are sent to one generation after the other, and the answers so far."""

    def __init__(self, jobs: Sequence[PlacedJob]) -> None:
        self._jobs = jobs
        self.asked: list[UniqueJob] = []
        for placed in jobs:
            window = placed.unique
            assert window is not None
            self.asked.append(UniqueJob(*placed.job, window.name, window.mode, window.window_ms))
        self.answers: dict[int, tuple[str, bool]] = {}
        self.moving = False

    @property
    def open(self) -> bool:
        return len(self.answers) < len(self._jobs)

    def partitions(self, generation: Generation) -> Iterator[tuple[int, int]]:
        """The positions that have no answer yet, each with its partition in a generation."""
        for at, placed in enumerate(self._jobs):
            if at not in self.answers:
                yield at, placed.window_partition_in(generation)

    def note(self, positions: Sequence[int], answers: Sequence[UniqueAnswer]) -> None:
        for at, answer in zip(positions, answers, strict=True):
            if answer.new is not None:
                self.answers[at] = answer.id, answer.new
            elif answer.id:
                left_ms = max(answer.left_ms, 1)
                self.asked[at] = self.asked[at]._replace(winner=answer.id, winner_ms=left_ms)
            self.moving = self.moving or answer.moving


def _batches(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Partitions with their positions in order, a bounded number at a time."""
    partitions: dict[int, list[int]] = {}
    for at, number in places:
        partitions.setdefault(number, []).append(at)
    for number, positions in sorted(partitions.items()):
        for start in range(0, len(positions), MAX_JOBS_PER_CALL):
            yield number, positions[start : start + MAX_JOBS_PER_CALL]
