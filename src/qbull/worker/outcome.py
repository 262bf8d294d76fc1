"""Outcomes: turn the result or the error of a task into the outcome that the settler writes."""

from __future__ import annotations

import logging
import os
import time
from types import TracebackType

import msgspec

from qbull.codecs.offload import StoredResult
from qbull.core.histograms import Histograms
from qbull.core.outcome import ContinuedAs, Delay, Suspended, Undeliverable, decide
from qbull.core.record import Attempt, Body, Ending, append_ending, repack, with_attempt
from qbull.core.retry import Retry, retry_in
from qbull.core.schedule_runs import EndedRun
from qbull.core.stacktrace import format_stacktrace
from qbull.core.task import TaskSpec
from qbull.errors import RetryAfter
from qbull.middleware import RunEnd, Settled
from qbull.store.delivery import DeliveredJob
from qbull.store.verbs.live_settings import LiveSettings
from qbull.worker.assignment import Assignment
from qbull.worker.cpu_pool import ProcessDied, RemoteError, RemoteFail
from qbull.worker.current import RunningJob, entry_ms
from qbull.worker.failure_counts import FailureCounter
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.hung import OutcomeHolder
from qbull.worker.job_log import log_end, log_failure
from qbull.worker.live_settings import LiveSettingsFollower
from qbull.worker.schedule_runs import EndedRuns
from qbull.worker.settle import Settler
from qbull.worker.slot import Interrupted, TimedOut

log = logging.getLogger("qbull.worker")

_WORKER_DIRECTORY = os.path.dirname(__file__)


