"""The tables of qbull in PostgreSQL: numbered SQL files, applied in order, each once, never taken back.

Who calls: `qbull migrate`, and tests of users. Each file is one transaction under a lock, so several may
migrate at a time and a broken one changes nothing. A file only adds, so that the release before goes on
working with the tables of this one.
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
"""How long a migration waits for a table that others use, before it gives up and lets them go on."""

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
        """The same for a person with psql."""
        note = f"INSERT INTO qbull_migrations (number, name) VALUES ({self.number}, '{self.name}');\n"
        return f"-- {self.number}: {self.name}\nBEGIN;\n{CREATE_MIGRATIONS_TABLE_SQL if self.number == 1 else ''}{self.sql}{note}COMMIT;\n"


@cache
def migrations() -> tuple[Migration, ...]:
    found = sorted((p for p in files(__package__).joinpath("sql").iterdir()), key=lambda path: path.name)
    return tuple(
        Migration(int(path.name[:4]), path.name[5:].removesuffix(".sql"), path.read_text("utf-8"))
        for path in found
        if path.name.endswith(".sql")
    )


def migrate(database: str) -> list[Migration]:
    """Bring a database's tables up to this release; gives what was applied, nothing where all was there."""
    from qbull.postgres.connect import connected_sync

    with connected_sync(database, "qbull migrate") as connection:
        return [migration for migration in migrations() if _apply(connection, migration)]


def pending(database: str) -> list[Migration]:
    """The migrations that `migrate` would apply."""
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
    """The last migration that the database has; refuses one that this release does not know."""
    there = connection.execute("SELECT to_regclass('qbull_migrations')").fetchone()
    if there is None or there[0] is None:
        return 0
    row = connection.execute("SELECT coalesce(max(number), 0) FROM qbull_migrations").fetchone()
    version = int(row[0]) if row is not None else 0
    newest = migrations()[-1].number
    if version > newest:
        raise DatabaseRefused(
            f"the database has qbull's tables of schema {version}, this qbull knows up to {newest}; "
            "migrate with the newer release; this one goes on working with them"
        )
    return version
