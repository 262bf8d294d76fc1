"""The stream of a job as a reader sees it: the values so far, then each value as it comes, until the end.

The reader waits at the server for the next value, and listens for the end of the job beside it. When the job
has ended, it reads the values that are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, NamedTuple, Self, TypeVar

from qbull.core.streams import StreamEntry
from qbull.errors import NotFound, ServerAway
from qbull.store.completions import ResultListener
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs.partition import Partition

T_co = TypeVar("T_co", covariant=True)

STREAM_BLOCK_SECONDS = 5.0
"""How long one read waits for a value. Then the reader looks whether the job has moved elsewhere."""
END_RETRY_SECONDS = 1.0
"""The pause after which a reader that lost the server listens again for the end of the job."""


class ValueSource(NamedTuple):
    """How a reader reads: it finds the job, reads its values, and learns when it has ended."""

    find: Callable[[], Awaitable[tuple[Partition, StoredJob]]]
    """Raises NotFound if the job does not exist."""
    read: Callable[[Partition, str, int, float], Awaitable[list[StreamEntry]]]
    results: ResultListener


class JobStream(Generic[T_co]):
    """The values that a job emits: `async for value in handle.stream()`. Ends when the job has ended.

    Args:
        id: the id of the job.
        connect: opens the source of the values.
        decode: makes a value of an entry and the name of the task.
        after: the number of the last value that is left out.
    """

    def __init__(
        self,
        id: str,
        connect: Callable[[], ValueSource],
        decode: Callable[[str, StreamEntry], T_co],
        after: int,
    ) -> None:
        self._id = id
        self._connect = connect
        self._decode = decode
        self._values = self._follow()
        self.position = after
        """The number of the last value, to continue from: `handle.stream(after=position)`."""
        self.missed = 0
        """How many values were deleted before this reader got them, because of the limits of the stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        return await anext(self._values)

    async def aclose(self) -> None:
        """Stop reading. A loop that was left early is closed by itself, a moment later."""
        await self._values.aclose()

    async def _follow(self) -> AsyncGenerator[T_co, None]:
        source = self._connect()
        partition, found = await source.find()
        task = found.body().task
        ended = asyncio.create_task(self._end(source)) if found.ending is None else None
        try:
            while True:
                is_over = ended is None or ended.done()
                entries = await self._read(source, partition, None if is_over else ended)
                for entry in entries:
                    self.missed += entry.number - self.position - 1
                    self.position = entry.number
                    yield self._decode(task, entry)
                if entries:
                    continue
                if is_over:
                    if ended is not None:
                        ended.result()
                    return
                try:
                    partition, _ = await source.find()
                except NotFound:  # it has ended, and its queue does not keep it
                    return
        finally:
            if ended is not None:
                ended.cancel()

    async def _read(
        self, source: ValueSource, partition: Partition, ended: asyncio.Task[None] | None
    ) -> list[StreamEntry]:
        """The next values. Waits for them while the job has not ended."""
        seconds = 0.0 if ended is None else STREAM_BLOCK_SECONDS
        read = source.read(partition, self._id, self.position, seconds)
        if ended is None:
            return await read
        reading = asyncio.ensure_future(read)
        both: list[asyncio.Future[Any]] = [reading, ended]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else []
        finally:
            reading.cancel()

    async def _end(self, source: ValueSource) -> None:
        """Wait until the job has ended, or is gone."""
        while True:
            try:
                await source.results.wait_for(self._id, source.find, None)
                return
            except NotFound:
                return
            except ServerAway:
                await asyncio.sleep(END_RETRY_SECONDS)
