"""The data of a job with the API of RQ: its call, its `meta`, its results and its times."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from qbull.app import App
from qbull.compat.exact_arguments import result_of
from qbull.compat.exact_values import as_it_was
from qbull.compat.refusal import refuse_attribute
from qbull.compat.rq.class_hints import HintingClass
from qbull.compat.rq.created import call_string
from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.meta import DESCRIPTION_HEADER, GROUP_HEADER, load_meta, save_meta
from qbull.compat.rq.results import Result, results_of
from qbull.core.job_info import JobInfo
from qbull.errors import JobCancelled, JobFailed, QbullError, ResultTimeout, job_not_found
from qbull.job import Job as Handle

A = TypeVar("A")


class JobData(metaclass=HintingClass):
    """The data of a job. Every call is synchronous and asks the server.

    Args:
        app: The app that has the job.
        handle: The job as qbull's own calls return it.
    """

    _class_hints = RQ_JOB_ATTRIBUTE_HINTS

    def __init__(self, app: App, handle: Handle[Any]) -> None:
        self.id = handle.id
        self.origin = handle.queue
        self.created = handle.created
        self._app = app
        self._handle = handle
        self._meta: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_JOB_ATTRIBUTE_HINTS)

    def return_value(self, refresh: bool = True) -> Any:
        """Return the result of the function; None if it has not finished.

        Args:
            refresh: Ignored: every call asks the server.
        """
        info = self._read()
        if info is None or info.state != "completed":
            return None
        queue = self._app.queues.get(self.origin)
        task = None if queue is None else queue.tasks.get(info.task)
        decode = partial(result_of, None if task is None else task.signature)
        return self._run(replace(self._handle, _decode=decode).result())

    @property
    def result(self) -> Any:
        """The same as `return_value()`, for code written for older versions of RQ."""
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of a failed job, or its error if there is no traceback."""
        info = self._read()
        return None if info is None or info.state != "failed" else info.stacktrace or info.error

    def results(self) -> list[Result]:
        """The outcomes of its runs, the newest first. The history of a job is short."""
        return results_of(self._info(), self.return_value)

    def latest_result(self, timeout: float = 0) -> Result | None:
        """The outcome of its last run; None if there is none.

        Args:
            timeout: Seconds to wait for the end of the job.
        """
        if timeout:
            with suppress(ResultTimeout, JobFailed, JobCancelled):
                self._run(self._handle.result(timeout))
        return next(iter(self.results()), None)

    @property
    def meta(self) -> dict[str, Any]:
        """Values of your own. They are read once; `refresh()` and `get_meta()` read them again."""
        if self._meta is None:
            self._meta = self._run(load_meta(self._handle))
        return self._meta

    @meta.setter
    def meta(self, values: Mapping[str, Any]) -> None:
        self._meta = dict(values)

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Return `meta`.

        Args:
            refresh: Read it from the server.
        """
        if refresh:
            self._meta = None
        return self.meta

    def save_meta(self) -> None:
        """Write `meta`, in any state of the job. The last writer wins."""
        self._run(save_meta(self._handle, self.meta))

    def save(self) -> None:
        """Write `meta`. Nothing else of an enqueued job can be changed."""
        self.save_meta()

    @property
    def description(self) -> str:
        """The description of the call; by default its function and arguments."""
        given = self._run(self._headers()).get(DESCRIPTION_HEADER)
        return call_string(self.func_name, self.args, self.kwargs) if given is None else given

    @property
    def group_id(self) -> str | None:
        """The name of its group."""
        return self._run(self._headers()).get(GROUP_HEADER)

    @property
    def worker_name(self) -> str | None:
        """The worker that runs it, or ran it last."""
        return self._info().worker or None

    @property
    def func_name(self) -> str:
        return self._info().task

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of a `*args` parameter. All others travel by name and are in `kwargs`."""
        return tuple(as_it_was(self._info().payload.get("*", [])))

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments, by name."""
        payload = as_it_was(dict(self._info().payload))
        payload.pop("*", None)
        others = payload.pop("**", {})
        return {**payload, **others}

    @property
    def created_at(self) -> datetime:
        return self._info().created_at

    @property
    def enqueued_at(self) -> datetime:
        return self._info().created_at

    @property
    def started_at(self) -> datetime | None:
        return self._info().started_at

    @property
    def ended_at(self) -> datetime | None:
        return self._info().finished_at

    def refresh(self) -> None:
        """Forget `meta`, so that it is read again. Everything else is read from the server at every call."""
        self._meta = None

    def _info(self) -> JobInfo:
        info = self._read()
        if info is None:
            raise job_not_found(self.origin, self.id)
        return info

    async def _headers(self) -> Mapping[str, str]:
        found = await self._handle._find()
        if found is None:
            raise job_not_found(self.origin, self.id)
        return found.body().headers or {}

    def _read(self) -> JobInfo | None:
        return self._run(self._handle.info())

    def _run(self, coroutine: Coroutine[Any, Any, A]) -> A:
        if asyncio._get_running_loop() is not None:
            coroutine.close()
            raise QbullError(
                f"job {self.id}: this call would block the event loop; in an async function use "
                "await asyncio.to_thread(job.save_meta), or qbull.current_job()"
            )
        return self._app.run_sync(coroutine)
