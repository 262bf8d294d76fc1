"""Maintenance of qbull's tables in PostgreSQL, done by one process of an app at a time.

It writes the reports of jobs to PostgreSQL (reports.py), enqueues jobs again that Redis has lost
(reconcile.py) and deletes old marks (prune.py). Every process that relays tries to take a lock in the
database. The one that holds the lock does the work; another one takes over when its connection ends. Every
step is idempotent, so two processes at the same moment do no harm.
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

log = logging.getLogger("qbull.maintenance")

ELECTION_RETRY_SECONDS = 10.0
"""Seconds until it tries again to take the lock, and to reach a database that was unavailable."""
REPORT_POLL_SECONDS = 0.2
"""Seconds between two reads of reports, if the last one found none."""
MAINTENANCE_POLL_SECONDS = 5.0
"""Seconds between two checks of which queues report, and whether a job was lost."""
FULL_SCAN_INTERVAL_SECONDS = 60.0
"""Seconds between two reads of the queues that do not seem to report."""
PRUNE_INTERVAL_SECONDS = 3600.0
MAINTENANCE_STEP_TIMEOUT_SECONDS = 60.0

SELECT_DURABLE_QUEUES_SQL = "SELECT DISTINCT queue FROM qbull_outbox WHERE app = %s AND durable"


class DatabaseMaintenance:
    """Maintains the tables of one app for as long as it runs.

    Args:
        database: the URL of the database.
        app: the prefix of the app.
        make_store: opens the store that has the app's queues.
        outage: the outage of the database, shared by all its users in this process.
    """

    def __init__(
        self, database: str, app: str, make_store: Callable[[], Store], outage: Outage | None = None
    ) -> None:
        self._database = database
        self._app = app
        self._make_store = make_store
        self._database_outage = outage or Outage("PostgreSQL")
        self._outage = Outage()
        self._reports = ReportWriter(app)
        self._reconciler = Reconciler(app, self._reports)
        self._due = dict.fromkeys(("find queues", "find all queues", "reconcile", "prune"), 0.0)
        self._durable_queues: set[str] = set()

    async def run(self) -> None:
        """Maintain the tables until cancelled."""
        store = self._make_store().without_retry
        try:
            while True:
                try:
                    async with connected(self._database, "qbull maintenance", autocommit=True) as connection:
                        self._database_outage.recovered(self)
                        if await self._take_lock(connection):
                            await self._maintain(connection, store)
                except (DatabaseAway, DatabaseRefused) as error:
                    self._database_outage.failed(error, self)
                await asyncio.sleep(ELECTION_RETRY_SECONDS)
        finally:
            await store.close()

    async def _take_lock(self, connection: AsyncConnection) -> bool:
        """Take the lock if the tables exist and it is free. The connection holds it until it ends."""
        # The text makes the lock's number, so it must stay as it is.
        number = int.from_bytes(digest(f"qbull keeper {self._app}"), "big", signed=True)
        cursor = await connection.execute(
            "SELECT to_regclass('qbull_jobs') IS NOT NULL AND pg_try_advisory_lock(%s)", (number,)
        )
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _maintain(self, connection: AsyncConnection, store: Store) -> None:
        partitions: list[Partition] = []
        while True:
            pause = REPORT_POLL_SECONDS
            try:
                with cut_off_after(MAINTENANCE_STEP_TIMEOUT_SECONDS, connection):
                    await store.open()
                    if self._is_due("find queues", MAINTENANCE_POLL_SECONDS):
                        partitions = await self._reporting_partitions(connection, store)
                    if await self._reports.tell(connection, partitions):
                        pause = 0.0
                    if self._durable_queues and self._is_due("reconcile", MAINTENANCE_POLL_SECONDS):
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

    def _is_due(self, step: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._due[step]:
            return False
        self._due[step] = now + every
        return True

    async def _reporting_partitions(self, connection: AsyncConnection, store: Store) -> list[Partition]:
        """The partitions of tracked queues and of queues with durable jobs; now and then all partitions."""
        cursor = await connection.execute(SELECT_DURABLE_QUEUES_SQL, (self._app,))
        self._durable_queues = {row[0] for row in await cursor.fetchall()}
        every_queue = self._is_due("find all queues", FULL_SCAN_INTERVAL_SECONDS)
        partitions: list[Partition] = []
        for queue in await store.queues():
            settings = await store.settings(queue)
            if settings.track or queue in self._durable_queues or every_queue:
                partitions += await store.partitions(settings)
        return partitions

    async def _prune(self, connection: AsyncConnection, store: Store) -> None:
        removed = await prune_marks(connection, store, self._app)
        if removed:
            log.info("%d old marks of jobs that are no longer kept were deleted from qbull_inbox", removed)
