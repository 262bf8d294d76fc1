"""The keywords of `enqueue` and `@job`, and their meaning in qbull."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from qbull.compat.refusal import refuse
from qbull.compat.rq.dependency import Dependency, DependsOn, dependencies_in
from qbull.compat.rq.exceptions import RqArgumentsError
from qbull.compat.rq.functions import check_job_id, seconds_of
from qbull.compat.rq.instead import RETENTION_HINT, RQ_CALL_HINTS, RQ_GUIDE
from qbull.compat.rq.meta import (
    DESCRIPTION_HEADER,
    FAILURE_TTL_HEADER,
    GROUP_HEADER,
    META_HEADER,
    RESULT_TTL_HEADER,
    meta_header,
)
from qbull.compat.rq.retry import REPEAT_HEADER, RETRY_WAITS_HEADER, Retry
from qbull.compat.rq.run import Callback, Repeat, callback_headers
from qbull.core.options import Options
from qbull.errors import ArgumentsError
from qbull.queue import Queue as QbullQueue

FRONT_PRIORITY = 1
"""The priority of jobs with at_front=True; other jobs have 5."""


ENQUEUE_KEYWORDS = frozenset(
    (
        "at_front",
        "depends_on",
        "description",
        "failure_ttl",
        "job_id",
        "job_timeout",
        "meta",
        "on_failure",
        "on_stopped",
        "on_success",
        "pipeline",
        "repeat",
        "result_ttl",
        "retry",
        "ttl",
        "unique",
        "webhooks",
    )
)
"""The keywords that `enqueue` keeps for itself. All others are arguments of the function, as in RQ."""


@dataclass(frozen=True)
class RqEnqueueOptions:
    """The keywords of `enqueue` that are supported here."""

    job_timeout: float | str | None = None
    ttl: float | None = None
    job_id: str | None = None
    at_front: bool = False
    retry: Retry | None = None
    repeat: Repeat | None = None
    on_success: Callback | Callable[..., Any] | None = None
    on_failure: Callback | Callable[..., Any] | None = None
    depends_on: DependsOn = None
    unique: bool = False
    result_ttl: float | None = None
    failure_ttl: float | None = None
    meta: Mapping[str, Any] | None = None
    description: str | None = None
    group_id: str | None = None
    """Only `Group.enqueue_many` gives it."""

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> RqEnqueueOptions:
        known = {field.name for field in fields(cls)} - {"group_id"}
        refuse(
            what, {n: v for n, v in given.items() if n not in known}, RQ_CALL_HINTS, ArgumentsError, RQ_GUIDE
        )
        options = cls(**given)
        check_job_id(options.job_id)
        if options.unique and options.job_id is None:
            raise RqArgumentsError(f"{what}(unique=True): give job_id")
        if options.ttl is not None and options.ttl <= 0:
            raise RqArgumentsError(f"{what}(ttl={options.ttl}): give more than 0 seconds")
        if options.retry is not None and not isinstance(options.retry, Retry):
            raise RqArgumentsError(f"{what}(retry={options.retry!r}): use Retry(…) of qbull.compat.rq")
        if options.retry is not None and options.retry.enqueue_at_front:
            raise RqArgumentsError(
                f"{what}(retry=Retry(enqueue_at_front=True)): a job keeps its priority; use at_front=True"
            )
        return options

    @property
    def dependencies(self) -> list[Dependency]:
        return dependencies_in(self.depends_on)

    def options(self, at: datetime | None, delay: float | None) -> Options:
        at_front = self.at_front or any(each.enqueue_at_front for each in self.dependencies)
        return Options(
            delay=delay,
            at=at,
            priority=FRONT_PRIORITY if at_front else 5,
            id=self.job_id,
            timeout=None if self.job_timeout is None else seconds_of(self.job_timeout),
            expires=self.ttl,
        )

    def check_retention(self, queue: QbullQueue) -> None:
        """Refuse to keep a job for longer than its queue does."""
        keep = queue.settings.keep
        for name, asked, kept in (
            ("result_ttl", self.result_ttl, keep.completed_for),
            ("failure_ttl", self.failure_ttl, keep.failed_for),
        ):
            if asked is not None and kept is not None and not 0 <= asked <= kept:
                how_long = "forever" if asked < 0 else f"for {asked} seconds"
                raise ArgumentsError(
                    f'enqueue({name}={asked}): queue "{queue.name}" does not keep jobs {how_long}. '
                    f"{RETENTION_HINT}"
                )

    def headers(self, queue: QbullQueue, task: str) -> dict[str, str]:
        headers = callback_headers(queue, self.on_success, self.on_failure)
        if self.retry is not None:
            headers[RETRY_WAITS_HEADER] = self.retry.header()
        if self.repeat is not None:
            headers[REPEAT_HEADER] = self.repeat.header()
        if self.meta:
            headers[META_HEADER] = meta_header(queue, task, self.meta)
        if self.description is not None:
            headers[DESCRIPTION_HEADER] = str(self.description)
        for header, seconds in ((RESULT_TTL_HEADER, self.result_ttl), (FAILURE_TTL_HEADER, self.failure_ttl)):
            if seconds is not None:
                headers[header] = str(int(seconds))
        if self.group_id is not None:
            headers[GROUP_HEADER] = self.group_id
        return headers
