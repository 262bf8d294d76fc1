"""Every library's connections: committed means a row, rolled back means none, and what cannot work is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
from django_project import open_django_project
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import qbull

Task = qbull.Task[[int], None]


@pytest.fixture(name="task")
def make_task(app: qbull.App) -> Task:
    async def process(number: int) -> None: ...

    return app.queue("orders").task(process)


def written(database: str) -> list[int]:
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT payload ->> 'number' FROM qbull_outbox ORDER BY seq").fetchall()
    return [int(row[0]) for row in rows]


class Cancelled(Exception):
    """The user's own code fails."""


async def test_psycopg(task: Task, database: str) -> None:
    async with await AsyncConnection.connect(database) as connection:
        async with connection.transaction():
            await task.options(transaction=connection).enqueue(1)
        with pytest.raises(Cancelled):
            async with connection.transaction():
                await task.options(transaction=connection).enqueue(2)
                raise Cancelled
        await task.options(transaction=connection).enqueue(3)
        await connection.commit()
        await task.options(transaction=connection).enqueue(4)
        await connection.rollback()

    assert written(database) == [1, 3]


@dataclass
class Customer:
    name: str


KINDS_OF_ROWS = [
    psycopg.rows.dict_row,
    psycopg.rows.namedtuple_row,
    psycopg.rows.scalar_row,
    psycopg.rows.class_row(Customer),
]


@pytest.mark.parametrize("rows", KINDS_OF_ROWS)
async def test_psycopg_with_rows_of_any_kind(task: Task, database: str, rows: Any) -> None:
    async with await AsyncConnection.connect(database, row_factory=rows) as connection:
        await task.options(transaction=connection).enqueue(1)
        await connection.commit()

    assert written(database) == [1]


@pytest.mark.parametrize("rows", KINDS_OF_ROWS)
def test_psycopg_with_rows_of_any_kind_in_synchronous_code(task: Task, database: str, rows: Any) -> None:
    with psycopg.connect(database, row_factory=rows) as connection:
        task.options(transaction=connection).enqueue_sync(1)

    assert written(database) == [1]


async def test_psycopg_with_cursors_that_write_parameters_in_another_way(task: Task, database: str) -> None:
    async with await AsyncConnection.connect(database, cursor_factory=psycopg.AsyncRawCursor) as connection:
        await task.options(transaction=connection).enqueue(1)

    assert written(database) == [1]


async def test_asyncpg_that_makes_json_of_values(task: Task, database: str) -> None:
    connection = await asyncpg.connect(database)
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with connection.transaction():
        await task.options(transaction=connection).enqueue(1)
    await connection.close()

    assert written(database) == [1]


async def test_asyncpg(task: Task, database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        async with connection.transaction():
            await task.options(transaction=connection).enqueue(1)
        with pytest.raises(Cancelled):
            async with connection.transaction():
                await task.options(transaction=connection).enqueue_many([{"number": 2}, {"number": 3}])
                raise Cancelled
        with pytest.raises(qbull.ArgumentsError, match="not in a transaction"):
            await task.options(transaction=connection).enqueue(4)

    assert written(database) == [1]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy_asynchronous(task: Task, database: str, driver: str) -> None:
    engine = create_async_engine(database.replace("postgresql:", f"postgresql+{driver}:"))
    async with AsyncSession(engine) as session:
        await task.options(transaction=session).enqueue(1)
        await session.commit()
        await task.options(transaction=session).enqueue(2)
        await session.rollback()
    async with engine.begin() as connection:
        await task.options(transaction=connection).enqueue(3)
    await engine.dispose()

    assert written(database) == [1, 3]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy_that_commits_by_itself_is_refused(task: Task, database: str, driver: str) -> None:
    url = database.replace("postgresql:", f"postgresql+{driver}:")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    refused = pytest.raises(qbull.ArgumentsError, match="commits each statement by itself")
    async with engine.connect() as connection, AsyncSession(engine) as session:
        with refused:
            await task.options(transaction=connection).enqueue(1)
        with refused:
            await task.options(transaction=session).enqueue(2)
    await engine.dispose()

    assert written(database) == []


def test_sqlalchemy_synchronous_that_commits_by_itself_is_refused(task: Task, database: str) -> None:
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    committing = engine.execution_options(isolation_level="AUTOCOMMIT")
    refused = pytest.raises(qbull.ArgumentsError, match="commits each statement by itself")
    with committing.connect() as connection, Session(committing) as session:
        with refused:
            task.options(transaction=connection).enqueue_sync(1)
        with refused:
            task.options(transaction=session).enqueue_sync(2)
    engine.dispose()

    assert written(database) == []


def test_sqlalchemy_synchronous(task: Task, database: str) -> None:
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        task.options(transaction=session).enqueue_sync(1)
        session.commit()
        task.options(transaction=session).enqueue_sync(2)
        session.rollback()
    with engine.begin() as connection:
        task.options(transaction=connection).enqueue_sync(3)
    engine.dispose()

    assert written(database) == [1, 3]


def test_django(task: Task, database: str) -> None:
    open_django_project(database)
    from django.db import connection, transaction

    with transaction.atomic():
        task.options(transaction=connection).enqueue_sync(1)
    with pytest.raises(Cancelled), transaction.atomic():
        task.options(transaction=connection).enqueue_sync(2)
        raise Cancelled
    with pytest.raises(qbull.ArgumentsError, match=r"with transaction.atomic\(\)"):
        task.options(transaction=connection).enqueue_sync(3)
    connection.close()

    assert written(database) == [1]


async def test_a_synchronous_connection_is_for_synchronous_code(task: Task, database: str) -> None:
    with (
        psycopg.connect(database) as connection,
        pytest.raises(qbull.ArgumentsError, match="psycopg Connection is synchronous; call enqueue_sync"),
    ):
        await task.options(transaction=connection).enqueue(1)


async def test_an_asynchronous_connection_is_for_asynchronous_code(task: Task, database: str) -> None:
    async with await AsyncConnection.connect(database) as connection:
        with pytest.raises(qbull.ArgumentsError, match="is asynchronous; await enqueue"):
            task.options(transaction=connection).enqueue_sync(1)


@pytest.mark.parametrize("thing", [object(), "postgresql://localhost", 7])
async def test_anything_else_is_refused(task: Task, thing: Any) -> None:
    with pytest.raises(qbull.ArgumentsError, match="give a connection of psycopg 3, asyncpg or Django"):
        await task.options(transaction=thing).enqueue(1)


async def test_every_text_travels_as_it_is(app: qbull.App, database: str) -> None:
    seen: list[str] = []
    texts = ['"quotes" \\ and \n lines', "zero \0 inside", "ünï ☃ 🎉", "%s %% :rows $1 ?", "{}", ""]

    @app.queue("texts").task
    async def note(text: str) -> None:
        seen.append(text)

    app.database = database
    async with await AsyncConnection.connect(database) as connection, app.worker():
        async with connection.transaction():
            jobs = await note.options(transaction=connection).enqueue_many([{"text": text} for text in texts])
        for job in jobs:
            await job.result(timeout=20)

    assert sorted(seen) == sorted(texts)


@pytest.mark.parametrize("option", ["key", "id"])
async def test_what_postgresql_cannot_store_is_refused(task: Task, database: str, option: str) -> None:
    async with await AsyncConnection.connect(database) as connection:
        with pytest.raises(qbull.ArgumentsError):
            await task.options(transaction=connection, **{option: "zero \0"}).enqueue(1)  # type: ignore[arg-type]
