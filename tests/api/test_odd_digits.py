"""Odd digits: a character that is a digit to Unicode and none to `int` is refused, and crashes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from web import Person, make_admin, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull
from qbull.api.openapi import describe
from qbull.api.table import TABLE

SUPERSCRIPT, ARABIC, CIRCLED, ENDLESS = "²", "٣", "①", "9" * 5000
ODD_DIGITS = (SUPERSCRIPT, ARABIC, CIRCLED, ENDLESS)
NAMES = ("superscript", "arabic", "circled", "endless")
STATES = ("waiting", "delayed", "failed")
FORMS = ("{}", "items.{}=x", "0:{}:0", "{}-0/0:0", "1-{}/0:0", "2030-01-0{}T00:00:00Z", "{}d", "{} * * * *")
"""Texts in which the API looks for numbers: positions, cursors, times, durations, cron fields."""


@pytest.fixture(name="id")
async def fill(app: qbull.App) -> str:
    """A queue with a waiting, a delayed and a failed job whose argument is a list."""
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task
    async def ship(items: list[str]) -> None:
        raise ValueError("no stamps")

    job = await ship.enqueue(["x"])
    async with app.worker() as worker:
        await worker.drain()
    await ship.enqueue(["x"])
    await ship.options(delay=600).enqueue(["x"])
    return job.id


@pytest.mark.parametrize("digit", ODD_DIGITS, ids=NAMES)
async def test_a_last_event_of_odd_digits_is_refused(digit: str, viewer: Person) -> None:
    headers = {"last-event-id": digit.encode()}

    text = await viewer.refused(400, "GET", "/api/events", headers=headers)

    assert "Last-Event-ID" in text


@pytest.mark.parametrize("digit", [SUPERSCRIPT, CIRCLED, ENDLESS], ids=["superscript", "circled", "endless"])
async def test_a_position_of_odd_digits_is_refused(digit: str, id: str, viewer: Person) -> None:
    query = {"state": "failed", "payload": f"items.{digit}=x"}

    text = await viewer.refused(400, "GET", "/api/queues/orders/jobs", params=query)

    assert text.startswith(("payload", "query: payload"))


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]


def requests(digit: str, id: str) -> Iterator[Request]:
    """Each parameter of each call, with the digit in every form."""
    document: Any = describe(TABLE)
    there = {"queue": "orders", "id": id}
    for path, methods in document["paths"].items():
        if path in ("/api/events", "/api/queues/health", "/readyz"):
            continue  # An endless stream, and two that answer 503 if nothing works off the jobs.
        for method, operation in methods.items():
            for parameter in operation["parameters"]:
                name = parameter["name"]
                for form in FORMS:
                    text = form.format(digit)
                    if parameter["in"] == "path":
                        yield Request(method, filled(path, there | {name: quote(text[:300], safe="")}), {})
                        continue
                    for state in STATES if name in ("cursor", "payload") else ("",):
                        query = {name: text} | ({"state": state} if state else {})
                        yield Request(method, filled(path, there), query)


def filled(path: str, values: dict[str, str]) -> str:
    parts = path.split("/")
    return "/".join(values.get(part[1:-1], "nothing") if part.startswith("{") else part for part in parts)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("digit", ODD_DIGITS, ids=NAMES)
async def test_no_parameter_of_any_call_crashes_on_odd_digits(digit: str, id: str, admin: Person) -> None:
    crashed, tried = [], 0
    for request in requests(digit, id):
        answer = await admin.client.request(request.method, request.path, params=request.query)
        tried += 1
        if answer.status_code >= 500:
            crashed.append((request, answer.text))

    assert crashed == []
    assert tried > 100
