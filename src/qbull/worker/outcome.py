"""Conclude: turn what a task returned or raised into what is written down."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from qbull.codecs.offload import StoredResult
from qbull.config import QueueSettings
from qbull.core.histograms import Histograms
from qbull.core.outcome import Delay, Undeliverable, decide
from qbull.core.record import MAX_HISTORY_ATTEMPTS, Attempt, Body, Ending, append_ending, repack
from qbull.core.retry import Retry
from qbull.core.task import TaskSpec
from qbull.errors import RetryAfter
from qbull.middleware import RunEnd, Settled
from qbull.store.delivery import DeliveredJob
from qbull.worker.cpu_pool import ProcessDied, RemoteError, RemoteFail
from qbull.worker.current import entry_ms
from qbull.worker.settle import Settler
from qbull.worker.slot import TimedOut

log = logging.getLogger("qbull.worker")

MAX_STACKTRACE_CHARS = 20_000
_WORKER_DIRECTORY = os.path.dirname(__file__)


class OutcomeRecorder:
    """`tell` is called with what became of each run that did not succeed, where somebody wants to know."""

    def __init__(
        self, settings: QueueSettings, worker: str, tell: Callable[[Settled], None] | None = None
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._tell = tell
        self.retry: Retry | None = None
        """Where it is set, for all jobs of the queue, whatever their tasks say."""
        self.hold: Callable[[float, str], None] = lambda seconds, why: None
        """Called where a task asks for a rest of its whole queue."""
        self.figures = Histograms()
        self.failing: Callable[[str, str, str], None] | None = None
        """Told of each attempt that failed: its task, its job and why; where somebody counts them."""

    def done(self, delivered: DeliveredJob, body: Body, result: bytes | StoredResult, began: float) -> bytes:
        """What to seal behind the record."""
        ended = time.perf_counter()
        duration = (ended - began) * 1000
        entered = entry_ms(delivered.delivery.position)
        self.figures.ended(body.task, began, ended, entered)
        created = 0 if delivered.record[4] else entered
        if isinstance(result, StoredResult):
            return append_ending(
                Ending(body.attempt, duration, self._worker, None, None, None, created, result.reference)
            )
        return append_ending(Ending(body.attempt, duration, self._worker, result, None, None, created))

    def failed(
        self,
        settler: Settler,
        delivered: DeliveredJob,
        body: Body | None,
        task: TaskSpec | None,
        error: Exception,
        began: float,
    ) -> bool:
        """Settle it as delayed or dead. Answers whether its delivery ends with it."""
        id = delivered.id
        ended = time.perf_counter()
        duration = ended - began
        if task is not None:
            self.figures.ended(task.name, began, ended, entry_ms(delivered.delivery.position))
        body = body or Body(task="?", payload=b"")
        retry = self.retry or (task.retry if task is not None else self._settings.retry)
        outcome = decide(error, body.attempt, body.attempts or retry.attempts, retry, _stacktrace_of(error))
        who = (self._settings.name, id.decode("utf-8", "replace"), body.task)
        if isinstance(error, RetryAfter) and error.queue and error.delay > 0:
            self.hold(error.delay, f"job {who[1]} ({body.task}): {outcome.error}")
        if self.failing is not None and not isinstance(error, RetryAfter):
            self.failing(body.task if task is not None else "?", who[1], outcome.error)
        if isinstance(outcome, Delay):
            log.info(
                'queue "%s": job %s (%s) failed and runs again in %.3g s: %s',
                *who,
                outcome.seconds,
                outcome.error,
            )
            if self._tell is not None:
                self._tell(self.settled(id, body, "delayed", duration, outcome.error, outcome.seconds))
            again = repack(delivered.record, self._next(body, outcome.error, duration))
            return settler.delay(delivered, again, int(outcome.seconds * 1000))
        log.error('queue "%s": job %s (%s) failed for good: %s', *who, outcome.error)
        if self._tell is not None:
            self._tell(self.settled(id, body, "failed", duration, outcome.error))
        ending = Ending(body.attempt, duration * 1000, self._worker, None, outcome.error, outcome.stacktrace)
        return settler.dead(delivered, append_ending(ending))

    def cancelled(
        self, settler: Settler, delivered: DeliveredJob, body: Body, reason: str, began: float
    ) -> bool:
        """Settle it as cancelled, whatever it returned or raised. Answers whether its delivery ends with it."""
        duration = (time.perf_counter() - began) * 1000
        id = delivered.id.decode("utf-8", "replace")
        if self._tell is not None:
            self._tell(self.settled(delivered.id, body, "cancelled", duration / 1000, reason))
        log.info('queue "%s": job %s (%s) was cancelled: %s', self._settings.name, id, body.task, reason)
        return settler.cancelled(
            delivered, append_ending(Ending(body.attempt, duration, self._worker, error=reason))
        )

    def settled(
        self,
        id: bytes,
        body: Body,
        state: RunEnd,
        duration: float,
        error: str | None = None,
        delay: float | None = None,
    ) -> Settled:
        """What middleware is told."""
        return Settled(
            id.decode("utf-8", "replace"), self._settings.name, body.task, body.key, body.attempt, state, duration, error, delay
        )  # fmt: skip

    def _next(self, body: Body, error: str, duration: float) -> Body:
        """The body for the next attempt, with this one in its history."""
        at_ms = int((time.time() - duration) * 1000)
        attempt = Attempt(body.attempt, at_ms, duration * 1000, error, self._worker)
        body.attempt += 1
        body.history = [*body.history, attempt][-MAX_HISTORY_ATTEMPTS:]
        return body


def _stacktrace_of(error: Exception) -> str | None:
    match error:
        case RemoteError() | RemoteFail():
            return error.stacktrace
        case TimedOut() | ProcessDied() | Undeliverable():
            return None
        case _:
            try:
                text = "".join(traceback.format_exception(error.with_traceback(_skip_own_frames(error))))
            except Exception:  # an exception can be such that it cannot be shown
                return None
            return text.encode("utf-8", "replace").decode()[-MAX_STACKTRACE_CHARS:]


def _skip_own_frames(error: Exception) -> TracebackType | None:
    """The traceback from where the user's code begins. An error of qbull's own keeps all of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_WORKER_DIRECTORY):
        trace = trace.tb_next
    return trace or error.__traceback__
