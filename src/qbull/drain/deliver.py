"""Delivery: find the task of a job, check its arguments, and enqueue it once.

The new server remembers for a week which jobs it has taken, even if they are finished. So a job that is
delivered twice, because a drain was killed in between, is enqueued once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from qbull.app import App
from qbull.core.codec import decode_untyped, encode_payload
from qbull.core.ids import check_id
from qbull.core.options import EncodedArguments, Options
from qbull.core.route import digest
from qbull.core.task import TaskSpec
from qbull.core.unique import UniqueWindow
from qbull.drain.dead_letters import deliver_failed
from qbull.drain.message import CannotMove, ForeignFailure, ForeignJob, ForeignSchedule
from qbull.drain.prepared import PreparedJob, PreparedSchedule
from qbull.drain.schedules import deliver_schedule, has_schedule, prepare_schedule
from qbull.drain.texts import from_texts
from qbull.errors import NotFound, PayloadError
from qbull.produce.chain import Request
from qbull.queue import Queue
from qbull.task import Call

DRAIN_DEDUPLICATION_MS = 7 * 86_400_000


class JobImporter:
    """Enqueues jobs of another library.

    `to` is the queue for all of them; `names` maps old to new task names.
    """

    def __init__(self, app: App, *, to: str | None = None, names: Mapping[str, str] | None = None) -> None:
        self._app = app
        self._to = to
        self._names = names or {}
        self._known: dict[str, tuple[Queue, list[str]]] = {}

    async def prepare(self, job: ForeignJob | ForeignSchedule) -> PreparedJob | PreparedSchedule:
        """Check a job or a schedule against its task. Raises CannotMove with the reason."""
        task = self.new_name_of(job.task)
        if isinstance(job, ForeignSchedule):
            queue = self._home(job, task).name if self._app.queues else self._to or job.queue
            return await prepare_schedule(self._app, job, f"{queue}/{task}")
        now = datetime.now(UTC)
        if job.expires is not None and job.expires <= now:
            raise CannotMove(f"it has expired, at {job.expires:%Y-%m-%d %H:%M:%S} UTC")
        try:
            check_id(job.id)
            options = Options(
                at=job.at if job.at is not None and job.at > now else None,
                priority=job.priority,
                timeout=job.timeout,
                expires=job.expires,
            )
            if self._app.queues:
                return self._checked(job, self._home(job, task), task, options)
            return await self._unchecked(job, task, options)
        except (PayloadError, NotFound) as error:
            raise CannotMove(str(error)) from None

    def new_name_of(self, task: str) -> str:
        """Return the name of a task here, by --map."""
        return self._names.get(task, task)

    def home_of(self, task: str, queue: str) -> Queue:
        """Return the queue for a task of another library. Raises CannotMove with the reason."""
        return self._home(ForeignSchedule("", queue, task, {}, {}), self.new_name_of(task))

    async def taken(self, jobs: Sequence[PreparedJob | PreparedSchedule]) -> set[str]:
        """Return the ids that other jobs or schedules have already."""
        found: set[str] = set()
        by_queue: dict[Queue, list[str]] = {}
        for prepared in jobs:
            if isinstance(prepared, PreparedJob):
                by_queue.setdefault(prepared.queue, []).append(prepared.id)
            elif await has_schedule(self._app, prepared.name):
                found.add(prepared.id)
        for queue, ids in by_queue.items():
            client = self._app._client()
            for partition in await client.router.partitions(queue.settings):
                found |= await partition.has(ids)
        return found

    async def deliver(self, jobs: Sequence[PreparedJob | PreparedSchedule]) -> None:
        """Enqueue jobs in order. Returns when the server has them. Idempotent."""
        for queue, some in groupby(jobs, key=_runnable_in):
            if queue is not None:
                requests = [_request(prepared) for prepared in some if isinstance(prepared, PreparedJob)]
                await queue._producer.enqueue_together(requests)
                continue
            for prepared in some:
                if isinstance(prepared, PreparedSchedule):
                    await deliver_schedule(self._app, prepared)
                else:
                    await deliver_failed(prepared, _request(prepared))

    def _home(self, job: ForeignJob | ForeignSchedule, task: str) -> Queue:
        """Return the queue of --to, the queue of the same name, or the queue that has the task."""
        queues = self._app.queues
        if self._to is not None and self._to not in queues:
            raise CannotMove(f'no queue "{self._to}" is declared in the app; there is: {", ".join(queues)}')
        first = queues.get(self._to or job.queue)
        if first is not None and task in first.tasks:
            return first
        others = [queue for queue in queues.values() if task in queue.tasks]
        if self._to is None and len(others) == 1:
            return others[0]
        where = f'in queue "{self._to}" of the app' if self._to else "in the app"
        if self._to is None and others:
            names = ", ".join(queue.name for queue in others)
            raise CannotMove(f'task "{task}" is in several queues ({names}); say which with --to QUEUE')
        raise CannotMove(
            f'no task "{task}" is declared {where}; name the one that is meant: --map {task}=NAME'
        )

    def _checked(self, job: ForeignJob, queue: Queue, task: str, options: Options) -> PreparedJob:
        spec = queue.tasks[task]
        if job.check_task is not None:
            job.check_task(queue, task)
        if job.has_texts:
            job = replace(job, kwargs=from_texts(spec.signature, job.kwargs))
        call: Call[..., Any] = Call(queue, spec, options)
        made = call.check(*job.args, **job.kwargs)
        _refuse_changed(spec, job, decode_untyped(made.payload), spec.signature.arguments(made.payload))
        arguments = EncodedArguments(made.payload, made.key, job.id, _window(job))
        return PreparedJob(queue, task, arguments, options, job.headers, _kept(queue, job))

    async def _unchecked(self, job: ForeignJob, task: str, options: Options) -> PreparedJob:
        """Without the code: the queue and the task are known to the server, and the worker checks the
        arguments.
        """
        name = self._to or job.queue
        if name not in self._known:
            store = self._app._client().store.without_retry
            await store.open()
            queue = self._app._undeclared_queue(await store.settings(name))
            self._known[name] = queue, await store.tasks(name)
        queue, tasks = self._known[name]
        if task not in tasks:
            raise CannotMove(
                f'queue "{name}" knows no task "{task}"; name the one that is meant: --map {task}=NAME'
            )
        if job.check_task is not None:
            raise CannotMove("it has callbacks or repeats; give --app, so that the drain knows the functions")
        if job.args:
            raise CannotMove(
                "its arguments have no names; give --app, so that the task's signature can name them"
            )
        if queue.settings.needs_key:
            raise CannotMove(
                f'queue "{name}" is ordered by key; give --app, so that the task can make the key'
            )
        payload = encode_payload(task, job.kwargs, self._app.payload_limit)
        _refuse_changed(None, job, decode_untyped(payload), decode_untyped(payload))
        arguments = EncodedArguments(payload, None, job.id, _window(job))
        return PreparedJob(queue, task, arguments, options, job.headers, _kept(queue, job))


def _runnable_in(prepared: PreparedJob | PreparedSchedule) -> Queue | None:
    """The queue that a job is enqueued in; None for schedules and dead letters."""
    if isinstance(prepared, PreparedSchedule) or prepared.failure is not None:
        return None
    return prepared.queue


def _kept(queue: Queue, job: ForeignJob) -> ForeignFailure | None:
    """The failure of a job that becomes a dead letter."""
    if job.failure is not None and queue.settings.keep.failed == 0:
        raise CannotMove(f'queue "{queue.name}" keeps no failed jobs; change its keep=, or remove the job')
    return job.failure


def _request(prepared: PreparedJob) -> Request:
    headers = dict(prepared.headers) or None
    return Request(prepared.queue, prepared.task, [prepared.arguments], prepared.options, headers=headers)


def _window(job: ForeignJob) -> UniqueWindow:
    """The name under which the server remembers a job.

    It starts with the text that decides the partition of the job's id, so that both are in one partition.
    """
    rest = hashlib.sha256(f"drain {job.id} {job.stamp}".encode()).hexdigest()
    return UniqueWindow(digest(job.id).hex() + rest[:16], "first", DRAIN_DEDUPLICATION_MS)


def _refuse_changed(
    spec: TaskSpec | None, job: ForeignJob, sent: Mapping[str, Any], arrives: Mapping[str, Any]
) -> None:
    """Refuse a job if its task would get, for example, a date as a text."""
    names = spec.signature.parameters if spec is not None else ()
    given = dict(zip(names, job.args, strict=False)) | dict(job.kwargs)
    for name, value in given.items():
        if name not in arrives:  # It has no parameter of its own, and travels with its type.
            continue
        if not _same(value, arrives[name]) and not _same(value, sent[name]):
            raise CannotMove(
                f'its argument "{name}" is a {type(value).__name__}, '
                f"and would arrive as a {type(arrives[name]).__name__}; "
                f"annotate the parameter, or let the old workers run it"
            )


def _same(value: Any, arrived: Any) -> bool:
    match value:
        case list() | tuple():
            return (
                isinstance(arrived, list | tuple)
                and len(value) == len(arrived)
                and all(map(_same, value, arrived))
            )
        case dict():
            return (
                isinstance(arrived, dict)
                and value.keys() == arrived.keys()
                and all(_same(one, arrived[name]) for name, one in value.items())
            )
    return bool(value == arrived)
