"""The gate of a queue with max_active: a place that is free here is free for all, however it came to be so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_prefetch import delivery

import qbull
from conftest import eventually
from qbull.config import QueueSettings
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs import limits
from qbull.worker.limiter import Limiter
from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer


async def nobody_uses_a_place(store: Store) -> bool:
    return await limits.slot_holders(store, "work") == []


async def test_a_place_that_is_freed_while_another_is_reported_is_reported_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, settings = PrefetchBuffer(), QueueSettings("work", max_active=2)
    limiter = Limiter(store, settings, "w1", buffer, Outage())
    limiter.apply_settings(settings)
    first, second = delivery("1-0"), delivery("2-0")
    buffer.put([first, second])
    await limiter.settle_up()
    ask, asked, may_go = limits.acquire, asyncio.Event(), asyncio.Event()

    async def ask_slowly(*args: Any, **options: Any) -> limits.TokenGrant:
        asked.set()
        await may_go.wait()
        return await ask(*args, **options)

    monkeypatch.setattr(limits, "acquire", ask_slowly)
    buffer.drop(first)
    limiter.slot_freed()
    await asked.wait()
    buffer.drop(second)
    limiter.slot_freed()
    may_go.set()

    await eventually(lambda: nobody_uses_a_place(store))


async def test_what_a_reader_was_permitted_when_it_was_cut_is_for_others(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue("work", max_active=1)
    queue.task(name="step")(lambda: None)
    reading = asyncio.Event()

    async def read_for_ever(self: Store, *_: Any) -> list[Delivery]:
        reading.set()
        await asyncio.Event().wait()
        return []

    with monkeypatch.context() as slow:
        slow.setattr(Store, "fetch_some", read_for_ever)
        async with app.worker():
            await reading.wait()
            assert not await nobody_uses_a_place(store)

            await queue.pause()

            await eventually(lambda: nobody_uses_a_place(store))


async def test_the_place_of_a_delivery_that_others_have_taken_over_is_free(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue("work", max_active=1)
    queue.task(name="step")(lambda: None)
    freed = asyncio.Event()

    async with app.worker() as worker:
        runner = worker._runners[0]
        monkeypatch.setattr(runner._limiter, "slot_freed", freed.set)
        theirs = Delivery(
            worker._store.partition(queue.settings, 0),
            "5",
            b"1-1",
            [b"taken over", b""],
            b"51-1",
            requested_at=-100.0,
        )
        runner._buffer.put([theirs])
        runner._slots.arrived()

        await asyncio.wait_for(freed.wait(), 20)
        assert theirs not in runner._buffer
