"""A job that `Job.create` has made and `queue.enqueue_job` has not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from qbull.compat.refusal import refuse_attribute
from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.status import JobStatus
from qbull.errors import Conflict


class CreatedJob:
    """A call that is not enqueued yet. `queue.enqueue_job(job)` returns the job itself."""

    def __init__(
        self,
        function: Callable[..., Any] | str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        id: str | None,
        options: Mapping[str, Any],
    ) -> None:
        self.function = function
        self.args = tuple(args)
        self.kwargs = dict(kwargs)
        self.id = id or str(uuid4())
        self.options = dict(options)
        self.created_at = datetime.now(UTC)
        self.enqueued_at = self.started_at = self.ended_at = None

    def __repr__(self) -> str:
        return f"<Job {self.id}, not enqueued>"

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_JOB_ATTRIBUTE_HINTS)

    def get_id(self) -> str:
        return self.id

    def get_status(self, refresh: bool = True) -> JobStatus:
        """`created`: the server does not know the job yet.

        Args:
            refresh: Ignored.
        """
        return JobStatus.CREATED

    @property
    def is_started(self) -> bool:
        return False

    @property
    def is_failed(self) -> bool:
        return False

    @property
    def is_queued(self) -> bool:
        return False

    @property
    def is_finished(self) -> bool:
        return False

    @property
    def func_name(self) -> str:
        function = self.function
        return function if isinstance(function, str) else f"{function.__module__}.{function.__qualname__}"

    @property
    def meta(self) -> dict[str, Any]:
        """Values of your own, which travel with the call."""
        values: dict[str, Any] = self.options.setdefault("meta", {})
        return values

    @meta.setter
    def meta(self, values: Mapping[str, Any]) -> None:
        self.options["meta"] = dict(values)

    @property
    def description(self) -> str:
        """The description of the call; by default its function and arguments."""
        given: str | None = self.options.get("description")
        return call_string(self.func_name, self.args, self.kwargs) if given is None else given

    def save(self) -> None:
        raise Conflict(f"job {self.id}: it is stored when it is enqueued. Use queue.enqueue_job(job)")


def call_string(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as RQ describes it: `shop.send(7, to='ann')`."""
    shown = [repr(value) for value in args] + [f"{each}={value!r}" for each, value in sorted(kwargs.items())]
    return f"{name}({', '.join(shown)})"
