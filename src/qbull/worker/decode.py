"""Decode: from the record of a job to its task and its arguments."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from qbull.codecs.chain import ArgumentsElsewhere
from qbull.codecs.context import payload_context
from qbull.core.outcome import Undeliverable
from qbull.core.parking import CodeNeed
from qbull.core.task import TaskSpec
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import ArgumentsError, NotFound, PayloadError
from qbull.worker.assignment import Assignment
from qbull.worker.current import RunningJob
from qbull.worker.parking import CodeMismatch

STORED_ARGUMENTS_TIMEOUT_SECONDS = 60.0
"""Seconds after which reading stored arguments counts as a failed attempt."""

CallArguments = tuple[list[Any], dict[str, Any]]


class CallDecoder:
    """For one queue. Raises CodeMismatch if other code may be able to run the job, else Undeliverable."""

    def __init__(self, assignment: Assignment) -> None:
        self._queue = assignment.settings.name
        self._tasks = assignment.tasks
        self._runnable = assignment.runnable
        self._codecs = assignment.codecs
        self._has_codecs = assignment.codecs.used
        self._stored = assignment.arguments

    def refuse(self, name: str) -> NoReturn:
        """Refuse a job whose task this worker does not know, or whose labels and resources it lacks."""
        task = self._tasks.get(name)
        if task is not None and name not in self._runnable:
            message = f'this worker lacks what task "{name}" asks for: {task.demand}'
            raise CodeMismatch(CodeNeed(name, kind="label"), message)
        known = ", ".join(sorted(self._tasks)[:10]) or "none"
        raise CodeMismatch(CodeNeed(name), f'this worker has no task "{name}"; it knows: {known}')

    def arguments(self, task: TaskSpec, job: RunningJob) -> CallArguments:
        """The arguments of a job. An app without codecs tries them only if the payload is not JSON.

        Raises ArgumentsElsewhere if `load` has to read them.
        """
        body = job.body
        try:
            if not self._has_codecs:
                return task.signature.decode(body.payload)
        except PayloadError as error:
            if not is_wrapped(body.payload):
                raise _mismatch(task, error) from None
        try:
            id = job.id.decode("utf-8", "surrogateescape")
            opened = self._codecs.open(payload_context(self._queue, id, body), body.payload)
            return task.signature.decode(opened)
        except ArgumentsElsewhere:
            raise
        except PayloadError as error:
            raise _mismatch(task, error) from None

    async def load(self, task: TaskSpec, job: RunningJob, elsewhere: ArgumentsElsewhere) -> CallArguments:
        """The arguments of a job that are stored elsewhere."""
        if self._stored is None:
            raise Undeliverable(str(elsewhere))
        id = job.id.decode("utf-8", "surrogateescape")
        try:
            async with asyncio.timeout(STORED_ARGUMENTS_TIMEOUT_SECONDS):
                stored = await self._stored.get(elsewhere.name)
            job.arguments = self._codecs.open(payload_context(self._queue, id, job.body), stored)
            return task.signature.decode(job.arguments)
        except NotFound as error:
            raise Undeliverable(f'task "{task.name}": its stored arguments are gone: {error}') from None
        except PayloadError as error:
            raise _mismatch(task, error) from None


def _mismatch(task: TaskSpec, error: PayloadError) -> Exception:
    """The arguments do not fit this code. A payload that cannot be decoded would fit no other."""
    if not isinstance(error, ArgumentsError):
        return Undeliverable(str(error))
    return CodeMismatch(CodeNeed(task.name, frozenset({task.signature.digest})), str(error))
