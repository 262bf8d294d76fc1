"""Move: the drain itself.

It sets messages aside, delivers them and deletes them, a bounded number at a time, the oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from qbull.drain.deliver import JobImporter
from qbull.drain.message import CannotMove, ForeignJob, ForeignSchedule, SourceMessage
from qbull.drain.prepared import PreparedJob, PreparedSchedule
from qbull.drain.source import MessagePage, SourceCollection, SourceServer, Taken

FittingJob = tuple[SourceMessage, PreparedJob | PreparedSchedule]
HELD_REASON = "a consumer has it, or an older one of its name is set aside; run the drain again later"


class JobSource(Protocol):
    """A library that jobs come from."""

    @property
    def old(self) -> SourceServer: ...
    async def queues(self) -> list[str]: ...
    async def collections(self, queue: str) -> list[SourceCollection]: ...
    async def held(self) -> int: ...
    async def page(self, collection: SourceCollection, skip: int) -> MessagePage: ...
    async def set_aside(
        self, collection: SourceCollection, messages: Sequence[SourceMessage]
    ) -> list[Taken]: ...
    def stays(self, name: str) -> None: ...
    def job(self, stored: bytes) -> ForeignJob | ForeignSchedule: ...


@dataclass
class DrainReport:
    """The number of jobs moved from each queue, and the jobs left for each reason, with one as an example."""

    moved: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str, str], str] = field(default_factory=dict)
    held: int = 0

    def leave(self, queue: str, task: str, why: str, example: str) -> None:
        self.left[queue, task, why] += 1
        self.examples.setdefault((queue, task, why), example)


class DrainRun:
    """Moves jobs. With `dry` it changes nothing on either server. It calls `on_step` after each step."""

    def __init__(
        self, source: JobSource, delivery: JobImporter, *, dry: bool, on_step: Callable[[DrainReport], object]
    ) -> None:
        self._source = source
        self._delivery = delivery
        self._dry = dry
        self._on_step = on_step
        self.report = DrainReport()

    async def run(self, queues: Sequence[str]) -> DrainReport:
        await self._go_on()
        for queue in queues:
            for collection in await self._source.collections(queue):
                await self._empty(collection)
        self.report.held = await self._source.held()
        return self.report

    async def _go_on(self) -> None:
        """Start with the messages that an earlier drain has set aside."""
        async for name, kept in self._source.old.set_aside_before():
            found = SourceMessage(name, b"", kept)
            prepared = await self._prepare("set aside", found)
            if prepared is not None:
                if not self._dry:
                    await self._deliver([(found, prepared)])
                self._count("set aside", 1)

    async def _empty(self, collection: SourceCollection) -> None:
        """Old workers may take messages meanwhile, which shifts the rest. So passes are repeated until one
        moves nothing.
        """
        before = Counter(self.report.left)
        while await self._pass(collection) and not self._dry:
            self.report.left = Counter(before)

    async def _pass(self, collection: SourceCollection) -> int:
        skip = moved = 0
        while True:
            read, messages = await self._source.page(collection, skip)
            if not read:
                return moved
            fit = await self._fitting(collection, messages)
            if self._dry:
                skip += read
                self._count(collection.queue, len(fit))
                continue
            words = await self._source.set_aside(collection, [message for message, _ in fit]) if fit else []
            taken: list[FittingJob] = []
            for (message, prepared), word in zip(fit, words, strict=True):
                if word == "ours":
                    taken.append((message, prepared))
                elif word == "stays":
                    skip += 1
                    self.report.leave(collection.queue, prepared.task, HELD_REASON, prepared.id)
            await self._deliver(taken)
            skip += read - len(fit)
            moved += len(taken)
            self._count(collection.queue, len(taken))

    async def _fitting(
        self, collection: SourceCollection, messages: Sequence[SourceMessage]
    ) -> list[FittingJob]:
        """The jobs that can be moved. A job whose id is taken stays: enqueueing it would add nothing."""
        found = [
            (message, prepared)
            for message in messages
            if (prepared := await self._prepare(collection.queue, message)) is not None
        ]
        taken = await self._delivery.taken([prepared for _, prepared in found])
        fit: list[FittingJob] = []
        for message, prepared in found:
            if prepared.id in taken:
                self.report.leave(collection.queue, prepared.task, prepared.taken_reason, prepared.id)
                self._source.stays(message.name)
                continue
            taken.add(prepared.id)
            fit.append((message, prepared))
        return fit

    async def _deliver(self, jobs: Sequence[FittingJob]) -> None:
        if jobs:
            await self._delivery.deliver([prepared for _, prepared in jobs])
            await self._source.old.forget([message for message, _ in jobs])

    async def _prepare(self, queue: str, found: SourceMessage) -> PreparedJob | PreparedSchedule | None:
        """Check a job. Returns None, and records the reason, if it must stay."""
        task, id = "?", found.name
        try:
            job = self._source.job(found.stored)
            task, id = job.task, job.id
            return await self._delivery.prepare(job)
        except CannotMove as why:
            self.report.leave(queue, task, str(why), id)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            # Another program wrote the message, and one that is wrong must not stop the others.
            self.report.leave(queue, task, f"it cannot be read: {type(error).__name__}: {error}", id)
        self._source.stays(found.name)
        return None

    def _count(self, queue: str, moved: int) -> None:
        self.report.moved[queue] += moved
        self._on_step(self.report)
