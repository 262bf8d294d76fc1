"""Offload: write the large arguments of jobs to the app's store before the jobs are sent.

The name has the id of the job, and the record gets the name. If the sending fails, the arguments stay behind
without a job, and a worker deletes them later. So nothing is deleted here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from qbull.codecs.arguments import ArgumentStore
from qbull.core.argument_names import argument_name
from qbull.core.flow import FlowPlan
from qbull.core.record import body_of, repack
from qbull.core.wrapped_payload import is_offloaded, wrap_offloaded
from qbull.errors import TooLarge
from qbull.produce.router import PlacedJob
from qbull.store.verbs.argument_tokens import ArgumentTokens

if TYPE_CHECKING:
    from qbull.app import App


class ArgumentOffloader:
    """Stores the large arguments of one queue's jobs."""

    def __init__(self, app: App, queue: str, store: ArgumentStore) -> None:
        self._app = app
        self._queue = queue
        self._store = store
        self._limit = app.payload_limit
        self._over = min(store.over, self._limit)

    async def jobs(self, placed: Sequence[PlacedJob]) -> list[PlacedJob]:
        """The same jobs, with the names of arguments that are too large for their records."""
        return [await self._job(each) if len(each.job.record) > self._over else each for each in placed]

    async def _job(self, placed: PlacedJob) -> PlacedJob:
        if placed.unique is not None and placed.unique.mode != "first":
            # A later call may give its arguments to this job, or this call to an earlier one: the id of the
            # job is not known yet.
            self.refuse_large(body_of(placed.job.record).payload, "a unique job that takes newer arguments")
            return placed
        record = await self.record(placed.job.id, placed.job.record)
        return msgspec.structs.replace(placed, job=placed.job._replace(record=record))

    async def record(self, id: str, record: bytes) -> bytes:
        """The record of a job, with the name of its arguments if they are too large for it."""
        if len(record) <= self._over:
            return record
        body = body_of(record)
        if len(body.payload) <= self._over or is_offloaded(body.payload):
            return record
        client = self._app._client()
        folder = client.argument_folders.get(self._queue)
        if folder is None:
            folder = await ArgumentTokens(client.store).folder(self._queue)
            client.argument_folders[self._queue] = folder
        name = argument_name(folder, id, time.time())
        await self._store.put(name, body.payload)
        body.payload = wrap_offloaded(name, len(body.payload))
        return repack(record, body)

    def refuse_large(self, payload: bytes, what: str) -> None:
        """Refuse arguments that cannot be stored elsewhere and are too large for the server."""
        if len(payload) > self._limit:
            raise TooLarge(
                f'queue "{self._queue}": the arguments take {len(payload):,} bytes, the limit is '
                f"{self._limit:,}, and those of {what} cannot be stored elsewhere; pass a reference"
            )


async def offload_plan(app: App, plan: FlowPlan) -> FlowPlan:
    """The same flow, with the names of arguments that are too large for its jobs."""
    store = app.arguments
    if store is None or not app._client().has_server:
        return plan
    jobs = [
        msgspec.structs.replace(
            seed, record=await ArgumentOffloader(app, seed.queue, store).record(seed.id, seed.record)
        )
        for seed in plan.seeds
    ]
    return FlowPlan(plan.flow, jobs)
