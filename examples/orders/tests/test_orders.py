"""Orders: bad ones are refused, good ones are taken at once and completed once.

Tests that need PostgreSQL use the database in QBULL_DATABASE_URL, and are skipped without one. Tasks run on a
real Valkey that qbull starts for the tests.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import httpx
import prepare
import pytest
import tasks

from api import api
from qbull import testing

LAPTOP = {"product": "Laptop", "quantity": 1, "price": 1200}
needs_database = pytest.mark.skipif(
    not os.environ.get("QBULL_DATABASE_URL"), reason="QBULL_DATABASE_URL is not set"
)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://orders") as client:
        yield client


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        (b"\xff", 400),
        (b" " * 10_001, 413),
        ({}, 422),
        ({**LAPTOP, "quantity": 99_999_999_999}, 422),
        ({**LAPTOP, "quantity": 0}, 422),
        ({**LAPTOP, "price": -1}, 422),
        ({**LAPTOP, "price": "much"}, 422),
        ({**LAPTOP, "product": ""}, 422),
        ({**LAPTOP, "product": "x\x00y"}, 422),
        ({**LAPTOP, "product": "x" * 201}, 422),
        ({**LAPTOP, "colour": "red"}, 422),
    ],
)
async def test_a_bad_order_is_refused(client: httpx.AsyncClient, body: object, status: int) -> None:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}

    answer = await client.post("/orders", **sent)

    assert (answer.status_code, list(answer.json())) == (status, ["error"])


async def test_an_order_number_that_no_database_has_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"/orders/{2**63}")).status_code == 404


@needs_database
async def test_orders_are_taken_at_once_and_completed(
    client: httpx.AsyncClient, qbull_server: testing.embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.prepare()
    monkeypatch.setattr(tasks, "SECONDS", 0)
    async with api.router.lifespan_context(api), tasks.app.worker():
        taken = [
            await client.post("/orders", json=order) for order in (LAPTOP, {**LAPTOP, "product": "Unicorn"})
        ]
        places = [answer.headers["Location"] for answer in taken]
        statuses = [await ended(client, place) for place in places]

    assert [answer.status_code for answer in taken] == [202, 202]
    assert statuses == ["completed", "failed"]


async def ended(client: httpx.AsyncClient, place: str) -> str:
    """The status of an order when the work on it has ended."""
    for _ in range(600):
        status = str((await client.get(place)).json()["status"])
        if status in ("completed", "failed"):
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(f"{place} is still {status}")
