"""A job in memory. Its record and its ending are the same bytes that a server would store."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Literal

from qbull.codecs.chain import CodecChain
from qbull.core.durable import STEP_FIELD
from qbull.core.flow import WAITING_LETTER, Dependency, Dependent, encode
from qbull.core.log_level import unmarked
from qbull.core.outcome import Delay, decide
from qbull.core.progress import Progress
from qbull.core.published import read_published
from qbull.core.record import (
    Attempt,
    Body,
    Ending,
    State,
    body_of,
    expires_ms,
    repack,
    to_datetime,
    with_attempt,
)
from qbull.core.retry import Retry
from qbull.core.signals import MAX_SIGNALS, NewSignal
from qbull.core.stacktrace import format_stacktrace
from qbull.core.streams import EmittedKey, StreamEntry
from qbull.core.values import ValueHooks
from qbull.middleware import Settled
from qbull.store.read.inspect import POSITION_PREFIXES, StoredJob
from qbull.store.verbs.progress import LogLine
from qbull.worker.current import RunningJob, SimpleSink
from qbull.worker.durable_services import stream_context
from qbull.worker.step_calls import StepRunner
from qbull.worker.streams import key_of

INLINE_WORKER_ID = "inline"
NO_HISTORY: Mapping[bytes, bytes] = {}


class InlineJob:
    def __init__(self, queue: str, id: str, record: bytes, now_ms: int) -> None:
        self.queue = queue
        self.id = id
        self.record = record
        self.created_ms = now_ms
        self.state: State = "waiting"
        self.due_ms = 0
        self.finished_ms = 0
        self.ending: Ending | None = None
        self.progress: Progress | None = None
        self.lines: list[LogLine] = []
        self.steps: dict[int, bytes] = {}
        """The records of its steps, if its task is durable."""
        self.signals: dict[int, bytes] = {}
        """The signals that its task has not taken."""
        self.signaled: list[str] = []
        """The digests of all signals that were sent."""
        self.stream: list[StreamEntry] = []
        """The values that it has emitted."""
        self.emitted: dict[str, int] = {}
        """How often each was emitted outside of steps, if its task is durable."""
        self.published: dict[str, bytes] = {}
        """The values that it has published."""
        self.durable: StepRunner | None = None
        self.calls: dict[str, bytes] = {}
        """The outcomes of the jobs that it has called, or b"w" for one that has not ended."""
        self.called: list[tuple[str, str]] = []
        """Queue and id of these jobs."""
        self.is_answered = False
        """One of them has ended, so it runs again."""

    def wait(self, when: int | str, now_ms: int) -> None:
        """When the job may run: milliseconds from now, or "@" and a time.

        The time by which it must start may follow after a blank.
        """
        due = str(when).partition(" ")[0]
        self.due_ms = int(due[1:]) if due.startswith("@") else now_ms + int(due)
        self.state = "delayed" if self.due_ms > now_ms else "waiting"

    def continue_history(self, history: Mapping[bytes, bytes]) -> None:
        """Take over recorded steps and published values, as the data of a job has them."""
        self.published.update(read_published(history))
        for name, stored in history.items():
            if name.startswith(STEP_FIELD):
                self.steps[int(name.removeprefix(STEP_FIELD))] = stored

    def sleeps(self) -> bool:
        """Whether its durable run was suspended. It is delayed then."""
        if self.durable is None or self.durable.suspended is None:
            return False
        self.durable.close()
        suspended = self.durable.suspended
        self.record = repack(self.record, suspended.body(body_of(self.record)))
        self.due_ms, self.state = suspended.due_ms, "delayed"
        return True

    def starts_anew(self) -> bool:
        """Whether its durable run has ended with `continue_as`. It is runnable then."""
        if self.durable is None or self.durable.continued is None:
            return False
        self.durable.close()
        self.record = self.durable.continued.record(self.record, body_of(self.record))
        for kept in (self.steps, self.calls, self.emitted):
            kept.clear()
        self.state = "waiting"
        return True

    @property
    def is_anew(self) -> bool:
        """Whether it waits because it has started over."""
        return self.state == "waiting" and self.durable is not None and self.durable.continued is not None

    def signal(self, signal: NewSignal) -> str:
        """Keep a signal. The job is runnable if it waits for it."""
        if signal.digest in self.signaled:
            return "sent"
        if self.ending is not None:
            return self.state
        if len(self.signals) >= MAX_SIGNALS:
            return "full"
        self.signaled.append(signal.digest)
        self.signals[len(self.signaled)] = signal.stored
        if self.state == "delayed" and signal.name in body_of(self.record).waits_for:
            self.state = "waiting"
        return "sent"

    def answer(self, call: str, outcome: bytes) -> None:
        """A job that it has called has ended. The job is runnable if it waits for that."""
        if self.calls.get(call) != WAITING_LETTER.encode():
            return
        self.calls[call] = outcome
        if self.state == "delayed" and body_of(self.record).suspended in ("calling", "waiting"):
            self.state, self.is_answered = "waiting", True

    def outcome(self) -> list[tuple[Dependent, bytes]]:
        """Its outcome for each job that has called it."""
        body, ending = body_of(self.record), self.ending
        if ending is None:
            return []
        told = Dependency(
            self.queue, self.id, body.task, ending.result, ending.error, ending.stacktrace, ending.stored
        )
        letter = POSITION_PREFIXES[self.state]
        return [(caller, letter + encode(told)) for caller in body.tells if caller.call]

    def promote(self, now_ms: int) -> None:
        """Make the job runnable, or cancel it if it has expired."""
        ends = expires_ms(body_of(self.record), self.created_ms)
        if ends is not None and ends <= now_ms and body_of(self.record).attempt == 1:
            self.finish("cancelled", Ending(0, 0.0, "", error="expired"), now_ms)
        else:
            self.state = "waiting"

    def settle(self, result: bytes, error: Exception | None, retry: Retry, now_ms: int) -> Settled:
        """Apply the outcome of an attempt, by the rules of a worker."""
        body = body_of(self.record)
        if error is None:
            self.finish("completed", Ending(body.attempt, 0.0, INLINE_WORKER_ID, result), now_ms)
            return self._told(body)
        outcome = decide(error, body.attempt, body.attempts or retry.attempts, retry)
        if isinstance(outcome, Delay):
            told = Settled(
                self.id, self.queue, body.task, body.key, body.attempt,
                "delayed", 0.0, outcome.error, outcome.seconds,
            )  # fmt: skip
            trace = None if error is None else format_stacktrace(error)
            attempt = Attempt(body.attempt, now_ms, 0.0, outcome.error, INLINE_WORKER_ID, trace)
            body.history = with_attempt(body.history, attempt)
            body.attempt += 1
            self.record = repack(self.record, body)
            self.wait(int(outcome.seconds * 1000), now_ms)
            return told
        trace = "".join(traceback.format_exception(error))
        self.finish("failed", Ending(body.attempt, 0.0, INLINE_WORKER_ID, None, outcome.error, trace), now_ms)
        return self._told(body, outcome.error)

    def finish(self, state: State, ending: Ending, now_ms: int) -> None:
        self.state, self.ending, self.finished_ms = state, ending, now_ms

    def found(self) -> StoredJob:
        """The job as a server would show it."""
        finished = self.ending is not None
        return StoredJob(
            self.id,
            self.state,
            self.record,
            self.ending,
            due_ms=self.due_ms if self.state == "delayed" else None,
            finished_ms=self.finished_ms if finished else None,
            worker=INLINE_WORKER_ID if self.state == "active" else None,
            entry_ms=self.created_ms,
            progress=self.progress,
        )

    def _told(self, body: Body, error: str | None = None) -> Settled:
        state: Literal["completed", "failed"] = "completed" if error is None else "failed"
        return Settled(self.id, self.queue, body.task, body.key, body.attempt, state, 0.0, error)


class InlineProgress(SimpleSink):
    """Records the progress, the log lines and the emitted values of a job.

    Args:
        kept: the job.
        now_ms: the time of the test.
        codecs: the codecs of the app.
        hooks: how values of the task travel.
    """

    def __init__(self, kept: InlineJob, now_ms: int, codecs: CodecChain, hooks: ValueHooks) -> None:
        self._codecs = codecs
        self._hooks = hooks
        self._kept = kept
        self._now_ms = now_ms

    def progress(self, job: RunningJob, value: Progress) -> None:
        self._kept.progress = value

    def take_line(self, job: RunningJob, text: str) -> None:
        self._kept.lines.append(LogLine(to_datetime(self._now_ms), job.body.attempt, *unmarked(text)))

    def hooks_of(self, job: RunningJob) -> ValueHooks:
        return self._hooks

    def take_value(self, job: RunningJob, content: bytes) -> None:
        key = key_of(job, content)
        if key is None:
            return
        kept = self._kept
        if key.name:
            kept.emitted[key.name] = key.times
        number = len(kept.stream) + 1
        text = (key if key.name else EmittedKey("", number)).text(job.position)
        context = stream_context(kept.queue, kept.id, job.body.task, text)
        kept.stream.append(StreamEntry(number, text, self._codecs.protect(context, content)))
