"""Rights: the page's GRANT lines are enough for everything that is done with the tables, and each role has no more than them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

import qbull
from conftest import eventually
from qbull.postgres import maintenance
from qbull.postgres.prune import prune_marks

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "postgres.md"
GRANTS = re.findall(r"^GRANT .* ON (\w+) TO (\w+);", PAGE.read_text(), re.MULTILINE)
LINES = re.findall(r"^(GRANT .*? TO \w+;)", PAGE.read_text(), re.MULTILINE)
ROLES = ("web", "tasks", "relay")


class Roles:
    """URLs of the database for people who may do only what the page gives them."""

    def __init__(self, database: str) -> None:
        self._database = database

    def url(self, role: str) -> str:
        return self._database.replace("//qbull:", f"//{role}:")


@pytest.fixture(name="roles")
def make_roles(database: str) -> Iterator[Roles]:
    password = database.split(":")[2].split("@")[0]
    with psycopg.connect(database, autocommit=True) as connection:
        for role in ROLES:
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
        for line in LINES:
            connection.execute(line.encode())
        connection.execute("CREATE TABLE effects (what text)")
        connection.execute("GRANT INSERT ON effects TO tasks")
        yield Roles(database)
        for role in ROLES:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_the_lines_of_the_page_are_enough(
    app: qbull.App, database: str, roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_POLL_SECONDS", 0.1)
    monkeypatch.setattr(app, "database", roles.url("relay"))
    orders = app.queue("orders", track=True)
    async with AsyncConnectionPool(roles.url("tasks"), min_size=1) as pool:

        @orders.task
        async def charge(number: int) -> None:
            async with qbull.postgres.once(pool) as connection:
                await connection.execute("INSERT INTO effects VALUES ('charged')")

        web = qbull.App(app.url, prefix=app.prefix, database=roles.url("web"))
        asked = web.queue("orders", track=True).task(name="charge")(_charge)
        async with await AsyncConnection.connect(roles.url("web")) as connection:
            await asked.options(transaction=connection).enqueue(1)
            await connection.commit()
        await asked.options(durability="outbox").enqueue(2)
        await web.close()

        async def all_is_written() -> bool:
            return await asyncio.to_thread(lambda: _counts(database) == (2, 2, 0, 2))

        async with app.worker():
            await eventually(all_is_written, within=30)
    async with await AsyncConnection.connect(roles.url("relay"), autocommit=True) as connection:
        await orders.clean("completed")
        assert await prune_marks(connection, app._client().store, app.prefix, "0 seconds") == 2


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_not_read_what_is_not_its_own(roles: Roles, role: str) -> None:
    given = {table for table, to in GRANTS if to == role}
    assert len(GRANTS) == len(LINES) == 5
    with psycopg.connect(roles.url(role), autocommit=True) as connection:
        for table in {"qbull_outbox", "qbull_inbox", "qbull_jobs"} - given:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {table}".encode())


async def _charge(number: int) -> None: ...


def _counts(database: str) -> tuple[int, ...]:
    """Effects, marks, rows that are left in the outbox, and jobs that are said to be completed."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM qbull_inbox WHERE done), "
            "(SELECT count(*) FROM qbull_outbox), (SELECT count(*) FROM qbull_jobs WHERE status = 'completed')"
        ).fetchone()
    return tuple(row or ())
