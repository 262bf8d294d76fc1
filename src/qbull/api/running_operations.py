"""Running operations: bulk work runs in the API's process, in bounded steps, and reports its progress.

An operation ends with its process and is then reported as stopped. Finished work is not repeated: the same
request continues with the remaining jobs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from qbull.api.audit import AuditWriter
from qbull.core.job_filter import JOB_FILTERS, JobFilterArguments
from qbull.core.record import STATES, State
from qbull.errors import Conflict, QbullError, ServerError
from qbull.manage import bulk
from qbull.manage.bulk import BulkOperation, BulkStep
from qbull.manage.patching import ArgumentPatch
from qbull.manage.search import filter_of
from qbull.queue import Queue
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.read.inspect import server_time
from qbull.store.store import Store
from qbull.store.verbs import operations
from qbull.store.verbs.audit_log import AuditLogEntry
from qbull.store.verbs.operations import Operation

log = logging.getLogger("qbull.api")

MAX_RUNNING_OPERATIONS = 8
"""Concurrent operations in one process."""
OPERATION_PROGRESS_SECONDS = 1.0
"""The interval between two progress reports."""

UNFINISHED_STATES: tuple[State, ...] = ("waiting", "active", "delayed")
BULK_ACTIONS: dict[str, tuple[bulk.BulkAction, State, tuple[State, ...]]] = {
    "retry": (bulk.retry, "failed", ("failed", "cancelled")),
    "redrive": (bulk.retry, "failed", ("failed",)),
    "cancel": (bulk.cancel, "waiting", UNFINISHED_STATES),
    "promote": (bulk.promote, "delayed", ("delayed",)),
    "reschedule": (bulk.count, "delayed", ("waiting", "delayed")),
    "remove": (bulk.remove, "failed", tuple(state for state in STATES if state != "active")),
    "clean": (bulk.remove, "completed", FINISHED_STATES),
}
"""The actions: the function, the default state, and the states that it accepts.

