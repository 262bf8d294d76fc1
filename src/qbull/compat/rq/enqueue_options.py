"""The keywords of `enqueue` and `@job`, and their meaning in qbull."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from qbull.compat.refusal import refuse
from qbull.compat.rq.dependency import Dependency, DependsOn, dependencies_in
from qbull.compat.rq.functions import seconds_of
from qbull.compat.rq.instead import RETENTION_HINT, RQ_CALL_HINTS, RQ_GUIDE
from qbull.compat.rq.meta import DESCRIPTION_HEADER, GROUP_HEADER, META_HEADER, meta_header
from qbull.compat.rq.retry import REPEAT_HEADER, RETRY_WAITS_HEADER, Retry
from qbull.compat.rq.run import Callback, Repeat, callback_headers
from qbull.core.options import Options
from qbull.errors import ArgumentsError
from qbull.queue import Queue as QbullQueue

FRONT_PRIORITY = 1
"""The priority of jobs with at_front=True; other jobs have 5."""


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
        if options.unique and options.job_id is None:
            raise ValueError(f"{what}(unique=True): give job_id")
        if options.retry is not None and not isinstance(options.retry, Retry):
            raise ArgumentsError(f"{what}(retry={options.retry!r}): use Retry(…) of qbull.compat.rq")
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
        if self.group_id is not None:
            headers[GROUP_HEADER] = self.group_id
        return headers
