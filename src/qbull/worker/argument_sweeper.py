"""ArgumentSweeper: delete stored arguments whose jobs are gone from the server.

A job needs its arguments as long as the server has it: while it waits, runs and retries, and also after its
end, because people run dead letters and finished jobs again. Retention deletes the job, and the sweeper
follows. It looks only at arguments that are old enough, so a job that is on its way is never missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

from qbull.codecs.arguments import ArgumentStore
from qbull.config import QueueSettings
from qbull.core.argument_names import read_argument_name
from qbull.store.store import Store
from qbull.store.verbs.argument_tokens import ArgumentTokens

log = logging.getLogger("qbull.worker")

ARGUMENT_SWEEP_SECONDS = 600.0
"""Seconds between two sweeps of a worker."""
ARGUMENT_GRACE_SECONDS = 86_400.0
"""Seconds after the enqueue before which no arguments are deleted: a flow sends its jobs one by one, and may
have to wait for a server."""
MAX_IDS_PER_CALL = 500


class ArgumentSweeper:
    """For one queue."""

    def __init__(self, store: Store, settings: QueueSettings, arguments: ArgumentStore) -> None:
        self._store = store
        self._settings = settings
        self._arguments = arguments

    async def run(self) -> None:
        """Sweep from time to time."""
        while True:
            await asyncio.sleep(ARGUMENT_SWEEP_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
            try:
                await self.sweep()
            except Exception as error:  # the server may be unavailable, and the store may raise anything
                log.warning('queue "%s": stored arguments cannot be swept: %s', self._settings.name, error)

    async def sweep(self, grace: float = ARGUMENT_GRACE_SECONDS) -> int:
        """Delete the arguments of jobs that are gone. Returns how many.

        Args:
            grace: seconds after the enqueue before which no arguments are deleted.
        """
        folder = await ArgumentTokens(self._store).known_folder(self._settings.name)
        if folder is None or not await self._is_settled():
            return 0
        before = time.time() - grace
        old: dict[str, list[str]] = {}
        for name in await self._arguments.names(folder):
            told = read_argument_name(name)
            if told is not None and told.seconds <= before:
                old.setdefault(told.id, []).append(name)
        deleted, ids = 0, sorted(old)
        for at in range(0, len(ids), MAX_IDS_PER_CALL):
            gone = await self._gone(ids[at : at + MAX_IDS_PER_CALL])
            if not await self._is_settled():
                break
            for id in gone:
                for name in old[id]:
                    await self._arguments.delete(name)
                    deleted += 1
        return deleted

    async def _gone(self, ids: list[str]) -> list[str]:
        """The ones of these jobs that no partition has."""
        left = ids
        for partition in await self._store.partitions(self._settings):
            if left:
                letters = await partition.states(left)
                left = [id for id, letter in zip(left, letters, strict=True) if letter == "-"]
        return left

    async def _is_settled(self) -> bool:
        """Whether no jobs move between partitions: one on its way could be missed in both."""
        return (await self._store.layout(self._settings)).settled
