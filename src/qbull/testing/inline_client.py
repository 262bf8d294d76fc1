"""The client of an app whose tasks run inline: answers from memory instead of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.durable import StepRecord, decode_record
from qbull.core.layout import Layout
from qbull.core.published import PublishedValue
from qbull.core.record import body_of, repack, split_ending
from qbull.core.signals import NewSignal
from qbull.core.streams import StreamEntry
from qbull.core.unique import UniqueWindow
from qbull.errors import QbullError, ResultTimeout
from qbull.produce.client import Client
from qbull.produce.router import JobRouter, PlacedJob
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs.partition import JobToRetry, Partition
from qbull.store.verbs.progress import LogLine
from qbull.testing.memory_job import InlineJob

if TYPE_CHECKING:
    from qbull.testing.inline import Inline

A = TypeVar("A")


class InlineClient(Client):
    """One client for all event loops: nothing in it belongs to a loop."""

    has_server = False

    def __init__(self, inline: Inline) -> None:
        self._inline = inline
        self._outbox = None
        self.router = _InlineRouter(inline)
        self.stored = inline.app.results
        self.store: Any = _NoServer("this")
        self.flows: Any = _NoServer("a flow")
        self.results: Any = _InlineResults("listening to events")

    async def find(self, settings: QueueSettings, id: str) -> tuple[Partition, StoredJob] | None:
        kept = self._inline.kept.get((settings.name, id))
        if kept is None:
            return None
        return _InlineJobs(self._inline, settings.name), kept.found()  # type: ignore[return-value]

    async def on_job(
        self, settings: QueueSettings, id: str, verb: Callable[[Partition], Awaitable[str]]
    ) -> str:
        if (settings.name, id) not in self._inline.kept:
            return "unknown"
        return await verb(_InlineJobs(self._inline, settings.name))  # type: ignore[arg-type]

    async def signal(
        self, settings: QueueSettings, id: str, signal: NewSignal, token: str, durability: Durability | None
    ) -> str:
        kept = self._inline.kept.get((settings.name, id))
        if kept is None:
            return "unknown"
        word = kept.signal(signal)
        await self._inline._launch(kept)
        return word

    async def read_stream(
        self, partition: Partition, id: str, after: int, block_seconds: float
    ) -> list[StreamEntry]:
        kept = self._inline.kept.get((partition._queue, id))  # type: ignore[attr-defined]
        return kept.stream[after:] if kept is not None else []

    async def read_records(self, partition: Partition, id: str, is_strict: bool = False) -> list[StepRecord]:
        kept = self._inline.kept[partition._queue, id]  # type: ignore[attr-defined]
        return [decode_record(kept.steps[number]) for number in sorted(kept.steps)]

    async def read_published(self, partition: Partition, id: str, name: str | None) -> dict[str, bytes]:
        kept = self._inline.kept.get((partition._queue, id))  # type: ignore[attr-defined]
        found = kept.published if kept is not None else {}
        return {one: content for one, content in found.items() if name in (None, one)}

    async def set_published(
        self, settings: QueueSettings, id: str, value: PublishedValue, durability: Durability | None
    ) -> str:
        kept = self._inline.kept.get((settings.name, id))
        if kept is None:
            return "unknown"
        kept.published[value.name] = value.content
        return "set"

    async def add_fork(
        self,
        settings: QueueSettings,
        placed: PlacedJob,
        history: Mapping[bytes, bytes],
        durability: Durability | None,
    ) -> bool:
        return await self._inline._take(settings.name, placed, history)

    async def close(self) -> None:
        """Only a connection to an outbox may be open."""
        if self._outbox is not None:
            await self._outbox.close()


class _InlineRouter(JobRouter):
    """Accepts jobs in memory."""

    def __init__(self, inline: Inline) -> None:
        self._inline = inline

    def registered(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None
    ) -> Layout:
        return Layout()

    async def register(
        self, settings: QueueSettings, tasks: Collection[str], durability: Durability | None = None
    ) -> Layout:
        return Layout()

    async def layout(self, settings: QueueSettings) -> Layout:
        return Layout()

    async def partitions(self, settings: QueueSettings) -> list[Partition]:
        raise needs_a_server(f'looking at queue "{settings.name}"')

    async def send_one(
        self, settings: QueueSettings, placed: PlacedJob, durability: Durability | None
    ) -> bool:
        return await self._inline._take(settings.name, placed)

    async def send(
        self, settings: QueueSettings, jobs: Sequence[PlacedJob], durability: Durability | None
    ) -> list[tuple[str, bool]]:
        return [await self._take(settings.name, placed) for placed in jobs]

    async def _take(self, queue: str, placed: PlacedJob) -> tuple[str, bool]:
        if placed.unique is not None:
            return await self._count_once(queue, placed, placed.unique)
        return placed.job.id, await self._inline._take(queue, placed)

    async def _count_once(self, queue: str, placed: PlacedJob, window: UniqueWindow) -> tuple[str, bool]:
        inline = self._inline
        counts = inline._window(queue, window.name)
        waits = counts is not None and counts.state in ("waiting", "delayed")
        if counts is not None and (window.mode == "first" or waits):
            inline._note(queue, placed, counts.id, False)
            match window.mode:
                case "first":
                    pass
                case "last" | "after":
                    counts.record = placed.job.record
                case "reschedule":
                    counts.record = placed.job.record
                    counts.wait(placed.job.when, inline.now_ms)
                    await inline._launch(counts)
                case "debounce":
                    counts.record = placed.job.record
                    counts.wait(window.window_ms, inline.now_ms)
                    inline._open_window(queue, window.name, counts.id, window.window_ms)
                case _:
                    assert_never(window.mode)
            return counts.id, False
        inline._open_window(queue, window.name, placed.job.id, window.window_ms)
        if window.mode == "debounce":
            placed = replace(placed, job=placed.job._replace(when=window.window_ms))
        return placed.job.id, await inline._take(queue, placed)


class _InlineJobs:
    """The methods by which handles act on the jobs of a queue."""

    def __init__(self, inline: Inline, queue: str) -> None:
        self._inline = inline
        self._queue = queue

    async def cancel(self, ending: bytes, ids: Sequence[str]) -> list[str]:
        words: list[str] = []
        for kept in map(self._kept, ids):
            if kept.state in ("waiting", "delayed"):
                self._inline._cancel(kept, split_ending(ending)[1])
            words.append(kept.state)
        return words

    async def promote_one(self, token: str, id: str) -> str:
        kept = self._kept(id)
        if kept.state != "delayed":
            return kept.state
        kept.state = "waiting"
        await self._inline._launch(kept)
        return "promoted"

    async def reschedule(self, token: str, id: str, when: int | str) -> str:
        kept = self._kept(id)
        if kept.state not in ("waiting", "delayed"):
            return kept.state
        kept.wait(when, self._inline.now_ms)
        await self._inline._launch(kept)
        return f"rescheduled {'delayed' if kept.state == 'delayed' else 'waiting'}"

    async def update(self, token: str, id: str, task: bytes, payload: bytes) -> str:
        kept = self._kept(id)
        if kept.state not in ("waiting", "delayed"):
            return kept.state
        body = body_of(kept.record)
        body.payload = msgspec.msgpack.decode(payload)
        kept.record = repack(kept.record, body)
        return f"updated {kept.state}"

    async def retry(self, token: str, jobs: Sequence[JobToRetry]) -> list[str]:
        for job in jobs:
            kept = self._kept(job.id)
            kept.record, kept.ending, kept.state = job.record, None, "waiting"
            await self._inline._launch(kept)
        return ["retried"] * len(jobs)

    async def remove(self, token: str, jobs: Sequence[tuple[str, bytes]]) -> list[str]:
        for id, _ in jobs:
            del self._inline.kept[self._queue, id]
        return ["removed"] * len(jobs)

    async def logs(self, id: str, last: int) -> list[LogLine]:
        return self._kept(id).lines[-last:]

    def _kept(self, id: str) -> InlineJob:
        return self._inline.kept[self._queue, id]


class _NoServer:
    """Takes the place of the store."""

    has_audit_log = False

    def __init__(self, what: str) -> None:
        self._what = what

    async def open(self) -> None: ...

    async def retrying(self, call: Callable[[], Awaitable[A]]) -> A:
        return await call()

    def __getattr__(self, name: str) -> NoReturn:
        raise needs_a_server(self._what)


class _InlineResults(_NoServer):
    """Answers callers that wait for results at once."""

    async def wait_for(
        self, id: str, look: Callable[[], Awaitable[tuple[Any, StoredJob]]], timeout: float | None
    ) -> StoredJob:
        _, found = await look()
        if found.ending is None:
            raise ResultTimeout(
                f"job {id} is {found.state} and nothing runs it meanwhile; run_due() or advance() first"
            )
        return found


def needs_a_server(what: str) -> QbullError:
    return QbullError(f"{what} needs a server, and jobs run inline here; use qbull.testing.embedded(app)")
