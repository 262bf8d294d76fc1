"""Delivery: which task a letter is for, whether it fits, and the enqueue that the new server remembers.

The new server keeps for a week which letters it has taken in, whatever became of their jobs: so a letter that is delivered twice,
because a drain was killed before it could forget it, is one job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from qbull.app import App
from qbull.core.codec import decode_untyped, encode_payload
from qbull.core.ids import check_id
from qbull.core.route import digest
from qbull.core.task import TaskSpec
from qbull.core.unique import UniqueWindow
from qbull.drain.message import CannotMove, ForeignJob
from qbull.errors import NotFound, PayloadError
from qbull.options import EncodedArguments, Options
from qbull.produce.chain import Request
from qbull.queue import Queue
from qbull.task import Call

DRAIN_DEDUPLICATION_MS = 7 * 86_400_000


@dataclass(frozen=True)
class PreparedJob:
    """A letter that fits: everything but the enqueue itself."""

    queue: Queue
    task: str
    arguments: EncodedArguments
    options: Options
    headers: Mapping[str, str]


class JobImporter:
    """`to` is the queue for all of them, where one is named; `names` says which task is meant by which old name."""

    def __init__(self, app: App, *, to: str | None = None, names: Mapping[str, str] | None = None) -> None:
        self._app = app
        self._to = to
        self._names = names or {}
        self._known: dict[str, tuple[Queue, list[str]]] = {}

    async def parcel(self, letter: ForeignJob) -> PreparedJob:
        """Raises Cannot, with the reason."""
        task = self._names.get(letter.task, letter.task)
        now = datetime.now(UTC)
        if letter.expires is not None and letter.expires <= now:
            raise CannotMove(f"it has expired, at {letter.expires:%Y-%m-%d %H:%M:%S} UTC")
        try:
            check_id(letter.id)
            options = Options(
                at=letter.at if letter.at is not None and letter.at > now else None,
                priority=letter.priority,
                timeout=letter.timeout,
                expires=letter.expires,
            )
            if self._app.queues:
                return self._checked(letter, self._home(letter, task), task, options)
            return await self._unchecked(letter, task, options)
        except (PayloadError, NotFound) as error:
            raise CannotMove(str(error)) from None

    async def taken(self, parcels: Sequence[PreparedJob]) -> set[str]:
        """Which of their ids other jobs have already."""
        found: set[str] = set()
        by_queue: dict[Queue, list[str]] = {}
        for parcel in parcels:
            assert parcel.arguments.id is not None
            by_queue.setdefault(parcel.queue, []).append(parcel.arguments.id)
        for queue, ids in by_queue.items():
            client = self._app._client()
            for partition in await client.router.partitions(queue.settings):
                found |= await partition.has(ids)
        return found

    async def deliver(self, parcels: Sequence[PreparedJob]) -> None:
        """Enqueue them, in order, and answer when the server has them. May be done twice."""
        for queue, some in groupby(parcels, key=lambda parcel: parcel.queue):
            await queue._producer.enqueue_together([_request(parcel) for parcel in some])

    def _home(self, letter: ForeignJob, task: str) -> Queue:
        """The queue of --to, the one of the same name, or the one that has the task."""
        queues = self._app.queues
        if self._to is not None and self._to not in queues:
            raise CannotMove(f'no queue "{self._to}" is declared in the app; there is: {", ".join(queues)}')
        first = queues.get(self._to or letter.queue)
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

    def _checked(self, letter: ForeignJob, queue: Queue, task: str, options: Options) -> PreparedJob:
        spec = queue.tasks[task]
        call: Call[..., Any] = Call(queue, spec, options)
        made = call.check(*letter.args, **letter.kwargs)
        _refuse_changed(spec, letter, decode_untyped(made.payload), spec.signature.arguments(made.payload))
        arguments = EncodedArguments(made.payload, made.key, letter.id, _window(letter))
        return PreparedJob(queue, task, arguments, options, letter.headers)

    async def _unchecked(self, letter: ForeignJob, task: str, options: Options) -> PreparedJob:
        """Without the code: the queue and the task are known to the server, and the worker checks the arguments."""
        name = self._to or letter.queue
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
        if letter.args:
            raise CannotMove(
                "its arguments have no names; give --app, so that the task's signature can name them"
            )
        if queue.settings.needs_key:
            raise CannotMove(
                f'queue "{name}" is ordered by key; give --app, so that the task can make the key'
            )
        payload = encode_payload(task, letter.kwargs, self._app.payload_limit)
        _refuse_changed(None, letter, decode_untyped(payload), decode_untyped(payload))
        return PreparedJob(
            queue, task, EncodedArguments(payload, None, letter.id, _window(letter)), options, letter.headers
        )


def _request(parcel: PreparedJob) -> Request:
    headers = dict(parcel.headers) or None
    return Request(parcel.queue, parcel.task, [parcel.arguments], parcel.options, headers=headers)


def _window(letter: ForeignJob) -> UniqueWindow:
    """What the server remembers a letter by. It begins with what decides the partition of its id, so that both are in one."""
    rest = hashlib.sha256(f"drain {letter.id} {letter.stamp}".encode()).hexdigest()
    return UniqueWindow(digest(letter.id).hex() + rest[:16], "first", DRAIN_DEDUPLICATION_MS)


def _refuse_changed(
    spec: TaskSpec | None, letter: ForeignJob, sent: Mapping[str, Any], arrives: Mapping[str, Any]
) -> None:
    """A date that a task would get as a text is not the same call."""
    names = spec.signature.parameters if spec is not None else ()
    given = dict(zip(names, letter.args, strict=False)) | dict(letter.kwargs)
    for name, value in given.items():
        if not _same(value, arrives[name]) and not _same(value, sent[name]):
            raise CannotMove(
                f'its argument "{name}" is a {type(value).__name__}, and would arrive as a {type(arrives[name]).__name__}; '
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
