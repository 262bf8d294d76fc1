"""Streams: sends the values that running jobs emit to the server.

A value is sent at once. Values that come while others are on their way are sent together, in the order in
which they came. Jobs may emit from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any

from qbull.core.streams import UNNAMED_VALUE, EmittedKey, encode_emitted
from qbull.core.values import ValueHooks
from qbull.store.batch import Batcher
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.streams import MAX_EMITTED_PER_CALL, Emission, emit
from qbull.worker.assignment import Assignment
from qbull.worker.current import RunningJob
from qbull.worker.durable_services import stream_context
from qbull.worker.outage import Outage


class StreamWriter:
    """Writes the streams of one queue's jobs.

    Args:
        outage: waits while the server is unavailable.
        assignment: the queue, and the codecs of the app.
    """

    def __init__(self, outage: Outage, assignment: Assignment) -> None:
        self._outage = outage
        self._limits = assignment.settings.stream
        self._tasks = assignment.tasks
        self._codecs = assignment.codecs
        self._batchers: dict[int, Batcher[Emission, bool]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: dict[asyncio.Task[None], tuple[RunningJob, Future[bool]]] = {}

    def open(self) -> None:
        """Send from the running event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def encode(self, job: RunningJob, value: Any) -> bytes:
        """A value as JSON. Raises PayloadError if that is impossible."""
        return encode_emitted(job.body.task, value, self.hooks_of(job))

    def hooks_of(self, job: RunningJob) -> ValueHooks:
        return self._tasks[job.body.task].signature.hooks

    async def emit(self, job: RunningJob, content: bytes) -> bool:
        """Add a value to the stream of a job. Returns False if the job belongs to another worker by now."""
        if asyncio.get_running_loop() is not self._loop:
            return await asyncio.wrap_future(self.emit_soon(job, content))
        key = key_of(job, content)
        return key is None or await self._write(job, key, content)

    def emit_soon(self, job: RunningJob, content: bytes) -> Future[bool]:
        """The same from any thread. The future is done when the server has the value."""
        written: Future[bool] = Future()
        key = key_of(job, content)
        if key is None:
            written.set_result(True)
            return written

        def start(loop: asyncio.AbstractEventLoop, key: EmittedKey) -> None:
            sending = loop.create_task(_answer(self._write(job, key, content), written))
            self._sending[sending] = job, written
            sending.add_done_callback(self._forget)

        loop = self._loop
        try:
            if loop is None:
                raise RuntimeError("the worker has stopped")
            if asyncio._get_running_loop() is loop:
                # A process has emitted it. Its result may be here too, and the flush must see the value.
                start(loop, key)
            else:
                loop.call_soon_threadsafe(start, loop, key)
        except RuntimeError:  # the loop is closed, and the job belongs to another worker
            written.set_result(False)
        return written

    async def flush(self, job: RunningJob) -> None:
        """Wait until the server has everything that the job has emitted in other threads and processes."""
        while sending := [task for task, (other, _) in self._sending.items() if other is job]:
            await asyncio.wait(sending)

    async def close(self) -> None:
        self._loop = None
        for task, (_, written) in list(self._sending.items()):
            task.cancel()
            _resolve(partial(written.set_result, False))
        if self._sending:
            await asyncio.wait(list(self._sending))
        for batcher in self._batchers.values():
            await batcher.close()

    def _forget(self, sending: asyncio.Task[None]) -> None:
        self._sending.pop(sending, None)

    async def _write(self, job: RunningJob, key: EmittedKey, content: bytes) -> bool:
        if not key.name:
            job.emitted += 1
            key = EmittedKey("", job.emitted)
        if self._codecs.used:
            id, text = job.id.decode("utf-8", "surrogateescape"), key.text(job.position)
            content = self._codecs.protect(stream_context(job.queue, id, job.body.task, text), content)
        assert job.partition is not None
        emission = Emission(job.id, job.position, job.lane, key, content)
        return await self._batcher(job.partition).add(emission)

    def _batcher(self, partition: Partition) -> Batcher[Emission, bool]:
        batcher = self._batchers.get(partition.number)
        if batcher is None:

            async def send(values: list[Emission]) -> list[bool]:
                return await self._outage.retry_until_up(partial(emit, partition, self._limits, values))

            batcher = Batcher(send, MAX_EMITTED_PER_CALL, in_order=True)
            self._batchers[partition.number] = batcher
        return batcher


def key_of(job: RunningJob, content: bytes) -> EmittedKey | None:
    """The key of a value; None if an earlier run of the durable job emitted it, or this run was stopped."""
    # A thread may be here while its run is stopped. `stopped` is set first, so it is read last.
    run = job.durable
    if run is None:
        return UNNAMED_VALUE
    return None if job.stopped else run.emission(content)


async def _answer(writing: Coroutine[Any, Any, bool], written: Future[bool]) -> None:
    try:
        taken = await writing
    except Exception as error:
        _resolve(partial(written.set_exception, error))
    else:
        _resolve(partial(written.set_result, taken))


def _resolve(call: Callable[[], None]) -> None:
    with suppress(InvalidStateError):
        call()
