"""Job: the handle of a job, to ask about it and to act on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from qbull.core.codec import decode_untyped
from qbull.core.fork import ForkRequest
from qbull.core.hints import JobHints
from qbull.core.ids import new_token
from qbull.core.job_conflicts import (
    CANCEL_CONFLICTS,
    CHANGE_CONFLICTS,
    PROMOTE_CONFLICTS,
    REMOVE_CONFLICTS,
    RETRY_CONFLICTS,
    SIGNAL_CONFLICTS,
    cancel_reason,
    conflict,
)
from qbull.core.job_info import JobInfo
from qbull.core.options import Options
from qbull.core.published import check_published_name
from qbull.core.record import Ending, State, append_ending
from qbull.core.recorded_steps import RecordedStep, show_records
from qbull.core.signals import check_signal_name, encode_signal_value, new_signal, refuse_signals
from qbull.errors import MAX_COUNT, ArgumentsError, NotFound, QbullError, ResultTimeout, job_not_found
from qbull.store.audit import audited, of_job
from qbull.store.read.inspect import StoredJob
from qbull.store.read.stream import JobStream, ValueSource
from qbull.store.verbs.partition import JobToRetry, Partition
from qbull.store.verbs.progress import MAX_LOG_LINES, LogLine
from qbull.worker.durable_services import signal_context
from qbull.worker.stream_decoder import StreamDecoder

if TYPE_CHECKING:
    from qbull.core.why import Why
    from qbull.produce.client import Client
    from qbull.queue import Queue
else:
    # A Struct resolves its annotations when somebody reads its signature.
    Queue = Any

R = TypeVar("R")
T = TypeVar("T")

REASON_TIMEOUT_SECONDS = 2.0
"""How long `result()` looks for the reason why a job has not finished, after its timeout."""


async def _update(token: str, id: str, task: bytes, payload: bytes, partition: Partition) -> str:
    return await partition.update(token, id, task, payload)


class _OtherJob(Exception):
    """The id belongs to a job of another task by now."""


class Job(msgspec.Struct, JobHints, Generic[R], eq=False, weakref=True):
    """The handle of a job: its id, and the methods to ask about the job and to act on it.

    Enqueueing returns it; `app.job(queue, id)` makes one from an id.

    Args:
        id: the id of the job.
        created: False if a job with this id existed already and nothing was added.
    """

    id: str
    created: bool
    _queue: Queue
    _decode: Callable[[bytes], Any] = decode_untyped
    _expected: bool = False
    """Whether the job may still be on its way from the outbox; `result()` waits for it then."""

    def __repr__(self) -> str:
        return f"<Job {self.id} in {self._queue.settings.name}>"

    @property
    def queue(self) -> str:
        return self._queue.settings.name

    async def state(self) -> State | None:
        """The state of the job; None for an unknown job."""
        return found.state if (found := await self._find()) is not None else None

    async def info(self) -> JobInfo | None:
        """Everything that is known about the job; None for an unknown job."""
        if (found := await self._find()) is None:
            return None
        return found.info(self.queue, self._queue._attempts_of(found.body().task))

    async def why(self) -> Why:
        """Why the job is not running: as a sentence, and as reasons with codes for programs."""
        from qbull.core.why import Why
        from qbull.store.read.why import explain_job

        client = self._queue.app._client()
        there = await client.find(self._queue.settings, self.id)
        if there is None:
            return Why(self.id, self.queue, None)
        return await explain_job(client.store, self._queue.settings, *there)

    async def logs(self, last: int = MAX_LOG_LINES) -> list[LogLine]:
        """The newest log lines of the task, in order.

        Args:
            last: maximum number of lines, up to 1,000.
        """
        if not isinstance(last, int) or not 1 <= last <= MAX_LOG_LINES:
            raise ArgumentsError(f"last={last!r}: give a whole number from 1 to {MAX_LOG_LINES:,}")
        return await (await self._there())[0].logs(self.id, last)

    async def steps(self) -> list[RecordedStep]:
        """The recorded steps of a durable job, in the order in which they ended."""
        return await self._recorded_steps(None)

    async def _recorded_steps(self, limit_bytes: int | None) -> list[RecordedStep]:
        partition, found = await self._there()
        open_step = partial(self._queue._payloads.open_step, self.id, found.body().task)
        records = await self._queue.app._client().read_records(partition, self.id)
        return show_records(records, open_step, limit_bytes)

    @overload
    def stream(self, *, after: int = 0, type: type[T]) -> JobStream[T]: ...
    @overload
    def stream(self, *, after: int = 0, type: Any = Any) -> JobStream[Any]: ...
    def stream(self, *, after: int = 0, type: Any = Any) -> JobStream[Any]:  # noqa: A002 - the public name
        """The values that the job emits, from the first one on: `async for value in handle.stream()`.

        Ends when the job has ended. Raises NotFound for an unknown job.

        Args:
            after: the `position` of an earlier stream, to continue behind it.
            type: the type of the values; plain data if it is not given.
        """
        if not isinstance(after, int) or not 0 <= after <= MAX_COUNT:
            raise ArgumentsError(f"after={after!r}: give the position of a stream, a whole number from 0")
        decode = StreamDecoder(self._queue.app._codecs, self._queue.app._hooks, self.queue, self.id, type)
        return JobStream(self.id, self._stream_source, decode, after)

    @overload
    async def published(self, name: str, *, type: type[T]) -> T | None: ...
    @overload
    async def published(self, name: str, *, type: Any = Any) -> Any: ...
    async def published(self, name: str, *, type: Any = Any) -> Any:  # noqa: A002 - the public name
        """The value that the job has published last under this name; None if it has published none.

        Args:
            name: the name of the value.
            type: the type of the value; plain data if it is not given.
        """
        check_published_name(name)
        partition, found = await self._there()
        contents = await self._queue.app._client().read_published(partition, self.id, name)
        open_value = partial(self._queue._payloads.open_published, self.id, found.body().task)
        return open_value(name, contents[name], type) if name in contents else None

    async def _all_published(self) -> dict[str, Any]:
        """All published values for people, in the order of their names."""
        partition, found = await self._there()
        contents = await self._queue.app._client().read_published(partition, self.id, None)
        show = partial(self._queue._payloads.show_published, self.id, found.body().task)
        return {name: show(name, contents[name]) for name in sorted(contents)}

    def _stream_source(self) -> ValueSource:
        client = self._queue.app._client()
        return ValueSource(partial(self._arrived, client, None), client.read_stream, client.results)

    @audited("signal job", of_job, only_named=True)
    async def signal(self, name: str, value: Any = None, *, id: str | None = None) -> Literal["sent"]:
        """Send a signal to a durable job. Its task gets the value from `wait_for(name)`, now or later.

        Args:
            name: the name of the signal.
            value: the value, which must have a JSON form.
            id: of several signals with the same id, the job gets one; for callers that may send twice.
        """
        check_signal_name(name)
        encoded = encode_signal_value(name, value, self._queue.app._hooks)
        client, token, task = self._queue.app._client(), new_token(), (await self._there())[1].body().task
        refuse_signals(task, self._queue.tasks.get(task))
        content = self._queue.app._codecs.protect(signal_context(self.queue, self.id, task, name), encoded)
        signal = new_signal(name, content, id or token)
        word = await client.signal(self._queue.settings, self.id, signal, token, self._queue.app.durability)
        if word != "sent":
            raise conflict(self.queue, self.id, word, SIGNAL_CONFLICTS)
        return "sent"

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end of the job. Returns the result of its task, in the annotated type.

        Args:
            timeout: maximum number of seconds to wait.
        """
        client = self._queue.app._client()
        there: tuple[Partition, StoredJob] | None = None

        async def look() -> tuple[Partition, StoredJob]:
            nonlocal there
            if there is None:
                there = await self._arrived(client, timeout)
            elif (there := await client.find(self._queue.settings, self.id)) is None:
                raise NotFound(
                    f'queue "{self.queue}": job {self.id} has finished, but the queue does not keep it'
                )
            return there

        found = await client.results.wait_for(self.id, look, timeout)
        if found.ending is None:
            late = f'queue "{self.queue}": job {self.id} has not finished within {timeout:g} s'
            raise ResultTimeout(late + await self._reason())
        value: R = self._decode(await self._queue._payloads.result_of(found))
        return value

    async def _reason(self) -> str:
        """Why a job is not running, as the end of an error message; empty if that cannot be found out."""
        try:
            async with asyncio.timeout(REASON_TIMEOUT_SECONDS):
                why = await self.why()
        except (TimeoutError, QbullError):
            return ""
        return f": {why}" if why.reasons else ""

    async def _arrived(self, client: Client, timeout: float | None) -> tuple[Partition, StoredJob]:
        """Find the job in its partition. A job from the outbox may take a moment to arrive."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (there := await client.find(self._queue.settings, self.id)) is None:
            if not self._expected:
                raise job_not_found(self.queue, self.id)
            if deadline is not None and time.monotonic() > deadline:
                raise ResultTimeout(
                    f'queue "{self.queue}": job {self.id} has not left the outbox within {timeout:g} s; '
                    'was it committed, and does a relay run ("qbull relay", or "qbull worker" with a '
                    "database)?"
                )
            await asyncio.sleep(0.02)
        return there

    @audited("fork job", of_job)
    async def fork(
        self,
        step: int | str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        results: Mapping[int | str, Any] | None = None,
        id: str | None = None,
    ) -> Job[R]:
        """Run a durable job that has ended again from a chosen step, as a new job. Returns its handle.

        The new job has a copy of the history before that step: recorded steps do not run again.

        Args:
            step: the first step that runs, by number or name; if None, the first that is not recorded.
            arguments: other arguments by name, checked like a call of the task.
            results: other results of copied steps, by number or name.
            id: the id of the new job. Of several forks with the same id, there is one job.
        """
        request = ForkRequest(step, arguments, results, id)
        return Job(*await self._queue._producer.fork(self.id, request), self._queue, self._decode)

    @audited("cancel job", of_job)
    async def cancel(self, reason: str = "cancelled") -> Literal["cancelled", "cancelling"]:
        """Cancel the job. Returns "cancelled", or "cancelling" if its worker was asked to stop it.

        A coroutine is cancelled, a process of `cpu=True` is killed. A plain function cannot be interrupted:
        it may check `current_job().cancelled`, and whatever it returns, its job ends as cancelled.

        Args:
            reason: the error of the cancelled job.
        """
        ending = append_ending(Ending(0, 0.0, "", error=cancel_reason(reason)))

        async def cancel(partition: Partition) -> str:
            return (await partition.cancel(ending, [self.id]))[0]

        word = await self._queue.app._client().on_job(self._queue.settings, self.id, cancel)
        if word in ("cancelled", "cancelling"):
            return "cancelled" if word == "cancelled" else "cancelling"
        raise conflict(self.queue, self.id, word, CANCEL_CONFLICTS)

    @audited("retry job", of_job)
    async def retry(self, payload: Mapping[str, Any] | None = None) -> Literal["waiting"]:
        """Run a failed or cancelled job again. Attempts count from 1 again; the history is kept.

        A job that halted its lane goes to the head of the lane, any other to the end.

        Args:
            payload: other arguments by name, checked like a call of the task; the same arguments if None.
        """
        token = new_token()
        while True:
            partition, found = await self._there()
            if found.state not in ("failed", "cancelled"):
                raise conflict(self.queue, self.id, found.state, RETRY_CONFLICTS)
            job = JobToRetry(self.id, found.position, self._queue._payloads.again(found, payload))
            [word] = await partition.retry(token, [job])
            if word == "retried":
                return "waiting"
            if word != "moved":  # Moved: it was retried meanwhile, and has failed once more.
                raise conflict(self.queue, self.id, word, RETRY_CONFLICTS)

    @audited("promote job", of_job)
    async def promote(self) -> Literal["waiting"]:
        """Run a delayed job now. A job that waits for its next attempt keeps its place in its lane."""
        token = new_token()
        await self._do(lambda partition: partition.promote_one(token, self.id), "promoted", PROMOTE_CONFLICTS)
        return "waiting"

    @audited("reschedule job", of_job)
    async def reschedule(
        self, *, delay: float | None = None, at: datetime | None = None
    ) -> Literal["waiting", "delayed"]:
        """Change when a job may run that has not started. Returns its new state.

        A job that waits for its next attempt keeps its place in its lane. Any other leaves its lane, and
        joins the end when it is due.

        Args:
            delay: seconds from now; 0 lets it run now.
            at: a time, with a time zone.
        """
        if (delay is None) == (at is None):
            raise ArgumentsError("reschedule: give delay or at, one of them")
        token, when = new_token(), Options(delay=delay, at=at).when
        return await self._change(lambda partition: partition.reschedule(token, self.id, when), "rescheduled")

    @audited("update job", of_job)
    async def update(self, arguments: Mapping[str, Any]) -> Literal["waiting", "delayed"]:
        """Change the arguments of a job that has not started. Returns its state.

        Args:
            arguments: all arguments by name, checked like a call of the task. The key must stay the same.
        """
        token = new_token()
        while True:
            _, found = await self._there()
            if found.state not in ("waiting", "delayed"):
                raise conflict(self.queue, self.id, found.state, CHANGE_CONFLICTS)
            task, payload = self._queue._payloads.updated(found, arguments)
            try:
                return await self._change(partial(_update, token, self.id, task, payload), "updated")
            except _OtherJob:  # The id belongs to another job since it was read.
                continue

    async def _change(
        self, verb: Callable[[Partition], Awaitable[str]], done: str
    ) -> Literal["waiting", "delayed"]:
        answer = await self._queue.app._client().on_job(self._queue.settings, self.id, verb)
        word, _, state = answer.partition(" ")
        if word == "other":
            raise _OtherJob
        if word != done:
            raise conflict(self.queue, self.id, word, CHANGE_CONFLICTS)
        return "waiting" if state == "waiting" else "delayed"

    @audited("remove job", of_job)
    async def remove(self) -> Literal["removed"]:
        """Delete the job permanently. Raises Conflict for a running job.

        If the job is a dead letter that halts its lane, the lane continues.
        """
        token = new_token()

        async def remove(partition: Partition) -> str:
            return (await partition.remove(token, [(self.id, b"")]))[0]

        await self._do(remove, "removed", REMOVE_CONFLICTS)
        return "removed"

    async def _do(
        self, verb: Callable[[Partition], Awaitable[str]], done: str, instead: Mapping[str, str]
    ) -> None:
        word = await self._queue.app._client().on_job(self._queue.settings, self.id, verb)
        if word != done:
            raise conflict(self.queue, self.id, word, instead)

    async def _there(self) -> tuple[Partition, StoredJob]:
        """The job and the partition that holds it. Raises NotFound."""
        there = await self._queue.app._client().find(self._queue.settings, self.id)
        if there is None:
            raise job_not_found(self.queue, self.id)
        return there

    async def _find(self) -> StoredJob | None:
        found = await self._queue.app._client().find(self._queue.settings, self.id)
        return found[1] if found is not None else None
