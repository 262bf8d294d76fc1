"""App: an app is a connection, a prefix, and a registry of queues and tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from qbull.codecs.arguments import ArgumentStore, check_argument_store
from qbull.codecs.chain import CodecChain
from qbull.codecs.offload import ResultStore, check_result_store
from qbull.config import DEFAULT_KEEP, QueueSettings, check_database, check_durability, check_prefix
from qbull.core.alerts import Alert, Alerts
from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.demand import AskedLabels, AskedResources, make_demand
from qbull.core.durability import Durability
from qbull.core.hints import APP_HINTS, refuse_unknown
from qbull.core.limits import LimitArgument
from qbull.core.options import SendOptions
from qbull.core.rate import Rate
from qbull.core.record import DEFAULT_MAX_CRASHES
from qbull.core.retry import Retry
from qbull.core.schedule import Schedule
from qbull.core.streams import DEFAULT_STREAM_LIMITS, StreamLimits
from qbull.core.task import in_notebook
from qbull.core.values import DEFAULT_HOOKS, DecHook, EncHook, make_hooks
from qbull.environment import read_environment
from qbull.errors import ConfigError, NotFound
from qbull.events import Event, follow_events
from qbull.job import Job
from qbull.manage.flow import Flow, find_flow
from qbull.manage.limits import Limits
from qbull.middleware import Middleware, MiddlewareChain
from qbull.observe.trace import Tracing
from qbull.produce import by_name
from qbull.produce.after_fork import forget_after_fork, keep_parent_connections
from qbull.produce.chain import EnqueueChain
from qbull.produce.client import Client, client_of_loop
from qbull.produce.portal import Portal
from qbull.queue import Queue
from qbull.store.connection.address import Address
from qbull.store.store import Store
from qbull.worker.lifespan import Lifespans

if TYPE_CHECKING:
    from qbull.config import Keep, Lane, OnFailed, Order
    from qbull.postgres.relay import Relay
    from qbull.schedules import Schedules
    from qbull.worker.assignment import Assignment
    from qbull.worker.outage import Outage
    from qbull.worker.worker import Worker

A = TypeVar("A")

DEFAULT_URL = "embedded://.qbull"
DEFAULT_RETRY = Retry(delays=(1, 5, 15, 60, 300))


class App:
    """An app: a connection, a prefix, and a registry of queues and tasks.

    Args:
        url: the address of the server. If None: QBULL_URL, else REDIS_URL, else an embedded Valkey that keeps
            its data in ./.qbull.
        prefix: the prefix of all names on the server. If None: QBULL_PREFIX, else "qbull".
        database: the address of PostgreSQL, for the outbox and for tracked queues. If None:
            QBULL_DATABASE_URL.
        durability: how safe a job must be before `enqueue` returns. If None: QBULL_DURABILITY, else "durable"
            on the embedded server and the server's own settings elsewhere.
        payload_limit: maximum size of arguments and results, in bytes.
        results: the store of results that are larger than that; without it such a job fails.
        arguments: the store of arguments that are larger than that; without it such a call is refused.
        trace: whether to make OpenTelemetry spans for enqueues and runs. If None: QBULL_TRACE.
        middleware: runs around every enqueue and every run; the first one is the outermost.
        alerts: where alerts are sent. If None: the environment.
        enc_hook: turns a value of an unknown type into plain data, or raises NotImplementedError.
        dec_hook: makes a value of an unknown annotated type from plain data. It gets the type and the data.
        write_only: enqueue without a right to read at the server, as `qbull acl producer --write-only` gives
            it. If None: QBULL_WRITE_ONLY.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        database: str | None = None,
        durability: Durability | None = None,
        payload_limit: int = PAYLOAD_LIMIT_BYTES,
        results: ResultStore | None = None,
        arguments: ArgumentStore | None = None,
        trace: bool | None = None,
        middleware: Sequence[Middleware] = (),
        alerts: Alerts | None = None,
        enc_hook: EncHook | None = None,
        dec_hook: DecHook | None = None,
        write_only: bool | None = None,
    ) -> None:
        self.environment = read_environment()
        self.write_only = self.environment.write_only if write_only is None else write_only
        if url == "":
            raise ConfigError("App(url=''): the server's address is empty; omit it for the embedded server")
        self._wanted_durability = check_durability(durability) or self.environment.durability
        self._use_address(url or self.environment.server_url() or DEFAULT_URL)
        self.prefix = check_prefix(prefix) if prefix is not None else self.environment.prefix or "qbull"
        self.database = check_database(database) if database is not None else self.environment.database
        self.payload_limit = payload_limit
        self.results = check_result_store(results)
        self.arguments = check_argument_store(arguments)
        self._argument_limit = payload_limit if arguments is None else sys.maxsize
        self._hooks = make_hooks(enc_hook, dec_hook, DEFAULT_HOOKS)
        self.tracing = Tracing() if (self.environment.trace if trace is None else trace) else None
        self.middleware = MiddlewareChain(middleware)
        self._codecs = CodecChain(self.middleware.all)
        is_wrapped = self.tracing is not None or bool(self.middleware.around_enqueue)
        self._chain = EnqueueChain(self.tracing, self.middleware) if is_wrapped else None
        self.alerts = self.environment.alerts if alerts is None else alerts
        self.queues: dict[str, Queue] = {}
        self.declared: dict[str, Schedule] = {}
        self.limits = Limits(self)
        self.lifespan = Lifespans(self.run_sync)
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        self._portal: Portal | None = None
        forget_after_fork(self._forget_connections)

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules on the server."""
        from qbull.schedules import Schedules  # Programs that only enqueue start faster without it.

        return Schedules(self)

    def _use_address(self, url: str) -> None:
        """Set the server's address and its default durability. Refuse a wrong address."""
        own: Durability | None = "durable" if Address.parse(url).directory is not None else None
        self.url = url
        self.durability: Durability | None = self._wanted_durability or own

    def queue(
        self,
        name: str,
        *,
        partitions: int | None = None,
        order: Order | None = None,
        concurrency: int = 5,
        max_active: int | None = None,
        rate: Rate | None = None,
        lane: Lane | None = None,
        retry: Retry = DEFAULT_RETRY,
        timeout: float | None = None,
        keep: Keep = DEFAULT_KEEP,
        on_failed: OnFailed = "continue",
        alert: bool | Alert = False,
        track: bool = False,
        confirm_order: bool = True,
        stream: StreamLimits = DEFAULT_STREAM_LIMITS,
        limit: LimitArgument | None = None,
        labels: AskedLabels | None = None,
        resources: AskedResources | None = None,
        max_crashes: int = DEFAULT_MAX_CRASHES,
        min_idle: float | None = None,
    ) -> Queue:
        """Declare a queue.

        Args:
            name: the name of the queue.
            partitions: number of partitions. If None: QBULL_PARTITIONS, else 1.
            order: "key" runs the jobs of a key one after the other, "partition" those of a partition.
            concurrency: jobs that one worker process runs at a time; for all together see `max_active`.
            max_active: jobs that run at a time in all workers.
            rate: jobs that start in a period, in all workers.
            lane: limits for each key.
            retry: the retry policy of tasks without their own.
            timeout: seconds that one attempt may take.
            keep: how many finished jobs are kept, and for how long.
            on_failed: whether a lane continues after a job that failed permanently, or halts.
            alert: whether to send alerts about the queue.
            track: whether every job has a row in PostgreSQL.
            confirm_order: whether the outcome of a job must be safe before the next of its key starts.
            stream: how much of the stream of a job is kept, and for how long.
            limit: shared limits that the jobs of all its tasks use, unless a task has its own.
            labels: labels that a worker must have to run its tasks, unless a task has its own.
            resources: tokens of the host that its jobs hold while they run, unless a task has its own.
            max_crashes: a job becomes a dead letter if its worker died this often while it ran.
            min_idle: seconds without a heartbeat after which a worker is dead. If None: MIN_IDLE_TIME_MS.
        """
        if name in self.queues and not in_notebook():
            raise ConfigError(f'queue "{name}": declared twice; keep one declaration and import it')
        told = (Alert() if alert else None) if isinstance(alert, bool) else alert
        count = (self.environment.partitions or 1) if partitions is None else partitions
        settings = QueueSettings(
            name, count, order, concurrency, lane, retry, timeout, keep, on_failed, max_active, rate, track,
            told, confirm_order, stream, max_crashes, min_idle,
        )  # fmt: skip
        self.queues[name] = queue = Queue(self, settings)
        queue.limit, queue.labels, queue.resources = limit, labels, resources
        make_demand(f'queue "{name}"', labels, resources)
        return queue

    def job(self, queue: str | Queue, id: str) -> Job[Any]:
        """The handle of a job.

        Args:
            queue: the queue, or its name.
            id: the id of the job.
        """
        return (queue if isinstance(queue, Queue) else self._known(queue)).job(id)

    async def flow(self, queue: str | Queue, id: str) -> Flow[Any]:
        """The handle of a flow, from any of its jobs.

        Args:
            queue: the queue of the job, or its name.
            id: the id of the job.
        """
        return await find_flow(self, self.job(queue, id))

    async def send(
        self, queue: str, task: str, arguments: Mapping[str, Any], /, **options: Unpack[SendOptions]
    ) -> Job[Any]:
        """Enqueue a job by name. This app need not have the code: its workers have published what it takes.

        Args:
            queue: the name of the queue.
            task: the name of the task.
            arguments: its arguments by name.
            options: those of `task.options`, and `returns`, the type of the result.
        """
        return (await by_name.send(self, queue, task, [arguments], options))[0]

    async def send_many(
        self, queue: str, task: str, calls: Iterable[Mapping[str, Any]], /, **options: Unpack[SendOptions]
    ) -> list[Job[Any]]:
        """Enqueue many jobs of a task by name, in few calls. All are checked before anything is sent.

        Args:
            queue: the name of the queue.
            task: the name of the task.
            calls: the arguments of each job, by name.
            options: as in `send`, for all of them.
        """
        return await by_name.send(self, queue, task, calls, options)

    def send_sync(
        self, queue: str, task: str, arguments: Mapping[str, Any], /, **options: Unpack[SendOptions]
    ) -> Job[Any]:
        """`send` from synchronous code.

        Args:
            queue: the name of the queue.
            task: the name of the task.
            arguments: its arguments by name.
            options: as in `send`.
        """
        return by_name.send_sync(self, queue, task, [arguments], options)[0]

    def send_many_sync(
        self, queue: str, task: str, calls: Iterable[Mapping[str, Any]], /, **options: Unpack[SendOptions]
    ) -> list[Job[Any]]:
        """`send_many` from synchronous code.

        Args:
            queue: the name of the queue.
            task: the name of the task.
            calls: the arguments of each job, by name.
            options: as in `send`, for all of them.
        """
        return by_name.send_sync(self, queue, task, calls, options)

    def worker(
        self,
        queues: Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, int] | None = None,
    ) -> Worker:
        """A worker in this process: `async with app.worker() as worker`.

        Args:
            queues: names of the queues that it serves; all queues of the app if None.
            concurrency: jobs that it runs at a time in each queue, instead of the queue's own number.
            labels: its labels, such as {"gpu": "a100"}. If None: QBULL_LABELS.
            resources: tokens of each resource that the workers of this host share. If None: QBULL_RESOURCES.
        """
        from qbull.worker.in_process import make_worker  # Programs that only enqueue start faster without it.

        return make_worker(self, self._assignments(queues, concurrency), labels, resources)

    def events(self, after: str | datetime | None = None) -> AsyncGenerator[Event, None]:
        """The jobs of all queues of the app that end, as `queue.events()` yields them for one.

        Args:
            after: the `place` of an event, or a time, to start from; from now on if None.
        """
        return follow_events(self._client(), [queue.settings for queue in self.queues.values()], after)

    def _assignments(
        self, queues: Sequence[str] | None = None, concurrency: int | None = None
    ) -> list[Assignment]:
        """The queues that a worker of this app serves, with their tasks."""
        from qbull.worker.assignment import assign_queues

        return assign_queues(self, queues, concurrency)

    def _loaded(self) -> None:
        """Called after the import of the module of MODULE:APP, for an app that completes itself then."""

    def _alongside(self) -> list[Callable[[], Awaitable[None]]]:
        """The services that run beside the workers of this app: for its database and its alerts."""
        from qbull.alerts.app_alerts import alert_services
        from qbull.produce.database_services import database_services

        return [*database_services(self), *alert_services(self)]

    def relay(self, outage: Outage | None = None) -> Relay:
        """The relay that ships the outbox of this app: `await app.relay().run()` runs until it is cancelled.

        Args:
            outage: shared by all users of the database, so that an outage is logged once.
        """
        from qbull.produce.database_services import make_relay

        return make_relay(self, outage)

    def _make_store(self) -> Store:
        """A new connection to the app's server, for services with their own event loop."""
        return Store(self.url, self.prefix)

    def _client(self) -> Client:
        """The connections of the running event loop."""
        return client_of_loop(self._clients, self._make_client)

    def _make_client(self) -> Client:
        """New connections, for one more event loop."""
        return Client(self.url, self.prefix, self.results, write_only=self.write_only)

    def run_sync(self, coroutine: Coroutine[Any, Any, A]) -> A:
        """Run a coroutine of this app from synchronous code and return its result.

        Args:
            coroutine: for example `job.result(timeout=10)`.
        """
        if self._portal is None:
            self._portal = Portal()
        return self._portal.call(coroutine)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            refuse_unknown(self, name, APP_HINTS)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def close_sync(self) -> None:
        """Close the connections of synchronous calls."""
        if self._portal is not None:
            self._portal.call(self.close())
            self._portal.close()
            self._portal = None

    async def __aenter__(self) -> App:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _undeclared_queue(self, settings: QueueSettings) -> Queue:
        """A queue that only the server knows. It has no tasks and is not part of the app."""
        return Queue(self, settings)

    def _known(self, name: str) -> Queue:
        if name not in self.queues:
            known = ", ".join(sorted(self.queues)) or "none"
            raise NotFound(f'queue "{name}": not declared in this app; it has: {known}')
        return self.queues[name]

    async def _find_queue(self, name: str) -> Queue:
        """A queue that the app declares or the server knows."""
        return self.queues.get(name) or Queue(self, await self._client().store.settings(name))

    def _forget_connections(self) -> None:
        keep_parent_connections((self._clients, self._portal))
        self._clients = {}
        self._portal = None
