"""The enqueue path: check, encode, place, send. Every enqueue of an app takes it.

`Calling` checks and encodes the arguments of a task. `Producer` has the rest of the path for one queue.
Around it is the app's chain of tracing and middleware (produce/chain.py); after it comes the router, or the
outbox in PostgreSQL. Everything is decided before the first byte is sent, so sending twice is harmless.
"""

from __future__ import annotations

import itertools
import random
from asyncio import get_running_loop
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from qbull.codecs.context import payload_context
from qbull.core.durability import Durability
from qbull.core.fork import ForkRequest
from qbull.core.hints import OPTION_HINTS
from qbull.core.ids import check_id, check_key, new_id
from qbull.core.layout import GENERATION_SPAN_PARTITIONS, Layout
from qbull.core.options import DEFAULT_OPTIONS, JOB_OPTIONS, EncodedArguments, Options
from qbull.core.record import (
    DEFAULT_PRIORITY,
    KEEPS_LANE_FLAG,
    PLAIN_HEADER,
    RANKED_FLAG,
    REPORT_ALL_FLAG,
    REPORT_END_FLAG,
    Body,
    ExtendedBody,
    encode_body,
    pack,
)
from qbull.core.route import digest, unique_name_lane
from qbull.core.task import TaskSpec
from qbull.core.unique import Unique
from qbull.errors import ArgumentsError, NotConfirmed, QbullError, ServerAway
from qbull.job import Job
from qbull.produce import outbox_rows
from qbull.produce.chain import EnqueueChain, Request
from qbull.produce.client import Client
from qbull.produce.offload import ArgumentOffloader
from qbull.produce.router import PlacedJob
from qbull.store.verbs.partition import NewJob

