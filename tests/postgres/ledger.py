"""Producers that commit, roll back, dawdle and die. A ledger in the same transaction says what was committed.

As a module it is the app of the relays; as a program it is one producer: ledger.py NAME.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

import psycopg

import qbull

KEYS = 5
app = qbull.App(os.environ.get("LEDGER_URL") or "redis://127.0.0.1:1/0", prefix="test")
work = app.queue("work", order="key", partitions=2, concurrency=20)
seen: dict[str, list[int]] = {}

CREATE = """\
CREATE TABLE ledger (
    key text NOT NULL, number int NOT NULL, job_id text NOT NULL UNIQUE, PRIMARY KEY (key, number)
)"""


@work.task(key="{key}")
async def step(key: str, number: int) -> None:
    seen.setdefault(key, []).append(number)


def progress() -> int:
    return sum(len(numbers) for numbers in seen.values())


async def produce(name: str, database: str) -> None:
    """Each key has one producer, whose numbers have no gaps: a transaction that fails is done again with the same number."""
    luck = random.Random()
    async with await psycopg.AsyncConnection.connect(database) as connection:
        while True:
            keys = [f"{name}-{n}" for n in luck.sample(range(KEYS), luck.randint(1, 3))]
            try:
                async with connection.transaction():
                    for key in keys:
                        await _next(connection, key)
                    if luck.random() < 0.1:
                        await asyncio.sleep(luck.random() * 0.5)
                    if luck.random() < 0.3:
                        raise ValueError("rolled back")
            except ValueError:
                continue


async def _next(connection: psycopg.AsyncConnection, key: str) -> None:
    cursor = await connection.execute(
        "SELECT coalesce(max(number) + 1, 0) FROM ledger WHERE key = %s", (key,)
    )
    number = (await cursor.fetchone() or (0,))[0]
    job = await step.options(transaction=connection).enqueue(key=key, number=number)
    await connection.execute("INSERT INTO ledger VALUES (%s, %s, %s)", (key, number, job.id))


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], os.environ["QBULL_DATABASE_URL"]))
