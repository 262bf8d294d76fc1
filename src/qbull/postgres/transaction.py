"""Runs one statement through the user's connection: psycopg, asyncpg, SQLAlchemy or Django.

None of these libraries is imported before a user passes a connection of it. For psycopg we open our own
cursors: the user's may turn rows into objects, or write parameters in another way. The type of a connection
tells how to use it. A connection that commits by itself is refused, because the job would not be rolled back
with the data.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from qbull.errors import ArgumentsError, ConfigError, DatabaseRefused

PARAMETER = "?"
"""Stands for the one parameter of a statement; each library has its own placeholder."""
JSON_PARAMETER = f"CAST(CAST({PARAMETER} AS text) AS json)"
"""The parameter, read as JSON.

It is sent as a text: a connection of asyncpg may be configured to turn every value into JSON.
"""


async def run(transaction: Any, statement: str, parameter: str) -> Any:
    """Run a statement in a transaction of an asynchronous library; returns its first value, or None."""
    kind = kind_of(transaction)
    if not is_async(transaction):
        raise ArgumentsError(
            f"transaction={_named(transaction)} is synchronous; call enqueue_sync(…) with it"
        )
    with _explain_missing_table():
        if kind == "asyncpg":
            if not transaction.is_in_transaction():
                raise _not_open(transaction)
            return await transaction.fetchval(statement.replace(PARAMETER, "$1"), parameter)
        if kind == "psycopg":
            _refuse_autocommit(transaction)
            from psycopg import AsyncCursor
            from psycopg.rows import tuple_row

            async with AsyncCursor(transaction, row_factory=tuple_row) as cursor:
                await cursor.execute(statement.replace(PARAMETER, "%s").encode(), (parameter,))
                return _first(await cursor.fetchone())
        await _refuse_committing(transaction)
        return (await transaction.execute(_sqlalchemy(statement), {"rows": parameter})).scalar()


def run_sync(transaction: Any, statement: str, parameter: str) -> Any:
    """Run a statement in a transaction of a synchronous library."""
    kind = kind_of(transaction)
    if is_async(transaction):
        raise ArgumentsError(f"transaction={_named(transaction)} is asynchronous; await enqueue(…) with it")
    with _explain_missing_table():
        if kind == "django":
            if not transaction.in_atomic_block:
                raise _not_open(transaction, "with transaction.atomic():")
            with transaction.cursor() as cursor:
                cursor.execute(statement.replace(PARAMETER, "%s"), [parameter])
                return _first(cursor.fetchone())
        if kind == "psycopg":
            _refuse_autocommit(transaction)
            from psycopg import Cursor
            from psycopg.rows import tuple_row

            with Cursor(transaction, row_factory=tuple_row) as cursor:
                cursor.execute(statement.replace(PARAMETER, "%s").encode(), (parameter,))
                return _first(cursor.fetchone())
        _refuse_committing_sync(transaction)
        return transaction.execute(_sqlalchemy(statement), {"rows": parameter}).scalar()


def _first(row: Any) -> Any:
    return row and row[0]


def root_of(thing: Any) -> str | None:
    """The library that an object comes from, if it is a known one."""
    roots = {base.__module__.partition(".")[0] for base in type(thing).__mro__}
    known = ("psycopg", "psycopg_pool", "asyncpg", "sqlalchemy", "django")
    return next((kind for kind in known if kind in roots), None)


def kind_of(transaction: Any) -> str:
    kind = root_of(transaction)
    if kind is not None and hasattr(transaction, "cursor" if kind == "django" else "execute"):
        return kind
    raise ArgumentsError(
        f"transaction={_named(transaction)}: give a connection of psycopg 3, asyncpg or Django, "
        "or a connection or session of SQLAlchemy"
    )


def is_async(transaction: Any) -> bool:
    kind = kind_of(transaction)
    return kind == "asyncpg" or (kind != "django" and inspect.iscoroutinefunction(type(transaction).execute))


def _refuse_autocommit(connection: Any) -> None:
    idle = 0
    if connection.autocommit and int(connection.info.transaction_status) == idle:
        raise _not_open(connection)


async def _refuse_committing(transaction: Any) -> None:
    """With SQLAlchemy's isolation level AUTOCOMMIT, transactions do nothing."""
    is_session = inspect.iscoroutinefunction(getattr(type(transaction), "connection", None))
    connection = await transaction.connection() if is_session else transaction
    _refuse_autocommit_of(transaction, await connection.get_raw_connection())