if TYPE_CHECKING:
    from qbull.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class Producer:
    """The enqueue path of one queue, from encoded arguments to jobs."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._app = queue.app
        self._settings = queue.settings
        self._codecs = self._app._codecs
        is_plain = not self._settings.reports and not self._codecs.used
        self._is_usual = not self._settings.has_single_lane and is_plain
        stored = self._app.arguments
        self._offloader = None if stored is None else ArgumentOffloader(self._app, queue.name, stored)
        self._spread = itertools.count(random.randrange(GENERATION_SPAN_PARTITIONS))  # noqa: S311

    def enqueue(self, request: Request) -> Coroutine[Any, Any, list[Job[Any]]]:
        """Enqueue calls within the app's tracing and middleware; returns their jobs, in the same order."""
        chain = self._app._chain
        return self.send(request) if chain is None else self._enqueue_within(chain, request)

    async def _enqueue_within(self, chain: EnqueueChain, request: Request) -> list[Job[Any]]:
        async def send() -> list[list[Job[Any]]]:
            return [await self.send(request)]

        return (await chain.run([request], send, request))[0]

    async def enqueue_together(self, requests: Sequence[Request]) -> None:
        """Enqueue calls of several tasks, or with several options, in few calls to the server.

        Either all of them are unique or none. With tracing or middleware they are enqueued one by one.
        """
        if self._app._chain is not None:
            for request in requests:
                await self.enqueue(request)
            return
        client, durability = self._app._client(), self._app.durability
        layout = await self.layout(client, durability)
        jobs = [
            self.place(layout, request.task, call, request.carried(request.options))
            for request in requests
            for call in request.calls
        ]
        await client.router.send(self._settings, await self.offload(jobs), durability)

    def enqueue_in_transaction(self, request: Request) -> list[Job[Any]]:
        """Write calls into the outbox with a transaction of synchronous code."""

        def send() -> list[Job[Any]]:
            self._refuse_large_rows(request)
            options = request.carried(request.options)
            return self._expected(request, outbox_rows.write_sync(request, options))

        chain = self._app._chain
        return send() if chain is None else chain.run_sync(request, send, self._app.run_sync)

    async def send(self, request: Request) -> list[Job[Any]]:
        """Encode, place and send calls: the path without tracing and middleware."""
        app, settings, options, calls = self._app, self._settings, request.options, request.calls
        if request.headers is not None or request.trace is not None:
            options = request.carried(options)
        if options.in_outbox:
            self._refuse_large_rows(request)
            return self._expected(request, await outbox_rows.write(request, options))
        client = app._clients.get(get_running_loop()) or app._client()
        router, durability = client.router, options.profile or app.durability
        layout = router.registered(settings, self._queue.tasks, durability)
        if layout is None:
            layout = await self.layout(client, durability)
        queue, decode = self._queue, request.decode
        if len(calls) > 1 or calls[0].unique is not None:
            jobs = [self.place(layout, request.task, each, options) for each in calls]
            jobs = await self.offload(jobs)
            answers = await router.send(settings, jobs, durability)
            return [Job(id, created, queue, decode) for id, created in answers]
        placed = self.place(layout, request.task, calls[0], options)
        if self._offloader is not None:
            [placed] = await self.offload([placed])
        try:
            created = await router.send_one(settings, placed, durability)
        except NotConfirmed as error:  # The error names the whole batch, but each caller gets its own job.
            raise error.of(settings.name, placed.job.id) from None
        return [Job(placed.job.id, created, queue, decode)]

    async def offload(self, jobs: list[PlacedJob]) -> list[PlacedJob]:
        """The same jobs, after their large arguments were written to the app's store, if it has one."""
        if self._offloader is None or not self._app._client().has_server:
            return jobs
        return await self._offloader.jobs(jobs)

    def _refuse_large_rows(self, request: Request) -> None:
        if self._offloader is not None:
            for call in request.calls:
                self._offloader.refuse_large(call.payload, "a row of the outbox")

    async def fork(self, id: str, request: ForkRequest) -> tuple[str, bool]:
        """Fork a durable job that has ended; returns the id of the new job, and whether it was created."""
        from qbull.produce.fork import fork_job

        return await fork_job(self._queue, id, request)

    async def layout(self, client: Client, durability: Durability | None) -> Layout:
        """The layout of the queue. Registers the queue and its tasks if this app has their code."""
        if self._queue.tasks:
            return await client.router.register(self._settings, self._queue.tasks, durability)
        return await client.router.layout(self._settings)

    def new_id(self) -> str:
        """An id for a job whose partition is decided later."""
        return new_id(next(self._spread) % self._settings.partitions)

    def protect(self, id: str, body: Body) -> bytes:
        """The payload as it is stored: compressed, encrypted or signed, as the app is configured."""
        return self._codecs.protect(payload_context(self._settings.name, id, body), body.payload)

    def _expected(self, request: Request, ids: Iterable[str]) -> list[Job[Any]]:
        """Handles of jobs that the relay will enqueue."""
        return [Job(id, True, self._queue, request.decode, True) for id in ids]

    def place(
        self,
        layout: Layout,
        task: str,
        arguments: EncodedArguments,
        options: Options,
        *,
        is_protected: bool = False,
    ) -> PlacedJob:
        """The complete job and its partition. The codecs do not touch a payload that `is_protected`."""
        payload, key, id = arguments.payload, arguments.key, arguments.id
        window, row = arguments.unique, arguments.row
        # The common case.
        if options is DEFAULT_OPTIONS and self._is_usual and not (key or id or window or row):
            number = layout.generation * GENERATION_SPAN_PARTITIONS + next(self._spread) % layout.partitions
            record = PLAIN_HEADER + encode_body(Body(task, payload))
            return PlacedJob(number, NewJob(new_id(number), 0, record), plain=True)
        settings = self._settings
        key_digest = digest(key) if key is not None else None
        affinity = key_digest if settings.lane_limit else None
        number = self._partition(layout, arguments, key_digest, affinity)
        body = Body(task, payload, key, 1, 0, options.timeout)
        protects = self._codecs.used and not is_protected
        if (
            options.end_ms is not None or window or row or options.trace or options.headers
            or options.weight is not None
        ):  # fmt: skip
            body = ExtendedBody(
                task, payload, key, 1, 0, options.timeout,
                expires=options.end_ms, unique=window.name if window and affinity is None else "", row=row,
                trace=options.trace or "", headers=options.headers, weight=options.weight,
                bound_to=window.name if protects and window and window.mode != "first" else "",
            )  # fmt: skip
        new = id if id is not None else new_id(number)
        if protects:
            body.payload = self.protect(new, body)
        lane = settings.lane_of(key_digest)
        flags = settings.reports
        if window is not None and window.mode == "after":
            # The next job has newer arguments, so it waits until this one has ended.
            if lane:
                flags |= KEEPS_LANE_FLAG
            else:
                lane = unique_name_lane(window.name)
        elif lane and settings.order is None and options.priority != DEFAULT_PRIORITY:
            flags |= RANKED_FLAG
        if options.durability == "outbox":
            flags |= REPORT_END_FLAG
        record = pack(body, priority=options.priority, lane=lane, reports=flags)
        job = NewJob(new, options.when, record)
        if id is not None:
            return PlacedJob(number, job, affinity, has_custom_id=True, unique=window)
        is_usual = options.when == 0 and options.priority == DEFAULT_PRIORITY
        plain = is_usual and not lane and flags < REPORT_ALL_FLAG
        return PlacedJob(number, job, affinity, plain=plain, unique=window)

    def _partition(
        self,
        layout: Layout,
        arguments: EncodedArguments,
        key_digest: bytes | None,
        affinity: bytes | None,
    ) -> int:
        id, window = arguments.id, arguments.unique
        if key_digest is not None and (affinity is not None or (id is None and window is None)):
            return layout.home(key_digest)
        if window is not None:  # All calls of a window go to one partition.
            return layout.home(bytes.fromhex(window.name)[:8])
        if id is not None:  # Without a lane the id alone decides: it is unique in the whole queue.
            return layout.home_of_id(id)
        return layout.any_home(next(self._spread))


