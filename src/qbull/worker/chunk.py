"""Chunk: collects the jobs of a task that takes many at once, in the worker that runs them.

Each job has its own slot, like any other job. Its function is a `ChunkCaller`, which collects the jobs that
have started and calls the user's function once for all of them. So each job keeps its own limits, timeout,
cancellation and outcome.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from qbull.core.outcome import AlreadyDone
from qbull.worker.current import CurrentJob, RunningJob, current_job, running

_together: ContextVar[list[RunningJob]] = ContextVar("qbull_running_together")


class ChunkBatch:
    """Jobs that share one call. The outcome of a job that left the batch is cancelled."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.jobs: list[RunningJob | None] = []
        self.outcomes: list[Future[Any]] = []
        self.full = asyncio.Event()
        self.task: Task[None] | None = None


class ChunkCaller:
    """Takes one item and returns its result. One call of `function` handles up to `most` items."""

    def __init__(self, name: str, function: Callable[..., Any], most: int, wait: float) -> None:
        self.name = name
        self.function = function
        self.most = most
        self.wait = wait
        self._open: WeakKeyDictionary[AbstractEventLoop, ChunkBatch] = WeakKeyDictionary()

    async def __call__(self, item: Any) -> Any:
        gathering, outcome = self._join(item)
        try:
            return await outcome
        except asyncio.CancelledError:
            self._leave(gathering, outcome)
            raise

    def _join(self, item: Any) -> tuple[ChunkBatch, Future[Any]]:
        loop = asyncio.get_running_loop()
        gathering = self._open.get(loop)
        if gathering is None:
            gathering = self._open[loop] = ChunkBatch()
            gathering.task = loop.create_task(self._run(loop, gathering))
        outcome: Future[Any] = loop.create_future()
        gathering.items.append(item)
        gathering.jobs.append(running.get())
        gathering.outcomes.append(outcome)
        if len(gathering.items) >= self.most:
            del self._open[loop]
            gathering.full.set()
        return gathering, outcome

    def _leave(self, gathering: ChunkBatch, outcome: Future[Any]) -> None:
        """Drop a cancelled job: leave it out of the call, or ignore its result.

        If no job of the batch is left, cancel the call too.
        """
        outcome.cancel()
        if gathering.task is not None and all(each.cancelled() for each in gathering.outcomes):
            gathering.task.cancel()
            loop = asyncio.get_running_loop()
            if self._open.get(loop) is gathering:
                del self._open[loop]

    async def _run(self, loop: AbstractEventLoop, gathering: ChunkBatch) -> None:
        try:
            async with asyncio.timeout(self.wait):
                await gathering.full.wait()
        except TimeoutError:
            if self._open.get(loop) is gathering:
                del self._open[loop]
        async with self._tokens(gathering):
            await self._run_together(gathering)

    @staticmethod
    def _tokens(gathering: ChunkBatch) -> AbstractAsyncContextManager[None]:
        """The tokens of the call, if its task holds resources of the host."""
        lease = next((job.lease for job in gathering.jobs if job is not None and job.lease is not None), None)
        return nullcontext() if lease is None else lease.task.call(job for job in gathering.jobs if job)

    async def _run_together(self, gathering: ChunkBatch) -> None:
        wanted = [n for n, outcome in enumerate(gathering.outcomes) if not outcome.cancelled()]
        outcomes = [gathering.outcomes[n] for n in wanted]
        running.set(None)
        _together.set([job for n in wanted if (job := gathering.jobs[n]) is not None])
        try:
            results = self._checked(await self._call([gathering.items[n] for n in wanted]), len(wanted))
        except AlreadyDone:
            results = [None] * len(wanted)
        except (Exception, asyncio.CancelledError) as error:
            results = [error] * len(wanted)
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            results = [RuntimeError(f"the task raised {error!r}")] * len(wanted)
        for outcome, result in zip(outcomes, results, strict=True):
            if outcome.done():
                continue
            if isinstance(result, asyncio.CancelledError):
                outcome.set_exception(RuntimeError(f"something it waited for was cancelled: {result}"))
            elif isinstance(result, StopIteration):  # no future can carry it
                outcome.set_exception(RuntimeError(f"the task raised {result!r}"))
            elif isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    async def _call(self, items: list[Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(items)
        jobs = _together.get([])
        return await asyncio.to_thread(self._in_thread, items, jobs)

    def _in_thread(self, items: list[Any], jobs: list[RunningJob]) -> Any:
        for job in jobs:
            job.in_thread = True
        try:
            if jobs and all(job.stopped for job in jobs):
                return None
            return self.function(items)
        except StopIteration as error:  # no future can carry it
            raise RuntimeError("the task raised StopIteration") from error
        finally:
            for job in jobs:
                job.in_thread = False

    def _checked(self, results: Any, many: int) -> list[Any]:
        if results is None:
            return [None] * many
        if not isinstance(results, list | tuple) or len(results) != many:
            raise TypeError(
                f'task "{self.name}": returned {type(results).__name__} for {many} jobs; '
                "return None, or a list with one result for each"
            )
        return list(results)


def jobs_running_here() -> list[RunningJob]:
    """The jobs whose task is running now, in the order of their chunk; none outside of a task."""
    job = running.get()
    return [job] if job is not None else _together.get([])


def current_jobs() -> list[CurrentJob]:
    """The jobs that the running task handles: those of a chunk in the order of its list, or a single one."""
    if running.get() is not None:
        return [current_job()]
    jobs = []
    for job in _together.get([]):
        token = running.set(job)
        try:
            jobs.append(current_job())
        finally:
            running.reset(token)
    return jobs or [current_job()]
