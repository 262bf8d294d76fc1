"""The nemesis: one fault after the other, of kinds and in an order that the seed decides.

Three lines of faults go on side by side: against processes and what they serve, against connections, against servers. Each run has
only some of the kinds, drawn from the seed, because faults that always come together hide each other. Every fault is
written down with when it began and ended. When it stops, it heals what it has harmed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import redis
from faults.connections import CONNECTION_FAULTS, ConnectionFaults
from faults.processes import PROCESS_FAULTS, ProcessFaults
from faults.servers import SERVER_FAULTS, ServerFaults
from history import Book

from qbull.errors import QbullError

Deed = Callable[[str, random.Random], Awaitable[dict[str, Any] | None]]


@dataclass(frozen=True)
class Pace:
    """How often the faults of a line come: so many seconds from one to the next on average, and never before so many jobs
    were begun since the one before: on a slow machine nothing would ever be done otherwise."""

    seconds: float
    jobs: int


PACES = (Pace(1.2, 1_500), Pace(0.7, 1_000), Pace(8.0, 5_000))
"""Of processes, connections, servers."""
OPERATIONS = ("deploy", "repartition", "kill database", "move slot")
"""Kinds that belong to the load: what operators do to a living system. No seed leaves them out."""


def spread_over(paces: tuple[Pace, ...], jobs: int, faults: int) -> tuple[Pace, ...]:
    """Paces that need no more faults than are asked for until so many jobs are done; never faster ones.

    After each fault jobs stand still for a moment, so a campaign with twice as many faults as it needs takes twice as long.
    """
    many = sum(jobs / pace.jobs for pace in paces)
    scale = max(many / faults, 1.0) if jobs and faults else 1.0
    return tuple(Pace(pace.seconds, round(pace.jobs * scale)) for pace in paces)


class Nemesis:
    """`progress` says how many jobs, and steps of durable tasks, were begun."""

    def __init__(
        self, processes: ProcessFaults, connections: ConnectionFaults, servers: ServerFaults, book: Book,
        seed: int, progress: Callable[[], int],
    ) -> None:  # fmt: skip
        self._processes = processes
        self._servers = servers
        self._deeds: tuple[Deed, ...] = (processes.strike, connections.strike, servers.strike)
        self._book = book
        self._seed = seed
        self._progress = progress
        self.counts: Counter[str] = Counter()
        self.skipped = {**servers.lacks, **processes.lacks}
        self.kinds: list[list[str]] = []

    def choose(self, topology: str, only: tuple[str, ...] = ()) -> None:
        """Draw the kinds of faults: about three quarters of those that there are and all operations, or those that are asked for."""
        luck = random.Random(f"{self._seed}-kinds")
        for kinds in (PROCESS_FAULTS, CONNECTION_FAULTS, SERVER_FAULTS[topology]):
            some = luck.sample(kinds, luck.randint(max(len(kinds) // 2, 1), len(kinds)))
            some += [kind for kind in OPERATIONS if kind in kinds and kind not in some]
            chosen = [kind for kind in kinds if kind in only] if only else some
            self.kinds.append([kind for kind in chosen if kind not in self.skipped])

    async def rage(self, paces: tuple[Pace, ...], over: Callable[[], bool]) -> None:
        lines = [
            asyncio.create_task(self._line(name, kinds, pace, deed, over))
            for name, kinds, pace, deed in zip("pls", self.kinds, paces, self._deeds, strict=True)
        ]
        try:
            await asyncio.gather(*lines)
        finally:
            for line in lines:
                line.cancel()
            await self._servers.heal()
            await self._processes.heal()

    async def _line(
        self, name: str, kinds: list[str], pace: Pace, deed: Deed, over: Callable[[], bool]
    ) -> None:
        luck = random.Random(f"{self._seed}-{name}")
        deck: list[str] = []
        enough = 0
        while kinds and not over():
            await asyncio.sleep(luck.uniform(0.3, 1.7) * pace.seconds)
            while self._progress() < enough and not over():
                await asyncio.sleep(0.1)
            enough = self._progress() + pace.jobs
            deck = deck or luck.sample(kinds, len(kinds))
            kind = deck.pop()
            began = time.monotonic_ns()
            try:
                facts = await deed(kind, luck)
            except (
                redis.RedisError,
                OSError,
                LookupError,
                AssertionError,
                RuntimeError,
                QbullError,
            ) as error:
                # a server that just died, or has another role by now: that is chaos, too
                self._book.say(kind=kind, began=began, missed=repr(error)[:300])
                continue
            if facts is not None:
                self.counts[kind] += 1
                self._book.say(kind=kind, began=began, ended=time.monotonic_ns(), **facts)
