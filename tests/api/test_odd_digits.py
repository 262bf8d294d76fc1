"""Odd digits: a character that is a digit to Unicode and none to `int` is refused, and crashes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
MAX_TEXT_LENGTH = 6000


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


@pytest.mark.parametrize("call", ["redrive", "clean/failed", "operations"])
async def test_bulk_work_on_a_position_of_odd_digits_is_refused(call: str, id: str, admin: Person) -> None:
    body = {"payload": "items.²=x"} | ({"action": "cancel"} if call == "operations" else {})

    text = await admin.refused(400, "POST", f"/api/queues/orders/{call}", body)

    assert "is no position in a list" in text
    assert (await admin.get("/api/operations"))["operations"] == []


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


async def test_a_result_for_a_step_of_odd_digits_is_refused(app: qbull.App, admin: Person) -> None:
    @app.queue("parcels").task(durable=True)
    async def pack(order: int) -> int:
        return await qbull.current_job().step(double, order)

    async def double(order: int) -> int:
        return 2 * order

    job = await pack.enqueue(7)
    async with app.worker(["parcels"]):
        await job.result(timeout=20)
    path = f"/api/queues/parcels/jobs/{job.id}/fork"

    for digit in ODD_DIGITS:
        said = await admin.refused(400, "POST", path, {"results": {digit: 1}})
        assert f'there is no such step "{digit[:100]}"' in said and len(said) < 300
        if len(digit) < 300:
            assert "no such step" in await admin.refused(400, "POST", path, {"step": digit})
    assert (await admin.post(path, {"results": {"1": 1}, "id": "again"}))["created"]


def bodies(schema: Any, known: Mapping[str, Any], digit: str) -> Iterator[Any]:
    """Bodies of a schema, each with the digit at a different place. Optional values are left out of the others."""
    schema = resolved(schema, known)
    for choice in schema.get("anyOf", [schema]):
        yield from shaped(resolved(choice, known), known, digit)


def resolved(schema: Any, known: Mapping[str, Any]) -> Any:
    return known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def shaped(schema: Any, known: Mapping[str, Any], digit: str) -> Iterator[Any]:
    """One value for each place of a value that can have the digit."""
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        needed = {name: plain(schema["properties"][name], known) for name in schema.get("required", ())}
        for name, inner in schema["properties"].items():
            for value in bodies(inner, known, digit):
                yield needed | {name: value}
    elif kind == "object":
        yield {digit: 1}
        yield {f"items.{digit}": 1}
        yield {"items": digit}
    elif kind == "array":
        for value in bodies(schema.get("items", {}), known, digit):
            yield [value]
    elif kind != "null" and "const" not in schema:
        yield digit
        for form in FORMS:
            yield form.format(digit)[: schema.get("maxLength", MAX_TEXT_LENGTH)]


def plain(schema: Any, known: Mapping[str, Any]) -> Any:
    """A value that fits a schema as far as its type goes."""
    schema = resolved(schema, known)
    schema = resolved(schema.get("anyOf", [schema])[0], known)
    if "enum" in schema:
        return schema["enum"][0]
    values: dict[str, Any] = {
        "string": "x",
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": [],
        "object": {},
    }
    return values.get(schema.get("type", ""), schema.get("const", 1))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("digit", ODD_DIGITS, ids=NAMES)
async def test_no_body_of_any_call_crashes_on_odd_digits(digit: str, id: str, admin: Person) -> None:
    document: Any = describe(TABLE)
    there = {"queue": "orders", "id": id}
    crashed, tried = [], 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for body in bodies(schema, document["components"]["schemas"], digit):
                answer = await admin.client.request(method, filled(path, there), json=body)
                tried += 1
                if answer.status_code >= 500:
                    crashed.append((method, path, str(body)[:200], answer.text))

    assert crashed == []
    assert tried > 100


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