class OutcomeRecorder:
    """For one queue. Each outcome goes to the settler of the job's partition.

    Its methods return whether the job's delivery ends with this outcome.

    Args:
        assignment: The queue, and the middleware that is told of every settled run.
        worker: The id of this worker, which is stored with every outcome.
        deliveries: Has the settlers.
        live_settings: Holds the whole queue if a task asks for that.
        histograms: Counts how long jobs wait and run.
        failures: Counts failed attempts for alerts; None if the queue raises none.
    """

    def __init__(
        self,
        assignment: Assignment,
        worker: str,
        deliveries: HeldDeliveries,
        live_settings: LiveSettingsFollower,
        histograms: Histograms,
        failures: FailureCounter | None,
    ) -> None:
        self._settings = assignment.settings
        self._worker = worker
        self._settlers = deliveries.settlers
        self._live_settings = live_settings
        self._failures = failures
        self._retry: Retry | None = None
        middleware = assignment.middleware
        self._on_settled = middleware.tell if middleware.settled else None
        self.histograms = histograms
        self.ended_runs = EndedRuns()
        self._last_position, self._last_entered = b"", 0
        self.logs_jobs = True
        """Whether start and end of each job are logged. It saves two questions for each job."""

    def apply_settings(self, live: LiveSettings) -> None:
        """A retry policy in the live settings replaces those of the tasks."""
        self._retry = live.settings.retry if "retry" in live.changed else None

    def completed(
        self,
        delivered: DeliveredJob,
        job: RunningJob,
        result: bytes | StoredResult,
        started: float,
        *,
        give_way: bool,
    ) -> bool:
        """Settle a job as completed. With `give_way` the rest of its train is released."""
        delivery, body = delivered.delivery, job.body
        ended = time.perf_counter()
        duration = (ended - started) * 1000
        if delivery.position is not self._last_position:  # The jobs of a train share it.
            self._last_position, self._last_entered = delivery.position, entry_ms(delivery.position)
        entered = self._last_entered
        self.histograms.ended(body.task, started, ended, entered)
        if self.logs_jobs:
            log_end(job, "completed", ended - started)
        created = 0 if delivered.record[4] else entered
        if isinstance(result, StoredResult):
            ending = Ending(body.attempt, duration, self._worker, None, None, None, created, result.reference)
        else:
            ending = Ending(body.attempt, duration, self._worker, result, None, None, created)
        packed = append_ending(ending)
        if body.schedule is not None:
            self._ended_run(delivered, body.schedule, "c", duration)
        if self._on_settled is not None:
            self._on_settled(self._settled(delivered, body, "completed", time.perf_counter() - started))
        return self._settlers[delivery.partition.number].done(delivered, packed, give_way=give_way)

    def failed(
        self,
        delivered: DeliveredJob,
        job: RunningJob | None,
        task: TaskSpec | None,
        error: Exception,
        started: float,
        settler: Settler | OutcomeHolder | None = None,
    ) -> bool:
        """Settle a job as delayed, or as dead if it may not run again."""
        delivery = delivered.delivery
        settler = settler or self._settlers[delivery.partition.number]
        ended = time.perf_counter()
        duration = ended - started
        if task is not None:
            self.histograms.ended(task.name, started, ended, entry_ms(delivery.position))
        body = job.body if job is not None else Body(task="?", payload=b"")
        retry = self._retry or (task.retry if task is not None else self._settings.retry)
        if job is not None and job.body.headers:
            retry = self._retry or retry_in(job.body.headers) or retry
        outcome = decide(error, body.attempt, body.attempts or retry.attempts, retry)
        stacktrace = _stacktrace_of(error)
        who = (self._settings.name, delivered.id.decode("utf-8", "replace"), body.task)
        if isinstance(error, RetryAfter) and error.queue and error.delay > 0:
            self._live_settings.hold(error.delay, f"job {who[1]} ({body.task}): {outcome.error}")
        if self._failures is not None and not isinstance(error, RetryAfter):
            self._failures.failed(body.task if task is not None else "?", who[1], outcome.error)
        if isinstance(outcome, Delay):
            text = 'queue "%s": job %s (%s) failed and runs again in %.3g s: %s'
            shown = (*who, outcome.seconds, outcome.error)
            log_failure(logging.INFO, text, shown, error, stacktrace, job)
            if job is not None:
                log_end(job, "retry", duration)
            if self._on_settled is not None:
                self._on_settled(
                    self._settled(delivered, body, "delayed", duration, outcome.error, outcome.seconds)
                )
            again = repack(delivered.record, self._next(body, outcome.error, duration, stacktrace))
            return settler.delay(delivered, again, int(outcome.seconds * 1000))
        text = 'queue "%s": job %s (%s) failed permanently: %s'
        log_failure(logging.ERROR, text, (*who, outcome.error), error, stacktrace, job)
        if job is not None:
            log_end(job, "failed", duration)
        if self._on_settled is not None:
            self._on_settled(self._settled(delivered, body, "failed", duration, outcome.error))
        if job is not None and job.body.schedule is not None:
            self._ended_run(delivered, job.body.schedule, "f", duration * 1000)
        ending = Ending(body.attempt, duration * 1000, self._worker, None, outcome.error, stacktrace)
        return settler.dead(delivered, append_ending(ending))

    def cancelled(self, delivered: DeliveredJob, job: RunningJob, reason: str, started: float) -> bool:
        """Settle a job as cancelled, whether its task returned or raised."""
        body = job.body
        duration = (time.perf_counter() - started) * 1000
        log_end(job, "cancelled", duration / 1000)
        if self._on_settled is not None:
            self._on_settled(self._settled(delivered, body, "cancelled", duration / 1000, reason))
        log.info(
            'queue "%s": job %s (%s) was cancelled: %s',
            self._settings.name,
            delivered.id.decode("utf-8", "replace"),
            body.task,
            reason,
        )
        if body.schedule is not None:
            self._ended_run(delivered, body.schedule, "x", duration)
        ending = append_ending(Ending(body.attempt, duration, self._worker, error=reason))
        return self._settlers[delivered.delivery.partition.number].cancelled(delivered, ending)

    def interrupted(
        self,
        delivered: DeliveredJob,
        job: RunningJob | None,
        why: Interrupted | Suspended | ContinuedAs,
        started: float,
    ) -> bool:
        """Let a job sleep or start over, or leave it to the worker, which stops and releases the delivery."""
        if job is not None and isinstance(why, Suspended):
            return self.suspended(delivered, job, why, started)
        if job is not None and isinstance(why, ContinuedAs):
            return self.continued(delivered, job, why, started)
        if job is not None:
            log_end(job, "released", time.perf_counter() - started)
        return True

    def suspended(
        self, delivered: DeliveredJob, job: RunningJob, suspended: Suspended, started: float
    ) -> bool:
        """Let a durable job sleep or wait. This uses up no attempt."""
        delivery, ended = delivered.delivery, time.perf_counter()
        self.histograms.ended(job.body.task, started, ended, entry_ms(delivery.position))
        log_end(job, "suspended", ended - started)
        record = repack(delivered.record, suspended.body(job.body))
        settler = self._settlers[delivery.partition.number]
        return settler.suspend(delivered, record, suspended.until, hold_lane=suspended.hold_lane)

    def _ended_run(self, delivered: DeliveredJob, schedule: str, letter: str, duration_ms: float) -> None:
        run = EndedRun(schedule, delivered.id, letter, duration_ms)
        self.ended_runs.add(delivered.delivery.partition, run)

    def continued(
        self, delivered: DeliveredJob, job: RunningJob, continued: ContinuedAs, started: float
    ) -> bool:
        """Let a durable job start over in its place."""
        delivery, ended = delivered.delivery, time.perf_counter()
        self.histograms.ended(job.body.task, started, ended, entry_ms(delivery.position))
        log_end(job, "continued", ended - started)
        record = continued.record(delivered.record, job.body)
        return self._settlers[delivery.partition.number].start_anew(delivered, record)

    def _settled(
        self,
        delivered: DeliveredJob,
        body: Body,
        state: RunEnd,
        duration: float,
        error: str | None = None,
        delay: float | None = None,
    ) -> Settled:
        """The event for middleware."""
        return Settled(
            delivered.id.decode("utf-8", "replace"),
            self._settings.name,
            body.task,
            body.key,
            body.attempt,
            state,
            duration,
            error,
            delay,
        )

    def _next(self, body: Body, error: str, duration: float, stacktrace: str | None) -> Body:
        """The body for the next attempt, with this one in its history."""
        at_ms = int((time.time() - duration) * 1000)
        attempt = Attempt(body.attempt, at_ms, duration * 1000, error, self._worker, stacktrace)
        history = with_attempt(body.history, attempt)
        # A function that runs on after its timeout still reads its own body.
        return msgspec.structs.replace(
            body, attempt=body.attempt + 1, history=history, suspended="", waits_for=[]
        )


def _stacktrace_of(error: Exception) -> str | None:
    match error:
        case RemoteError() | RemoteFail():
            return error.stacktrace
        case TimedOut() | ProcessDied() | Undeliverable() | RetryAfter():
            return None
        case _:
            return format_stacktrace(error.with_traceback(_skip_own_frames(error)))


def _skip_own_frames(error: Exception) -> TracebackType | None:
    """The traceback from the first frame of the user's code on. An error of qbull itself keeps all frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_WORKER_DIRECTORY):
        trace = trace.tb_next
    return trace or error.__traceback__
