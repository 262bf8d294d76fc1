"""The one place that opens connections to PostgreSQL: psycopg in, its errors turned into ours.

Nothing here is sent twice. After an interruption a connection cannot be used again; open another one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from qbull.errors import ConfigError, DatabaseAway, DatabaseRefused, ServerError

try:
    import psycopg
except ImportError as missing:  # pragma: no cover - the tests have it
    raise ConfigError('PostgreSQL needs psycopg; install it with: pip install "qbull[postgres]"') from missing

from psycopg import AsyncConnection, Connection, IsolationLevel

DATABASE_CONNECT_TIMEOUT_SECONDS = 5
CONNECTION_SETTINGS: dict[str, Any] = {
    "connect_timeout": DATABASE_CONNECT_TIMEOUT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

_UNAVAILABLE_SQLSTATES = ("08", "53", "57P", "40", "55P03", "25P03")
"""Interrupted, out of connections, stopping, starting, a deadlock, a lock not granted, idle for too long."""


@asynccontextmanager
async def connected(url: str, name: str, *, autocommit: bool = False) -> AsyncIterator[AsyncConnection]:
    """A connection for the duration of the block. The database shows it under `name`."""
    connection = await open_connection(url, name, autocommit=autocommit)
    try:
        with translated_errors(url):
            yield connection
    finally:
        await connection.close()


async def open_connection(url: str, name: str, *, autocommit: bool = False) -> AsyncConnection:
    with translated_errors(url):
        connection = await AsyncConnection.connect(
            url, autocommit=autocommit, application_name=name, **CONNECTION_SETTINGS
        )
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return connection


@contextmanager
def connected_sync(url: str, name: str) -> Iterator[Connection]:
    with (
        translated_errors(url),
        psycopg.connect(url, application_name=name, **CONNECTION_SETTINGS) as connection,
    ):
        yield connection


@contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Turn psycopg's errors into ours, which name the database."""
    try:
        yield
    except psycopg.Error as error:
        raise _translated(error, url) from error


@contextmanager
def cut_off_after(seconds: float, connection: AsyncConnection) -> Iterator[None]:
    """Close the connection if the server does not answer in time, because it is frozen.

    Cancelling is not enough: psycopg then asks the server to stop the statement, and waits for its answer.
    """
    timer = asyncio.get_running_loop().call_later(seconds, _cut_off, connection)
    try:
        yield
    finally:
        timer.cancel()


def _cut_off(connection: AsyncConnection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def displayed_url(url: str) -> str:
    """The address of a database, without its password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"


def _translated(error: psycopg.Error, url: str) -> ServerError:
    state = error.sqlstate
    fact = " ".join(str(error).split()) or type(error).__name__
    if state == "42P01":
        return DatabaseRefused(
            f'PostgreSQL at {displayed_url(url)}: {fact}; create qbull\'s tables with "qbull migrate"'
        )
    if state is None and isinstance(error, psycopg.OperationalError):
        if any(word in fact for word in ("authentication", "does not exist", "no password")):
            return DatabaseRefused(f"PostgreSQL at {displayed_url(url)} refuses the connection: {fact}")
        return DatabaseAway(f"PostgreSQL at {displayed_url(url)} cannot be reached: {fact}")
    if state is not None and state.startswith(_UNAVAILABLE_SQLSTATES):
        return DatabaseAway(f"PostgreSQL at {displayed_url(url)} cannot do it now: {fact}")
    return DatabaseRefused(f"PostgreSQL at {displayed_url(url)}: {fact}")
