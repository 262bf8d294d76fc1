"""Shipping: enqueue rows of the outbox into the queues of an app. The relay calls it in the order of the
rows.

The partition of each row is decided now, by the same rule as for a job that is enqueued directly, so a queue
may have been repartitioned since the row was written. Sending a row twice adds nothing: its id is in the row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from qbull.core.durability import Durability
from qbull.core.ids import partition_in
from qbull.core.layout import Layout
from qbull.core.options import EncodedArguments, Options
from qbull.errors import NotFound, QbullError, ServerError
from qbull.postgres.relay import OutboxRow, ShipResult
from qbull.produce.outbox_rows import payload_of
from qbull.produce.router import PlacedJob

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.queue import Queue

SHIPPING_SETTINGS_TTL_SECONDS = 30.0
"""How long the settings of a queue are used before they are read again."""

_options = msgspec.json.Decoder(Options).decode


class OutboxShipping:
    """Ships rows to the queues of an app, and to queues that only the server's registry knows."""

    def __init__(self, app: App) -> None:
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
        """Ship the rows of one queue."""
        try:
            queue, layout = await self._queue(name)
            jobs: list[tuple[int, Durability | None, PlacedJob]] = []
            for row in rows:
                try:
                    options = _options(row.options).after(row.age)
                    arguments = _arguments(row)
                    # A relay never signs a row: it does not know who wrote it.
                    placed = queue._producer.place(layout, row.task, arguments, options, is_protected=True)
                    jobs.append((row.seq, options.profile or self._app.durability, placed))
                except (QbullError, msgspec.MsgspecError) as error:
                    shipped.refused[row.seq] = str(error)
            # Only neighbours are grouped, so that the jobs of a key keep their order.
            for durability, run in groupby(jobs, key=itemgetter(1)):
                group = list(run)
                placed_jobs = [placed for _, _, placed in group]
                await self._app._client().router.send(queue.settings, placed_jobs, durability)
                shipped.sent.extend(seq for seq, _, _ in group)
        except QbullError as error:
            shipped.resting[name] = error

    async def _queue(self, name: str) -> tuple[Queue, Layout]:
        store = self._app._client().store.without_retry
        await store.open()
        if name in self._queues:
            queue, layout, until = self._queues[name]
            # Readers of reports find queues in the registry. Jobs of a queue that is missing there would end
            # unnoticed, and their rows would be shipped again.
            if time.monotonic() < until and await store.has_queue(name):
                return queue, layout
        queue = self._app.queues.get(name) or await self._registered(name)
        layout = await store.register(queue.settings, sorted(queue.tasks))
        self._queues[name] = queue, layout, time.monotonic() + SHIPPING_SETTINGS_TTL_SECONDS
        return queue, layout

    async def _registered(self, name: str) -> Queue:
        try:
            return self._app._undeclared_queue(await self._app._client().store.without_retry.settings(name))
        except NotFound:
            if name in self._queues:  # The server has lost the queue since.
                return self._queues[name][0]
            raise ServerError(
                f'outbox: queue "{name}" is not known to the server, so its rows wait; '
                "start a worker that declares it, or give the relay its code with --app MODULE:APP"
            ) from None


def _arguments(row: OutboxRow) -> EncodedArguments:
    """The arguments of a row.

    A generated id names one job forever; one that a caller chose may be used again.
    """
    origin = row.seq if partition_in(row.job_id) is None else 0
    return EncodedArguments(payload_of(row.payload), row.key, row.job_id, row=origin)
