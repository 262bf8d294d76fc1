"""App: an app is a connection, a prefix, and a registry of queues and tasks."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from qbull.codecs.chain import CodecChain
from qbull.codecs.offload import ResultStore, check_result_store
from qbull.config import (
    DEFAULT_KEEP,
    Keep,
    Lane,
    OnFailed,
    Order,
    QueueSettings,
    check_database,
    check_durability,
    check_prefix,
)
from qbull.core.alerts import Alert, Alerts
from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.durability import Durability
from qbull.core.rate import Rate
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
from qbull.middleware import Middleware, MiddlewareChain
from qbull.observe.trace import Tracing
from qbull.produce.after_fork import forget_after_fork, keep_parent_connections
from qbull.produce.chain import EnqueueChain
from qbull.produce.client import Client
from qbull.produce.portal import Portal
from qbull.queue import Queue
from qbull.schedules import Schedules
from qbull.store.connection.address import Address
from qbull.store.store import Store
from qbull.worker.lifespan import Lifespans

if TYPE_CHECKING:
    from qbull.postgres.relay import Relay
    from qbull.worker.assignment import Assignment
    from qbull.worker.outage import Outage
    from qbull.worker.worker import Worker

A = TypeVar("A")
log = logging.getLogger("qbull")

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
        trace: whether to make OpenTelemetry spans for enqueues and runs. If None: QBULL_TRACE.
        middleware: runs around every enqueue and every run; the first one is the outermost.
        alerts: where alerts are sent. If None: the environment.
        enc_hook: turns a value that qbull does not know into plain data; raises NotImplementedError for other
            types.
        dec_hook: makes a value of an annotated type that qbull does not know from plain data. It gets the
            type and the data.
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
            raise ConfigError(
                "App(url=''): the server's address is empty; leave it out for the embedded server"
            )
        self._wanted_durability = check_durability(durability) or self.environment.durability
        self._use_address(url or self.environment.server_url() or DEFAULT_URL)
        self.prefix = check_prefix(prefix) if prefix is not None else self.environment.prefix or "qbull"
        self.database = check_database(database) if database is not None else self.environment.database
        self.payload_limit = payload_limit
        self.results = check_result_store(results)
        self._hooks = make_hooks(enc_hook, dec_hook, DEFAULT_HOOKS)
        traced = self.environment.trace if trace is None else trace
        self.tracing: Tracing | None = Tracing() if traced else None
        self.middleware = MiddlewareChain(middleware)
        self._codecs = CodecChain(self.middleware.all)
        is_wrapped = self.tracing is not None or bool(self.middleware.around_enqueue)
        self._chain = EnqueueChain(self.tracing, self.middleware) if is_wrapped else None
        self.alerts = self.environment.alerts if alerts is None else alerts
        self.queues: dict[str, Queue] = {}
        self.declared: dict[str, Schedule] = {}
        self.schedules = Schedules(self)
        self.lifespan = Lifespans(self.run_sync)
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = (
            weakref.WeakKeyDictionary()
        )
        self._portal: Portal | None = None
        forget_after_fork(self._forget_connections)

    def _use_address(self, url: str) -> None:
        """Set the server's address, and the durability that is the default there.

        A wrong address is an error here, not at the first enqueue.
        """
        is_embedded = Address.parse(url).directory is not None
        own: Durability | None = "durable" if is_embedded else None
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
    ) -> Queue:
        """Declare a queue.

        Args:
            name: the name of the queue.
            partitions: number of partitions. If None: QBULL_PARTITIONS, else 1.
            order: "key" runs the jobs of a key one after the other, "partition" those of a partition.
            concurrency: jobs that one worker runs at a time.
            max_active: jobs that run at a time in all workers.
            rate: jobs that start in a period, in all workers.
            lane: limits for each key.
            retry: the retry policy of tasks without their own.
            timeout: seconds that one attempt may take.
            keep: how many finished jobs are kept, and for how long.
            on_failed: whether a lane continues after a job that failed permanently, or halts.
            alert: whether to send alerts about the queue.
            track: whether every job has a row in PostgreSQL.
            confirm_order: whether the replicas must have the outcome of a job before the next one of its lane
                starts. Only with `order`, and with the durability "replicated" or "strict".
            stream: how much of the stream of a job is kept, and for how long.
        """
        if name in self.queues and not in_notebook():
            raise ConfigError(f'queue "{name}": declared twice; keep one declaration and import it')
        told = (Alert() if alert else None) if isinstance(alert, bool) else alert
        count = (self.environment.partitions or 1) if partitions is None else partitions
        settings = QueueSettings(
            name, count, order, concurrency, lane, retry, timeout, keep, on_failed, max_active, rate, track,
            told, confirm_order, stream,
        )  # fmt: skip
        self.queues[name] = queue = Queue(self, settings)
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

    def worker(self, queues: Sequence[str] | None = None, *, concurrency: int | None = None) -> Worker:
        """A worker in this process: `async with app.worker() as worker`.

        Args:
            queues: names of the queues that it serves; all queues of the app if None.
            concurrency: jobs that it runs at a time in each queue, instead of the queue's own number.
        """
        from qbull.worker.worker import Worker  # Programs that only enqueue start faster without it.

        return Worker(
            self._make_store,
            self._assignments(queues, concurrency),
            sharing=self.environment.worker_sharing(),
            min_idle=self.environment.min_idle,
            alongside=self._alongside(),
        )

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
        from qbull.worker.assignment import Assignment

        if isinstance(queues, str):
            raise ConfigError(f'queues="{queues}": give a list of names, for example queues=["{queues}"]')
        served = [self._known(name) for name in queues] if queues else list(self.queues.values())
        if not served:
            raise ConfigError("this app has no queues; declare one with app.queue(…)")
        for queue in served:
            for task in queue.tasks.values():
                task.refuse_main_module()
        return [
            Assignment(
                replace(queue.settings, concurrency=concurrency or queue.settings.concurrency),
                queue.tasks,
                tuple(schedule for schedule in self.declared.values() if schedule.queue == queue.name),
                self.results,
                self.tracing,
                self.middleware,
                self._codecs,
                self.durability,
                self.payload_limit,
                self.lifespan,
            )
            for queue in served
        ]

    def _loaded(self) -> None:
        """Called after the import of the module of MODULE:APP, for an app that completes itself then."""

    def _alongside(self) -> list[Callable[[], Awaitable[None]]]:
        """The services that run beside the workers of this app.

        With a database: the relay and the maintenance of its tables. With a destination for alerts: alerting.
        """
        return [*self._database_services(), *self._alerting()]

    def _alerting(self) -> list[Callable[[], Awaitable[None]]]:
        """The alert service, if alerts have a destination."""
        if not self.alerts.destinations:
            return []
        from qbull.alerts.alerting import AlertService

        return [AlertService(self._make_store, self.prefix, self.alerts).run]

    def _database_services(self) -> list[Callable[[], Awaitable[None]]]:
        if self.database is None:
            return []
        if find_spec("psycopg") is None:
            log.warning('a database is configured, but no relay runs here; pip install "qbull[postgres]"')
            return []
        from qbull.postgres.maintenance import DatabaseMaintenance
        from qbull.worker.outage import Outage

        outage = Outage("PostgreSQL")
        return [
            self.relay(outage).run,
            DatabaseMaintenance(self.database, self.prefix, self._make_store, outage).run,
        ]

    def relay(self, outage: Outage | None = None) -> Relay:
        """The relay that ships the outbox of this app: `await app.relay().run()` runs until it is cancelled.

        Args:
            outage: shared by all users of the database, so that an outage is logged once.
        """
        from qbull.postgres.relay import Relay
        from qbull.produce.shipping import OutboxShipping

        if self.database is None:
            raise ConfigError("no database is configured; set QBULL_DATABASE_URL, or App(database=…)")
        return Relay(self.database, self.prefix, OutboxShipping(self), outage)

    def _make_store(self) -> Store:
        """A new connection to the app's server, for services with their own event loop."""
        return Store(self.url, self.prefix)

    def _client(self) -> Client:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._make_client()
        return client

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
            fact = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("task", "actor"):
                fact += '; declare a queue first: queue = app.queue("default"), then @queue.task'
            raise AttributeError(fact, name=name, obj=self)

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
            raise NotFound(
                f'queue "{name}": not declared in this app; '
                f"it has: {', '.join(sorted(self.queues)) or 'none'}"
            )
        return self.queues[name]

    async def _find_queue(self, name: str) -> Queue:
        """A queue that the app declares or the server knows."""
        return self.queues.get(name) or Queue(self, await self._client().store.settings(name))

    def _forget_connections(self) -> None:
        keep_parent_connections((self._clients, self._portal))
        self._clients = weakref.WeakKeyDictionary()
        self._portal = None
