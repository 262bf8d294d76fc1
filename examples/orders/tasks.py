"""What is done with an order. `qbull worker tasks:app --processes 4` does it."""

import asyncio
import os

from psycopg_pool import AsyncConnectionPool

import qbull

SECONDS = float(os.environ.get("ORDERS_SECONDS", "2"))
"""How long an order takes."""

app = qbull.App()
orders = app.queue("orders", concurrency=1, track=True)
pool = AsyncConnectionPool(app.database or "", min_size=1, max_size=4, open=False)


@orders.task(id="order:{order_id}")
async def process_order(order_id: int) -> None:
    await pool.open()
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE orders SET status = 'processing' WHERE id = %s AND status = 'pending'", (order_id,)
        )
        cursor = await conn.execute("SELECT product FROM orders WHERE id = %s", (order_id,))
        row = await cursor.fetchone()
    await asyncio.sleep(SECONDS)  # payment, stock, invoice …
    if row is None or row[0] == "Unicorn":
        async with pool.connection() as conn:
            await conn.execute("UPDATE orders SET status = 'failed' WHERE id = %s", (order_id,))
        raise qbull.Fail("out of stock")
    async with qbull.postgres.once(pool) as conn:
        await conn.execute("UPDATE orders SET status = 'completed' WHERE id = %s", (order_id,))
