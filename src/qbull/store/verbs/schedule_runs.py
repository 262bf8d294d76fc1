"""Schedule runs: note how they have ended. The verb is lua/schedule_ended.lua."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.core.schedule_runs import EndedRun
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

MAX_NOTED_RUNS = 500
"""Runs in one call. The limit bounds how long the script blocks the server."""


@idempotent
async def note_ended_runs(partition: Partition, runs: Sequence[EndedRun]) -> int:
    """Note how these runs have ended. Returns how many the server still knew."""
    noted = 0
    for start in range(0, len(runs), MAX_NOTED_RUNS):
        flat = [
            part
            for run in runs[start : start + MAX_NOTED_RUNS]
            for part in (run.schedule, run.id, run.letter, f"{run.duration_ms:.1f}")
        ]
        noted += await partition.server.script("schedule_ended", partition.base, *flat)
    return noted
