"""Payloads: open the arguments, results and steps of a queue's jobs, and encode edited arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from qbull.codecs.chain import ArgumentsElsewhere
from qbull.codecs.context import payload_context, result_context
from qbull.core.codec import decode_exactly, decode_untyped, encode_payload
from qbull.core.durable import StepRecord
from qbull.core.job_conflicts import unreadable
from qbull.core.record import Body, UnreadableRecord, body_of
from qbull.core.task import TaskSpec
from qbull.core.task_description import changed_key
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import ConfigError, JobCancelled, JobFailed, PayloadError
from qbull.store.read.inspect import StoredJob
from qbull.worker.durable_services import published_context, step_context

if TYPE_CHECKING:
    from qbull.queue import Queue


class QueuePayloads:
    """The contents of a queue's jobs, as the codecs of its app read and write them."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def open(self, id: str, body: Body) -> bytes:
        """The arguments of a job. Raises PayloadError if this app cannot read them, or must not."""
        queue = self._queue
        return queue.app._codecs.open(payload_context(queue.name, id, body), body.payload)

    def _made_key(self, spec: TaskSpec, id: str, body: Body) -> bool:
        """Whether the task has made the key of a job; assumed if its arguments are stored elsewhere."""
        assert spec.key is not None
        try:
            stored = self.open(id, body)
        except ArgumentsElsewhere:
            return True
        return spec.key.apply(spec.signature.arguments(stored)) == body.key

    async def load(self, id: str, body: Body) -> bytes:
        """The arguments of a job, also if they are stored elsewhere."""
        queue = self._queue
        try:
            return self.open(id, body)
        except ArgumentsElsewhere as elsewhere:
            if queue.app.arguments is None:
                raise
            stored = await queue.app.arguments.get(elsewhere.name)
            return queue.app._codecs.open(payload_context(queue.name, id, body), stored)

    def open_result(self, id: str, task: str, result: bytes) -> bytes:
        """The result of a job. Raises PayloadError if this app cannot read it, or must not."""
        queue = self._queue
        return queue.app._codecs.open(result_context(queue.name, id, task), result)

    async def load_result(self, id: str, reference: str) -> bytes:
        """The result of a job that is stored elsewhere, as the codecs have written it."""
        stored = self._queue.app._client().stored
        if stored is None:
            raise ConfigError(
                f'queue "{self._queue.name}": the result of job {id} is kept elsewhere, as "{reference}"; '
                "give this app the same results=… that its worker has"
            )
        return await stored.get(reference)

    async def result_of(self, found: StoredJob) -> bytes:
        """The result of a job that has ended, as JSON. Raises JobCancelled or JobFailed."""
        ending, what = found.ending, f'queue "{self._queue.name}": job {found.id}'
        assert ending is not None
        if found.state == "cancelled":
            reason = f": {ending.error}" if ending.error not in (None, "cancelled") else ""
            raise JobCancelled(f"{what} was cancelled{reason}")
        if found.state == "failed":
            error = ending.error or "no reason was given"
            raise JobFailed(f"{what} failed: {error}", error=error, stacktrace=ending.stacktrace)
        encoded = await self.load_result(found.id, ending.stored) if ending.stored else ending.result
        if self._queue.app._codecs.used or (encoded and is_wrapped(encoded)):
            encoded = self.open_result(found.id, found.body().task, encoded or b"null")
        return encoded or b"null"

    def open_step(self, id: str, task: str, record: StepRecord) -> bytes:
        """The content of a recorded step. It stays as it is if this app does not have the keys."""
        queue = self._queue
        try:
            return queue.app._codecs.open(step_context(queue.name, id, task, record), record.content)
        except PayloadError:
            return record.content

    def open_published(self, id: str, task: str, name: str, content: bytes, kind: Any) -> Any:
        """A published value. Raises PayloadError if this app cannot read it, or must not."""
        app = self._queue.app
        opened = app._codecs.open(published_context(self._queue.name, id, task, name), content)
        return decode_untyped(opened) if kind is Any else decode_exactly(opened, kind, app._hooks)

    def show_published(self, id: str, task: str, name: str, content: bytes) -> Any:
        """A published value for people. It stays as it is if this app does not have the keys."""
        try:
            return self.open_published(id, task, name, content, Any)
        except PayloadError:
            return decode_untyped(content)

    def again(self, found: StoredJob, payload: Mapping[str, Any] | None) -> bytes:
        """The record of a job that runs again, with other arguments if some are given."""
        id = found.id
        try:
            return found.again(None if payload is None else self.edited(id, body_of(found.record), payload))
        except UnreadableRecord as error:
            raise unreadable(self._queue.name, id, "run", error, found.state) from None

    def updated(self, found: StoredJob, arguments: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """The task and new arguments of a job, as the body of a record has them."""
        try:
            body = body_of(found.record)
        except UnreadableRecord as error:
            raise unreadable(self._queue.name, found.id, "changed", error, found.state) from None
        encode = msgspec.msgpack.encode
        return encode(body.task), encode(self.edited(found.id, body, arguments))

    def edited(self, id: str, body: Body, payload: Mapping[str, Any]) -> bytes:
        """New arguments for a job, as its body has them: checked, encoded and protected."""
        body.payload = self.encoded(id, body, payload)
        return self._queue._producer.protect(id, body)

    def encoded(self, id: str, body: Body, payload: Mapping[str, Any]) -> bytes:
        """Encode new arguments for a job. They must not change its key.

        They are checked if the app has the code of the task.
        """
        queue = self._queue
        spec, limit = queue.tasks.get(body.task), queue.app.payload_limit
        queue.app._codecs.refuse_weaker(payload_context(queue.name, id, body), body.payload)
        if spec is None:
            return encode_payload(body.task, payload, limit, queue.app._hooks)
        encoded, call = spec.signature.encode((), dict(payload), limit)
        if spec.key is not None:
            key = spec.key.apply(msgspec.structs.asdict(call))
            if key != body.key and self._made_key(spec, id, body):
                raise changed_key(spec.name, key, body.key)
        return encoded
