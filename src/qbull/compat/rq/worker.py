"""Worker: run jobs in this process, as RQ's `Worker(["mail"], connection=app).work()` does.

`qbull worker MODULE:APP` does the same in several supervised processes.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from qbull.app import App
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.compat.rq.instead import RQ_GUIDE, RQ_WORK_HINTS, RQ_WORKER_ATTRIBUTE_HINTS, RQ_WORKER_HINTS
from qbull.compat.rq.job_limit import JobLimit
from qbull.compat.rq.queue import Queue
from qbull.errors import ArgumentsError, ConfigError
from qbull.store.read import inspect
from qbull.store.verbs.flow_messages import read_messages

BURST_POLL_SECONDS = 0.02
SOON_SECONDS = 1.0
"""A burst waits for jobs that are due within this time, such as a retry without an interval."""
IGNORED_WORKER_OPTIONS = frozenset(
    (
        "default_worker_ttl",
        "job_monitoring_interval",
        "log_job_description",
        "maintenance_interval",
        "prepare_for_work",
        "worker_ttl",
    )
)
"""Options about RQ's own processes and keys."""


class Worker:
    """`Worker([queue], connection=app)`: `work()` runs the registered functions of these queues.

    Args:
        queues: A queue, its name, or a list of these.
        name: Ignored: a worker has an id of its own.
        connection: The app, if queues are given by name.
        serializer: As in `Queue`.
        others: Refused, with a hint at the replacement.
    """

    def __init__(
        self,
        queues: Queue | str | Sequence[Queue | str],
        name: str | None = None,
        connection: App | None = None,
        serializer: Any = None,
        **others: Any,
    ) -> None:
        given = {
            option: value
            for option, value in others.items()
            if value is not None and option not in IGNORED_WORKER_OPTIONS
        }
        refuse("Worker", given, RQ_WORKER_HINTS, ConfigError, RQ_GUIDE)
        listed = [queues] if isinstance(queues, Queue | str) else list(queues)
        if not listed:
            raise ConfigError("Worker([]): give at least one queue")
        self.queues = [
            each if isinstance(each, Queue) else Queue(each, connection=connection, serializer=serializer)
            for each in listed
        ]
        self.app = self.queues[0].app
        if any(queue.app is not self.app for queue in self.queues):
            raise ConfigError("Worker: all queues of a worker must belong to one app")
        self.name = name

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_WORKER_ATTRIBUTE_HINTS)

    @property
    def connection(self) -> App:
        return self.app

    def queue_names(self) -> list[str]:
        return [queue.name for queue in self.queues]

    def work(
        self,
        burst: bool = False,
        logging_level: Any = None,
        date_format: Any = None,
        log_format: Any = None,
        with_scheduler: bool = False,
        max_jobs: int | None = None,
        **others: Any,
    ) -> bool:
        """Run jobs. Returns whether at least one has run.

        Without `burst` it runs until SIGTERM or SIGINT; running jobs may end first.

        Args:
            burst: Stop when no job waits or runs. Jobs that are due later stay.
            logging_level: Ignored: set up logging yourself.
            date_format: Ignored.
            log_format: Ignored.
            with_scheduler: Ignored: a worker runs delayed jobs when they are due.
            max_jobs: Stop after this number of runs, one at a time. For a worker of one queue.
            others: Refused, with a hint at the replacement.
        """
        given = {option: value for option, value in others.items() if value is not None}
        refuse("work", given, RQ_WORK_HINTS, ArgumentsError, RQ_GUIDE)
        if max_jobs is not None:
            if len(self.queues) != 1 or max_jobs < 1:
                raise ArgumentsError(f"work(max_jobs={max_jobs}): give one queue, and at least one job")
            return self.app.run_sync(self._limited(max_jobs, is_burst=burst))
        if burst:
            return self.app.run_sync(self._burst())
        return asyncio.run(self._until_stopped())

    async def _burst(self) -> bool:
        async with self.app.worker(self.queue_names()) as worker:
            await self._until_idle()
            return worker.started_jobs > 0

    async def _until_idle(self) -> None:
        while not (await self._is_idle() and await self._is_idle()):  # noqa: ASYNC110 - asks the server
            await asyncio.sleep(BURST_POLL_SECONDS)

    async def _limited(self, max_jobs: int, *, is_burst: bool) -> bool:
        """Run some jobs, one after the other."""
        with JobLimit(self.app, max_jobs) as limit:
            worker = self.app.worker(self.queue_names(), concurrency=1)
            await worker.start()
            waiting: list[asyncio.Task[Any]] = [asyncio.create_task(limit.reached.wait())]
            if is_burst:
                waiting.append(asyncio.create_task(self._until_idle()))
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            stopping = asyncio.create_task(worker.stop())
            await asyncio.sleep(0)
            limit.let_the_last_run_start()
            await stopping
            return worker.started_jobs > 0

    async def _until_stopped(self) -> bool:
        stop = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(one, stop.set)
        try:
            async with self.app.worker(self.queue_names()) as worker:
                await stop.wait()
            return worker.started_jobs > 0
        finally:
            await self.app.close()

    async def _is_idle(self) -> bool:
        """Whether nothing runs, waits, is due, or is about to be told that its dependency has ended."""
        soon = datetime.now(UTC) + timedelta(seconds=SOON_SECONDS)
        for queue in (each.queue for each in self.queues):
            for partition in await queue._partitions():
                if await read_messages(partition, b"-"):
                    return False
            counts = sum(await inspect.counts(await queue._partitions()), inspect.Counts())
            if counts.entries + counts.limited and not counts.paused:
                return False
            for job in await queue.jobs("delayed", 0, 1):
                if job.due_at is not None and job.due_at <= soon:
                    return False
        return True


class SimpleWorker(Worker):
    """The same as `Worker`: functions run in threads of this process.

    Args:
        queues: As in `Worker`.
        name: As in `Worker`.
        connection: As in `Worker`.
        serializer: As in `Worker`.
        others: As in `Worker`.
    """
