"""The work on an order. `qbull worker tasks:app --processes 4` does it."""

import asyncio
import os
from collections.abc import AsyncIterator

from psycopg_pool import AsyncConnectionPool

import qbull

SECONDS = float(os.environ.get("ORDERS_SECONDS", "2"))
"""How long an order takes."""

app = qbull.App()
orders = app.queue("orders", concurrency=1, track=True)


def open_pool() -> AsyncConnectionPool:
    """Connections to the database, for the API and for each worker process."""
    if app.database is None:
        raise SystemExit("set QBULL_DATABASE_URL=postgresql://USER:PASSWORD@HOST/NAME")
    return AsyncConnectionPool(app.database, min_size=1, max_size=4, open=False)


@app.lifespan
async def pool() -> AsyncIterator[AsyncConnectionPool]:
    async with open_pool() as connections:
        yield connections


@orders.task(id="order:{order_id}")
async def process_order(order_id: int) -> None:
    async with pool.value.connection() as conn:
        await conn.execute(
            "UPDATE orders SET status = 'processing' WHERE id = %s AND status = 'pending'", (order_id,)
        )
        cursor = await conn.execute("SELECT product FROM orders WHERE id = %s", (order_id,))
        row = await cursor.fetchone()
    await asyncio.sleep(SECONDS)  # payment, stock, invoice …
    if row is None or row[0] == "Unicorn":
        async with pool.value.connection() as conn:
            await conn.execute("UPDATE orders SET status = 'failed' WHERE id = %s", (order_id,))
        raise qbull.Fail("out of stock")
    async with qbull.postgres.once(pool.value) as conn:
        await conn.execute("UPDATE orders SET status = 'completed' WHERE id = %s", (order_id,))
