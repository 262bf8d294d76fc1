"""Suspended jobs of durable tasks with the other features of a queue: unique names, priorities, repartitioning."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest

import qbull
from conftest import eventually


async def is_suspended(job: qbull.Job[object]) -> bool:
    info = await job.info()
    return info is not None and info.suspended is not None


async def test_a_suspended_job_counts_for_its_window(app: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task(durable=True, unique=qbull.Unique(window=3600))
    async def remind(order: int) -> int:
        await qbull.current_job().sleep(hours=24)
        return order

    async with app.worker():
        job = await remind.enqueue(7)
        await eventually(lambda: is_suspended(job))
        again = await remind.enqueue(7)
        assert (again.id, again.created) == (job.id, False)
        await job.promote()
        assert await job.result(timeout=20) == 7


@pytest.mark.parametrize("mode", ["last", "reschedule", "debounce", "after"])
async def test_a_job_that_has_started_to_sleep_takes_no_newer_arguments(
    app: qbull.App, mode: Literal["last", "reschedule", "debounce", "after"]
) -> None:
    orders = app.queue("orders")

    async def charge(text: str) -> str:
        return text

    @orders.task(durable=True, unique=qbull.Unique(window=3600, by=("order",), mode=mode))
    async def remind(order: int, text: str) -> tuple[str, str]:
        charged = await qbull.current_job().step(charge, text)
        await qbull.current_job().sleep(hours=24)
        return charged, text

    async def start(text: str) -> qbull.Job[tuple[str, str]]:
        job = await remind.enqueue(7, text)
        if mode == "debounce":
            await job.promote()
        return job

    async with app.worker():
        first = await start("first")
        await eventually(lambda: is_suspended(first))
        second = await start("second")
        await first.promote()
        assert await first.result(timeout=20) == ("first", "first")
        assert second.id != first.id
        await eventually(lambda: is_suspended(second))
        await second.promote()
        assert await second.result(timeout=20) == ("second", "second")


async def test_a_job_that_wakes_up_keeps_its_priority(app: qbull.App) -> None:
    orders = app.queue("orders", concurrency=1)
    order: list[str] = []

    @orders.task(durable=True)
    async def remind(name: str) -> None:
        await qbull.current_job().sleep(hours=24)
        order.append(name)

    @orders.task
    async def plain(name: str) -> None:
        order.append(name)

    urgent = await remind.options(priority=1).enqueue("urgent")
    patient = await remind.options(priority=9).enqueue("patient")
    async with app.worker():
        await eventually(lambda: is_suspended(urgent))
        await eventually(lambda: is_suspended(patient))
    await patient.promote()
    await plain.enqueue("plain")
    await urgent.promote()
    async with app.worker():
        await patient.result(timeout=20)

    assert order == ["urgent", "plain", "patient"]


async def test_sleeping_jobs_move_to_other_partitions_with_their_histories(app: qbull.App) -> None:
    orders = app.queue("orders", partitions=1, order="key")
    charged: Counter[int] = Counter()
    order: list[str] = []

    async def charge(number: int) -> int:
        charged[number] += 1
        return number

    @orders.task(durable=True, key="{number}")
    async def remind(number: int) -> int:
        paid = await qbull.current_job().step(charge, number)
        await qbull.current_job().sleep(hours=24)
        order.append(f"{number} woke up")
        return paid + await qbull.current_job().step(charge, number)

    @orders.task(key="{number}")
    async def follow(number: int) -> None:
        order.append(f"{number} followed")

    async with app.worker():
        jobs = [await remind.enqueue(number) for number in range(6)]
        for job in jobs:
            await eventually(lambda job=job: is_suspended(job))
        behind = [await follow.enqueue(number) for number in range(6)]
        await orders.repartition(4)
        assert not order
        for number, job in enumerate(jobs):
            await job.promote()
            assert await job.result(timeout=20) == 2 * number
            await behind[number].result(timeout=20)

    assert charged == dict.fromkeys(range(6), 2)
    for number in range(6):
        assert order.index(f"{number} woke up") < order.index(f"{number} followed")
