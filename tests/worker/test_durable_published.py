"""Published values of durable tasks: readable from outside at any time, and never moved back by a run that starts again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import qbull
from conftest import eventually, strays
from qbull import testing
from qbull.core.published import (
    MAX_PUBLISHED_BYTES,
    MAX_PUBLISHED_NAMES,
    MAX_PUBLISHED_VALUE_BYTES,
    PublishedSizes,
    PublishedValue,
)
from qbull.store.store import Store
from qbull.store.verbs.history import read_published_values
from qbull.worker import history

AT_ONCE = qbull.Retry(attempts=5, delay=0)


@dataclass
class Status:
    state: str
    done: int


async def is_suspended(job: qbull.Job[Any]) -> bool:
    info = await job.info()
    return info is not None and info.suspended is not None


async def test_a_value_is_readable_before_while_it_sleeps_and_after_the_end(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        await job.publish("status", Status("packing", 1))
        await job.wait_for("go")
        await job.publish("status", Status("sent", 2))
        await job.publish("parcel", 7)
        return "done"

    job = await work.enqueue()
    assert await job.published("status") is None
    async with app.worker():
        await eventually(lambda: is_suspended(job))
        assert await job.published("status", type=Status) == Status("packing", 1)
        assert await job.published("status") == {"state": "packing", "done": 1}
        assert await job.published("parcel") is None
        await job.signal("go")
        assert await job.result(timeout=20) == "done"

    assert await job.published("status", type=Status) == Status("sent", 2)
    assert await job.published("parcel", type=int) == 7
    assert [step.name for step in await job.steps()] == [
        "publish status",
        "wait_for go",
        "publish status",
        "publish parcel",
    ]


async def test_a_value_of_another_type_is_refused_and_an_unknown_job_has_none(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> None:
        await qbull.current_job().publish("status", "packing")

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    with pytest.raises(qbull.PayloadError):
        await job.published("status", type=Status)
    with pytest.raises(qbull.ArgumentsError, match="give a name of 1 to 100 characters"):
        await job.published("")
    with pytest.raises(qbull.NotFound):
        await app.job("orders", "unknown").published("status")


async def test_a_run_that_starts_again_does_not_move_the_value_back(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    seen: list[list[Any]] = []

    async def attempt() -> None:
        calls["attempt"] += 1
        if calls["attempt"] < 3:
            raise ConnectionError

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        handle, shown = app.job("orders", job.id), []
        for number in range(3):
            await job.publish("number", [number, calls["attempt"]])
            shown.append(await handle.published("number"))
        seen.append(shown)
        await job.step(attempt)

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    # The values of the first run stay, although later ones would publish others.
    assert seen == [[[0, 0], [1, 0], [2, 0]], [[2, 0]] * 3, [[2, 0]] * 3]


async def test_a_loop_with_a_checkpoint_publishes_any_number_of_times(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def page(number: int) -> None:
        calls["page"] += 1
        if calls["page"] == 600:
            raise ConnectionError

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        number = await job.checkpoint(0)
        while number < 1_100:
            await job.publish("page", number)
            await job.step(page, number)
            number = await job.checkpoint(number + 1)

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=60)

    assert await job.published("page") == 1_099
    assert calls["page"] == 1_101


async def test_plain_tasks_publish_and_jobs_that_are_not_durable_do_not(app: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task(durable=True)
    def plain() -> None:
        qbull.current_job().publish_sync("status", "ready")

    @orders.task(retry=qbull.Retry(attempts=1))
    async def ordinary() -> None:
        await qbull.current_job().publish("status", "ready")

    first, second = await plain.enqueue(), await ordinary.enqueue()
    async with app.worker():
        await first.result(timeout=20)
        with pytest.raises(qbull.JobFailed, match="declare it with durable=True"):
            await second.result(timeout=20)

    assert await first.published("status") == "ready"


async def test_values_are_encrypted_and_belong_to_their_job_and_name(server_url: str, store: Store) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:

        @app.queue("orders").task(durable=True)
        async def work() -> None:
            job = qbull.current_job()
            await job.publish("status", "very secret")
            await job.publish("other", "also secret")

        job = await work.enqueue()
        async with app.worker():
            await job.result(timeout=20)
        assert await job.published("status") == "very secret"

        [partition] = await store.partitions(app.queues["orders"].settings)
        stored = await read_published_values(partition, job.id, None)
        assert all(b"secret" not in content for content in stored.values())
        await store.server.call("HSET", f"{partition.base}job:{job.id}", "published:status", stored["other"])
        with pytest.raises(qbull.PayloadError):
            await job.published("status")


async def test_a_worker_that_has_lost_its_job_publishes_nothing(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = []
    write = history.write_history

    async def refused(partition: Any, confirmed: Any, worker: str, writes: Any) -> list[bool]:
        moved = [one._replace(position=one.position._replace(delivery=b"51-1")) for one in writes]
        return await write(partition, confirmed, worker, moved)

    @app.queue("orders", retry=qbull.Retry(attempts=1)).task(durable=True)
    async def work() -> None:
        try:
            await qbull.current_job().publish("status", "mine")
        except qbull.TakenOver as error:
            errors.append(error)
            raise

    monkeypatch.setattr(history, "write_history", refused)
    job = await work.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed):
            await job.result(timeout=20)

    assert len(errors) == 1
    assert await job.published("status") is None


async def test_values_are_bounded(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def too_large() -> None:
        job = qbull.current_job()
        with pytest.raises(qbull.PayloadError, match="the value cannot be encoded"):
            await job.publish("text", object())
        with pytest.raises(qbull.PayloadError, match="publish a reference instead"):
            await job.publish("text", "x" * MAX_PUBLISHED_VALUE_BYTES)
        for number in range(5):
            await job.publish(f"text {number}", "x" * 60_000)

    job = await too_large.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=r'publish\("text 4"\): a job has at most 262,144 bytes'):
            await job.result(timeout=20)

    sizes = PublishedSizes({str(number): 1 for number in range(MAX_PUBLISHED_NAMES)})
    assert sizes.bound_of(PublishedValue("0", b"{}")) is None
    assert sizes.bound_of(PublishedValue("new", b"{}")) == "100 names"
    assert PublishedSizes({"a": MAX_PUBLISHED_BYTES}).bound_of(PublishedValue("a", b"{}")) is None


async def test_values_are_deleted_with_the_job(app: qbull.App, store: Store) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> None:
        await qbull.current_job().publish("status", "done")

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=20)
    await job.remove()

    assert await strays(store) == []


async def test_values_are_published_inline() -> None:
    app = qbull.App("redis://127.0.0.1:1")

    @app.queue("orders").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        await job.publish("status", Status("packing", 1))
        await job.sleep(hours=1)
        await job.publish("status", Status("sent", 2))

    with testing.inline(app) as jobs:
        job = await work.enqueue()
        assert await job.published("status", type=Status) == Status("packing", 1)
        await jobs.advance(3600)
        assert await job.published("status", type=Status) == Status("sent", 2)
