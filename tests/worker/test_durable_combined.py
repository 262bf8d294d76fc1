"""Suspended jobs of durable tasks with the other features of a queue: unique names, priorities, limits, repartitioning, deploys."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store


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


async def test_a_suspended_job_holds_nothing_of_a_shared_limit(app: qbull.App) -> None:
    orders = app.queue("orders", limit=qbull.Limit("carrier", concurrency=1))

    @orders.task(durable=True)
    async def remind(number: int, sleeps: bool) -> int:
        if sleeps:
            await qbull.current_job().sleep(hours=24)
        return number

    async with app.worker():
        asleep = [await remind.enqueue(number, sleeps=True) for number in range(3)]
        for job in asleep:
            await eventually(lambda job=job: is_suspended(job))
        other = await remind.enqueue(3, sleeps=False)
        assert await other.result(timeout=20) == 3
        for number, job in enumerate(asleep):
            await job.promote()
            assert await job.result(timeout=20) == number


class Version:
    """A version of the code. An order is charged, sleeps and is then shipped; version 2 weighs it first, version 0 has no orders."""

    def __init__(self, url: str, number: int) -> None:
        self.app = qbull.App(url, prefix="test")
        self.queue = self.app.queue("orders", order="key")
        self.ran: list[str] = []

        async def charge(order: int) -> None:
            self.ran.append(f"charge {order}")

        async def weigh(order: int) -> None:
            self.ran.append(f"weigh {order}")

        async def ship(order: int) -> None:
            self.ran.append(f"ship {order}")

        @self.queue.task(key="shop")
        async def follow(order: int) -> None:
            self.ran.append(f"follow {order}")

        self.follow = follow
        if number == 0:
            return

        @self.queue.task(durable=True, key="shop")
        async def fulfil(order: int) -> int:
            job = qbull.current_job()
            await job.step(charge, order)
            if number > 1 and await job.patched("weigh"):
                await job.step(weigh, order)
            await job.sleep(hours=24)
            await job.step(ship, order)
            return number

        self.fulfil = fulfil


@pytest.fixture
async def versions(server_url: str, store: Store) -> AsyncIterator[list[Version]]:
    made = [Version(server_url, number) for number in range(3)]
    yield made
    for version in made:
        await version.app.close()


async def test_jobs_that_sleep_through_a_deploy_go_on_with_the_new_code(versions: list[Version]) -> None:
    _, old, new = versions
    async with old.app.worker():
        first = await old.fulfil.enqueue(1)
        await eventually(lambda: is_suspended(first))
        second = await new.fulfil.enqueue(2)
    async with new.app.worker():
        await first.promote()
        assert await first.result(timeout=20) == 2
        await eventually(lambda: is_suspended(second))
        await second.promote()
        assert await second.result(timeout=20) == 2

    assert old.ran == ["charge 1"]
    assert new.ran == ["ship 1", "charge 2", "weigh 2", "ship 2"]


async def test_a_job_that_wakes_up_beside_code_without_its_task_keeps_its_place(
    versions: list[Version],
) -> None:
    older, old, _ = versions
    async with old.app.worker():
        job = await old.fulfil.enqueue(1)
        await eventually(lambda: is_suspended(job))
    behind = await old.follow.enqueue(1)
    async with older.app.worker():
        await job.promote()

        async def is_parked() -> bool:
            return (await job.why()).reasons[0].code == "no-task"

        await eventually(is_parked)
        async with old.app.worker():
            assert await job.result(timeout=20) == 1
            await behind.result(timeout=20)

    assert old.ran[:2] == ["charge 1", "ship 1"]
    assert (old.ran[2:] + older.ran) == ["follow 1"]


async def test_a_suspended_job_holds_nothing_of_lanes_and_shared_limits(app: qbull.App) -> None:
    one_at_a_time = qbull.Limit("carrier", concurrency=1)
    orders = app.queue("orders", lane=qbull.Lane(limit=1), limit=one_at_a_time)

    @orders.task(durable=True, key="{customer}")
    async def remind(customer: str, sleeps: bool) -> str:
        if sleeps:
            await qbull.current_job().sleep(hours=24)
        return customer

    async with app.worker():
        asleep = [await remind.enqueue("ada", sleeps=True) for _ in range(3)]
        for job in asleep:
            await eventually(lambda job=job: is_suspended(job))
        other = await remind.enqueue("ada", sleeps=False)
        assert await other.result(timeout=20) == "ada"
        for job in asleep:
            await job.promote()
            assert await job.result(timeout=20) == "ada"
