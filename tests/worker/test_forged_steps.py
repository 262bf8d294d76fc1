"""Forged steps: somebody without a key changes the recorded steps of a durable job, apart from their contents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

import qbull
from conftest import eventually
from qbull.core.durable import StepRecord, decode_record, encode_record
from qbull.store.store import Store
from qbull.store.verbs.history import read_job_data


@pytest.fixture(name="app", params=[qbull.Signed, qbull.Encrypted], ids=["signed", "encrypted"])
async def open_app(server_url: str, store: Store, request: pytest.FixtureRequest) -> AsyncIterator[qbull.App]:
    codec = request.param([request.param.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[codec]) as app:
        yield app


async def waits(job: qbull.Job[Any]) -> bool:
    info = await job.info()
    return info is not None and info.suspended == "waiting"


async def recorded(app: qbull.App, job: qbull.Job[Any], number: int) -> tuple[StepRecord, str]:
    """A record, and the name on the server that has it."""
    there = await app._client().find(app.queues[job.queue].settings, job.id)
    assert there is not None
    data = await read_job_data(there[0], job.id)
    return decode_record(data[b"step:%d" % number]), f"{there[0].base}job:{job.id}"


def as_step(record: StepRecord, other: StepRecord) -> StepRecord:
    """A record that says that it is the one of another step."""
    return replace(
        record, name=other.name, arguments=other.arguments, occurrence=other.occurrence, asked=other.asked
    )


async def test_steps_that_ran_together_cannot_swap_their_results(app: qbull.App, store: Store) -> None:
    async def to_ada() -> int:
        return 5

    async def to_eve() -> int:
        return 1_000_000

    @app.queue("bank", retry=qbull.Retry(attempts=1)).task(durable=True)
    async def pay() -> list[int]:
        job = qbull.current_job()
        amounts = await asyncio.gather(job.step(to_ada), job.step(to_eve))
        await job.wait_for("go")
        return list(amounts)

    job = await pay.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        (first, name), (second, _) = await recorded(app, job, 1), await recorded(app, job, 2)
        swapped = [encode_record(as_step(first, second)), encode_record(as_step(second, first))]
        await store.server.call("HSET", name, "step:1", swapped[0], "step:2", swapped[1])
        await job.signal("go")

        with pytest.raises(qbull.JobFailed, match="somebody has changed or moved it"):
            await job.result(timeout=20)


async def test_an_error_cannot_be_passed_off_as_a_result(app: qbull.App, store: Store) -> None:
    async def check() -> object:
        raise ValueError("the card is stolen")

    @app.queue("bank", retry=qbull.Retry(attempts=1)).task(durable=True)
    async def pay() -> str:
        job = qbull.current_job()
        try:
            await job.step(check)
        except ValueError:
            await job.wait_for("go")
            return "refused"
        return "paid"

    job = await pay.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        record, name = await recorded(app, job, 1)
        await store.server.call("HSET", name, "step:1", encode_record(replace(record, end="r")))
        await store.server.call("HDEL", name, "step:2")
        await job.signal("go")

        with pytest.raises(qbull.JobFailed, match="somebody has changed or moved it"):
            await job.result(timeout=20)