`reschedule` needs a time: OperationRequest.act."""


@dataclass(frozen=True)
class OperationRequest:
    """A request for bulk work. `filter_view` describes it for people."""

    action: str
    queue: Queue
    state: State
    filters: JobFilterArguments
    by: str
    older_than: float = 0.0
    limit: int | None = None
    rate: float | None = None
    act: bulk.BulkAction | None = None
    """The function, if the action alone does not say it."""
    when: str | None = None
    """The time of `reschedule`, for people."""
    patch: ArgumentPatch | None = None
    """The changes of the arguments."""

    def bulk_work(self) -> BulkOperation:
        wanted = filter_of(self.filters)
        act = self.act or BULK_ACTIONS[self.action][0]
        if self.patch is not None:
            act = self.patch.retry
        return BulkOperation(act, self.state, wanted, self.older_than, self.limit, self.rate)

    def filter_view(self) -> dict[str, Any]:
        named = {name: value for name, value in self.filters.items() if name in JOB_FILTERS}
        said: dict[str, Any] = {"state": self.state, **named}
        if self.older_than:
            said["olderThan"] = self.older_than
        if self.limit is not None:
            said["limit"] = self.limit
        if self.rate is not None:
            said["rate"] = self.rate
        if self.when is not None:
            said["due"] = self.when
        if self.patch is not None:
            said["patch"] = sorted(self.patch.patch)
        return {
            name: value
            for name, value in msgspec.to_builtins(said, enc_hook=str).items()
            if value is not None
        }


class OperationRunner:
    def __init__(self, store: Callable[[], Store], audit: AuditWriter) -> None:
        self._store = store
        self._audit = audit
        self._awaited: set[str] = set()
        """Operations whose request still waits, and writes their number of jobs to the audit log itself."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._now: dict[str, Operation] = {}

    async def start(self, request: OperationRequest) -> Operation:
        """Start an operation and return its record."""
        if len(self._tasks) >= MAX_RUNNING_OPERATIONS:
            raise Conflict(
                f"{MAX_RUNNING_OPERATIONS} operations are already running here; "
                "wait for one to end, or stop it"
            )
        store = self._store()
        now = int(await server_time(store) * 1000)
        counts = await request.queue.stats()
        operation = Operation(
            id=secrets.token_hex(8),
            action=request.action,
            queue=request.queue.name,
            filter=request.filter_view(),
            by=request.by,
            started_ms=now,
            updated_ms=now,
            total=getattr(counts, request.state),
        )
        await operations.write(store, operation)
        self._now[operation.id] = operation
        task = self._tasks[operation.id] = asyncio.create_task(self._run(operation.id, request))
        task.add_done_callback(lambda _: self._tasks.pop(operation.id, None))
        return operation

    async def until(self, id: str, seconds: float) -> Operation:
        """Wait until an operation of this process ends or the time is over; returns its record."""
        task = self._tasks.get(id)
        if task is not None:
            self._awaited.add(id)
            try:
                await asyncio.wait([task], timeout=seconds)
            finally:
                self._awaited.discard(id)
        return self._now[id]

    async def stop(self, id: str) -> None:
        """Stop an operation, in whichever process it runs."""
        store = self._store()
        await operations.ask_to_stop(store, id)
        if id in self._tasks:
            self._tasks[id].cancel()

    async def close(self) -> None:
        """Cancel the operations of this process; they are reported as stopped."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, id: str, request: OperationRequest) -> None:
        reporting = asyncio.create_task(self._report_forever(id))
        state: Literal["done", "failed", "stopped"] = "done"
        error = None
        try:
            client = request.queue.app._client()
            partitions = await client.router.partitions(request.queue.settings)
            await bulk.run_bulk(client, partitions, request.bulk_work(), partial(self._step, id, request))
        except asyncio.CancelledError:
            state, error = "stopped", "it was stopped; request it again to continue with the remaining jobs"
        except QbullError as failure:
            state, error = "failed", str(failure)
        except Exception:
            log.exception("operation %s: unexpected error", id)
            state, error = "failed", "internal error; see the API's log"
        reporting.cancel()
        self._now[id] = msgspec.structs.replace(self._now[id], state=state, error=error)
        try:
            await self._report(id)
        except ServerError as failure:
            log.warning("operation %s: its outcome could not be stored: %s", id, failure)
        if id not in self._awaited:
            await self._audit.write(_ended(self._now[id]))
        if len(self._now) > 10 * MAX_RUNNING_OPERATIONS:
            last = list(self._now)[-MAX_RUNNING_OPERATIONS:]
            self._now = {one: now for one, now in self._now.items() if one in last or one in self._tasks}

    def _step(self, id: str, request: OperationRequest, step: BulkStep) -> None:
        now = msgspec.structs.replace(self._now[id], done=step.done, looked_at=step.looked_at)
        if request.patch is not None:
            now = msgspec.structs.replace(now, refused=request.patch.refused, refusal=request.patch.refusal)
        self._now[id] = now

    async def _report_forever(self, id: str) -> None:
        """Report the progress again and again, and stop the operation on request."""
        while True:
            await asyncio.sleep(OPERATION_PROGRESS_SECONDS)
            try:
                stop = await self._report(id)
            except ServerError:
                continue
            if stop and id in self._tasks:
                self._tasks[id].cancel()
                return

    async def _report(self, id: str) -> bool:
        store = self._store().without_retry
        now = int(await server_time(store) * 1000)
        self._now[id] = msgspec.structs.replace(self._now[id], updated_ms=now)
        return await operations.write(store, self._now[id])


def _ended(operation: Operation) -> AuditLogEntry:
    """The entry about the end of an operation that has outlived its request."""
    detail = {"action": operation.action, "state": operation.state, "jobs": operation.done}
    target = f"{operation.queue}/{operation.id}"
    return AuditLogEntry(operation.by, "", "operation", "end operation", target, 200, detail)
