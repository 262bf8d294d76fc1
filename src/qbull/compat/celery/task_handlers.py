"""Handlers of a Celery task: methods that a subclass overrides, called before and after each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from qbull.compat.celery.canvas import ChunkedCalls, chunks, xmap, xstarmap
from qbull.compat.celery.replacing import replace_running
from qbull.compat.celery.signature import Signature

if TYPE_CHECKING:
    from qbull.compat.celery.run_events import ExceptionInfo
    from qbull.compat.celery.task import CeleryTask

CallArgs: TypeAlias = tuple[Any, ...]
CallKwargs: TypeAlias = dict[str, Any]


class TaskHandlers:
    """The handlers of a task. An error in one is logged; an error in `before_start` fails the run."""

    def before_start(self, task_id: str | None, args: CallArgs, kwargs: CallKwargs) -> None:
        """Called before the function.

        Args:
            task_id: The id of the job.
            args: Its positional arguments.
            kwargs: Its named arguments.
        """

    def on_success(self, retval: Any, task_id: str | None, args: CallArgs, kwargs: CallKwargs) -> None:
        """Called when the function has returned.

        Args:
            retval: The result.
            task_id: The id of the job.
            args: Its positional arguments.
            kwargs: Its named arguments.
        """

    def on_failure(
        self, exc: Exception, task_id: str | None, args: CallArgs, kwargs: CallKwargs, einfo: ExceptionInfo
    ) -> None:
        """Called when the function has failed, and no retry follows.

        Args:
            exc: The exception.
            task_id: The id of the job.
            args: Its positional arguments.
            kwargs: Its named arguments.
            einfo: The exception with its traceback.
        """

    def on_retry(
        self, exc: Exception, task_id: str | None, args: CallArgs, kwargs: CallKwargs, einfo: ExceptionInfo
    ) -> None:
        """Called when the function has failed, and a retry follows.

        Args:
            exc: The exception.
            task_id: The id of the job.
            args: Its positional arguments.
            kwargs: Its named arguments.
            einfo: The exception with its traceback.
        """

    def after_return(
        self,
        status: str,
        retval: Any,
        task_id: str | None,
        args: CallArgs,
        kwargs: CallKwargs,
        einfo: ExceptionInfo | None,
    ) -> None:
        """Called after each run.

        Args:
            status: SUCCESS, RETRY or FAILURE.
            retval: The result or the exception.
            task_id: The id of the job.
            args: Its positional arguments.
            kwargs: Its named arguments.
            einfo: The exception with its traceback.
        """

    def on_replace(self, sig: Signature) -> Any:
        """Called by `replace`. An override may change the signature, and calls `super().on_replace(sig)`.

        Args:
            sig: The signature that does the work of this run.
        """
        return replace_running(cast("CeleryTask", self), sig)


class TaskSignatures:
    """The calls that make signatures of a task."""

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature with these arguments. In a chain, the result of the task before comes first."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return an immutable signature: in a chain, it ignores the result of the task before."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """Return a signature with options.

        Args:
            args: Positional arguments.
            kwargs: Named arguments.
            options: `immutable`, and the options of `apply_async`.
        """
        return Signature(self, args, kwargs, **options)

    subtask = signature

    def map(self, it: Iterable[Any]) -> xmap:
        """Return a signature of one job that calls the task with each item.

        Args:
            it: The items.
        """
        return xmap(self, it)

    def starmap(self, it: Iterable[Any]) -> xstarmap:
        """Return a signature of one job that calls the task with the arguments in each item.

        Args:
            it: Lists of arguments.
        """
        return xstarmap(self, it)

    def chunks(self, it: Iterable[Any], n: int) -> ChunkedCalls:
        """Return a group of jobs that call the task for up to `n` items each.

        Args:
            it: Lists of arguments.
            n: Items for each job.
        """
        return chunks(self, it, n)