def _refuse_committing_sync(transaction: Any) -> None:
    connection = transaction.connection
    _refuse_autocommit_of(transaction, connection().connection if callable(connection) else connection)


def _refuse_autocommit_of(transaction: Any, proxied: Any) -> None:
    if getattr(proxied.dbapi_connection, "autocommit", False) is True:
        raise ArgumentsError(
            f"transaction={_named(transaction)} commits each statement by itself (AUTOCOMMIT), "
            "so nothing could be rolled back; use another isolation level"
        )


def _not_open(connection: Any, how: str = "with connection.transaction():") -> ArgumentsError:
    return ArgumentsError(
        f"transaction={_named(connection)} is not in a transaction, "
        f"so nothing could be rolled back; open one: {how}"
    )


def _sqlalchemy(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement.replace(PARAMETER, ":rows"))


@contextmanager
def _explain_missing_table() -> Iterator[None]:
    """For a missing table, our message is more helpful than the one of the database."""
    try:
        yield
    except Exception as error:
        if _sqlstate(error) == "42P01":
            raise DatabaseRefused(
                'the database lacks a table of qbull; create it with "qbull migrate"'
            ) from error
        raise


def _sqlstate(error: BaseException | None) -> str | None:
    """Each library wraps the driver's error in its own way."""
    while error is not None:
        for place in (error, getattr(error, "orig", None)):
            state = getattr(place, "sqlstate", None) or getattr(place, "pgcode", None)
            if state:
                return str(state)
        error = error.__cause__
    return None


def _named(thing: Any) -> str:
    return f"{type(thing).__module__.partition('.')[0]} {type(thing).__name__}"


# The types that open transactions.


def open_transaction(pool: Any) -> AbstractAsyncContextManager[Any]:
    """A transaction of an asynchronous library, for the duration of the block."""
    kind = root_of(pool)
    if kind == "psycopg_pool" and inspect.iscoroutinefunction(type(pool).open):
        return _open_psycopg(pool)
    if kind == "asyncpg" and hasattr(pool, "acquire"):
        return _open_asyncpg(pool)
    if kind == "sqlalchemy" and "async" in type(pool).__name__.lower():
        begun: AbstractAsyncContextManager[Any] = pool.begin()
        return begun
    raise _not_a_pool(pool)


def open_transaction_sync(pool: Any) -> AbstractContextManager[Any]:
    kind = root_of(pool)
    if kind == "psycopg_pool" and not inspect.iscoroutinefunction(type(pool).open):
        return _open_psycopg_sync(pool)
    if kind == "sqlalchemy" and "async" not in type(pool).__name__.lower():
        begun: AbstractContextManager[Any] = pool.begin()
        return begun
    if kind == "django":
        return _open_django(pool)
    raise _not_a_pool(pool)


@asynccontextmanager
async def _open_psycopg(pool: Any) -> AsyncIterator[Any]:
    async with pool.connection() as connection, connection.transaction():
        yield connection


@contextmanager
def _open_psycopg_sync(pool: Any) -> Iterator[Any]:
    with pool.connection() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _open_asyncpg(pool: Any) -> AsyncIterator[Any]:
    async with pool.acquire() as connection, connection.transaction():
        yield connection


@contextmanager
def _open_django(connection: Any) -> Iterator[Any]:
    from django.db import transaction

    with transaction.atomic(using=connection.alias):
        yield connection


def _not_a_pool(pool: Any) -> ConfigError:
    return ConfigError(
        f"once({type(pool).__module__}.{type(pool).__name__}): give a pool of psycopg or asyncpg, "
        "an engine or sessionmaker of SQLAlchemy, or Django's connection; "
        '"async with" for asynchronous ones, "with" for the others'
    )
