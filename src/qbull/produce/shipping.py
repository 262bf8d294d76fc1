"""Shipping: put rows of the outbox into the queues of an app. The relay calls it, in the order of the rows.

Where each row goes is decided now, by the same rule as for a job that is enqueued directly, so a queue may have
got more partitions since the row was written. Sending a row twice adds nothing: its id is in the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import msgspec

from qbull.core.durability import Durability
from qbull.core.ids import partition_in
from qbull.core.layout import Layout
from qbull.errors import NotFound, QbullError, ServerError
from qbull.options import EncodedArguments, Options
from qbull.postgres.relay import OutboxRow, ShipResult
from qbull.produce.client import PlacedJob
from qbull.produce.outbox_rows import payload_of
from qbull.queue import Queue, QueueApp

SHIPPING_SETTINGS_TTL_SECONDS = 30.0
"""Seconds after which a queue's settings are looked at again."""

_options = msgspec.json.Decoder(Options).decode


class ShippingApp(QueueApp, Protocol):
    """What shipping needs of an app."""

    queues: dict[str, Queue]


class OutboxShipping:
    """Queues that the app's code does not declare are known from the server's registry."""

    def __init__(self, app: ShippingApp) -> None:
        self._app = app
        self._queues: dict[str, tuple[Queue, Layout, float]] = {}

    async def __call__(self, rows: Sequence[OutboxRow]) -> ShipResult:
        shipped = ShipResult([], {}, {})
        groups: dict[str, list[OutboxRow]] = {}
        for row in rows:
            groups.setdefault(row.queue, []).append(row)
        await asyncio.gather(*(self._ship(name, group, shipped) for name, group in groups.items()))
        return shipped

    async def _ship(self, name: str, rows: list[OutboxRow], shipped: ShipResult) -> None:
        """The rows of one queue."""
        try:
            queue, layout = await self._queue(name)
            jobs: list[tuple[int, Durability | None, PlacedJob]] = []
            for row in rows:
                try:
                    options = _options(row.options).after(row.age)
                    placed = queue.place(layout, row.task, _arguments(row), options)
                    jobs.append((row.seq, options.profile or self._app.durability, placed))
                except (QbullError, msgspec.MsgspecError) as error:
                    shipped.refused[row.seq] = str(error)
            for durability, run in groupby(jobs, key=itemgetter(1)):  # only neighbours: keys keep their order
                group = list(run)
                placed_jobs = [placed for _, _, placed in group]
                await self._app.client().enqueue_many(queue.settings, placed_jobs, durability)
                shipped.sent.extend(seq for seq, _, _ in group)
        except QbullError as error:
            shipped.resting[name] = error

    async def _queue(self, name: str) -> tuple[Queue, Layout]:
        store = self._app.client().store.without_retry
        await store.open()
        if name in self._queues:
            queue, layout, until = self._queues[name]
            # Who reads reports finds queues in the registry. Were one shipped to that is not there, its jobs would end
            # without anybody knowing, and be shipped again.
            if time.monotonic() < until and await store.knows(name):
                return queue, layout
        queue = self._app.queues.get(name) or await self._registered(name)
        layout = await store.register(queue.settings, sorted(queue.tasks))
        self._queues[name] = queue, layout, time.monotonic() + SHIPPING_SETTINGS_TTL_SECONDS
        return queue, layout

    async def _registered(self, name: str) -> Queue:
        try:
            return Queue(self._app, await self._app.client().store.without_retry.settings(name))
        except NotFound:
            if name in self._queues:  # the server has lost it since
                return self._queues[name][0]
            raise ServerError(
                f'outbox: queue "{name}" is not known to the server, so its rows wait; '
                "start a worker that declares it, or give the relay its code with --app MODULE:APP"
            ) from None


def _arguments(row: OutboxRow) -> EncodedArguments:
    """An id that was made for it names one job for ever; one that its user gave may be given again."""
    origin = row.seq if partition_in(row.job_id) is None else 0
    return EncodedArguments(payload_of(row.payload), row.key, row.job_id, row=origin)
