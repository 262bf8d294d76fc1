"""Cancel: find out which jobs of this worker were cancelled, and stop them.

A wake-up comes when a job that a worker holds is cancelled. In case it is lost, the worker also reads the
marks from time to time, with one call for each partition of which it holds jobs, and none while idle.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer

if TYPE_CHECKING:
    from qbull.worker.attempt import AttemptRunner

CANCEL_POLL_SECONDS = 0.75
"""Seconds between two looks: a running job is cancelled within one second, even if a wake-up is lost."""

CancelMarks = dict[tuple[int, bytes, bytes], str]
"""Partition, position of the delivery and id of each job that was cancelled, with the reason."""


class Canceller:
    """For one queue. It tells the attempt runner which jobs of the buffer are cancelled."""

    def __init__(self, buffer: PrefetchBuffer, attempts: AttemptRunner, outage: Outage) -> None:
        self._buffer = buffer
        self._attempts = attempts
        self._outage = outage
        self._wake_up = asyncio.Event()

    def wake_up(self) -> None:
        self._wake_up.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_POLL_SECONDS):
                    await self._wake_up.wait()
            self._wake_up.clear()
            marks: CancelMarks = {}
            for number, partition in self._buffer.partitions().items():
                for id, position, reason in await self._outage.retry_until_up(partition.cancel_marks):
                    marks[number, position, id] = reason
            self._attempts.cancel(marks)