class Calling(Generic[P, R]):
    """A task with options, ready to be enqueued."""

    def __init__(self, queue: Queue, spec: TaskSpec, options: Options = DEFAULT_OPTIONS) -> None:
        self._queue = queue
        self._app = queue.app
        self._producer = queue._producer
        self.spec = spec
        if options.unique is not None:
            check_unique(queue, spec, options.unique, ArgumentsError)
        self._options = options
        if spec.defaults is not DEFAULT_OPTIONS:
            self._options = options.with_defaults(spec.defaults)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Check the arguments and enqueue the job. Returns its handle as soon as the server has it.

        Args:
            args: the arguments of the task.
            kwargs: the arguments of the task, by name.
        """
        request = self._request([self._arguments(args, kwargs)])
        # As `Producer.enqueue` decides, without a call: this is the path of every single job.
        send = self._producer.send if self._app._chain is None else self._producer.enqueue
        try:
            return (await send(request))[0]
        except ServerAway as error:
            # The way through qbull to the server says nothing about why it is unavailable.
            raise error.with_traceback(None) from None

    async def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Enqueue many jobs in few calls. All arguments are checked before anything is sent.

        Args:
            calls: the arguments of each job, by name.
        """
        arguments = self._all_arguments(calls)
        return await self._producer.enqueue(self._request(arguments)) if arguments else []

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` from synchronous code: Django, Flask, a script.

        Args:
            args: the arguments of the task.
            kwargs: the arguments of the task, by name.
        """
        if self._options.transaction is None:
            return self._app.run_sync(self.enqueue(*args, **kwargs))
        return self._producer.enqueue_in_transaction(self._request([self._arguments(args, kwargs)]))[0]

    def enqueue_many_sync(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """`enqueue_many` from synchronous code.

        Args:
            calls: the arguments of each job, by name.
        """
        if self._options.transaction is None:
            return self._app.run_sync(self.enqueue_many(calls))
        arguments = self._all_arguments(calls)
        return self._producer.enqueue_in_transaction(self._request(arguments)) if arguments else []

    def check(self, *args: P.args, **kwargs: P.kwargs) -> EncodedArguments:
        """Check arguments as `enqueue` does, without enqueueing. Returns them encoded.

        Args:
            args: the arguments of the task.
            kwargs: the arguments of the task, by name.
        """
        return self._arguments(args, kwargs)

    def _request(self, calls: list[EncodedArguments]) -> Request:
        """A request for checked calls of this task."""
        options = self._options
        return Request(self._queue, self.spec.name, calls, options, self.spec.signature.decode_result)

    def _all_arguments(self, calls: Iterable[Mapping[str, Any]]) -> list[EncodedArguments]:
        if self._options.id is not None:
            raise ArgumentsError(
                f'task "{self.spec.name}": one id cannot serve many jobs; '
                'declare the task with id="…{argument}"'
            )
        return [self._arguments((), self._by_name(n, call)) for n, call in enumerate(calls, 1)]

    def _by_name(self, number: int, call: object) -> dict[str, Any]:
        # Asking an abstract class takes longer than the copy.
        if type(call) is not dict and not isinstance(call, Mapping):
            form = ", ".join(f'"{name}": …' for name in self.spec.signature.parameters)
            raise ArgumentsError(
                f'task "{self.spec.name}": call {number} is {call!r:.80}; '
                f"give the arguments of each call by name: {{{form}}}"
            )
        return dict(call)

    def _refuse_options(self, kwargs: Mapping[str, Any]) -> None:
        """Explain options of the job that were given as arguments of the task."""
        for option in JOB_OPTIONS:
            if option.name in kwargs and option.name not in self.spec.signature.parameters:
                raise ArgumentsError(
                    f'task "{self.spec.name}": {option.name!r} is an option of the job, '
                    f"not an argument of the task; write {self.spec.name}.options({option.name}=…).enqueue(…)"
                ) from None
        for foreign, option_name in OPTION_HINTS.items():
            if foreign in kwargs and foreign not in self.spec.signature.parameters:
                raise ArgumentsError(
                    f'task "{self.spec.name}": got an unexpected keyword argument {foreign!r}; '
                    f"write {self.spec.name}.options({option_name}=…).enqueue(…)"
                ) from None

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EncodedArguments:
        spec, options = self.spec, self._options
        try:
            payload, call = spec.signature.encode(args, kwargs, self._app._argument_limit)
        except ArgumentsError:
            self._refuse_options(kwargs)
            raise
        key, id = options.key, options.id
        if (key is None and spec.key is not None) or (id is None and spec.id is not None):
            arguments = msgspec.structs.asdict(call)
            key = key if key is not None or spec.key is None else check_key(spec.key.apply(arguments))
            id = id if id is not None or spec.id is None else check_id(spec.id.apply(arguments))
        window = None
        if options.unique is not None:
            laned = key if self._queue.settings.lane_limit else None
            window = options.unique.of(spec.name, spec.signature.complete(call), laned)
        return EncodedArguments(payload, key, id, window)


def check_unique(queue: Queue, spec: TaskSpec, unique: Unique, refusal: type[QbullError]) -> None:
    """Refuse a `Unique` that does not fit the task and its queue."""
    for name in unique.by or ():
        if name not in spec.signature.parameters:
            known = ", ".join(spec.signature.parameters) or "none"
            raise refusal(
                f'task "{spec.name}": unique by "{name}", but it has no argument "{name}"; it has: {known}'
            )
    if spec.id is not None:
        raise refusal(f'task "{spec.name}": id and unique: give one of them')
    if unique.mode == "after" and queue.settings.lane_limit > 1:
        raise refusal(
            f'task "{spec.name}": Unique(mode="after") runs one at a time, '
            f"Lane(limit={queue.settings.lane_limit}) more; choose one of them"
        )
