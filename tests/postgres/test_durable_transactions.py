"""Transactions of durable tasks: the effect and the record of the step are one commit, so it happens once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import qbull
from qbull.worker import history

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


async def test_a_worker_that_dies_after_the_commit_leaves_one_effect(
    app: qbull.App, pool: AsyncConnectionPool, bank: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    committed = asyncio.Event()
    write = history.write_history

    async def never(*given: Any) -> list[bool]:
        committed.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def charge(connection: Any, order: int) -> dict[str, int]:
        calls["charge"] += 1
        await connection.execute(EFFECT)
        return {"payment": order}

    @app.queue("orders").task(durable=True)
    async def fulfil(order: int) -> dict[str, int]:
        return await qbull.current_job().transaction(pool, charge, order)

    job = await fulfil.enqueue(7)
    monkeypatch.setattr(history, "write_history", never)
    first = app.worker()
    await first.start()
    await committed.wait()
    await first.stop(grace=0)
    assert effects(bank) == 1
    monkeypatch.setattr(history, "write_history", write)
    async with app.worker():
        assert await job.result(timeout=20) == {"payment": 7}

    assert effects(bank) == 1
    assert calls == {"charge": 1}
    [step] = await job.steps()
    assert (step.name, step.state, step.result) == ("charge", "completed", {"payment": 7})


async def test_a_function_that_raises_has_no_effect_and_runs_again_in_the_next_attempt(
    app: qbull.App, pool: AsyncConnectionPool, bank: psycopg.Connection
) -> None:
    calls: Counter[str] = Counter()

    async def charge(connection: Any) -> str:
        calls["charge"] += 1
        await connection.execute(EFFECT)
        if calls["charge"] < 3:
            raise ConnectionError
        return "paid"

    @app.queue("orders", retry=qbull.Retry(attempts=5, delay=0)).task(durable=True)
    async def fulfil() -> str:
        return await qbull.current_job().transaction(pool, charge)

    job = await fulfil.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "paid"

    assert (effects(bank), calls["charge"]) == (1, 3)


async def test_a_commit_whose_reply_is_lost_counts(
    app: qbull.App, bank: psycopg.Connection, database: str
) -> None:
    calls: Counter[str] = Counter()

    async def charge(connection: Any) -> None:
        calls["charge"] += 1
        await connection.execute(EFFECT)
        await connection.execute("COMMIT")
        raise ConnectionError("the reply was lost")

    async with asyncpg.create_pool(database, min_size=2, max_size=5) as pool:

        @app.queue("orders", retry=qbull.Retry(attempts=1)).task(durable=True)
        async def fulfil() -> str:
            await qbull.current_job().transaction(pool, charge)
            return "paid"

        job = await fulfil.enqueue()
        async with app.worker():
            assert await job.result(timeout=20) == "paid"

    assert (effects(bank), calls["charge"]) == (1, 1)


async def test_each_round_of_a_loop_and_each_new_start_has_its_effect(
    app: qbull.App, pool: AsyncConnectionPool, bank: psycopg.Connection
) -> None:
    async def charge(connection: Any) -> None:
        await connection.execute(EFFECT)

    @app.queue("orders").task(durable=True)
    async def monthly(year: int) -> None:
        job = qbull.current_job()
        month = await job.checkpoint(0)
        while month < 3:
            await job.transaction(pool, charge)
            await job.transaction(pool, charge)
            month = await job.checkpoint(month + 1)
        if year < 2:
            job.continue_as(year + 1)

    job = await monthly.enqueue(1)
    async with app.worker():
        await job.result(timeout=20)

    assert effects(bank) == 2 * 3 * 2


async def test_plain_tasks_have_transactions(app: qbull.App, bank: psycopg.Connection, database: str) -> None:
    def charge(connection: Any, order: int) -> int:
        connection.execute(EFFECT)
        return order

    with ConnectionPool(database, min_size=1, max_size=3) as pool:

        @app.queue("orders").task(durable=True)
        def fulfil(order: int) -> int:
            return qbull.current_job().transaction_sync(pool, charge, order)

        job = await fulfil.enqueue(7)
        async with app.worker():
            assert await job.result(timeout=20) == 7

    assert effects(bank) == 1


class Money:
    """A type that only the hooks of the app can encode."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def to_plain(value: Any) -> Any:
    if isinstance(value, Money):
        return value.cents
    raise NotImplementedError


def from_plain(kind: type, value: Any) -> Any:
    if kind is Money:
        return Money(value)
    raise NotImplementedError


async def test_once_and_transactions_use_the_type_hooks_of_the_app(
    server_url: str, app: qbull.App, pool: AsyncConnectionPool, bank: psycopg.Connection
) -> None:
    calls: Counter[str] = Counter()

    async def charge(connection: Any) -> Money:
        await connection.execute(EFFECT)
        return Money(250)

    @qbull.postgres.once(pool, step="charge")
    async def charge_once(connection: Any) -> Money:
        await connection.execute(EFFECT)
        return Money(300)

    async with qbull.App(server_url, prefix="test", enc_hook=to_plain, dec_hook=from_plain) as hooked:
        queue = hooked.queue("orders", retry=qbull.Retry(attempts=2, delay=0))

        @queue.task(durable=True)
        async def fulfil() -> list[int]:
            calls["run"] += 1
            paid = [(await qbull.current_job().transaction(pool, charge)).cents, (await charge_once()).cents]
            if calls["run"] == 1:
                raise ConnectionError
            return paid

        job = await fulfil.enqueue()
        async with hooked.worker():
            assert await job.result(timeout=20) == [250, 300]

    assert effects(bank) == 2
