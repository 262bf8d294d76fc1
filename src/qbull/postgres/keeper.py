"""The keeper: what must be done to qbull's tables from time to time, by one process of an app.

All who could be it try to take a lock in the database; the one that has it does the work, and the next one takes over
when its connection ends. Everything it does may be done twice, so two of them for a moment do no harm.

Who calls: the same processes that relay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from qbull.core.route import digest
from qbull.errors import DatabaseAway, DatabaseRefused, ServerError
from qbull.postgres.connect import connected, cut_off_after
from qbull.postgres.prune import prune
from qbull.store.store import Store
from qbull.worker.outage import Outage

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("qbull.keeper")

AGAIN = 15.0
"""Seconds until it tries again to be the one, and to reach a database that was away."""
HOUR = 3600.0
STEP_TIMEOUT = 60.0


class Keeper:
    """`app` is its prefix; `make_store` opens its queues."""

    def __init__(self, database: str, app: str, make_store: Callable[[], Store]) -> None:
        self._database = database
        self._app = app
        self._make_store = make_store
        self._away = Outage("PostgreSQL")
        self._outage = Outage()

    async def run(self) -> None:
        """Keep until cancelled."""
        store = self._make_store()
        try:
            while True:
                try:
                    async with connected(self._database, "qbull keeper", autocommit=True) as connection:
                        self._away.over(self)
                        if await self._is_the_one(connection):
                            await self._keep(connection, store)
                except (DatabaseAway, DatabaseRefused) as error:
                    self._away.met(error, self)
                except ServerError as error:
                    self._outage.met(error, self)
                await asyncio.sleep(AGAIN)
        finally:
            await store.close()

    async def _is_the_one(self, connection: AsyncConnection) -> bool:
        """The tables must be there, and the lock free. It is held until the connection ends."""
        number = int.from_bytes(digest(f"qbull keeper {self._app}"), "big", signed=True)
        cursor = await connection.execute(
            "SELECT to_regclass('qbull_inbox') IS NOT NULL AND pg_try_advisory_lock(%s)", (number,)
        )
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _keep(self, connection: AsyncConnection, store: Store) -> None:
        while True:
            await store.open()
            with cut_off_after(STEP_TIMEOUT, connection):
                gone = await prune(connection, store, self._app)
            self._outage.over(self)
            if gone:
                log.info("%d old marks of jobs that are no longer kept were removed from qbull_inbox", gone)
            await asyncio.sleep(HOUR)
