"""The stream of a job over HTTP: each value is an event, a reader that comes back continues, and it ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, NamedTuple

import jsonschema
import pytest
from web import ACCESS, VIEWER, Person, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api.openapi import describe
from qbull.api.table import TABLE

STREAM = describe(TABLE)["paths"]["/api/queues/{queue}/jobs/{id}/stream"]["get"]
EVENT_SCHEMA = STREAM["responses"]["200"]["content"]["text/event-stream"]["schema"]


class Told(NamedTuple):
    name: str
    data: Any
    id: str


async def read(person: Person, path: str, after: str = "") -> list[Told]:
    """All events of a stream until it ends, each compared with the OpenAPI document."""
    heard, fields = [], dict[str, str]()
    headers = {"last-event-id": after} if after else {}
    async with asyncio.timeout(30), person.client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line == "" and "event" in fields:
                jsonschema.validate(fields, EVENT_SCHEMA)
                heard.append(Told(fields["event"], json.loads(fields["data"]), fields.get("id", "")))
                fields = {}
            else:
                name, _, value = line.partition(": ")
                fields[name] = value
    return heard


async def test_a_stream_is_read_live_and_continued(app: qbull.App, viewer: Person) -> None:
    go = asyncio.Event()

    @app.queue("chat").task
    async def answer() -> None:
        await qbull.current_job().emit({"text": "a"})
        await go.wait()
        await qbull.current_job().emit({"text": "b"})

    job = await answer.enqueue()
    path = f"/api/queues/chat/jobs/{job.id}/stream"
    async with app.worker(["chat"]):
        reading = asyncio.create_task(read(viewer, path))
        await eventually(lambda: has_values(job))
        go.set()
        events = await reading
    assert events == [
        Told("value", {"text": "a"}, "1"),
        Told("value", {"text": "b"}, "2"),
        Told("end", {"state": "completed"}, ""),
    ]
    assert await read(viewer, path, after="1") == events[1:]
    async with viewer.client.stream("GET", path, headers={"last-event-id": "2"}) as nothing:
        assert nothing.status_code == 204


async def has_values(job: qbull.Job[Any]) -> bool:
    partition, _ = await job._there()
    return bool(await partition.server.call("EXISTS", f"{partition.base}stream:{job.id}"))


async def test_wrong_positions_and_unknown_jobs_are_refused(
    app: qbull.App, viewer: Person, nobody: Person
) -> None:
    @app.queue("chat").task
    async def answer() -> None: ...

    job = await answer.enqueue()
    path = f"/api/queues/chat/jobs/{job.id}/stream"
    assert (await viewer.client.get(path, headers={"last-event-id": "x"})).status_code == 400
    await viewer.refused(404, "GET", "/api/queues/chat/jobs/nobody/stream")
    await nobody.refused(401, "GET", path)


async def test_a_reader_learns_what_it_missed(app: qbull.App, viewer: Person) -> None:
    @app.queue("chat", stream=qbull.StreamLimits(max_values=1)).task
    async def answer() -> None:
        for number in range(3):
            await qbull.current_job().emit(number)

    job = await answer.enqueue()
    async with app.worker(["chat"]):
        await job.result(timeout=20)
    assert await read(viewer, f"/api/queues/chat/jobs/{job.id}/stream") == [
        Told("gap", {"leftOut": 2}, ""),
        Told("value", 2, "3"),
        Told("end", {"state": "completed"}, ""),
    ]


@pytest.mark.parametrize(
    ("access", "shown"),
    [({"redact": ("text",)}, {"text": "[redacted]", "n": 1}), ({"hide_payloads": True}, None)],
)
async def test_values_are_redacted_as_results_are(
    app: qbull.App, access: dict[str, Any], shown: object
) -> None:
    @app.queue("chat").task
    async def answer() -> None:
        await qbull.current_job().emit({"text": "secret", "n": 1})

    job = await answer.enqueue()
    async with app.worker(["chat"]):
        await job.result(timeout=20)
    async with opened(app, replace(ACCESS, **access)) as web:
        viewer = await web.person(VIEWER)
        events = await read(viewer, f"/api/queues/chat/jobs/{job.id}/stream")
    assert events[0].data == shown
