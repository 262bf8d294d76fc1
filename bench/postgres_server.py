"""The PostgreSQL of the run: the one of the tests, which flushes every commit to disk here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from database import Postgres


class PostgresServer(Postgres):
    @property
    def version(self) -> str:
        with psycopg.connect(self.url("postgres")) as connection:
            return str(connection.info.parameter_status("server_version"))


@contextmanager
def open_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer(fsync=True)
    try:
        server.start()
        yield server
    finally:
        server.remove()
