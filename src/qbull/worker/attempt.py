"""Attempt: one run of one job, from its bytes to its outcome.

A run is a pipeline: read the record, find the task, decode the arguments, check whether the job may start,
call the task, record the outcome. Whatever a job contains or does ends here, as an outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from qbull.codecs.chain import ArgumentsElsewhere
from qbull.codecs.offload import StoredResult
from qbull.core.flow import HAS_DEPENDENCIES_FLAG
from qbull.core.outcome import ContinuedAs, Suspended, Undeliverable
from qbull.core.record import UnreadableRecord, body_of, crashes_of
from qbull.core.task import TaskSpec
from qbull.errors import ServerAway, ServerError
from qbull.store.delivery import DeliveredJob
from qbull.store.verbs.live_settings import LiveSetting, LiveSettings
from qbull.worker.actor import ACTOR_RESTART_SECONDS
from qbull.worker.assignment import Assignment
from qbull.worker.call import TaskCaller
from qbull.worker.cancel import CancelMarks
from qbull.worker.cpu_pool import StartPostponed
from qbull.worker.current import RunningJob, running
from qbull.worker.decode import CallArguments, CallDecoder
from qbull.worker.dependencies import DependencyLoader
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.history import HistoryKeeper
from qbull.worker.hung import HungFunctions
from qbull.worker.job_log import log_start, logs_jobs
from qbull.worker.limited_jobs import LimitedJobs, LimitReached
from qbull.worker.limiter import Limiter
from qbull.worker.outcome import OutcomeRecorder
from qbull.worker.parking import CodeMismatch, ParkedJobs
from qbull.worker.process.crash_board import CrashBoard
from qbull.worker.progress import ProgressWriter
from qbull.worker.resource_jobs import ResourcesBusy
from qbull.worker.slot import Cancelled, Deadlines, Interrupted, Slot, TimedOut
from qbull.worker.stack_report import StackReporter
from qbull.worker.timely_start import TimelyStart
from qbull.worker.wiring import WorkerWiring

MAX_TRAIN_SECONDS = 0.25
"""Seconds after which a train gives way: its rest goes to the end of the queue, behind other keys."""
STILL_RUNNING_RETRY_MS = 1000
"""Milliseconds by which a job is put off whose earlier run has not ended in this process."""


class AttemptRunner:
    """For one queue. The slot runner keeps `slots`.

    Args:
        wiring: The services of the worker.
        assignment: The queue, its tasks, and the middleware around them.
        deliveries: Releases the rest of a delivery, and has the settlers.
        limiter: Grants starts if the queue has a rate limit.
        progress: Writes the progress and the log lines of running jobs.
        outcomes: Records the outcome of each run.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        assignment: Assignment,
        deliveries: HeldDeliveries,
        limiter: Limiter,
        progress: ProgressWriter,
        outcomes: OutcomeRecorder,
    ) -> None:
        settings = assignment.settings
        self.parked = ParkedJobs(wiring, assignment, deliveries)
        self._queue = settings.name
        self._suspect_crashes = settings.suspect_crashes
        self._tasks = assignment.runnable
        self._deliveries = deliveries
        self._settlers = deliveries.settlers
        self._limiter = limiter
        self._progress = progress
        self._outcomes = outcomes
        self._histograms = outcomes.histograms
        self._outage = wiring.outage
        self._isolation = wiring.isolation
        self._crash_board = wiring.crash_board
        self._suspects = wiring.link.suspects if wiring.link is not None else None
        # The quarantine process leaves the jobs behind a suspect to others.
        quarantined = wiring.link is not None and self._suspects is None
        self._max_train_seconds = 0.0 if quarantined else MAX_TRAIN_SECONDS
        self.limited = LimitedJobs(wiring, assignment, deliveries)
        self._timely_start = TimelyStart(wiring, settings, deliveries, limiter, self.limited)
        self._load_dependencies = DependencyLoader(assignment.results, assignment.codecs, wiring.outage)
        self._debug = assignment.debug
        self._has_limits = False
        self._live_timeout: LiveSetting | None = None
        self._marks: CancelMarks = {}
        self._tracing = assignment.tracing
        self._decoder = CallDecoder(assignment)
        self._caller = TaskCaller(assignment)
        self._call = self._caller.within_hooks if assignment.middleware.around_run else self._caller.__call__
        self._histories = HistoryKeeper(wiring, assignment, self._caller.in_thread)
        self._left_behind: list[RunningJob] = []
        """Jobs whose plain functions still run although nobody waits for them any more."""
        self.slots: list[Slot] = []
        self._deadlines = Deadlines(self.slots)
        self.stacks = StackReporter(wiring.worker, self.slots)
        self.hung = HungFunctions(wiring, self._queue, deliveries, limiter)

    def apply_settings(self, live: LiveSettings) -> None:
        """Apply the retry policy and the timeout, and whether jobs need a start check."""
        self._outcomes.apply_settings(live)
        self._live_timeout = live.changed.get("timeout")
        self._has_limits = self._timely_start.check.rate is not None or self._limiter.has_rate

    def check_logging(self) -> None:
        """Look whether the application's logging wants to hear of each job."""
        self._outcomes.logs_jobs = logs_jobs()

    def resize(self, concurrency: int) -> None:
        """Change how many jobs run at a time."""
        self._caller.resize(concurrency)

    async def close(self) -> None:
        self._deadlines.close()
        await self.stacks.close()
        self.parked.resources.close()
        await self._histories.close()
        await self.hung.close()
        await self._caller.close()

    def running(self) -> list[RunningJob]:
        """The jobs whose tasks are running."""
        return [slot.job for slot in self.slots if slot.job is not None]

    def cancel(self, marks: CancelMarks) -> None:
        """Stop these jobs. A plain function cannot be interrupted: it can ask `current_job().cancelled`."""
        self._marks = marks
        for slot in self.slots if marks else ():
            job = slot.job
            if job is None or job.partition is None or job.cancelled is not None:
                continue
            job.cancelled = marks.get((job.partition.number, job.position, job.id))
            if job.cancelled is not None:
                job.stopped = True
                if self._tasks[job.body.task].kind != "thread":
                    slot.interrupt(Cancelled(job.cancelled))

    async def run(self, slot: Slot, delivered: DeliveredJob) -> bool:
        """Run one job. Returns whether its delivery ends with it."""
        delivery, record = delivered.delivery, delivered.record
        task: TaskSpec | None = None
        job: RunningJob | None = None
        started = time.perf_counter()
        try:
            body = body_of(record)
            job = RunningJob(
                self._queue, delivery.position, delivered.id, record, body, delivery.partition, delivery.lane,
                self._progress,
            )  # fmt: skip
            task = self._tasks.get(body.task)
            if task is None:
                self._decoder.refuse(body.task)
            try:
                args, kwargs = self._decoder.arguments(task, job)
            except ArgumentsElsewhere as elsewhere:
                args, kwargs = await self._decoder.load(task, job, elsewhere)
            if self._left_behind and self._still_runs_here(job):
                # Another worker may run it; here it would run twice at the same time.
                return self._settlers[delivery.partition.number].postpone(delivered, STILL_RUNNING_RETRY_MS)
            if task.durable:
                job.durable = await self._histories.open(delivered, job, slot)
            if record[2] & HAS_DEPENDENCIES_FLAG:
                job.dependencies = await self._load_dependencies(job)
            crashes = crashes_of(record)
            if not crashes or not self._is_suspect(crashes):
                if self._isolation.closed:
                    await self._isolation.opened()
                if self._has_limits or body.expires or task.limits or task.demand.resources:
                    result = await self._attempt_in_time(slot, delivered, job, task, (args, kwargs))
                else:
                    result = await self._attempt(slot, delivery.partition.number, job, task, args, kwargs)
            else:
                result = await self._attempt_alone(slot, delivered, job, task, (args, kwargs))
            if result is None:  # It was not started.
                return True
            if job.durable is not None:
                job.durable.ended()
        except (Interrupted, Suspended, ContinuedAs) as why:
            if job is not None and job.has_output and isinstance(why, ContinuedAs):
                await self._hear_out(slot, job)
            return self._outcomes.interrupted(delivered, job, why, started)
        except CodeMismatch as mismatch:
            fail = partial(self._outcomes.failed, delivered, job, task, started=started)
            return await self.parked.park(delivered, mismatch, fail)
        except Exception as error:
            return await self._failed(slot, delivered, job, task, error, started)
        finally:
            if job is not None:
                job.close_run()
        if job.has_output:
            await self._hear_out(slot, job)
        if job.cancelled is not None:
            return self._outcomes.cancelled(delivered, job, job.cancelled, started)
        give_way = bool(delivery.lane) and time.perf_counter() - slot.since > self._max_train_seconds
        return self._outcomes.completed(delivered, job, result, started, give_way=give_way)

    async def _failed(
        self,
        slot: Slot,
        delivered: DeliveredJob,
        job: RunningJob | None,
        task: TaskSpec | None,
        error: Exception,
        started: float,
    ) -> bool:
        """Settle a job whose run has raised. Returns whether its delivery ends with it."""
        if isinstance(error, LimitReached):
            return self.limited.park(delivered, error.share)
        if isinstance(error, ResourcesBusy) and task is not None:
            return self.parked.park_for_tokens(delivered, task.name)
        if isinstance(error, StartPostponed):
            return self._settlers[delivered.delivery.partition.number].postpone(delivered, error.delay_ms)
        if isinstance(error, UnreadableRecord):
            error = Undeliverable(str(error))
        if job is None:
            return self._outcomes.failed(delivered, job, task, error, started)
        if job.durable is not None:
            if job.durable.suspended is not None:
                return self._outcomes.suspended(delivered, job, job.durable.suspended, started)
            if job.durable.continued is not None:
                return self._outcomes.continued(delivered, job, job.durable.continued, started)
            error = await self._histories.failed(job.durable, slot, error)
        if job.has_output:
            await self._hear_out(slot, job)
        if job.cancelled is not None:
            return self._outcomes.cancelled(delivered, job, job.cancelled, started)
        if job.in_thread and isinstance(error, TimedOut):
            fail = partial(self._outcomes.failed, delivered, job, task, error, started)
            return await self._outlived(job, delivered, fail)
        return self._outcomes.failed(delivered, job, task, error, started)

    def _is_suspect(self, crashes: int) -> bool:
        """Whether a job with so many crashes may run beside others only in the quarantine process, or not
        at all.
        """
        cautious = self._suspects is not None and self._suspects.cautious
        return crashes >= (1 if cautious else self._suspect_crashes)

    async def _outlived(self, job: RunningJob, delivered: DeliveredJob, fail: Callable[..., bool]) -> bool:
        """A plain function runs on after its timeout: go on with a fresh thread, unless too many do."""
        ends = self.hung.add(job, delivered, fail)
        self._caller.resize(len(self.slots))
        await self.hung.room(len(self.slots))
        return ends

    async def _hear_out(self, slot: Slot, job: RunningJob) -> None:
        """Write a job's last progress and log lines before its outcome, unless the worker cannot wait."""
        try:
            await self._progress.flush(job)
        except asyncio.CancelledError:
            if slot.take_interrupt() is None:
                raise

    async def _attempt_alone(
        self, slot: Slot, delivered: DeliveredJob, job: RunningJob, task: TaskSpec, call: CallArguments
    ) -> bytes | StoredResult | None:
        """Run a suspect while nothing else runs, and mark it first. Returns None if it was not started.

        An ordinary process of `qbull worker` leaves it to the quarantine process instead.

        If the server does not take the mark, the job waits outside of the isolation, or all others would wait
        too.
        """
        delivery = delivered.delivery
        if self._suspects is not None:
            self._deliveries.hand_over(delivery, crashes_of(delivered.record), job.body.task)
            return None
        id, partition = delivered.id, delivery.partition
        while True:
            async with self._isolation.alone():
                try:
                    is_ours = await partition.mark_isolated(id, delivery.position)
                except ServerAway:
                    is_ours = None
                except ServerError as refusal:
                    self._outage.failed(refusal, self)
                    is_ours = None
                if is_ours:
                    return await self._attempt_in_time(slot, delivered, job, task, call)
            if is_ours is None:
                holds = partial(partition.holds, id, delivery.position, delivery.lane)
                is_ours = await self._outage.retry_until_up(holds)
            if not is_ours:
                self._deliveries.release_rest(delivery)
                return None
            await asyncio.sleep(ACTOR_RESTART_SECONDS)

    async def _attempt_in_time(
        self, slot: Slot, delivered: DeliveredJob, job: RunningJob, task: TaskSpec, call: CallArguments
    ) -> bytes | StoredResult | None:
        """Take the tokens and check the limits of a job before it runs, again if it then starts too late.

        Returns None if it was not started.
        """
        attempt = partial(self._attempt, slot, delivered.delivery.partition.number, job, task, *call)
        if not task.demand.resources:
            return await self._timely_start.run(delivered, job, task, call, attempt)
        await self.parked.resources.take(delivered, job, task)
        try:
            return await self._timely_start.run(delivered, job, task, call, attempt)
        finally:
            self.parked.resources.end(job)

    async def _attempt(
        self,
        slot: Slot,
        number: int,
        job: RunningJob,
        task: TaskSpec,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> bytes | StoredResult:
        """Call the task, with its timeout, and make the job visible as the current job meanwhile."""
        if self._marks:
            self._refuse_cancelled(number, job)
        if (timeout := job.body.timeout) is None:
            timeout = task.timeout if (live := self._live_timeout) is None else live.value
        if timeout is not None and not self._debug:
            self._deadlines.limit(slot, timeout)
            if task.kind == "process":
                job.without_timeout = partial(self._deadlines.suspended, slot)
        if self._crash_board is not None:
            self._show_on_board(self._crash_board, slot.number, number, job, task)
        token = running.set(job)
        slot.job = job
        self._isolation.busy += 1
        try:
            self._histograms.started += 1
            if self._tracing is None:
                if self._outcomes.logs_jobs:
                    log_start(job)
                result = await self._call(task, args, kwargs, job)
            else:
                body, id = job.body, job.id.decode("utf-8", "replace")
                with self._tracing.process(
                    job.queue, body.task, id, body.attempt, body.trace
                ) as job.trace_id:
                    log_start(job)
                    result = await self._call(task, args, kwargs, job)
        except asyncio.CancelledError as cancelled:
            job.stopped = True
            # The error has no name here: its traceback holds this frame, and the cycle would stay for long.
            raise slot.take_interrupt() or RuntimeError(
                f"it or something it waited for was cancelled: {cancelled}"
            ) from cancelled
        except Exception:
            if slot.why is not None:
                job.stopped = True
                if isinstance(await slot.take_late_interrupt(), Interrupted):
                    # It may have failed because of the interruption.
                    raise Interrupted from None
            raise
        finally:
            self._isolation.left()
            if job.in_thread:
                self._left_behind.append(job)
            running.reset(token)
            if self._crash_board is not None:
                self._crash_board.end(slot.number)
            slot.job = slot.deadline = None
        if slot.why is not None:
            await slot.take_late_interrupt()
        return result

    def _still_runs_here(self, job: RunningJob) -> bool:
        """Whether a plain function still runs for this job in this process: its timeout did not stop it."""
        self._left_behind = [left for left in self._left_behind if left.in_thread]
        return any(left.id == job.id for left in self._left_behind)

    def _show_on_board(
        self, board: CrashBoard, slot: int, number: int, job: RunningJob, task: TaskSpec
    ) -> None:
        """Tell the supervisor what runs. A job whose function has not started is not to blame for a crash."""
        text = b"%s %d %s" % (job.queue.encode(), number, job.position)
        if task.kind == "thread":
            job.thread_started = partial(board.start, slot, text)
            return
        board.start(slot, text)
        if task.kind == "process":
            job.process_started = partial(board.in_process, slot)

    def _refuse_cancelled(self, number: int, job: RunningJob) -> None:
        """Do not start a job that was cancelled after its delivery."""
        job.cancelled = self._marks.get((number, job.position, job.id))
        if job.cancelled is not None:
            raise Cancelled(job.cancelled)
