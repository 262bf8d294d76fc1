"""Workers are killed, frozen and continued, the database and the server are restarted: no money is made or lost.

QBULL_CHAOS_SECONDS makes it longer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import bank
import psycopg
import pytest
from killed_processes import KilledProcesses

from database import Postgres
from qbull.errors import ServerError
from qbull.store.store import Store
from topology import COMMON, Node, wait_for

SECONDS = float(os.environ.get("QBULL_CHAOS_SECONDS", "6"))
WORKER = [sys.executable, "-m", "qbull.cli.main", "worker", "bank:app", "--grace", "5"]


class Bank:
    """Counts what was done, so that the nemesis strikes while there is work."""

    def __init__(self, processes: KilledProcesses, database: str) -> None:
        self.processes, self.database = processes, database
        self.asked = 0
        self.moved = 0
        self.redriven = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Asks for transfers, and watches them happen, for as long as the block lasts."""
        working = [asyncio.create_task(self._ask()), asyncio.create_task(self._watch())]
        try:
            async with self.processes:
                yield
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)

    async def finish(self) -> None:
        """What was being asked for when the asking ended is asked for again; one more worker, that nobody hits, does it all.

        A job whose worker was killed three times while it ran is a dead letter by design: somebody redrives it.
        """
        await bank.transfer.enqueue_many([bank.random_transfer(self.asked + n) for n in range(50)])
        self.asked += 50
        async with bank.app.worker() as worker:
            await worker.drain()
            self.redriven = await bank.transfers.redrive()
            await worker.drain()
        await bank.pool.close()

    async def _ask(self) -> None:
        while True:
            if self.asked - self.moved < 200:
                more = [bank.random_transfer(self.asked + n) for n in range(50)]
                try:
                    await bank.transfer.enqueue_many(more)
                    self.asked += 50
                except ServerError:
                    continue  # asked again with the same numbers, which are their ids
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self.database) as connection:
                    while True:
                        self.moved = await bank.done(connection)
                        await asyncio.sleep(0.05)
            except psycopg.OperationalError:
                await asyncio.sleep(0.1)

    def books(self) -> tuple[int, int, int]:
        """The sum of all balances, how many transfers were booked, and how many different ones."""
        with psycopg.connect(self.database) as connection:
            money = connection.execute("SELECT sum(balance)::bigint FROM accounts").fetchone()
            booked = connection.execute("SELECT count(*), count(DISTINCT number) FROM transfers").fetchone()
        assert money is not None and booked is not None
        return money[0], booked[0], booked[1]


def make_bank(url: str, database: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    monkeypatch.setattr(bank.app, "url", url)
    monkeypatch.setattr(
        bank, "pool", bank.AsyncConnectionPool(database, min_size=1, max_size=10, open=False, timeout=5)
    )
    with psycopg.connect(database) as connection:
        connection.execute(bank.CREATE.encode())
    environment = {"BANK_URL": url, "BANK_DATABASE": database, "MIN_IDLE_TIME_MS": "500"}
    processes = KilledProcesses([WORKER] * 3, environment, log, lambda: made.moved, pause=0.4, stops=True)
    made = Bank(processes, database)
    return made


@pytest.mark.timeout(180 + SECONDS * 3)
async def test_each_transfer_happens_once_while_workers_are_killed_and_frozen(
    store: Store, server_url: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank_ = make_bank(server_url, database, tmp_path / "log", monkeypatch)

    async with bank_.open():
        await bank_.processes.suffer(SECONDS, kills=5)
    await bank_.finish()
    stats = await bank.transfers.stats()
    await bank.app.close()

    report(bank_, stats.totals)
    assert stats.failed == 0
    assert bank_.books() == (bank.ACCOUNTS * bank.RICH, bank_.asked, bank_.asked)


@pytest.mark.timeout(180 + SECONDS * 3)
async def test_each_transfer_happens_once_while_server_and_database_are_restarted(
    postgres: Postgres, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "node", COMMON.replace("appendonly no", "appendonly yes\nappendfsync always"))
    node.start()
    wait_for(node.answers)
    bank_ = make_bank(f"redis://:{node.password}@{node.place}/0", database, tmp_path / "log", monkeypatch)

    async with bank_.open():
        await bank_.processes.suffer(SECONDS / 3, kills=2)
        postgres.stop(signal.SIGQUIT)
        postgres.start()
        await bank_.processes.suffer(SECONDS / 3, kills=4)
        node.kill()
        node.start()
        wait_for(node.answers)
        await bank_.processes.suffer(SECONDS / 3, kills=6)
    await bank_.finish()
    stats = await bank.transfers.stats()
    await bank.app.close()
    node.kill()

    report(bank_, stats.totals)
    assert stats.failed == 0
    assert bank_.books() == (bank.ACCOUNTS * bank.RICH, bank_.asked, bank_.asked)


def report(bank_: Bank, totals: dict[str, int]) -> None:
    processes = bank_.processes
    print(
        f"{processes.kills} kills, {processes.freezes} freezes, {bank_.asked} transfers asked for, {bank_.redriven} redriven, totals {totals}"
    )
