"""Deposit: enqueue for a user who may write to the server and not read (store/rights.py, lua/deposit.lua)."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import NewJob, Partition


@idempotent
async def deposit(
    partition: Partition, jobs: Sequence[NewJob], confirmed: ConfirmedServer | None = None, token: str = ""
) -> set[int] | None:
    """Add a batch of jobs, as Partition.enqueue does it.

    Returns:
        The positions of the jobs whose ids were there already; None if the partition takes no new jobs.
    """
    flat = [argument for job in jobs for argument in job]
    server = confirmed or partition.server
    limit = partition.settings.lane_limit
    word, *known = await server.script("deposit", partition.base, limit, token, *flat)
    return set(known) if word == b"added" else None


@idempotent
async def has_id(partition: Partition, id: str) -> bool:
    """Whether the partition has this id."""
    return bool(await partition.server.call("HEXISTS", partition.base + "index", id))
