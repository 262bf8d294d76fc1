"""Dead letters from another system: jobs that have failed there. The verb is lua/import_failed.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.closed_partition import PartitionClosed, successor_in
from qbull.store.verbs.partition import Partition


class FailedJob(NamedTuple):
    """A dead letter: its record with its ending, and the name by which it is remembered for `window_ms`."""

    id: str
    record: bytes
    name: str
    window_ms: int


@idempotent
async def import_failed(
    partition: Partition, confirmed: ConfirmedServer | None, jobs: Sequence[FailedJob]
) -> None:
    """Add dead letters. Those that were added before are not added again.

    Raises PartitionClosed.
    """
    await partition.retention.refresh()
    server = confirmed or partition.server
    flat = [argument for job in jobs for argument in job]
    word = await server.script("import_failed", partition.base, *partition.failed_retention, *flat)
    if word != b"added":
        raise PartitionClosed(set(), successor_in(word))
