"""The oracles that read PostgreSQL can fail: each wrong table of transfers, and of durable transactions, is seen."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from loads import durable, transfers

from database import Postgres

TWO_IN_ORDER = """\
INSERT INTO asked VALUES ('p', 0), ('p', 1);
INSERT INTO booked (payer, number) VALUES ('p', 0), ('p', 1);"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    server = Postgres().start()
    yield server
    server.remove()


@pytest.fixture
def database(server: Postgres) -> str:
    url = server.url(server.make_database())
    with psycopg.connect(url) as connection:
        connection.execute((transfers.CREATE + durable.CREATE + TWO_IN_ORDER).encode())
    return url


def test_exact_books_are_accepted(database: str) -> None:
    books = transfers.audit(database)

    assert (books.asked, books.booked, books.faults) == (2, 2, [])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("INSERT INTO asked VALUES ('p', 2)", "1 missing"),
        ("INSERT INTO booked (payer, number) VALUES ('p', 1)", "1 doubled"),
        ("INSERT INTO booked (payer, number) VALUES ('q', 0)", "1 strange"),
        ("UPDATE booked SET number = 1 - number", "1 out of order"),
        ("UPDATE accounts SET balance = balance + 5 WHERE id = 3", "5 money made or lost"),
    ],
)
def test_each_wrong_book_is_seen(database: str, change: str, fault: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(change.encode())

    assert f"transfers: {fault}" in transfers.audit(database).faults


def test_rows_of_durable_transactions_are_counted(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO durable_effects VALUES ('a', 1), ('a', 1), ('b', 2)")

    assert durable.effects_in(database) == {"a 1": 2, "b 2": 1}
