"""Producers and relays die at random moments, transactions are rolled back: jobs are what was committed, exactly.

QBULL_CHAOS_SECONDS makes it longer.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import ledger
import psycopg
import pytest
from killed_processes import HERE, KilledProcesses

from conftest import eventually
from database import Postgres
from qbull.store.store import Store
from qbull.worker.actor import start_actor, stop_actors
from topology import COMMON, Node, wait_for

SECONDS = float(os.environ.get("QBULL_CHAOS_SECONDS", "3"))
PRODUCERS = 3
RELAY = [sys.executable, "-m", "qbull.cli.main", "relay", "--app", "ledger:app"]


@pytest.fixture(name="processes")
async def open_processes(
    store: Store, server_url: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KilledProcesses:
    return make_processes(server_url, database, tmp_path / "log", monkeypatch)


def make_processes(url: str, database: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> KilledProcesses:
    monkeypatch.setattr(ledger.app, "url", url)
    ledger.seen.clear()
    with psycopg.connect(database) as connection:
        connection.execute(ledger.CREATE)
    producers = [[sys.executable, HERE / "ledger.py", f"p{n}"] for n in range(PRODUCERS)]
    environment = {"LEDGER_URL": url, "QBULL_DATABASE_URL": database}
    return KilledProcesses([*producers, RELAY, RELAY], environment, log, ledger.progress)


@pytest.mark.timeout(120 + SECONDS * 2)
async def test_jobs_are_the_committed_rows_whoever_is_killed(
    processes: KilledProcesses, database: str
) -> None:
    async with ledger.app.worker() as worker:
        async with processes:
            await processes.suffer(SECONDS, kills=10)
        await ship_the_rest(database)
        await worker.drain()
        stats = await ledger.work.stats()
    await ledger.app.close()

    expected = committed(database)
    report(processes, stats.totals, expected)
    assert ledger.seen == expected, processes.log.read_text()[-2000:]
    assert stats.totals["enqueued"] == stats.totals["completed"] == sum(map(len, expected.values()))


@pytest.mark.timeout(120 + SECONDS * 2)
async def test_the_database_may_be_restarted_in_the_middle(
    processes: KilledProcesses, database: str, postgres: Postgres
) -> None:
    async with ledger.app.worker() as worker:
        async with processes:
            for kills, how in ((3, signal.SIGINT), (6, signal.SIGQUIT)):
                await processes.suffer(SECONDS / 3, kills)
                postgres.stop(how)
                postgres.start()
            await processes.suffer(SECONDS / 3, kills=9)
        await ship_the_rest(database)
        await worker.drain()
        stats = await ledger.work.stats()
    await ledger.app.close()

    expected = committed(database)
    report(processes, stats.totals, expected)
    assert ledger.seen == expected, processes.log.read_text()[-2000:]
    assert stats.totals["enqueued"] == sum(map(len, expected.values()))


@pytest.mark.timeout(120 + SECONDS * 2)
async def test_the_server_may_be_restarted_in_the_middle(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "node", COMMON.replace("appendonly no", "appendonly yes\nappendfsync always"))
    node.start()
    wait_for(node.answers)
    processes = make_processes(
        f"redis://:{node.password}@{node.place}/0", database, tmp_path / "log", monkeypatch
    )

    async with ledger.app.worker() as worker:
        async with processes:
            for kills in (3, 6):
                await processes.suffer(SECONDS / 3, kills)
                node.kill()
                node.start()
                wait_for(node.answers)
            await processes.suffer(SECONDS / 3, kills=9)
        await ship_the_rest(database)
        await worker.drain()
        stats = await ledger.work.stats()
    await ledger.app.close()
    node.kill()

    expected = committed(database)
    report(processes, stats.totals, expected)
    assert ledger.seen == expected, processes.log.read_text()[-2000:]
    assert stats.totals["enqueued"] == sum(map(len, expected.values()))


def report(processes: KilledProcesses, totals: dict[str, int], expected: dict[str, list[int]]) -> None:
    rows = sum(map(len, expected.values()))
    print(f"{processes.kills} kills, {totals['enqueued']} jobs, {rows} committed rows")


async def ship_the_rest(database: str) -> None:
    """All relays are dead: what was committed is shipped by one that is not killed."""
    ledger.app.database = database
    relay = start_actor(ledger.app.relay().run)
    await eventually(lambda: outbox_is_empty(database), within=60)
    await stop_actors([relay])
    ledger.app.database = None


async def outbox_is_empty(database: str) -> bool:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        row = await (await connection.execute("SELECT count(*) FROM qbull_outbox")).fetchone()
        return row == (0,)


def committed(database: str) -> dict[str, list[int]]:
    """The numbers of each key, in their order."""
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT key, number FROM ledger ORDER BY key, number").fetchall()
    found: dict[str, list[int]] = {}
    for key, number in rows:
        found.setdefault(key, []).append(number)
    return found
