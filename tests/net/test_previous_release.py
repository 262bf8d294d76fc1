"""Today's code works off a server that an older qbull has filled: no job is lost and none runs twice.

The data in filled/ was made by fill.py. Each test loads it into an empty server; the fixture of the server
checks its integrity afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from restored_app import Manifest, RestoredApp, empty, read_manifest, restore

import qbull
from conftest import eventually, every_fault

OVER = ("completed", "cancelled")


@pytest.fixture(name="manifest", scope="module")
def load_manifest() -> Manifest:
    return read_manifest()


@pytest.fixture(name="restored_app", params=["auto"])
async def open_restored_app(
    server_url: str,
    app: qbull.App,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[RestoredApp]:
    monkeypatch.setenv("QBULL_SHARING", request.param)
    monkeypatch.setenv("MIN_IDLE_TIME_MS", "3000")
    restore(server_url)
    restored_app = RestoredApp(server_url, app.prefix, manifest)
    yield restored_app
    await restored_app.close()
    if not restored_app.has_worked:
        # The killed worker still holds slots of the limited queue, which the integrity check reports.
        empty(server_url)


async def test_the_integrity_check_finds_no_fault_in_what_was_left(
    restored_app: RestoredApp, store: Any
) -> None:
    assert await every_fault(store) == []


async def test_every_job_is_read_as_it_was_left(restored_app: RestoredApp, manifest: Manifest) -> None:
    found = {job.label: await restored_app.handle(job).info() for job in manifest.jobs}

    assert {label: info and info.state for label, info in found.items()} == {
        job.label: job.state for job in manifest.jobs
    }
    payloads = {label: info.payload for label, info in found.items() if info and info.queue != "sealed"}
    assert all(label in payload.values() for label, payload in payloads.items())


@pytest.mark.parametrize("restored_app", ["auto", "leased"], indirect=True)
async def test_every_job_ends_once_and_in_order(
    restored_app: RestoredApp, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    async with restored_app.working() as drain:
        redriven = [await restored_app.queue(name).redrive() for name in ("plain", "halting", "sealed")]
        await drain()
        ran_in_the_pause = [label for label in restored_app.ran if label.startswith("resting")]
        await restored_app.queue("resting").resume()

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert (redriven, ran_in_the_pause) == ([2, 1, 1], [])
    ran = [label for label in restored_app.ran if not label.startswith("tick")]
    assert Counter(ran) == Counter(job.label for job in manifest.jobs if job.state not in OVER)
    for labels in manifest.in_order:
        assert [label for label in ran if label in labels] == [label for label in labels if label in ran]
    assert restored_app.flow_results["chain-2"] == ["new slow-chain-1"]
    assert restored_app.flow_results["group-then"] == ["old group-0", "old group-1", "new slow-group-2"]
    assert restored_app.flow_results["flow-3"] == ["new flow-1", "new flow-2"]
    for job in manifest.jobs:
        handle = restored_app.handle(job)
        if job.state == "cancelled":
            assert await handle.state() == "cancelled"
        else:
            who = "old" if job.state == "completed" else "new"
            assert await handle.result(20) == f"{who} {job.label}"
    assert await restored_app.queue("moving").repartitioning() is None


async def test_schedules_fire_and_paused_ones_do_not(restored_app: RestoredApp) -> None:
    async def fired() -> dict[str, int]:
        return {info.name: info.fired for info in await restored_app.app.schedules.list()}

    async def all_have_fired() -> bool:
        now = await fired()
        return now["code"] >= 1 and now["often"] >= 1 and now["each"] >= 3

    infos = {info.name: info for info in await restored_app.app.schedules.list()}
    assert {name: (info.source, info.paused) for name, info in infos.items()} == {
        "code": ("code", False),
        "often": ("run time", False),
        "each": ("run time", False),
        "never": ("run time", True),
    }
    async with restored_app.working():
        await eventually(all_have_fired)
        by_hand = await restored_app.app.schedules.run("never")
        assert await by_hand.result(20) == "new tick-never"
        assert (await fired())["never"] == 0

    ticks = Counter(label for label in restored_app.ran if label.startswith("tick"))
    assert ticks["tick-never"] == 1 and ticks["tick-each"] >= 3
    assert ticks["tick-code"] >= 1 and ticks["tick-often"] >= 1


async def test_windows_of_uniqueness_are_still_open(restored_app: RestoredApp) -> None:
    for_ten_years: dict[str, Any] = {"window": 10 * 365 * 86_400, "by": ("topic",)}
    first = await restored_app.tidy.options(unique=qbull.Unique(**for_ten_years, mode="first")).enqueue(
        "first", "other"
    )
    last = await restored_app.tidy.options(unique=qbull.Unique(**for_ten_years, mode="last")).enqueue(
        "last", "newest"
    )
    after = await restored_app.tidy.options(unique=qbull.Unique(by=("topic",), mode="after")).enqueue(
        "after", "third"
    )

    waiting = {
        label: await restored_app.job(label).info() for label in ("unique-first", "unique-last", "after-1")
    }
    assert [(job.id, job.created) for job in (first, last, after)] == [
        (info and info.id, False) for info in waiting.values()
    ]
    assert [info and info.payload["label"] for info in waiting.values()] == [
        "unique-first",
        "newest",
        "third",
    ]


async def test_an_id_is_still_taken(restored_app: RestoredApp) -> None:
    again = await restored_app.tasks["plain"].options(id="order:1").enqueue("second of this id")

    assert (again.created, again.id) == (False, restored_app.job("named-0").id)


async def test_live_settings_are_in_force(restored_app: RestoredApp) -> None:
    live = await restored_app.queue("steered").live()

    assert (live.settings.concurrency, live.settings.retry.delays) == (3, (7, 8))
    assert {change.by for change in await restored_app.queue("steered").changes()} == {"somebody"}


async def test_logs_progress_and_errors_are_still_there(restored_app: RestoredApp) -> None:
    done, failed, again = [
        await restored_app.job(label).info() for label in ("done-0", "doomed-0", "again-0")
    ]
    assert done is not None and failed is not None and again is not None

    assert [line.text for line in await restored_app.job("done-0").logs()] == ["done-0 at work"]
    assert done.progress == 0.5
    assert failed.error == "doomed-0 fails"
    assert (again.attempt, len(again.history)) == (2, 1)
    assert (await restored_app.queue("plain").failures())[0].count == 2


async def test_a_token_of_the_api_still_opens_it(restored_app: RestoredApp, manifest: Manifest) -> None:
    api = httpx.ASGITransport(qbull.asgi(restored_app.app, qbull.Access()))
    headers = {"authorization": f"Bearer {manifest.api_token}"}
    async with httpx.AsyncClient(transport=api, base_url="http://127.0.0.1", headers=headers) as client:
        answers = [
            await client.get(path)
            for path in (
                "/api/me",
                "/api/overview",
                "/api/queues/stats",
                "/api/queues/plain/jobs?state=failed",
                "/api/schedules",
                "/api/workers",
                "/api/flows",
                "/api/audit",
                "/metrics",
            )
        ]

    assert [answer.status_code for answer in answers] == [200] * len(answers)
