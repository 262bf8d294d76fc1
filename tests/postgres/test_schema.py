"""Migrations: forward only, each once, refused where the tables are newer than the release."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

import qbull
from database import Postgres
from qbull.postgres import schema


@pytest.fixture(name="empty")
def make_empty(postgres: Postgres) -> Iterator[str]:
    """A database without qbull's tables."""
    name = postgres.make_database()
    yield postgres.url(name)
    postgres.drop_database(name)


def tables(database: str) -> set[str]:
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return {row[0] for row in rows}


def test_migrating_creates_the_tables_once(empty: str) -> None:
    planned = schema.pending(empty)
    before = tables(empty)

    first, second = qbull.postgres.migrate(empty), qbull.postgres.migrate(empty)

    assert before == set()
    assert first == planned == list(schema.migrations())
    assert second == schema.pending(empty) == []
    assert {"qbull_migrations", "qbull_outbox"} <= tables(empty)


def test_a_database_of_the_release_before_is_brought_forward(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = (*schema.migrations(), schema.Migration(1000, "more", "CREATE TABLE qbull_more ();"))
    qbull.postgres.migrate(empty)
    monkeypatch.setattr(schema, "migrations", lambda: newer)

    applied = qbull.postgres.migrate(empty)

    assert [migration.name for migration in applied] == ["more"]
    assert "qbull_more" in tables(empty)


def test_tables_of_a_newer_release_are_refused(empty: str) -> None:
    qbull.postgres.migrate(empty)
    with psycopg.connect(empty) as connection:
        connection.execute("INSERT INTO qbull_migrations (number, name) VALUES (1000, 'more')")

    for look in (qbull.postgres.migrate, schema.pending):
        with pytest.raises(qbull.DatabaseRefused, match="schema 1000, this qbull knows up to"):
            look(empty)


def test_a_broken_migration_changes_nothing(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = schema.Migration(1, "broken", "CREATE TABLE qbull_half (); SELECT 1 / 0;")
    monkeypatch.setattr(schema, "migrations", lambda: (broken,))

    with pytest.raises(qbull.DatabaseRefused, match="division by zero"):
        qbull.postgres.migrate(empty)

    assert tables(empty) == set()


def test_several_may_migrate_at_a_time(empty: str) -> None:
    applied: list[list[schema.Migration]] = []
    threads = [
        threading.Thread(target=lambda: applied.append(qbull.postgres.migrate(empty))) for _ in range(5)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    done = [migration.number for each in applied for migration in each]
    assert sorted(done) == [migration.number for migration in schema.migrations()]


def test_a_migration_gives_up_where_others_hold_the_table(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qbull.postgres.migrate(empty)
    wider = schema.Migration(1000, "wider", "ALTER TABLE qbull_outbox ADD COLUMN more text;")
    monkeypatch.setattr(schema, "migrations", lambda: (*MIGRATIONS, wider))
    monkeypatch.setattr(schema, "MIGRATION_LOCK_TIMEOUT", "100ms")

    with psycopg.connect(empty) as user:
        user.execute("SELECT * FROM qbull_outbox")
        with pytest.raises(qbull.DatabaseAway, match="lock timeout"):
            qbull.postgres.migrate(empty)

    assert [migration.name for migration in qbull.postgres.migrate(empty)] == ["wider"]


def test_the_printed_sql_does_the_same(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        for migration in schema.migrations():
            connection.execute(migration.script.encode())

    assert schema.pending(empty) == []


MIGRATIONS = schema.migrations()
