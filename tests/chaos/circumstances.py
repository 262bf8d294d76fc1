"""Circumstances: what the nemesis did to whom and when, for the oracles. Everything is from its own notes, nothing from a log of qbull.

A worker may be taken for dead only if it, or its supervisor, was really frozen or cut off from the servers for long enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Protocol

from job_plan import MIN_IDLE

SECOND = 1_000_000_000
LONG = int(MIN_IDLE * SECOND / 2)
"""A shorter freeze or cut keeps nobody from sending heartbeats in time."""
NEAR = SECOND // 2
"""Two cuts that are no further apart count as one."""
WAKING = 10 * SECOND
"""A worker that was taken for dead has learned of it by then."""
SPLIT = 5 * SECOND
"""A primary that was replaced may take itself for one so much longer."""
HEARD = SECOND
"""A sentinel that is asked for the primary may hear of another one so much later than a worker that asked another sentinel."""
NEVER = 1 << 62

Words = list[dict[str, Any]]


class HasRun(Protocol):
    process: int
    began: int
    ended: int | None


class Circumstances:
    """`words` are the notes of the nemesis and of the campaign about the servers, `effects` the rows of durable tasks in PostgreSQL.

    `runs_ahead`: the durability lets quick jobs of a key start before the outcome of the one before them is written."""

    def __init__(
        self, words: Words, *, crashed: Iterable[str] = (), ticks_until: int = 0, replicated: bool = False,
        effects: dict[str, int] | None = None, runs_ahead: bool = False,
    ) -> None:  # fmt: skip
        self.crashed = set(crashed)
        self.effects = effects
        self.ticks_until = ticks_until
        self.replicated = replicated
        self.runs_ahead = runs_ahead
        self.deaths: dict[int, int] = {pid: word["at_ns"] for word in words for pid in word.get("pids", ())}
        self._disturbed = _merged(words)
        self.disturbances = sum(len(some) for some in self._disturbed.values())
        looks = [word for word in words if "owners" in word]
        moves = [word for word in words if word.get("kind") == "move slot"]
        self._failovers = [pair for pair in pairwise(looks) if not _is_move(*pair, moves)]
        self.failovers = len(self._failovers)

    def follow(self, process: int, worker: int) -> None:
        """What happened to the worker happened to this process of it, too."""
        if worker in self.deaths:
            self.deaths[process] = self.deaths[worker]
        if worker in self._disturbed:
            self._disturbed[process] = self._disturbed[worker]

    def is_dead(self, process: int, at: int) -> bool:
        return self.deaths.get(process, NEVER) <= at

    def end_of(self, run: HasRun) -> int:
        """When a run ended: as it says, or with its process."""
        return run.ended if run.ended is not None else self.deaths.get(run.process, NEVER)

    def was_taken_over(self, process: int, since: int, until: int) -> bool:
        """Whether it may have been taken for dead, and not know it yet, at some time between the two."""
        some = self._disturbed.get(process, ())
        return any(low <= until and high + WAKING >= since for low, high in some)

    def failed_over(self, since: int, until: int, partition: int | None = None) -> bool:
        """Whether a partition of "work", or any, had another primary at some time between the two."""
        return any(
            after["before"] - HEARD < until
            and after["since"] + SPLIT > since
            and (partition is None or before["owners"][partition] != after["owners"][partition])
            for before, after in self._failovers
        )


def _is_move(before: dict[str, Any], after: dict[str, Any], moves: Words) -> bool:
    """Whether somebody moved the slot of the only partitions that changed their primary: nobody took over from anybody."""
    changed = {
        n for n, pair in enumerate(zip(before["owners"], after["owners"], strict=True)) if pair[0] != pair[1]
    }
    under_way = [
        move
        for move in moves
        if move["began"] <= after["since"] and after["before"] <= move.get("ended", move["began"]) + SECOND
    ]
    return bool(changed) and changed <= {move.get("partition") for move in under_way}


def _merged(words: Iterable[dict[str, Any]]) -> dict[int, list[tuple[int, int]]]:
    """Of each process, when it was frozen or cut off for long."""
    all_times: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for word in words:
        for process in (*word.get("frozen", ()), *word.get("cut_off", ())):
            all_times[process].append((word["began"], word["ended"]))
    found: dict[int, list[tuple[int, int]]] = {}
    for process, times in all_times.items():
        merged: list[tuple[int, int]] = []
        for low, high in sorted(times):
            if merged and low <= merged[-1][1] + NEAR:
                merged[-1] = merged[-1][0], max(high, merged[-1][1])
            else:
                merged.append((low, high))
        if long := [(low, high) for low, high in merged if high - low >= LONG]:
            found[process] = long
    return found
