"""Durable rows of the outbox: they stay until their job has ended, and what Redis has lost is put back."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

import qbull
from conftest import eventually
from database import Postgres
from qbull.postgres import maintenance
from qbull.postgres.reconcile import Reconciler
from qbull.postgres.relay import OutboxRow, Relay, ShipResult
from qbull.postgres.reports import ReportWriter
from qbull.produce.shipping import OutboxShipping
from qbull.store.store import Store
from qbull.worker.actor import start_actor, stop_actors

SECONDS = float(os.environ.get("QBULL_CHAOS_SECONDS", "6"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ELECTION_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(maintenance, "MAINTENANCE_POLL_SECONDS", 0.2)


@pytest.fixture(name="outbox_db")
async def open_outbox_db(app: qbull.App, database: str) -> AsyncIterator[AsyncConnection]:
    app.database = database
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        yield connection


async def shipped(outbox_db: AsyncConnection) -> dict[str, bool]:
    """The rows by their job: whether they are shipped."""
    return dict(
        await (await outbox_db.execute("SELECT job_id, sent_at IS NOT NULL FROM qbull_outbox")).fetchall()
    )


async def ship(app: qbull.App, outbox_db: AsyncConnection) -> None:
    """All that is in the outbox, by a relay that ends then."""
    relay = start_actor(app.relay().run)
    await eventually(lambda: all_are_shipped(outbox_db))
    await stop_actors([relay])


async def all_are_shipped(outbox_db: AsyncConnection) -> bool:
    return all((await shipped(outbox_db)).values())


async def reconciled(
    store: Store, outbox_db: AsyncConnection, reports: ReportWriter | None = None
) -> dict[str, bool]:
    """The rows after one look at all of them."""
    reconciler = Reconciler("test", reports or ReportWriter("test"))
    while await reconciler.step(outbox_db, store):
        pass
    return await shipped(outbox_db)


async def test_a_job_that_is_anywhere_in_the_queue_is_left_alone(
    app: qbull.App, store: Store, outbox_db: AsyncConnection
) -> None:
    keyed, plain = app.queue("keyed", order="key", partitions=3), app.queue("plain", partitions=3)
    wait = keyed.task(key="{n}")(nothing)
    go = plain.task(nothing)
    await wait.options(durability="outbox").enqueue_many([{"n": n % 4} for n in range(20)])
    await wait.options(durability="outbox", delay=60).enqueue(1)
    await go.options(durability="outbox").enqueue_many([{"n": n} for n in range(20)])
    await go.options(durability="outbox", id="my own").enqueue(1)
    await go.options(durability="outbox", key="no lane").enqueue(1)
    await ship(app, outbox_db)

    after = await reconciled(store, outbox_db)

    assert len(after) == 43 and all(after.values())


async def nothing(n: int) -> None: ...


async def test_what_was_lost_is_marked_to_be_shipped_again(
    app: qbull.App, store: Store, outbox_db: AsyncConnection
) -> None:
    task = app.queue("orders").task(nothing)
    jobs = await task.options(durability="outbox").enqueue_many([{"n": n} for n in range(3)])
    await ship(app, outbox_db)
    await jobs[1].remove()
    await store.server.call("DEL", "{test:orders:0}:reports")  # its removal is forgotten, as after a failover

    assert await reconciled(store, outbox_db) == {jobs[0].id: True, jobs[1].id: False, jobs[2].id: True}


async def test_a_job_that_was_removed_on_purpose_does_not_come_back(
    app: qbull.App, store: Store, outbox_db: AsyncConnection
) -> None:
    task = app.queue("orders").task(nothing)
    jobs = await task.options(durability="outbox").enqueue_many([{"n": n} for n in range(3)])
    await ship(app, outbox_db)
    await jobs[1].remove()

    assert await reconciled(store, outbox_db) == {jobs[0].id: True, jobs[2].id: True}


@pytest.mark.parametrize("completed", [0, 1, 100])
async def test_a_job_that_has_ended_does_not_come_back_however_long_it_is_kept(
    app: qbull.App, store: Store, outbox_db: AsyncConnection, completed: int
) -> None:
    task = app.queue("orders", keep=qbull.Keep(completed=completed), order="key").task(key="{n}")(nothing)
    await task.options(durability="outbox").enqueue_many([{"n": n % 3} for n in range(30)])
    await ship(app, outbox_db)
    app.database = None  # nobody tells while they run
    async with app.worker() as worker:
        await worker.drain()

    assert await reconciled(store, outbox_db) == {}


@pytest.mark.parametrize("relay_dies", [False, True])
async def test_a_job_that_ends_before_the_relay_has_committed_does_not_come_back(
    app: qbull.App, store: Store, outbox_db: AsyncConnection, database: str, relay_dies: bool
) -> None:
    task = app.queue("orders", keep=qbull.Keep(completed=0)).task(nothing)
    await task.options(durability="outbox").enqueue_many([{"n": n} for n in range(3)])
    app.database = None  # nobody tells while they run
    reports, telling = ReportWriter("test"), list[asyncio.Task[None]]()

    async def ship_and_run(rows: Sequence[OutboxRow]) -> ShipResult:
        shipped = await OutboxShipping(app)(rows)
        async with app.worker() as worker:
            await worker.drain()
        telling.append(asyncio.create_task(tell(reports, store, outbox_db)))
        async with await AsyncConnection.connect(database, autocommit=True) as other:
            await eventually(lambda: is_over_or_waits(telling[0], other))
        if relay_dies:
            raise ConnectionResetError
        return shipped

    async with await AsyncConnection.connect(database, autocommit=True) as relays:
        with suppress(ConnectionResetError):
            await Relay(database, "test", ship_and_run).step(relays)
    await telling[0]

    assert await reconciled(store, outbox_db, reports) == {}


async def tell(reports: ReportWriter, store: Store, outbox_db: AsyncConnection) -> None:
    for partition in await store.partitions(await store.settings("orders")):
        await reports.tell_all(outbox_db, partition)


async def is_over_or_waits(task: asyncio.Task[None], connection: AsyncConnection) -> bool:
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return task.done() or (await (await connection.execute(waiting)).fetchone()) is not None


async def test_an_empty_server_gets_everything_back(
    app: qbull.App, store: Store, outbox_db: AsyncConnection
) -> None:
    task = app.queue("orders").task(nothing)
    jobs = await task.options(durability="outbox").enqueue_many([{"n": n} for n in range(2500)])
    await ship(app, outbox_db)
    await store.server.call("FLUSHALL")

    assert await reconciled(store, outbox_db) == {job.id: False for job in jobs}


async def test_durable_rows_are_committed_together_and_wait_for_the_database(
    app: qbull.App, outbox_db: AsyncConnection, postgres: Postgres
) -> None:
    task = app.queue("orders").task(nothing)
    await task.options(durability="outbox").enqueue(0)
    postgres.stop()
    waiting = [asyncio.create_task(task.options(durability="outbox").enqueue(n)) for n in range(1, 100)]
    await asyncio.sleep(0)
    postgres.start()
    jobs = await asyncio.gather(*waiting)
    async with await AsyncConnection.connect(app.database or "") as again:
        found = await shipped(again)

    assert {job.id for job in jobs} < set(found)
    assert len(found) == 100


async def test_many_who_write_many_durable_rows_at_once_do_not_meet_in_one_transaction(
    app: qbull.App, outbox_db: AsyncConnection
) -> None:
    task = app.queue("orders").task(nothing).options(durability="outbox")
    calls = [{"n": n} for n in range(5)]
    await task.enqueue(0)

    many = await asyncio.gather(*(task.enqueue_many(calls) for _ in range(20)), task.enqueue(1))

    assert len(many) == 21
    assert len(await shipped(outbox_db)) == 102


async def test_what_was_lost_is_shipped_once_more_and_not_again(
    app: qbull.App, store: Store, outbox_db: AsyncConnection
) -> None:
    """Jobs that are not kept leave no trace but a report: it must be read although the server has forgotten the queue."""
    queue = app.queue("orders", keep=qbull.Keep(completed=0))
    runs: dict[int, int] = {}
    gate = asyncio.Event()

    @queue.task
    async def charge(number: int) -> None:
        await gate.wait()
        runs[number] = runs.get(number, 0) + 1

    await charge.options(durability="outbox").enqueue_many([{"number": n} for n in range(100)])
    async with app.worker():
        await eventually(lambda: all_are_shipped(outbox_db))
        await store.server.call("FLUSHALL")
        gate.set()
        await eventually(lambda: nothing_is_open(outbox_db))

    assert set(runs) == set(range(100))
    assert max(runs.values()) <= 2


@pytest.mark.timeout(120 + SECONDS * 3)
async def test_nothing_is_lost_when_redis_is_emptied_in_the_middle(
    app: qbull.App, store: Store, outbox_db: AsyncConnection, database: str
) -> None:
    queue = app.queue("orders", order="key", partitions=2, concurrency=10, keep=qbull.Keep(completed=5))
    await outbox_db.execute("CREATE TABLE effects (key text, number int)")
    luck = random.Random()
    pool = AsyncConnectionPool(database, min_size=1, max_size=10, open=False)
    asked, wipes = 0, 0

    @queue.task(key="{key}")
    async def charge(key: str, number: int) -> None:
        await asyncio.sleep(luck.random() * 0.01)
        async with qbull.postgres.once(pool) as connection:
            await connection.execute("INSERT INTO effects VALUES (%s, %s)", (key, number))

    async with pool, app.worker():
        deadline = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < deadline or wipes < 3:
            if await how_many_are_open(outbox_db) < 500:  # what is asked for can be done
                calls = [{"key": f"k{n % 7}", "number": asked + n} for n in range(20)]
                await charge.options(durability="outbox").enqueue_many(calls)
                asked += 20
            await asyncio.sleep(0.02)
            if luck.random() < 0.02:
                await store.server.call("FLUSHALL")
                wipes += 1
        await eventually(lambda: nothing_is_open(outbox_db), within=90)
    row = await (await outbox_db.execute("SELECT count(*), count(DISTINCT number) FROM effects")).fetchone()

    print(f"{wipes} times emptied, {asked} jobs asked for, effects {row}")
    assert row == (asked, asked)


async def how_many_are_open(outbox_db: AsyncConnection) -> int:
    row = await (await outbox_db.execute("SELECT count(*) FROM qbull_outbox")).fetchone()
    return int((row or (0,))[0])


async def nothing_is_open(outbox_db: AsyncConnection) -> bool:
    return await shipped(outbox_db) == {}
