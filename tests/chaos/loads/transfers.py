"""Money moves between accounts: asked for in a transaction (outbox), booked in one (inbox). As a program it is who asks.

What was asked for and what was booked are tables of the same database, so that its own clock and order decide.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from dataclasses import dataclass, field

import psycopg
from psycopg_pool import AsyncConnectionPool

import qbull

ACCOUNTS = 20
RICH = 1_000_000
PAYERS = 8
"""Keys: what one payer asks for is booked in that order."""
PAUSE = 0.04
ROOM = 200
"""Transfers that wait, beyond which no more are asked for."""
_looked = 0.0
CREATE = f"""\
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO accounts SELECT n, {RICH} FROM generate_series(0, {ACCOUNTS - 1}) n;
CREATE TABLE asked (payer text NOT NULL, number int NOT NULL, PRIMARY KEY (payer, number));
CREATE TABLE booked (place bigserial PRIMARY KEY, payer text NOT NULL, number int NOT NULL);"""


def declare(app: qbull.App, database: str) -> qbull.Task[..., None]:
    transfers = app.queue(
        "transfers",
        order="key",
        partitions=2,
        concurrency=5,
        retry=qbull.Retry(attempts=1000, backoff="fixed", delay=0.2),
        keep=qbull.Keep(completed=1_000_000),
        alert=False,
    )
    pool = AsyncConnectionPool(database, min_size=1, max_size=5, open=False, timeout=5)

    @transfers.task(key="{payer}", name="transfer")
    async def transfer(payer: str, number: int, source: int, target: int, amount: int) -> None:
        await pool.open()
        async with qbull.postgres.once(pool) as connection:
            for account, change in sorted(((source, -amount), (target, amount))):
                await connection.execute(
                    "UPDATE accounts SET balance = balance + %s WHERE id = %s", (change, account)
                )
            await connection.execute("INSERT INTO booked (payer, number) VALUES (%s, %s)", (payer, number))

    return transfer


async def ask(name: str, database: str) -> None:
    """One transfer after the other for the payers of this process; one in five transactions is rolled back."""
    from campaign_app import app

    transfer = declare(app, database)
    luck = random.Random()
    payers = [f"{name}-{n}" for n in range(PAYERS)]
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(database) as connection:
                while True:
                    await _wait_for_room(connection)
                    await _ask_once(connection, transfer, luck.choice(payers), luck)
                    await asyncio.sleep(PAUSE * luck.random() * 2)
        except psycopg.OperationalError:
            await asyncio.sleep(0.1)


async def _wait_for_room(connection: psycopg.AsyncConnection) -> None:
    """A slow machine gets no more than it can do."""
    global _looked
    while time.monotonic() > _looked + 2:
        cursor = await connection.execute(
            "SELECT (SELECT count(*) FROM asked) - (SELECT count(*) FROM booked)"
        )
        (waiting,) = await cursor.fetchone() or (0,)
        await connection.commit()
        if waiting < ROOM:
            _looked = time.monotonic()
        else:
            await asyncio.sleep(0.5)


async def _ask_once(
    connection: psycopg.AsyncConnection, transfer: qbull.Task[..., None], payer: str, luck: random.Random
) -> None:
    source, target = luck.sample(range(ACCOUNTS), 2)
    try:
        async with connection.transaction():
            cursor = await connection.execute(
                "SELECT coalesce(max(number) + 1, 0) FROM asked WHERE payer = %s", (payer,)
            )
            number = (await cursor.fetchone() or (0,))[0]
            await connection.execute("INSERT INTO asked VALUES (%s, %s)", (payer, number))
            await transfer.options(transaction=connection).enqueue(
                payer=payer, number=number, source=source, target=target, amount=luck.randint(1, 100)
            )
            if luck.random() < 0.2:
                raise ValueError("rolled back")
    except ValueError:
        return


@dataclass
class Books:
    asked: int = 0
    booked: int = 0
    missing: int = 0
    doubled: int = 0
    strange: int = 0
    """Booked, and never asked for."""
    disorder: int = 0
    money: int = 0
    faults: list[str] = field(default_factory=list)


def audit(database: str) -> Books:
    with psycopg.connect(database) as connection:

        def count(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            return int((row or (0,))[0] or 0)

        books = Books(
            asked=count("SELECT count(*) FROM asked"),
            booked=count("SELECT count(*) FROM booked"),
            missing=count(
                "SELECT count(*) FROM asked LEFT JOIN booked USING (payer, number) WHERE place IS NULL"
            ),
            doubled=count("SELECT count(*) - count(DISTINCT (payer, number)) FROM booked"),
            strange=count(
                "SELECT count(*) FROM booked b LEFT JOIN asked a USING (payer, number) WHERE a IS NULL"
            ),
            disorder=count(
                "SELECT count(*) FROM (SELECT number - lag(number) OVER (PARTITION BY payer ORDER BY place) AS step "
                "FROM booked) steps WHERE step <> 1"
            ),
            money=count("SELECT sum(balance)::bigint FROM accounts") - ACCOUNTS * RICH,
        )
    wrong = {"missing": books.missing, "doubled": books.doubled, "strange": books.strange}
    wrong |= {"out of order": books.disorder, "money made or lost": books.money}
    books.faults = [f"transfers: {many} {word}" for word, many in wrong.items() if many]
    return books


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1], os.environ["CHAOS_DATABASE"]))
