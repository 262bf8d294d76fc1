"""Fork: add a job together with the history that it continues (lua/fork.lua)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.closed_partition import PartitionClosed, successor_in
from qbull.store.verbs.partition import NewJob, Partition


class ForkedJob(NamedTuple):
    """A new job and its history, and a token that was made for this call."""

    job: NewJob
    history: Mapping[bytes, bytes]
    token: str


@idempotent
async def add_fork(partition: Partition, confirmed: ConfirmedServer | None, fork: ForkedJob) -> bool:
    """Add the job. Returns False if there is a job with its id. Raises PartitionClosed."""
    server, limit = confirmed or partition.server, partition.settings.lane_limit
    data = [part for field in fork.history.items() for part in field]
    head = (limit, fork.token, fork.job.id, fork.job.record)
    word = await server.script("fork", partition.base, *head, *data)
    if word not in (b"added", b"known"):
        raise PartitionClosed(set(), successor_in(word))
    return bool(word == b"added")
