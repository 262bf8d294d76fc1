"""Continuing: a durable task ends its run, and its job starts over with other arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from qbull.codecs.chain import ArgumentsElsewhere, CodecChain
from qbull.codecs.context import payload_context
from qbull.core.task import TaskSpec
from qbull.errors import ArgumentsError
from qbull.worker.step_calls import StepCalls

if TYPE_CHECKING:
    from qbull.worker.current import RunningJob


class ContinueCalls(StepCalls):
    """The call with which a job starts over, which `current_job()` has."""

    __slots__ = ()

    def continue_as(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this run here, and start the job anew with these arguments: `job.continue_as(page + 1)`.

        The job keeps its id, key, priority, signals and published values. Its history is empty then, and its
        attempts count from 1 again. Raises to end the task, in coroutines and plain functions alike.

        Args:
            args: the arguments of the task.
            kwargs: its arguments, by name.
        """
        self._steps.continue_as(args, kwargs)


class OtherArguments(msgspec.Struct, frozen=True):
    """The arguments of a new start, for a task that takes at most `limit_bytes` of them."""

    task: TaskSpec
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    limit_bytes: int

    def encode(self, job: RunningJob, codecs: CodecChain) -> bytes:
        """The arguments as the record of the job has them. They must not change its key."""
        task, id = self.task, job.id.decode("utf-8", "surrogateescape")
        encoded, call = task.signature.encode(self.args, self.kwargs, self.limit_bytes)
        if task.key is not None:
            key = task.key.apply(msgspec.structs.asdict(call))
            if key != job.body.key and self._made_key(job, codecs):
                raise ArgumentsError(
                    f'task "{task.name}": continue_as() with these arguments would change the key from '
                    f'"{job.body.key}" to "{key}"; enqueue a new job instead'
                )
        body = msgspec.structs.replace(job.body, payload=encoded)
        return codecs.protect(payload_context(job.queue, id, body), encoded)

    def _made_key(self, job: RunningJob, codecs: CodecChain) -> bool:
        """Whether the task has made the key of the job, not the options of its call."""
        assert self.task.key is not None
        id = job.id.decode("utf-8", "surrogateescape")
        try:
            present = job.arguments or codecs.open(payload_context(job.queue, id, job.body), job.body.payload)
        except ArgumentsElsewhere:
            return True
        return self.task.key.apply(self.task.signature.arguments(present)) == job.body.key
