"""Queue: declare tasks and schedules, look at jobs, and operate the queue. produce/ enqueues jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from qbull import manage
from qbull.config import QueueSettings
from qbull.core.demand import AskedLabels, AskedResources
from qbull.core.hints import QueueHints
from qbull.core.ids import check_id
from qbull.core.job_info import JobInfo
from qbull.core.limits import LimitArgument
from qbull.core.record import STATES, State
from qbull.core.schedule_rule import ScheduleOptions, ScheduleRule
from qbull.core.task import TaskSpec, in_notebook
from qbull.errors import MAX_COUNT, ConfigError, DeclarationError
from qbull.events import Event, follow_events
from qbull.job import Job
from qbull.manage.payloads import QueuePayloads
from qbull.produce.enqueue import Producer
from qbull.store.read.inspect import Counts, StoredJob, counts
from qbull.store.read.pages import page
from qbull.store.verbs.live_settings import LiveSettingChange, LiveSettings, is_paused
from qbull.store.verbs.partition import Partition
from qbull.task import AsyncTask, DeclareChunk, DeclareTask, PlainTask, Task, TaskDeclaration, TaskSettings
from qbull.worker.chunk_signature import DEFAULT_CHUNK_WAIT_SECONDS

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.core.job_filter import JobFilterArguments
    from qbull.manage.live_settings import LiveSettingValues
    from qbull.manage.search import FailureGroup, Page, Redriven
    from qbull.store.read.drain_status import Repartitioning

P = ParamSpec("P")
R = TypeVar("R")


class Queue(QueueHints):
    """A named queue with settings. Made by `app.queue(…)`."""

    def __init__(self, app: App, settings: QueueSettings) -> None:
        self.app: App = app
        self.settings = settings
        self.limit: LimitArgument | None = None
        self.labels: AskedLabels | None = None
        self.resources: AskedResources | None = None
        self.tasks: dict[str, TaskSpec] = {}
        self._producer = Producer(self)
        self._payloads = QueuePayloads(self)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.settings.name

    # Declare tasks and schedules.

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, /, *, cpu: bool = False, **settings: Unpack[TaskSettings]) -> DeclareTask: ...
    @overload
    def task(
        self,
        /,
        *,
        chunk: int,
        wait: float = DEFAULT_CHUNK_WAIT_SECONDS,
        **settings: Unpack[TaskSettings],
    ) -> DeclareChunk: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        cpu: bool = False,
        chunk: int | None = None,
        wait: float = DEFAULT_CHUNK_WAIT_SECONDS,
        **settings: Unpack[TaskSettings],
    ) -> Any:
        """Register a function as a task: `@queue.task`, or `@queue.task(retry=…)`.

        Args:
            function: the function, if the decorator is used without parentheses.
            name: the name of the task, instead of the name of the function.
            id: a template of the job's id over the arguments ("verify:{user_id}"), or a function of them.
            key: a template of the job's key over the arguments, or a function of them.
            retry: the retry policy, instead of that of the queue.
            timeout: seconds that one run may take, instead of that of the queue.
            unique: which one counts of several calls that ask for the same thing.
            expires: seconds within which a job must start; if it does not, it is cancelled.
            durable: record steps, so that a job that runs again continues where it stopped.
            limit: the shared limits that its jobs use, instead of those of the queue.
            labels: the labels that a worker must have, instead of those of the queue.
            resources: the tokens of the host that a job holds while it runs, instead of those of the queue.
            enc_hook: turns a value of another type into plain data, before that of the app.
            dec_hook: makes a value of an annotated type from plain data, before that of the app.
            cpu: run the function in a process of its own.
            chunk: the function takes a list; one call of it runs up to this number of jobs.
            wait: seconds that a chunk waits for more jobs.
        """
        declare = partial(TaskDeclaration.of(cpu=cpu, chunk=chunk, wait=wait, **settings).declare, self)
        return declare if function is None else declare(function)

    def cron(
        self,
        expression: str | None = None,
        /,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        **rule: Unpack[ScheduleOptions],
    ) -> DeclareTask:
        """Run a task by a schedule: `@queue.cron("0 9 * * *", tz="Europe/Berlin")`, or `every=` seconds.

        On a function, it makes a task of the same name. On a task, with `args`, it can be used several times.

        Args:
            expression: five fields, or six with seconds first; or None with `every`.
            name: the name of the schedule, instead of the name of the task.
            args: the arguments of the runs, by name.
            every: seconds between two runs, instead of an expression.
            tz: the time zone of the expression. If None: TZ, else UTC.
            catch_up: which missed runs are made up for: "skip" (none), "one" (the latest) or "all".
            catch_up_limit: maximum number of missed runs that are made up for.
            overlap: whether a run starts if the one before has not ended: "allow" or "skip".
            jitter: maximum random delay of a run, in seconds.
            start: no run before this time.
            end: no run after this time.
        """

        def declare(function: Callable[..., Any]) -> Any:
            task = function if isinstance(function, Task) else self.task(name=name)(function)
            schedule = task.schedule(name or task.name, ScheduleRule(expression, **rule), args or {})
            if schedule.name in self.app.declared and not in_notebook():
                raise DeclarationError(
                    f'schedule "{schedule.name}": declared twice; give one of them another name=…'
                )
            self.app.declared[schedule.name] = schedule
            return task

        return declare

    # Look at jobs.

    def job(self, id: str) -> Job[Any]:
        """The handle of a job.

        Args:
            id: the id of the job.
        """
        return Job(check_id(id), False, self)

    async def jobs(self, state: State, start: int = 0, end: int = 10) -> list[JobInfo]:
        """Jobs in one state: finished ones the newest first, others in the order in which they will run.

        Args:
            state: waiting, delayed, active, completed, failed or cancelled.
            start: the position of the first job, counted from 0.
            end: the position after the last job; at most 1,000 after `start`.
        """
        if state not in STATES:
            raise ConfigError(f"state {state!r}: use one of {', '.join(STATES)}")
        if not 0 <= start <= end <= MAX_COUNT or end - start > 1000:
            raise ConfigError(f"jobs from {start} to {end}: give 0 <= start <= end, at most 1,000 at a time")
        return [self._info(job) for job in await page(await self._partitions(), state, start, end)]

    async def search(
        self,
        state: State = "failed",
        *,
        limit: int = 50,
        cursor: str | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> Page:
        """Search the jobs in one state, in pages: finished ones the newest first, others in no order.

        Args:
            state: waiting, delayed, active, completed, failed or cancelled.
            limit: maximum number of jobs in the page, up to 1,000.
            cursor: the `next` of the page before.
            filters: `task`, `key`, `error_contains`, `fingerprint`, `payload`, `after`, `before` and `query`.
        """
        return await manage.search.search(self, state, limit, cursor, manage.search.filter_of(filters))

    async def failures(
        self, *, scan: int = 10_000, **filters: Unpack[JobFilterArguments]
    ) -> list[FailureGroup]:
        """Group the newest dead letters by the reason of their failure.

        Args:
            scan: how many dead letters to look at.
            filters: as in `search`.
        """
        return await manage.search.failures(self, scan, manage.search.filter_of(filters))

    async def redrive(
        self,
        *,
        limit: int | None = None,
        rate: float | None = None,
        patch: Mapping[str, Any] | None = None,
        on_step: Callable[[Redriven], object] | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> int:
        """Retry dead letters, the oldest first. Returns how many. Jobs that fail meanwhile are left out.

        If it is interrupted, call it again to continue.

        Args:
            limit: maximum number of jobs.
            rate: maximum number of jobs per second.
            patch: changes of the arguments, as a JSON merge patch: {"amount": 6} sets an argument, None
                deletes one. They are checked like a call; a job that they do not fit stays a dead letter.
            on_step: called with the progress after each batch.
            filters: as in `search`.
        """
        return await manage.search.redrive(
            self, limit, rate, on_step, manage.search.filter_of(filters), patch
        )

    async def clean(
        self,
        state: State,
        *,
        older_than: float = 0.0,
        limit: int | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> int:
        """Delete finished jobs. Returns how many.

        Args:
            state: completed, failed or cancelled.
            older_than: seconds that must have passed since the job ended.
            limit: maximum number of jobs.
            filters: as in `search`.
        """
        return await manage.search.clean(self, state, older_than, limit, manage.search.filter_of(filters))

    async def cancel(
        self,
        state: State = "waiting",
        *,
        reason: str = "cancelled",
        limit: int | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> int:
        """Cancel jobs that have not ended. Returns how many. Workers are asked to stop the running ones.

        Args:
            state: waiting, delayed or active.
            reason: the error of the cancelled jobs.
            limit: maximum number of jobs.
            filters: as in `search`.
        """
        return await manage.search.cancel(self, state, reason, limit, manage.search.filter_of(filters))

    async def purge(
        self,
        state: State = "waiting",
        *,
        limit: int | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> int:
        """Delete jobs that have not started, permanently. Returns how many.

        Args:
            state: waiting or delayed.
            limit: maximum number of jobs.
            filters: as in `search`.
        """
        return await manage.search.purge(self, state, limit, manage.search.filter_of(filters))

    async def reschedule(
        self,
        state: State = "delayed",
        *,
        delay: float | None = None,
        at: datetime | None = None,
        limit: int | None = None,
        **filters: Unpack[JobFilterArguments],
    ) -> int:
        """Change when jobs may run that have not started. Returns how many were changed.

        Args:
            state: waiting or delayed.
            delay: seconds from now; 0 lets them run now.
            at: a time, with a time zone.
            limit: maximum number of jobs.
            filters: as in `search`.
        """
        when = {"delay": delay, "at": at}
        return await manage.search.reschedule(self, state, when, limit, manage.search.filter_of(filters))

    def events(self, after: str | datetime | None = None) -> AsyncGenerator[Event, None]:
        """The jobs that end: `async for event in queue.events()`.

        Args:
            after: the `place` of an event, or a time, to start from; from now on if None.
        """
        return follow_events(self.app._client(), [self.settings], after)

    async def stats(self) -> Counts:
        """Count the jobs in each state, over all partitions."""
        client = self.app._client()
        found = await counts(await client.router.partitions(self.settings))
        paused = await is_paused(client.store, self.name)
        total = sum(found[1:], found[0])
        return replace(total, paused=paused, totals=client.router.totals(self.settings, total.totals))

    # Operate the queue.

    async def pause(self, *, wait: float | None = None, by: str | None = None) -> None:
        """Start no more jobs until `resume`. Running jobs end normally.

        Args:
            wait: seconds to wait until no job is running; then raises ResultTimeout.
            by: who does it, for the history of changes; user@host if None.
        """
        await manage.live_settings.pause(self, by, wait)

    async def resume(self, *, by: str | None = None) -> None:
        """Continue after `pause`, or after a task has paused the whole queue.

        Args:
            by: who does it.
        """
        await manage.live_settings.resume(self, by)

    async def configure(self, *, by: str | None = None, **settings: Unpack[LiveSettingValues]) -> None:
        """Change settings for all workers until `reset`. They override the code.

        Args:
            by: who does it.
            concurrency: jobs that one worker runs at a time.
            max_active: jobs that run at a time in all workers; None for no limit.
            rate: jobs that start in a period, in all workers; None for no limit.
            retry: the retry policy of all tasks.
            timeout: seconds that one run of any task may take; None for no limit.
            keep: how long finished jobs stay.
        """
        await manage.live_settings.configure(self, settings, by)

    async def reset(self, *settings: str, by: str | None = None) -> None:
        """Return to the settings of the code. A paused queue stays paused.

        Args:
            settings: names of settings; all of them if none is given.
            by: who does it.
        """
        await manage.live_settings.reset(self, settings, by)

    async def live(self) -> LiveSettings:
        """The settings in force, and who changed which of them."""
        return await manage.live_settings.read(self)

    async def changes(self) -> list[LiveSettingChange]:
        """The last 100 changes of settings, the newest first."""
        return await manage.live_settings.history(self)

    async def repartition(self, partitions: int) -> None:
        """Change the number of partitions. New jobs use it when this returns; workers move the others.

        No job is lost, and the jobs of a key keep their order. It can be called again at any time.

        Args:
            partitions: the new number.
        """
        await manage.repartition.repartition(self, partitions)

    async def repartitioning(self) -> Repartitioning | None:
        """The progress of a change of the number of partitions; None if there is none."""
        return await manage.repartition.status(self)

    # For the other modules of qbull.
    async def _partitions(self) -> list[Partition]:
        client = self.app._client()
        await client.store.open()
        return await client.router.partitions(self.settings)

    def _info(self, job: StoredJob) -> JobInfo:
        return job.info(self.name, self._attempts_of(job.body().task))

    def _attempts_of(self, task: str) -> int:
        """The maximum number of attempts of a task's jobs."""
        spec = self.tasks.get(task)
        return spec.retry.attempts if spec is not None else self.settings.retry.attempts
