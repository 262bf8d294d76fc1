"""The tables of qbull in PostgreSQL: numbered SQL files, applied in order, each once, never reverted.

`qbull migrate` applies them, and users' tests do. Each file is one transaction under a lock, so several
processes may migrate at a time, and a failed migration changes nothing. A file only adds, so that the release
before this one works with the new tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from qbull.errors import DatabaseRefused

if TYPE_CHECKING:
    from psycopg import Connection

# The letters "qbull". The process that holds the lock migrates.
MIGRATION_LOCK_ID = 0x7162756C6C
MIGRATION_LOCK_TIMEOUT = "10s"
"""How long a migration waits for a table that others use before it gives up."""

CREATE_MIGRATIONS_TABLE_SQL = """\
CREATE TABLE IF NOT EXISTS qbull_migrations (
    number     integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def script(self) -> str:
        """The migration as a script for psql."""
        note = f"INSERT INTO qbull_migrations (number, name) VALUES ({self.number}, '{self.name}');\n"
        table = CREATE_MIGRATIONS_TABLE_SQL if self.number == 1 else ""
        return f"-- {self.number}: {self.name}\nBEGIN;\n{table}{self.sql}{note}COMMIT;\n"


@cache
def migrations() -> tuple[Migration, ...]:
    found = sorted((p for p in files(__package__).joinpath("sql").iterdir()), key=lambda path: path.name)
    return tuple(
        Migration(int(path.name[:4]), path.name[5:].removesuffix(".sql"), path.read_text("utf-8"))
        for path in found
        if path.name.endswith(".sql")
    )


def migrate(database: str) -> list[Migration]:
    """Bring the tables of a database up to this release. Returns the migrations that were applied.

    Args:
        database: the URL of the database.
    """
    from qbull.postgres.connect import connected_sync

    with connected_sync(database, "qbull migrate") as connection:
        return [migration for migration in migrations() if _apply(connection, migration)]


def pending(database: str) -> list[Migration]:
    """The migrations that `migrate` would apply.

    Args:
        database: the URL of the database.
    """
    from qbull.postgres.connect import connected_sync

    with connected_sync(database, "qbull migrate") as connection:
        version = _version(connection)
    return [migration for migration in migrations() if migration.number > version]


def _apply(connection: Connection, migration: Migration) -> bool:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK_ID,))
        if _version(connection) >= migration.number:
            return False
        connection.execute(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'")
        connection.execute(CREATE_MIGRATIONS_TABLE_SQL)
        connection.execute(migration.sql.encode())
        connection.execute(
            "INSERT INTO qbull_migrations (number, name) VALUES (%s, %s)", (migration.number, migration.name)
        )
    return True


def _version(connection: Connection) -> int:
    """The number of the last applied migration. Raises if this release does not know it."""
    there = connection.execute("SELECT to_regclass('qbull_migrations')").fetchone()
    if there is None or there[0] is None:
        return 0
    row = connection.execute("SELECT coalesce(max(number), 0) FROM qbull_migrations").fetchone()
    version = int(row[0]) if row is not None else 0
    newest = migrations()[-1].number
    if version > newest:
        raise DatabaseRefused(
            f"the database has qbull's tables of schema {version}, this qbull knows up to {newest}; "
            "migrate with the newer release; this one still works with them"
        )
    return version
