"""The inbox: an effect and its mark are one, and of all runs of a job one has the effect, whichever comes late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import inbox_cpu
import psycopg
import pytest
import sqlalchemy
from django_project import open_django_project
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

import qbull
from conftest import eventually
from qbull.core.outcome import AlreadyDone
from qbull.core.record import ExtendedBody, pack
from qbull.postgres.prune import prune_marks
from qbull.store.store import Store
from qbull.worker.current import RunningJob, running

EFFECT = "INSERT INTO effects VALUES ('charged')"


@pytest.fixture(name="bank")
def open_bank(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (what text)")
        yield connection


@pytest.fixture(name="pool")
async def open_pool(bank: psycopg.Connection, database: str) -> AsyncIterator[AsyncConnectionPool]:
    async with AsyncConnectionPool(database, min_size=2, max_size=5) as pool:
        yield pool


def effects(bank: psycopg.Connection) -> int:
    row = bank.execute("SELECT count(*) FROM effects").fetchone()
    return int((row or (0,))[0])


@contextlib.contextmanager
def run_of(job: str, fence: int, attempt: int = 1) -> Iterator[None]:
    """As if this were a run of that job, handed over as that entry."""
    body = ExtendedBody("charge", b"{}", attempt=attempt, row=1)
    record = pack(body, priority=5, lane=b"")
    now = RunningJob("orders", b"5%d-0" % fence, job.encode(), record, body)
    now.app = "test"
    token = running.set(now)
    try:
        yield
    finally:
        running.reset(token)


async def charge(pool: Any) -> None:
    async with qbull.postgres.once(pool) as connection:
        await connection.execute(EFFECT)


async def test_a_run_that_comes_late_finds_the_mark(
    bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    with run_of("j1", fence=2):
        await charge(pool)
    # After a failover that has lost the delivery, another worker may have the same one.
    for fence in (1, 2, 3):
        with run_of("j1", fence), pytest.raises(AlreadyDone):
            await charge(pool)

    assert effects(bank) == 1


async def test_an_earlier_run_is_refused_although_the_later_one_failed(
    bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    with run_of("j1", fence=2), pytest.raises(ZeroDivisionError):
        async with qbull.postgres.once(pool) as connection:
            await connection.execute(EFFECT)
            raise ZeroDivisionError
    with run_of("j1", fence=1), pytest.raises(qbull.TakenOver, match="job j1 was delivered again"):
        await charge(pool)
    before = effects(bank)
    with run_of("j1", fence=3, attempt=2):
        await charge(pool)

    assert (before, effects(bank)) == (0, 1)


async def test_an_earlier_run_is_refused_although_the_later_one_died(
    bank: psycopg.Connection, pool: AsyncConnectionPool, database: str
) -> None:
    """A job that is handed over again says so before it begins."""
    with run_of("j1", fence=2, attempt=2):
        guard = qbull.postgres.once(pool)
        connection = await guard.__aenter__()
        bank.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        with contextlib.suppress(psycopg.OperationalError):
            await guard.__aexit__(None, None, None)
    with run_of("j1", fence=1), pytest.raises(qbull.TakenOver):
        await charge(pool)

    assert effects(bank) == 0


async def test_a_second_run_waits_for_the_first_to_end(
    bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    with run_of("j1", fence=1):
        first = qbull.postgres.once(pool)
        connection = await first.__aenter__()
        await connection.execute(EFFECT)
    with run_of("j1", fence=2):
        second = asyncio.create_task(charge_or_done(pool))
    await eventually(lambda: somebody_waits(bank))
    waited = not second.done()
    await first.__aexit__(None, None, None)

    assert await second == "already done"
    assert waited
    assert effects(bank) == 1


async def test_a_second_run_goes_on_when_the_first_has_died(
    bank: psycopg.Connection, pool: AsyncConnectionPool, database: str
) -> None:
    async with AsyncConnectionPool(database, min_size=1, max_size=1) as theirs:
        with run_of("j1", fence=1):
            first = qbull.postgres.once(theirs)
            connection = await first.__aenter__()
            await connection.execute(EFFECT)
        with run_of("j1", fence=2):
            second = asyncio.create_task(charge_or_done(pool))
        await eventually(lambda: somebody_waits(bank))
        bank.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

        assert await second == "charged"
        with pytest.raises(psycopg.OperationalError):
            await first.__aexit__(None, None, None)
    assert effects(bank) == 1


async def charge_or_done(pool: AsyncConnectionPool) -> str:
    try:
        await charge(pool)
    except AlreadyDone:
        return "already done"
    return "charged"


async def somebody_waits(bank: psycopg.Connection) -> bool:
    return bank.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None


async def test_a_task_that_catches_exceptions_does_not_catch_that_it_is_done(
    app: qbull.App, bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    seen: list[str] = []

    @app.queue("orders", retry=qbull.Retry(delays=(0,))).task
    async def careful() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(charge(pool))
        except Exception as error:
            seen.append(repr(error))
            raise qbull.Fail("it did not work") from error
        raise ConnectionError

    job = await careful.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    assert seen == []
    assert effects(bank) == 1


async def test_a_run_whose_job_was_handed_over_again_is_refused_before_it_begins(
    app: qbull.App, store: Store, bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    """As after a freeze: the queue knows it first, although nobody else has been in the database."""
    refused = asyncio.Event()

    @app.queue("orders", retry=qbull.Retry(attempts=1)).task
    async def frozen() -> None:
        job = running.get()
        assert job is not None and job.partition is not None
        await job.partition.release(worker.id, [job.position])
        try:
            await charge(pool)
        except qbull.TakenOver:
            refused.set()
            raise

    await frozen.enqueue()
    async with app.worker() as worker:
        await asyncio.wait_for(refused.wait(), 20)

    assert effects(bank) == 0


async def test_a_task_in_a_process_of_its_own(
    app: qbull.App, bank: psycopg.Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    queue = app.queue("orders", retry=qbull.Retry(delays=(0,)))
    job = await queue.task(cpu=True)(inbox_cpu.charge).enqueue(database)
    async with app.worker():
        result = await job.result(timeout=30)

    assert result is None  # of the second run, which found the mark
    assert effects(bank) == 1
    assert bank.execute("SELECT app, queue, done FROM qbull_inbox").fetchall() == [("test", "orders", True)]


async def test_an_id_that_is_given_again_later_is_another_job(
    app: qbull.App, bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    @app.queue("orders", keep=qbull.Keep(completed=0), retry=qbull.Retry(delays=(0,))).task(id="daily")
    async def report() -> None:
        await charge(pool)
        if qbull.current_job().attempt == 1:
            raise ConnectionError

    async with app.worker() as worker:
        for _ in range(3):
            await report.enqueue()
            await worker.drain()

    assert effects(bank) == 3


async def test_a_row_that_is_shipped_again_is_the_same_job(
    app: qbull.App, store: Store, bank: psycopg.Connection, pool: AsyncConnectionPool, database: str
) -> None:
    @app.queue("orders", keep=qbull.Keep(completed=0)).task(id="daily")
    async def report() -> None:
        await charge(pool)

    app.database = database
    relay = app.relay()
    await report.options(durability="outbox").enqueue()
    app.database = None  # the only relay is the one below
    async with await AsyncConnection.connect(database, autocommit=True) as connection, app.worker() as worker:
        for _ in range(3):
            await connection.execute("UPDATE qbull_outbox SET sent_at = NULL")
            await relay.step(connection)
            await worker.drain()

    assert effects(bank) == 1
    assert (await report.queue.stats()).totals["completed"] == 3


async def test_asyncpg(bank: psycopg.Connection, database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=2) as pool:
        with run_of("j1", fence=1):
            await charge(pool)
        with run_of("j1", fence=2), pytest.raises(AlreadyDone):
            await charge(pool)

    assert effects(bank) == 1


async def test_sqlalchemy_asynchronous(bank: psycopg.Connection, database: str) -> None:
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:"))
    for job, pool in (("j1", engine), ("j2", async_sessionmaker(engine))):
        for fence in (1, 2):
            with run_of(job, fence), contextlib.suppress(AlreadyDone):
                async with qbull.postgres.once(pool) as session:
                    await session.execute(sqlalchemy.text(EFFECT))
    await engine.dispose()

    assert effects(bank) == 2


def test_sqlalchemy_synchronous(bank: psycopg.Connection, database: str) -> None:
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    for job, pool in (("j1", engine), ("j2", sessionmaker(engine))):
        for fence in (1, 2):
            with (
                run_of(job, fence),
                contextlib.suppress(AlreadyDone),
                qbull.postgres.once(pool) as session,
            ):
                session.execute(sqlalchemy.text(EFFECT))
    engine.dispose()

    assert effects(bank) == 2


def test_django(bank: psycopg.Connection, database: str) -> None:
    open_django_project(database)
    from django.db import connection

    for fence in (1, 2):
        with (
            run_of("j1", fence),
            contextlib.suppress(AlreadyDone),
            qbull.postgres.once(connection) as same,
            same.cursor() as cursor,
        ):
            cursor.execute(EFFECT)
    with run_of("j2", 1), pytest.raises(ValueError), qbull.postgres.once(connection) as same:
        with same.cursor() as cursor:
            cursor.execute(EFFECT)
        raise ValueError("rolled back with its mark")
    connection.close()

    assert effects(bank) == 1


def test_psycopg_with_rows_of_another_kind(bank: psycopg.Connection, database: str) -> None:
    with ConnectionPool(database, min_size=1, kwargs={"row_factory": dict_row, "autocommit": True}) as pool:
        for fence in (1, 2, 3):
            with (
                run_of("j1", fence),
                contextlib.suppress(AlreadyDone),
                qbull.postgres.once(pool) as connection,
            ):
                connection.execute(EFFECT)

    assert effects(bank) == 1


@pytest.mark.parametrize("thing", [object(), "postgresql://localhost"])
async def test_anything_else_is_refused(thing: Any) -> None:
    with run_of("j1", fence=1):
        with pytest.raises(qbull.ConfigError, match="give a pool of psycopg or asyncpg"):
            await charge(thing)
        with pytest.raises(qbull.ConfigError, match="give a pool"), qbull.postgres.once(thing):
            pass


async def test_a_guard_is_for_one_use_at_a_time(pool: AsyncConnectionPool) -> None:
    guard = qbull.postgres.once(pool)
    with run_of("j1", fence=1):
        async with guard:
            with pytest.raises(qbull.ConfigError, match="make a new one for each use"):
                await guard.__aenter__()


async def test_old_marks_go_when_nobody_can_run_their_job_again(
    app: qbull.App, store: Store, bank: psycopg.Connection, pool: AsyncConnectionPool
) -> None:
    queue = app.queue("orders", partitions=2)

    @queue.task
    async def pay() -> None:
        await charge(pool)

    kept, removed = await pay.enqueue(), await pay.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    await removed.remove()
    with run_of("of another app", fence=1):
        await charge(pool)
    bank.execute("UPDATE qbull_inbox SET app = 'other' WHERE job_id = 'of another app'")

    async with pool.connection() as connection:
        young = await prune_marks(connection, store, "test")
        await connection.execute("UPDATE qbull_inbox SET marked_at = marked_at - interval '41 days'")
        old = await prune_marks(connection, store, "test")

    left = bank.execute("SELECT job_id FROM qbull_inbox ORDER BY app").fetchall()
    assert (young, old) == (0, 1)
    assert left == [("of another app",), (kept.id,)]


async def test_pruning_goes_through_all_of_them(
    store: Store, bank: psycopg.Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.postgres.prune.PRUNE_BATCH_SIZE", 7)
    bank.execute("""
        INSERT INTO qbull_inbox (app, queue, job_id, fence, done, marked_at)
        SELECT 'test', 'orders', n, 1, true, now() - interval '50 days' FROM generate_series(1, 40) n""")

    async with await AsyncConnection.connect(database) as connection:
        removed = await prune_marks(connection, store, "test")

    assert removed == 40
