"""`qbull migrate` and `qbull relay`, as real processes on a real PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psycopg
import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures

from conftest import eventually
from database import Postgres


@pytest.fixture(name="empty")
def make_empty(postgres: Postgres) -> Iterator[str]:
    name = postgres.make_database()
    yield postgres.url(name)
    postgres.drop_database(name)


def test_migrate_plans_applies_and_has_nothing_more_to_do(shell: Shell, empty: str) -> None:
    shell.environment["QBULL_DATABASE_URL"] = empty

    plan = shell.ok("migrate", "--plan")
    done = shell.ok("migrate")
    again = shell.ok("migrate")

    assert "1 outbox: pending" in plan
    assert plan.replace("pending", "applied") == done
    assert again == "nothing to do: the tables are up to date\n"
    assert shell.json("migrate") == {"applied": True, "migrations": []}


def test_migrate_prints_sql_for_others_to_run(shell: Shell, empty: str) -> None:
    without = shell.ok("migrate", "--sql")
    script = shell.ok("migrate", "--sql", "--database", empty)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(script.encode())

    assert without == script
    assert shell.ok("migrate", "--sql", "--database", empty) == ""


def test_migrate_says_in_one_line_what_is_wrong(shell: Shell, empty: str) -> None:
    assert "no database is configured; set QBULL_DATABASE_URL" in shell.refused("migrate")
    assert "give postgresql://" in shell.refused("migrate", "--database", "mysql://localhost/x")
    assert "cannot be reached" in shell.refused("migrate", "--database", "postgresql://127.0.0.1:1/x")
    wrong = empty.replace("secret", "wrong")
    refused = shell.refused("migrate", "--database", wrong)
    assert "refuses the connection" in refused and "wrong" not in refused
    assert "does not exist" in shell.refused("migrate", "--database", empty + "x")


def test_migrate_refuses_tables_of_a_newer_release(shell: Shell, empty: str) -> None:
    shell.ok("migrate", "--database", empty)
    with psycopg.connect(empty) as connection:
        connection.execute("INSERT INTO qbull_migrations (number, name) VALUES (1000, 'more')")

    assert "schema 1000, this qbull knows up to" in shell.refused("migrate", "--database", empty)


@pytest.mark.parametrize(
    "command", [("relay",), ("relay", "--app", "sample_app:app"), ("worker", "sample_app:app")]
)
async def test_the_outbox_is_shipped_by(
    shell: Shell, sample: SampleApp, database: str, command: tuple[str, ...]
) -> None:
    await sample.send.enqueue("first@example.org")
    process = shell.start(*command, QBULL_DATABASE_URL=database)

    async with await psycopg.AsyncConnection.connect(database) as connection:
        job = await sample.send.options(transaction=connection).enqueue("a@b.c")
    await eventually(job.state)
    process.send_signal(signal.SIGTERM)

    assert seen(lambda: process.poll() is not None) and process.returncode == 0
    assert "Traceback" not in shell.err
