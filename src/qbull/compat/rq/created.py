"""A job that `Job.create` has made and `queue.enqueue_job` has not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from qbull.compat.refusal import refuse_attribute
from qbull.compat.rq.exceptions import RqArgumentsError
from qbull.compat.rq.functions import check_job_id
from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.status import JobStatus
from qbull.errors import Conflict

if TYPE_CHECKING:
    from qbull.compat.rq.job import Job


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
        check_job_id(id)
        self._has_own_id = id is not None
        self.id = id or str(uuid4())
        self.sent: Job | None = None
        self.options = dict(options)
        self.created_at = datetime.now(UTC)
        self.enqueued_at = self.started_at = self.ended_at = None

    def __eq__(self, other: object) -> bool:
        return getattr(other, "id", None) == self.id and (isinstance(other, CreatedJob) or other == self)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id}, not enqueued>"

    def __getattr__(self, name: str) -> Any:
        sent = self.__dict__.get("sent")
        if sent is not None and not name.startswith("_"):
            return getattr(sent, name)
        return refuse_attribute(self, name, RQ_JOB_ATTRIBUTE_HINTS)

    def get_id(self) -> str:
        return self.id

    def get_status(self, refresh: bool = True) -> JobStatus | None:
        """`created` until the server knows the job.

        Args:
            refresh: Ignored.
        """
        return JobStatus.CREATED if self.sent is None else self.sent.get_status()

    @property
    def is_started(self) -> bool:
        return self.get_status() == JobStatus.STARTED

    @property
    def is_failed(self) -> bool:
        return self.get_status() == JobStatus.FAILED

    @property
    def is_queued(self) -> bool:
        return self.get_status() == JobStatus.QUEUED

    @property
    def is_finished(self) -> bool:
        return self.get_status() == JobStatus.FINISHED

    @property
    def func(self) -> Any:
        """The function."""
        return resolve_name(self.function) if isinstance(self.function, str) else self.function

    @property
    def ttl(self) -> float | None:
        ttl: float | None = self.options.get("ttl")
        return ttl

    def get_ttl(self, default_ttl: float | None = None) -> float | None:
        """Seconds within which the job must start.

        Args:
            default_ttl: The answer if the call has given none.
        """
        return default_ttl if self.ttl is None else self.ttl

    @property
    def result_ttl(self) -> float | None:
        ttl: float | None = self.options.get("result_ttl")
        return ttl

    def get_result_ttl(self, default_ttl: float | None = None) -> float | None:
        """Seconds for which the call has asked to keep its result.

        Args:
            default_ttl: The answer if the call has given none.
        """
        return default_ttl if self.result_ttl is None else self.result_ttl

    @property
    def failure_ttl(self) -> float | None:
        ttl: float | None = self.options.get("failure_ttl")
        return ttl

    def check_own_id(self) -> None:
        """Refuse a job whose id was not chosen by the caller: it is always unique."""
        if not self._has_own_id:
            raise RqArgumentsError("enqueue_job(unique=True): give the job an id")

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
