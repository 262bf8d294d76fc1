"""The keeper: what must be done to qbull's tables all the time, by one process of an app.

It tells PostgreSQL what happened to jobs (reports.py), puts back what Redis has lost (reconcile.py) and removes old marks
(prune.py). All who could be it try to take a lock in the database; the one that has it does the work, and another one
takes over when its connection ends. Everything it does may be done twice, so two of them for a moment do no harm.

Who calls: the same processes that relay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from qbull.core.route import digest
from qbull.errors import DatabaseAway, DatabaseRefused, ServerError
from qbull.postgres.connect import connected, cut_off_after
from qbull.postgres.prune import prune_marks
from qbull.postgres.reconcile import Reconciler
from qbull.postgres.reports import ReportWriter
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.worker.outage import Outage

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("qbull.keeper")

ELECTION_RETRY_SECONDS = 10.0
"""Seconds until it tries again to be the one, and to reach a database that was away."""
REPORT_POLL_SECONDS = 0.2
"""Seconds between two looks for reports, where there were none."""
MAINTENANCE_POLL_SECONDS = 5.0
"""Seconds between two looks at which queues report, and at whether something was lost."""
FULL_SCAN_INTERVAL_SECONDS = 60.0
"""Seconds between two looks at queues that do not seem to report."""
PRUNE_INTERVAL_SECONDS = 3600.0
MAINTENANCE_STEP_TIMEOUT_SECONDS = 60.0

SELECT_DURABLE_QUEUES_SQL = "SELECT DISTINCT queue FROM qbull_outbox WHERE app = %s AND durable"


class DatabaseMaintainer:
    """`app` is its prefix; `make_store` opens its queues. `away` is shared by all who use the database."""

    def __init__(
        self, database: str, app: str, make_store: Callable[[], Store], away: Outage | None = None
    ) -> None:
        self._database = database
        self._app = app
        self._make_store = make_store
        self._away = away or Outage("PostgreSQL")
        self._outage = Outage()
        self._reports = ReportWriter(app)
        self._reconciler = Reconciler(app, self._reports)
        self._due = dict.fromkeys(("look", "look at all", "reconcile", "prune"), 0.0)
        self._open: set[str] = set()

    async def run(self) -> None:
        """Keep until cancelled."""
        store = self._make_store().without_retry
        try:
            while True:
                try:
                    async with connected(self._database, "qbull keeper", autocommit=True) as connection:
                        self._away.recovered(self)
                        if await self._is_the_one(connection):
                            await self._keep(connection, store)
                except (DatabaseAway, DatabaseRefused) as error:
                    self._away.failed(error, self)
                await asyncio.sleep(ELECTION_RETRY_SECONDS)
        finally:
            await store.close()

    async def _is_the_one(self, connection: AsyncConnection) -> bool:
        """The tables must be there, and the lock free. It is held until the connection ends."""
        number = int.from_bytes(digest(f"qbull keeper {self._app}"), "big", signed=True)
        cursor = await connection.execute(
            "SELECT to_regclass('qbull_jobs') IS NOT NULL AND pg_try_advisory_lock(%s)", (number,)
        )
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _keep(self, connection: AsyncConnection, store: Store) -> None:
        partitions: list[Partition] = []
        while True:
            pause = REPORT_POLL_SECONDS
            try:
                with cut_off_after(MAINTENANCE_STEP_TIMEOUT_SECONDS, connection):
                    await store.open()
                    if self._is_due("look", MAINTENANCE_POLL_SECONDS):
                        partitions = await self._look(connection, store)
                    if await self._reports.tell(connection, partitions):
                        pause = 0.0
                    if self._open and self._is_due("reconcile", MAINTENANCE_POLL_SECONDS):
                        more = await self._reconciler.step(connection, store)
                        self._due["reconcile"] *= not more
                    if self._is_due("prune", PRUNE_INTERVAL_SECONDS):
                        await self._prune(connection, store)
                self._outage.recovered(self)
            except (DatabaseAway, DatabaseRefused):
                raise
            except ServerError as error:
                self._outage.failed(error, self)
                pause = MAINTENANCE_POLL_SECONDS
            await asyncio.sleep(pause)

    def _is_due(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + every
        return True

    async def _look(self, connection: AsyncConnection, store: Store) -> list[Partition]:
        """The partitions to read reports of: of queues that are tracked, or have durable jobs; now and then of all."""
        cursor = await connection.execute(SELECT_DURABLE_QUEUES_SQL, (self._app,))
        self._open = {row[0] for row in await cursor.fetchall()}
        all_of_them = self._is_due("look at all", FULL_SCAN_INTERVAL_SECONDS)
        found: list[Partition] = []
        for queue in await store.queues():
            settings = await store.settings(queue)
            if settings.track or queue in self._open or all_of_them:
                found += await store.partitions(settings)
        return found

    async def _prune(self, connection: AsyncConnection, store: Store) -> None:
        gone = await prune_marks(connection, store, self._app)
        if gone:
            log.info("%d old marks of jobs that are no longer kept were removed from qbull_inbox", gone)
