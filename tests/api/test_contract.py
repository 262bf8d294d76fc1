"""The contract: what the OpenAPI document says is what the server does, for whatever anybody sends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from web import ADMIN, Person, Web, make_admin, make_nobody, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull
from qbull.api.openapi import describe
from qbull.api.table import TABLE


async def test_the_document_is_a_right_one(nobody: Person) -> None:
    document = await nobody.get("/api/openapi.json")

    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"


async def test_every_endpoint_is_in_the_document_with_its_role(nobody: Person) -> None:
    paths = (await nobody.get("/api/openapi.json"))["paths"]

    assert {(path, method) for path, methods in paths.items() for method in methods} == {
        (endpoint.path, endpoint.method.lower()) for endpoint in TABLE
    }
    for endpoint in TABLE:
        operation = paths[endpoint.path][endpoint.method.lower()]
        assert operation["x-role"] == endpoint.role
        assert ("security" in operation) == (endpoint.role != "open")


JUDGED = {
    "GET /api/queues/{queue}/jobs": "start and end are for one state; a cursor belongs to its queue",
    "GET /api/jobs": "a query has fields and times, and a cursor belongs to it",
    "GET /api/jobs/facets": "the same",
    "GET /api/flows": "the same",
    "GET /api/queues/{queue}/latency": "a period has a start and an end, or neither",
    "GET /api/queues/{queue}/failures": "not every date exists, and ten years are the longest duration",
    "GET /api/queues/{queue}/matching": "the same",
    "POST /api/queues/{queue}/clean/completed": "the same",
    "POST /api/queues/{queue}/clean/failed": "the same",
    "POST /api/queues/{queue}/clean/cancelled": "the same",
    "GET /api/audit": "the same",
    "GET /api/audit/export": "the same",
    "POST /api/queues/{queue}/redrive": "the same",
    "POST /api/queues/{queue}/jobs": "arguments are those of the task",
    "POST /api/queues/{queue}/jobs/{id}/retry": "so they are here",
    "POST /api/queues/{queue}/jobs/{id}/reschedule": "one of delay and at, not both and not neither",
    "POST /api/queues/{queue}/jobs/{id}/update": "arguments are those of the task",
    "POST /api/queues/{queue}/jobs/{id}/fork": "an id is printable",
    "POST /api/queues/{queue}/operations": "not every action is for every state",
    "POST /api/queues/{queue}/operations/preview": "so they are here, and not every date exists",
    "PUT /api/queues/{queue}/errors/{fingerprint}/acknowledgement": "a note is printable",
    "PUT /api/queues/{queue}/settings": "delays say how many attempts there are",
    "PUT /api/queues/{queue}/partitions": "only so many changes are worked off at a time",
    "PUT /api/schedules/{name}": "cron expressions, time zones, arguments of the task",
    "POST /api/tokens": "a name is printable",
}
"""Where more is asked of an input than a schema can say: there a good request by the schema may be answered with 400."""


SECONDS = int(os.environ.get("QBULL_FUZZ_SECONDS", "20"))
"""How long requests are made up. `make fuzz` sets ten minutes, and then holds answers and memory to bounds too."""
IS_LONG = SECONDS >= 60
EXAMPLES = 400 if IS_LONG else 8
"""Of each endpoint, at most."""
SEED = os.environ.get("QBULL_FUZZ_SEED", "7")
MAX_ANSWER_SECONDS = 2.0
MAX_GROWTH_BYTES = 200 << 20
HEALTH = ("GET /api/queues/health", "GET /readyz")
"""They answer 503 where something is wrong: jobs wait, and no worker is there."""


def configuration() -> str:
    said = [(name, "positive_data_acceptance", ["2xx", "400", "401", "403", "404", "409"]) for name in JUDGED]
    said += [(name, "not_a_server_error", ["2xx", "4xx", "503"]) for name in HEALTH]
    return "\n".join(
        f'[[operations]]\ninclude-name = "{name}"\nchecks.{check}.expected-statuses = {json.dumps(statuses)}'
        for name, check, statuses in said
    )


def tailored(ids: list[str], token: str, operation: str) -> dict[str, Any]:
    """The document, with values in the place of parameters that are there, so that more than "not found" is tried."""
    document: dict[str, Any] = json.loads(json.dumps(describe(TABLE)))
    there = {
        "queue": ["orders", "halted", "nothing"],
        "id": [*ids, "nothing"],
        "name": ["daily", "nothing"],
        "schedule": ["daily", "nothing"],
        "token": [token, "nothing"],
        "operation": [operation, "nothing"],
    }
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in there:
                    parameter["schema"] = {"type": "string", "enum": there[parameter["name"]]}
    return document


async def prepared(app: qbull.App) -> list[str]:
    """Queues with jobs of every state."""
    orders = app.queue("orders", partitions=2, retry=qbull.Retry(attempts=1))
    halted = app.queue("halted", order="key", on_failed="halt", retry=qbull.Retry(attempts=1))

    @orders.task
    async def ship(customer: str = "", fail: bool = False) -> str:
        if fail:
            raise ValueError("no stamps")
        return customer

    @halted.task(key="{customer}")
    async def charge(customer: str) -> None:
        raise ValueError("no money")

    await app.schedules.upsert("daily", "orders/ship", cron="0 9 * * *")
    jobs = [await ship.enqueue("ada"), await ship.enqueue("bob", fail=True), await charge.enqueue("ada")]
    async with app.worker() as worker:
        await worker.drain()
    jobs += [
        await ship.enqueue("eve"),
        await ship.options(delay=600).enqueue("kim"),
        await charge.enqueue("ada"),
    ]
    return [job.id for job in jobs]


@pytest.mark.timeout(300 + 3 * SECONDS)
async def test_schemathesis_finds_nothing(app: qbull.App, web: Web, admin: Person, tmp_path: Path) -> None:
    ids = await prepared(app)
    token = (await admin.post("/api/tokens", {"name": "spare", "role": "viewer"}))["details"]["id"]
    operation = (await admin.post("/api/queues/orders/redrive"))["operationId"]
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(tailored(ids, token, operation)))
    (tmp_path / "schemathesis.toml").write_text(configuration())
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", web.url,
        "--header", f"Authorization: Bearer {ADMIN}", "--exclude-path", "/api/events", "--max-examples", str(EXAMPLES),
        "--phases", "examples,coverage,fuzzing", "--seed", SEED, "--no-color", "--request-timeout", "60", "--max-time", str(SECONDS),
        *(["--max-response-time", str(MAX_ANSWER_SECONDS), "--continue-on-failure"] if IS_LONG else []),
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    forget_peak()
    before = memory("VmRSS")
    out, _ = await process.communicate()
    grown, peak = memory("VmRSS") - before, memory("VmHWM")
    if IS_LONG:
        print(
            f"{out.decode()}\nmemory of the API: {before >> 20} MiB, {grown >> 20:+} MiB at the end, "
            f"{peak >> 20} MiB at its peak (VmHWM)"
        )

    assert process.returncode == 0, out.decode()
    assert grown < MAX_GROWTH_BYTES
    assert peak - before < MAX_GROWTH_BYTES


def memory(name: str) -> int:
    """Bytes of memory of this process, which is the server of the API, by the kernel's name: VmRSS now, VmHWM at
    most. 0 on systems that do not tell.
    """
    told = Path("/proc/self/status")
    found = re.search(rf"^{name}:\s+(\d+) kB$", told.read_text(), re.MULTILINE) if told.exists() else None
    return int(found[1]) << 10 if found is not None else 0


def forget_peak() -> None:
    """Let VmHWM start again: the tests before may have needed more."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
