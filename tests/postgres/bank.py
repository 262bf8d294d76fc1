"""Money moves between accounts through the inbox. This module is the app of the workers that are killed and frozen."""

from __future__ import annotations

import asyncio
import os
import random

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

import qbull

ACCOUNTS = 20
RICH = 1_000_000
app = qbull.App(os.environ.get("BANK_URL") or "redis://127.0.0.1:1/0", prefix="test")
transfers = app.queue(
    "transfers",
    partitions=2,
    concurrency=10,
    retry=qbull.Retry(attempts=1000, backoff="fixed", delay=0.2),
    keep=qbull.Keep(completed=1_000_000),
)
pool = AsyncConnectionPool(
    os.environ.get("BANK_DATABASE") or "", min_size=1, max_size=10, open=False, timeout=5
)

CREATE = f"""\
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO accounts SELECT n, {RICH} FROM generate_series(0, {ACCOUNTS - 1}) n;
CREATE TABLE transfers (number int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());"""


@transfers.task(id="transfer:{number}")
async def transfer(number: int, source: int, target: int, amount: int) -> None:
    """Slow enough to be hit before, in and after its transaction."""
    await pool.open()
    await asyncio.sleep(random.random() * 0.02)
    async with qbull.postgres.once(pool) as connection:
        for account, change in sorted(((source, -amount), (target, amount))):
            await connection.execute(
                "UPDATE accounts SET balance = balance + %s WHERE id = %s", (change, account)
            )
            await asyncio.sleep(random.random() * 0.005)
        await connection.execute("INSERT INTO transfers (number) VALUES (%s)", (number,))
    await asyncio.sleep(random.random() * 0.02)


def random_transfer(number: int) -> dict[str, int]:
    source, target = random.sample(range(ACCOUNTS), 2)
    return {"number": number, "source": source, "target": target, "amount": random.randint(1, 100)}


async def done(connection: AsyncConnection) -> int:
    row = await (await connection.execute("SELECT count(DISTINCT number) FROM transfers")).fetchone()
    await connection.rollback()
    return int((row or (0,))[0])
