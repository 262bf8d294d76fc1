"""Events: what becomes of jobs, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

import qbull
from qbull import events
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


class SalesApp:
    def __init__(self, app: qbull.App, name: str = "sales", **settings: int) -> None:
        self.queue = app.queue(
            name, retry=qbull.Retry(attempts=1, backoff="fixed", delay=1), concurrency=20, **settings
        )

        @self.queue.task
        async def sell(number: int) -> int:
            if number < 0:
                raise ValueError("no such thing")
            return number

        self.sell = sell


async def take(events: object, many: int) -> list[qbull.Event]:
    found: list[qbull.Event] = []
    async with asyncio.timeout(20):
        async for event in events:  # type: ignore[attr-defined]
            found.append(event)
            if len(found) == many:
                break
    await events.aclose()  # type: ignore[attr-defined]
    return found


async def listening(store: Store, queue: str = "sales") -> None:
    """Until somebody listens."""
    async with asyncio.timeout(20):
        while not await store.server.call("EXISTS", f"{{test:{queue}:0}}:waiters"):
            await asyncio.sleep(0.01)


async def test_every_end_of_a_job_is_told(app: qbull.App, store: Store) -> None:
    sales_app = SalesApp(app, partitions=3)
    await sales_app.sell.enqueue(0)
    async with app.worker() as worker:
        await worker.drain()
        hearing = asyncio.create_task(take(sales_app.queue.events(), 3))
        await listening(store)

        good, bad = await sales_app.sell.enqueue(1), await sales_app.sell.enqueue(-1)
        gone = await sales_app.sell.options(delay=3600).enqueue(2)
        await gone.cancel()
        events = await hearing

    assert {(event.id, event.state, event.error) for event in events} == {
        (good.id, "completed", None),
        (bad.id, "failed", "ValueError: no such thing"),
        (gone.id, "cancelled", None),
    }
    assert {(event.queue, event.task) for event in events} == {("sales", "sell")}


async def test_what_ends_as_soon_as_somebody_listens_is_told(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when on it is told must have been decided by then."""
    sales_app, ended, now_in = SalesApp(app), asyncio.Event(), events.server_times

    async def slowly(partitions: Sequence[Partition]) -> list[int]:
        if await store.server.call("EXISTS", "{test:sales:0}:waiters"):
            await ended.wait()
        return await now_in(partitions)

    monkeypatch.setattr(events, "server_times", slowly)
    async with app.worker():
        hearing = asyncio.create_task(take(sales_app.queue.events(), 1))
        await listening(store)
        job = await sales_app.sell.enqueue(1)
        await job.result(timeout=20)
        ended.set()

        (event,) = await hearing

    assert event.id == job.id


async def test_an_app_has_the_events_of_all_its_queues(app: qbull.App, store: Store) -> None:
    first, second = SalesApp(app, "first"), SalesApp(app, "second")
    async with app.worker():
        hearing = asyncio.create_task(take(app.events(), 2))
        await listening(store, "second")
        await first.sell.enqueue(1)
        await second.sell.enqueue(2)
        events = await hearing

    assert {event.queue for event in events} == {"first", "second"}


async def test_whoever_comes_back_with_a_place_misses_nothing(app: qbull.App) -> None:
    sales_app = SalesApp(app, partitions=2)
    began = datetime.now(UTC)
    await sales_app.sell.enqueue_many([{"number": n} for n in range(1000)])
    async with app.worker() as worker:
        await worker.drain()

    first = await take(sales_app.queue.events(after=began), 300)
    heard = {event.id for event in first}
    again = await take(sales_app.queue.events(after=first[-1].place), 1)
    rest = sales_app.queue.events(after=again[-1].place)
    async with asyncio.timeout(20):
        async for event in rest:
            heard.add(event.id)
            if len(heard) == 1000:
                break
    await rest.aclose()

    assert len({event.id for event in first}) == 300
    assert len(heard) == 1000
    assert int(first[-1].place) > int(first[0].place)


async def test_events_go_on_over_a_change_of_the_number_of_partitions(app: qbull.App, store: Store) -> None:
    sales_app = SalesApp(app, partitions=2)
    async with app.worker() as worker:
        hearing = asyncio.create_task(take(sales_app.queue.events(), 40))
        await listening(store)
        await sales_app.sell.enqueue_many([{"number": n} for n in range(20)])
        await sales_app.queue.repartition(3)
        await sales_app.sell.enqueue_many([{"number": n} for n in range(20)])
        events = await hearing
        await worker.drain()

    assert len({event.id for event in events}) == 40


async def test_a_listener_that_has_gone_leaves_nothing_running(app: qbull.App, store: Store) -> None:
    sales_app = SalesApp(app)
    events = sales_app.queue.events()
    hearing = asyncio.create_task(take(events, 1))
    await listening(store)

    hearing.cancel()
    await asyncio.wait([hearing])
    await events.aclose()

    assert app._client().results._ends == set()


async def test_a_place_that_is_none_is_refused(app: qbull.App) -> None:
    sales_app = SalesApp(app)

    with pytest.raises(qbull.ArgumentsError, match="give the place of an event, or a time"):
        await take(sales_app.queue.events(after="yesterday"), 1)
    with pytest.raises(qbull.ArgumentsError, match="no time zone"):
        await take(sales_app.queue.events(after=datetime(2026, 1, 1)), 1)
