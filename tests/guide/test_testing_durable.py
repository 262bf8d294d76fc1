"""Testing durable tasks: a clock that moves, signals, and steps that are replaced, inline and with a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import qbull
from qbull import testing

pytestmark = pytest.mark.timeout(60)


@dataclass
class Payment:
    id: str


async def charge(order: int, *, currency: str = "EUR") -> Payment:
    raise AssertionError("the real one charges a card")


def pack(order: int) -> str:
    raise AssertionError("the real one needs a parcel")


class OutOfStock(Exception):
    pass


class Shop:
    """An app as its code would have it: on a server that no test can reach."""

    def __init__(self) -> None:
        self.app = qbull.App("redis://127.0.0.1:1/0")
        orders = self.app.queue("orders", retry=qbull.Retry(attempts=3, delay=60))

        @orders.task(durable=True)
        async def fulfil(order: int) -> str:
            job = qbull.current_job()
            payment = await job.step(charge, order, currency="USD")
            await job.sleep(hours=24)
            approved = await job.wait_for("approval", type=bool)
            try:
                parcel = await job.step(pack, order)
            except OutOfStock:
                return "refunded"
            return f"{payment.id}, {parcel}, {approved}"

        @orders.task(durable=True)
        def pack_one(order: int) -> str:
            return qbull.current_job().options(name="pack it").step_sync(pack, order)

        self.fulfil, self.pack_one = fulfil, pack_one


@pytest.fixture(name="shop")
def open_shop() -> Shop:
    return Shop()


async def test_steps_are_replaced_by_functions_results_and_errors(shop: Shop) -> None:
    async def pay(order: int, *, currency: str = "EUR") -> Payment:
        return Payment(f"{order} {currency}")

    with (
        testing.inline(shop.app) as jobs,
        testing.replace_step(charge).runs(pay) as charged,
        testing.replace_step(pack).returns("parcel") as packed,
    ):
        handle = await shop.fulfil.enqueue(7)
        await jobs.advance(86_400)
        await handle.signal("approval", True)
        assert await handle.result() == "7 USD, parcel, True"
        steps = [(step.name, step.state) for step in await handle.steps()]

        with testing.replace_step(pack).raises(OutOfStock()):
            handle = await shop.fulfil.enqueue(8)
            await handle.signal("approval", True)
            await jobs.advance(86_400)
            assert await handle.result() == "refunded"

    assert charged.calls == [{"order": 7, "currency": "USD"}, {"order": 8, "currency": "USD"}]
    assert packed.calls == [{"order": 7}]
    assert steps == [
        ("charge", "completed"),
        ("sleep", "completed"),
        ("wait_for approval", "completed"),
        ("pack", "completed"),
    ]


async def test_a_real_worker_takes_the_replacements_too(shop: Shop) -> None:
    def fail_once(order: int) -> str:
        if len(packed.calls) == 1:
            raise ConnectionError
        return "parcel"

    async with testing.embedded(shop.app) as server:
        with (
            testing.replace_step("charge").returns({"id": "p-7"}) as charged,
            testing.replace_step(pack).runs(fail_once) as packed,
        ):
            handle = await shop.fulfil.enqueue(7)
            await handle.signal("approval", True)
            await server.run_due()
            await server.advance(86_400)
            assert (await handle.info()).history  # type: ignore[union-attr]
            await server.advance(60)
            assert await handle.result(timeout=10) == "p-7, parcel, True"

    assert (len(charged.calls), len(packed.calls)) == (1, 2)


def test_plain_tasks_and_named_steps_are_replaced(shop: Shop) -> None:
    with (
        testing.inline(shop.app),
        testing.replace_step("pack it").runs(lambda order: f"box {order}") as packed,
    ):
        handle = shop.pack_one.enqueue_sync(7)
        assert shop.app.run_sync(handle.result()) == "box 7"

    assert packed.calls == [{"order": 7}]


async def test_a_replacement_ends_with_its_block(shop: Shop) -> None:
    with testing.inline(shop.app):
        with testing.replace_step(charge).returns(Payment("p")):
            await shop.fulfil.enqueue(7)
        with pytest.raises(AssertionError, match="charges a card"):
            await shop.fulfil.enqueue(8)


async def test_arguments_that_the_real_function_would_refuse_are_refused(shop: Shop) -> None:
    @shop.app.queues["orders"].task(durable=True)
    async def wrong() -> None:
        await qbull.current_job().step(charge, 1, 2)  # type: ignore[call-overload]

    with (
        testing.inline(shop.app),
        testing.replace_step(charge).returns(Payment("p")),
        pytest.raises(TypeError, match="positional"),
    ):
        await wrong.enqueue()


def test_a_replacement_that_cannot_work_is_refused() -> None:
    async def slow(order: int) -> str:
        await asyncio.sleep(0)
        return "parcel"

    with pytest.raises(qbull.ArgumentsError, match="or its name"):
        testing.replace_step(5)  # type: ignore[call-overload]
    with pytest.raises(qbull.ArgumentsError, match="plain function"):
        testing.replace_step(pack).runs(slow)  # type: ignore[arg-type]
