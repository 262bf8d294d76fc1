"""Prune: delete old marks of the inbox, after nobody can run their job again.

A mark stays as long as its job is anywhere in the queue, dead letters included, or has a row in the outbox.
It stays for at least 40 days.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbull.errors import NotFound
from qbull.store.store import Store

if TYPE_CHECKING:
    from psycopg import AsyncConnection

MARK_RETENTION_INTERVAL = "40 days"
PRUNE_BATCH_SIZE = 1000

SELECT_OLD_MARKS_SQL = """\
SELECT queue, job_id, step, marked_at FROM qbull_inbox i
WHERE app = %(app)s AND marked_at < clock_timestamp() - %(age)s::interval
  AND (marked_at, job_id, queue, step) > (%(after)s::timestamptz, %(job_id)s, %(queue)s, %(step)s)
  AND NOT EXISTS (
    SELECT FROM qbull_outbox o WHERE o.app = i.app AND o.queue = i.queue AND o.job_id = i.job_id
  )
ORDER BY marked_at, job_id, queue, step LIMIT %(most)s"""
DELETE_MARKS_SQL = """\
DELETE FROM qbull_inbox i
USING unnest(%(queues)s::text[], %(ids)s::text[], %(ages)s::timestamptz[]) AS old(queue, job_id, at)
WHERE i.app = %(app)s AND i.queue = old.queue AND i.job_id = old.job_id AND i.marked_at = old.at"""


async def prune_marks(
    connection: AsyncConnection, store: Store, app: str, age: str = MARK_RETENTION_INTERVAL
) -> int:
    """Remove marks that are old and no longer needed, a thousand rows at a time; returns how many."""
    removed = 0
    last: tuple[str, str, str, object] = ("", "", "", "-infinity")
    while True:
        queue, job_id, step, after = last
        cursor = await connection.execute(
            SELECT_OLD_MARKS_SQL,
            {
                "app": app,
                "age": age,
                "after": after,
                "job_id": job_id,
                "queue": queue,
                "step": step,
                "most": PRUNE_BATCH_SIZE,
            },
        )
        rows = await cursor.fetchall()
        if not rows:
            return removed
        last = rows[-1]
        known = {
            queue: await _known_ids(store, queue, [row[1] for row in rows if row[0] == queue])
            for queue in {row[0] for row in rows}
        }

        gone = [row for row in rows if row[1] not in known[row[0]]]
        dropped = await connection.execute(
            DELETE_MARKS_SQL,
            {
                "app": app,
                "queues": [row[0] for row in gone],
                "ids": [row[1] for row in gone],
                "ages": [row[3] for row in gone],
            },
        )
        removed += dropped.rowcount


async def _known_ids(store: Store, queue: str, ids: Sequence[str]) -> set[str]:
    """The jobs among these that are anywhere in the queue."""
    try:
        settings = await store.settings(queue)
    except NotFound:
        return set()
    found: set[str] = set()
    for partition in await store.partitions(settings):
        states = await partition.states(ids)
        found |= {id for id, state in zip(ids, states, strict=True) if state != "-"}
    return found
