"""The connections that users hold: psycopg, asyncpg, SQLAlchemy, Django. One statement is run through any of them.

None of these libraries is imported before a user brings a connection of it. What a connection does is told from
its type; one that would commit by itself is refused, because the job would not be rolled back with the data.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qbull.errors import ArgumentsError, DatabaseRefused

HERE = "?"
"""Where the one parameter of a statement goes; each library has its own sign for it."""


async def run(transaction: Any, statement: str, parameter: str) -> None:
    """Run a statement in a transaction of an asynchronous library."""
    kind = kind_of(transaction)
    if not is_async(transaction):
        raise ArgumentsError(
            f"transaction={_named(transaction)} is synchronous; call enqueue_sync(…) with it"
        )
    with _explained():
        if kind == "asyncpg":
            if not transaction.is_in_transaction():
                raise _not_open(transaction)
            await transaction.execute(statement.replace(HERE, "$1"), parameter)
        elif kind == "psycopg":
            _refuse_autocommit(transaction)
            await transaction.execute(statement.replace(HERE, "%s"), (parameter,))
        else:
            await transaction.execute(_sqlalchemy(statement), {"rows": parameter})


def run_sync(transaction: Any, statement: str, parameter: str) -> None:
    """The same in a synchronous one."""
    kind = kind_of(transaction)
    if is_async(transaction):
        raise ArgumentsError(f"transaction={_named(transaction)} is asynchronous; await enqueue(…) with it")
    with _explained():
        if kind == "django":
            if not transaction.in_atomic_block:
                raise _not_open(transaction, "with transaction.atomic():")
            with transaction.cursor() as cursor:
                cursor.execute(statement.replace(HERE, "%s"), [parameter])
        elif kind == "psycopg":
            _refuse_autocommit(transaction)
            transaction.execute(statement.replace(HERE, "%s"), (parameter,))
        else:
            transaction.execute(_sqlalchemy(statement), {"rows": parameter})


def kind_of(transaction: Any) -> str:
    roots = {base.__module__.partition(".")[0] for base in type(transaction).__mro__}
    for kind in ("psycopg", "asyncpg", "sqlalchemy", "django"):
        if kind in roots and hasattr(transaction, "cursor" if kind == "django" else "execute"):
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


def _not_open(connection: Any, how: str = "with connection.transaction():") -> ArgumentsError:
    return ArgumentsError(
        f"transaction={_named(connection)} is not in a transaction, so nothing could be rolled back; open one: {how}"
    )


def _sqlalchemy(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement.replace(HERE, ":rows"))


@contextmanager
def _explained() -> Iterator[None]:
    """A missing table is the one error that we can say better than the database."""
    try:
        yield
    except Exception as error:
        if _sqlstate(error) == "42P01":
            raise DatabaseRefused(
                'the database has no table qbull_outbox; create qbull\'s tables with "qbull migrate"'
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
