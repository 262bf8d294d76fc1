"""Sentry: report failed attempts with their job, through the `sentry_sdk` that the application has set up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import use_isolation_scope
from sentry_sdk.utils import event_from_exception

from qbull.errors import RetryAfter
from qbull.middleware import Middleware, Settled
from qbull.worker.cpu_pool import RemoteError, RemoteFail
from qbull.worker.current import CurrentJob
from qbull.worker.job_log import FAILURE_LOGGER

MAX_REMEMBERED_RUNS = 1_000
"""Runs whose outcome is still open. A run that another worker has taken over has none."""
MECHANISM = {"type": "qbull", "handled": False}

__all__ = ["SentryReports"]


class _Run:
    """A run of a job: the scope with its breadcrumbs, and the exception that ended it."""

    def __init__(self, scope: sentry_sdk.Scope) -> None:
        self.scope = scope
        self.error: BaseException | None = None


class SentryReports(Middleware):
    """`qbull.App(middleware=[SentryReports()])`: each failed attempt is an event in Sentry.

    Call `sentry_sdk.init` first, in the module of the app or in its lifespan.

    Args:
        retries: report attempts that run again too, as warnings; if False, only jobs that have failed
            permanently.
    """

    def __init__(self, *, retries: bool = True) -> None:
        self._retries = retries
        self._runs: OrderedDict[tuple[str, str, int], _Run] = OrderedDict()
        # The SDK would turn the log line about a failed job into a second event.
        ignore_logger(FAILURE_LOGGER)

    @contextmanager
    def around_run(self, job: CurrentJob) -> Iterator[None]:
        """Give the run a scope of its own, which names the job.

        Args:
            job: the running job.
        """
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_transaction_name(job.task, source="task")
            _name_job(scope, job.queue, job.task, job.id, job.key, job.attempt)
            name, run = (job.queue, job.id, job.attempt), _Run(scope)
            self._runs[name] = run
            if len(self._runs) > MAX_REMEMBERED_RUNS:
                self._runs.popitem(last=False)
            try:
                yield
            except (Exception, asyncio.CancelledError) as error:
                run.error = error
                raise
            except BaseException:  # A durable job is suspended, or the process ends.
                self._runs.pop(name, None)
                raise

    def settled(self, run: Settled) -> None:
        """Report the attempt if it failed.

        Args:
            run: how the run ended.
        """
        found = self._runs.pop((run.queue, run.id, run.attempt), None)
        is_retry = run.state == "delayed"
        if run.state not in ("delayed", "failed") or (is_retry and not self._retries):
            return
        error = None if found is None else found.error
        if is_retry and isinstance(error, RetryAfter):  # The task asked to run later. That is no failure.
            return
        with use_isolation_scope(sentry_sdk.get_isolation_scope().fork() if found is None else found.scope):
            scope = sentry_sdk.get_isolation_scope()
            _name_job(scope, run.queue, run.task, run.id, run.key, run.attempt)
            scope.set_tag("qbull.state", run.state)
            event, hint = _event_of(error, run)
            event["level"] = "warning" if is_retry else "error"
            sentry_sdk.capture_event(event, hint=hint)


def _name_job(scope: sentry_sdk.Scope, queue: str, task: str, id: str, key: str | None, attempt: int) -> None:
    scope.set_tag("qbull.queue", queue)
    scope.set_tag("qbull.task", task)
    scope.set_tag("qbull.job_id", id)
    scope.set_context("job", {"id": id, "queue": queue, "task": task, "key": key, "attempt": attempt})


def _event_of(error: BaseException | None, run: Settled) -> tuple[Any, dict[str, Any]]:
    """The event for an exception; without one, for the text of the error."""
    if isinstance(error, RemoteError | RemoteFail):
        # The traceback is that of another process, as text.
        kind, _, text = (run.error or "").partition(": ")
        value = {"type": kind, "value": text, "mechanism": MECHANISM}
        return {"exception": {"values": [value]}, "extra": {"traceback": error.stacktrace}}, {}
    if isinstance(error, asyncio.CancelledError):
        # It ran into its timeout. The traceback shows where.
        error = TimeoutError(run.error).with_traceback(error.__traceback__)
    if error is None:
        return {"message": run.error or "the job failed"}, {}
    options = sentry_sdk.get_client().options
    return event_from_exception(error, client_options=options, mechanism=MECHANISM)
