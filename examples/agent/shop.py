"""The tools of the agent: a shop in a SQLite file. Plain functions can be steps too; they run in a thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, cents INTEGER, state TEXT);
CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, order_id INTEGER, cents INTEGER, approved_by TEXT);
INSERT OR IGNORE INTO orders VALUES (7, 'a teapot', 3450, 'on its way'), (8, 'two cups', 1200, 'delivered');
"""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(os.environ.get("SHOP_DATABASE") or "shop.db", timeout=30)
    try:
        with connection:
            connection.executescript(TABLES)
            yield connection
    finally:
        connection.close()


def find_order(order: int) -> str:
    with database() as connection:
        found = connection.execute("SELECT item, cents, state FROM orders WHERE id = ?", (order,)).fetchone()
    if found is None:
        return f"There is no order {order}."
    item, cents, state = found
    return f"Order {order} is {item} for {cents / 100:.2f} EUR. It is {state}."


def refund(order: int, cents: int, key: str, approved_by: str) -> str:
    """Refund money. A second call with the same key changes nothing."""
    with database() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO refunds VALUES (?, ?, ?, ?)", (key, order, cents, approved_by)
        )
    return f"{cents / 100:.2f} EUR for order {order} were refunded."
