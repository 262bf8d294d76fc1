"""Schedule runs: note on the server how the runs of schedules have ended, a few seconds later.

Nothing depends on a note. If this process dies before it is written, the job itself tells how it has ended,
for as long as it is kept.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from qbull.core.schedule_runs import EndedRun
from qbull.errors import ServerError
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedule_runs import note_ended_runs
from qbull.worker.outage import Outage

RUN_NOTE_SECONDS = 5.0
"""Time in which the ends of several runs gather."""


class EndedRuns:
    """For one queue. The outcome recorder adds to it."""

    def __init__(self) -> None:
        self._ended: dict[Partition, list[EndedRun]] = {}
        self._some = asyncio.Event()

    def add(self, partition: Partition, run: EndedRun) -> None:
        """A run of a schedule has ended."""
        self._ended.setdefault(partition, []).append(run)
        self._some.set()

    def take(self) -> dict[Partition, list[EndedRun]]:
        taken, self._ended = self._ended, {}
        self._some.clear()
        return taken

    async def wait(self) -> None:
        """Until a run has ended."""
        await self._some.wait()


class RunNoteWriter:
    """For one queue."""

    def __init__(self, ended: EndedRuns, outage: Outage) -> None:
        self._ended = ended
        self._outage = outage

    async def run(self) -> None:
        while True:
            await self._ended.wait()
            await asyncio.sleep(RUN_NOTE_SECONDS)
            for partition, runs in self._ended.take().items():
                await self._outage.retry_until_up(partial(note_ended_runs, partition, runs))

    async def close(self) -> None:
        """Write the last notes, unless the server is unavailable."""
        with suppress(ServerError):
            for partition, runs in self._ended.take().items():
                await note_ended_runs(partition, runs)
