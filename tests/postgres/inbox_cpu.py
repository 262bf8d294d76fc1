"""A task that runs in a process of its own and has an effect there."""

from __future__ import annotations

import os

from psycopg_pool import ConnectionPool

import qbull


def charge(database: str) -> int:
    with ConnectionPool(database, min_size=1, max_size=1) as pool, qbull.postgres.once(pool) as connection:
        connection.execute("INSERT INTO effects VALUES ('charged')")
    if qbull.current_job().attempt == 1:
        raise ConnectionError
    return os.getpid()
