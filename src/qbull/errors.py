"""Every error that qbull raises on purpose. Foreign errors are turned into these at the edge.

    QbullError
    ├── ConfigError          a setting, URL or environment value is wrong
    │   └── DeclarationError a queue or task was declared wrongly
    ├── ServerError          the server cannot be used as it is
    │   ├── ServerAway       it cannot be reached now; the same call may be sent again
    │   │   └── DatabaseAway     the same for PostgreSQL
    │   ├── ServerRefused    wrong password, too old, evicting memory policy, out of memory …
    │   │   └── DatabaseRefused  the same for PostgreSQL: no rights, no tables, tables of a newer release
    │   ├── UnreadableSettings   the settings of a queue on the server cannot be read
    │   ├── NotConfirmed     the job is there, but not yet as safe as its durability asks
    │   └── EmbeddedError    the Valkey that qbull starts itself did not start
    ├── PayloadError         the arguments or the result cannot be encoded
    │   ├── ArgumentsError   they do not fit the task's signature
    │   ├── TooLarge         they are larger than the limit
    │   └── SignalMismatch   raised inside a durable task: the value of a signal does not fit the type
    ├── NotFound             no such queue, task or job
    ├── Conflict             the state of the job does not allow this
    ├── LifespanError        a lifespan of the app failed to start, or has not started
    ├── TakenOver            raised inside a task: another worker has its job, so this run may have no effect
    ├── StepFailed           raised inside a durable task: the error of a step cannot be stored as it is
    ├── HistoryMismatch      a durable task asks for other steps than its history has
    ├── SignalTimeout        raised inside a durable task: no signal came in time
    ├── JobFailed            result() of a job that failed permanently
    ├── JobCancelled         result() of a job that was cancelled
    └── ResultTimeout        result() timed out; the job goes on

Tasks raise two more to control their own job: RetryAfter and Fail.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_DELAY_SECONDS = 10 * 366 * 86_400
"""Ten years: no job waits longer."""
MAX_COUNT = 10**9
"""No limit, count or position is larger."""


def quoted_choices(words: Sequence[str]) -> str:
    """The values of a setting, as an error lists them: `"a", "b" or "c"`."""
    *others, last = (f'"{word}"' for word in words)
    return f"{', '.join(others)} or {last}" if others else last


class QbullError(Exception):
    """The root of the tree: `except qbull.QbullError` catches all of it."""


class ConfigError(QbullError):
    """A setting, a URL or an environment value is wrong."""


class DeclarationError(ConfigError):
    """A queue or a task was declared wrongly."""


class ServerError(QbullError):
    """The server cannot be used as it is."""


class ServerAway(ServerError):
    """The server cannot be reached now. The last call may have taken effect; sending it again is safe."""


class ServerRefused(ServerError):
    """The server refuses: password, version, memory policy, rights."""


class DatabaseAway(ServerAway):
    """PostgreSQL cannot be reached or is not ready now. Without a commit nothing has happened."""


class DatabaseRefused(ServerRefused):
    """PostgreSQL refuses: password, rights, missing tables, tables of a newer release."""


class UnreadableSettings(ServerError):
    """The settings of a queue on the server cannot be read: a newer version may have written them."""


class NotConfirmed(ServerError):
    """The jobs with these `ids` are on the server, but were not confirmed in time as their durability asks.

    Enqueue them again with the same ids: that adds no job and waits for the confirmation again.

    Args:
        fact: the confirmation that is missing.
        queue: the name of their queue.
        ids: the ids of the jobs.
    """

    def __init__(self, fact: str, *, queue: str = "", ids: tuple[str, ...] = ()) -> None:
        jobs = f"job {ids[0]} is" if len(ids) == 1 else f"{len(ids)} jobs are"
        super().__init__(
            f'queue "{queue}": {jobs} on the server but not confirmed: {fact}; '
            "enqueue again with the same id, which adds nothing while the job is there"
        )
        self.fact = fact
        self.ids = ids

    def of(self, queue: str, *ids: str) -> NotConfirmed:
        """The same error for other jobs.

        Args:
            queue: the name of their queue.
            ids: the ids of the jobs.
        """
        return NotConfirmed(self.fact, queue=queue, ids=ids)


class EmbeddedError(ServerError):
    """The Valkey that qbull starts itself did not start."""


class PayloadError(QbullError):
    """The arguments or the result cannot be encoded."""


class ArgumentsError(PayloadError):
    """The arguments do not fit the task's signature."""


class TooLarge(PayloadError):
    """The arguments or the result are larger than the limit."""


class SignalMismatch(PayloadError):
    """Raised inside a durable task: the value of a signal does not fit the type that the task waits for."""


class NotFound(QbullError):
    """No such queue, task or job."""


def job_not_found(queue: str, id: str) -> NotFound:
    """The error for an id that a queue does not have."""
    return NotFound(f'queue "{queue}": no job {id}; it never existed, or its retention has ended')


class Conflict(QbullError):
    """The state of the job does not allow this.

    Args:
        message: the text of the error.
        state: the state of the job.
    """

    def __init__(self, message: str, *, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class LifespanError(QbullError):
    """A lifespan of the app failed to start in this process, or has not started."""


class TakenOver(QbullError):
    """Raised inside a task: another worker has its job now, so this run may have no effect."""


class StepFailed(QbullError):
    """Raised inside a durable task: the step `step` failed with an error that cannot be stored as it is.

    `error_type` is the name of the error's class, and `error` is its text.
    """

    def __init__(self, message: str, *, step: str = "", error: str = "", error_type: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.error = error
        self.error_type = error_type


class HistoryMismatch(QbullError):
    """The code of a durable task does not fit the history of its job: it was changed meanwhile."""


class SignalTimeout(QbullError, TimeoutError):
    """Raised inside a durable task: no signal with the name came within the timeout of wait_for()."""


class JobFailed(QbullError):
    """The job failed permanently.

    Args:
        message: the text of the error.
        error: the error of the last attempt.
        stacktrace: its stack trace, if there is one.
    """

    def __init__(self, message: str, *, error: str = "", stacktrace: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.stacktrace = stacktrace


class JobCancelled(QbullError):
    """The job was cancelled before it finished."""


class ResultTimeout(QbullError, TimeoutError):
    """The job did not finish within the timeout of result(). The job itself goes on."""


class RetryAfter(Exception):
    """Raised by a task: run the job again later, even if its attempts are used up.

    Args:
        delay: seconds until the job runs again.
        reason: the text for the history of the job.
        queue: whether the whole queue waits: no worker starts a job of it until then.
    """

    def __init__(self, delay: float, reason: str = "", *, queue: bool = False) -> None:
        if not 0 <= delay <= MAX_DELAY_SECONDS:
            raise ValueError(f"RetryAfter({delay}): give seconds from 0 to {MAX_DELAY_SECONDS}")
        super().__init__(reason or f"asked to be run again in {delay:g} s")
        self.delay = delay
        self.queue = queue


class Fail(Exception):
    """Raised by a task: do not retry; the job becomes a dead letter."""
