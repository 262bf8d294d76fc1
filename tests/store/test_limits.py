"""The specification of grant: places, starts, and the line of those who wait."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from qbull.config import QueueSettings
from qbull.core.rate import Rate
from qbull.store.store import Store
from qbull.store.verbs import limits
from qbull.store.verbs.limits import TokenGrant


class LimitedQueue:
    def __init__(self, store: Store, **limits: Any) -> None:
        self.store = store
        self.settings = QueueSettings("q", **limits)

    async def ask(self, worker: str, want: int, used_slots: int = 0, **more: Any) -> TokenGrant:
        request = limits.TokenRequest(worker, want, used_slots=used_slots, **more)
        return await limits.acquire(self.store, self.settings, request)

    async def leave(self, *workers: str) -> None:
        await limits.free_slots(self.store, "q", workers)


async def test_slots_are_granted_up_to_the_limit_over_all_workers(store: Store) -> None:
    q = LimitedQueue(store, max_active=3)

    granted = [(await q.ask(worker, 2)).granted for worker in ("a", "b")]

    assert granted == [2, 1]
    await q.leave("a", "b")


async def test_a_question_whose_reply_was_lost_takes_no_slot_twice(store: Store) -> None:
    q = LimitedQueue(store, max_active=3)

    granted = [(await q.ask("a", 2, used_slots=0)).granted for _ in range(3)]

    assert granted == [2, 2, 2]
    await q.leave("a")


async def test_the_slots_of_a_worker_that_is_gone_are_free(store: Store) -> None:
    q = LimitedQueue(store, max_active=2)
    await q.ask("dead", 2)
    refused = await q.ask("b", 1)

    await q.leave("dead")

    assert (refused.granted, (await q.ask("b", 1)).granted) == (0, 1)
    await q.leave("b")


async def test_who_waits_longest_is_first_and_is_told(store: Store) -> None:
    q = LimitedQueue(store, max_active=1)
    async with aclosing(store.server.listen(store.names.bell)) as bell:
        await anext(bell)
        for worker in ("a", "b", "c"):
            await q.ask(worker, 1)

        again = await q.ask("a", 1, used_slots=0)

        assert again.granted == 0
        assert (await asyncio.wait_for(anext(bell), 5))[1] == b"{test:q}:\nroom b"
        assert [(await q.ask(worker, 1)).granted for worker in ("c", "b")] == [0, 1]
    await q.leave("a", "b", "c")


async def test_workers_that_ask_within_a_millisecond_wait_in_that_order(store: Store) -> None:
    q = LimitedQueue(store, max_active=1)
    waiting = [f"w{number}" for number in reversed(range(20))]
    await q.ask("a", 1)
    for worker in waiting:
        await q.ask(worker, 1)

    for first in waiting:
        await q.leave("a")
        others = [worker for worker in waiting if worker != first]
        assert [(await q.ask(worker, 1)).granted for worker in (*others, first)] == [0] * len(others) + [1]
        await q.leave(first)
        waiting = others
        await q.ask("a", 0, used_slots=1)
    await q.leave("a")


async def test_a_worker_may_hold_a_quarter_of_the_free_slots_ahead(store: Store) -> None:
    q = LimitedQueue(store, max_active=100)

    first = await q.ask("a", 20, spare=500)
    second = await q.ask("b", 10, spare=5)

    assert (first.granted, second.granted) == (20 + 80 // 4, 10 + 5)
    await q.leave("a", "b")


async def test_nobody_holds_slots_ahead_that_somebody_waits_for(store: Store) -> None:
    q = LimitedQueue(store, max_active=10)
    await q.ask("a", 8)
    await q.ask("b", 8)

    again = await q.ask("a", 1, used_slots=0, spare=500)

    assert again.granted == 1, "the rest is for the worker that waits"
    await q.leave("a", "b")


async def test_nobody_takes_more_than_its_share_while_others_wait(store: Store) -> None:
    q = LimitedQueue(store, max_active=6)
    await q.ask("a", 6)
    await q.ask("b", 10)

    await q.ask("a", 0, used_slots=0)
    shares = [(await q.ask(worker, 10, used_slots=n)).granted for worker, n in (("a", 0), ("b", 0), ("a", 3))]

    assert shares == [3, 2, 1]
    await q.leave("a", "b")


async def test_who_wants_nothing_any_more_stands_in_nobodys_way(store: Store) -> None:
    q = LimitedQueue(store, max_active=1)
    await q.ask("a", 1)
    await q.ask("b", 1)

    await q.ask("b", 0)

    assert (await q.ask("a", 1, used_slots=0)).granted == 1
    await q.leave("a", "b")


async def test_starts_are_granted_up_to_the_rate(store: Store) -> None:
    q = LimitedQueue(store, rate=Rate(5, per=60))

    first, second = await q.ask("a", 3), await q.ask("b", 3)

    assert (first.granted, len(first.starts), second.granted) == (3, 3, 2)
    assert second.wait == 2
    await q.leave("a", "b")


async def test_starts_that_were_not_made_can_be_made_by_others(store: Store) -> None:
    q = LimitedQueue(store, rate=Rate(5, per=60))
    first = await q.ask("a", 5)

    again = await q.ask("a", 1, unused=first.starts[:3])
    other = await q.ask("b", 5)

    assert (again.granted, other.granted) == (1, 2)
    await q.leave("a", "b")


async def test_a_start_is_good_for_a_moment_only(store: Store) -> None:
    q = LimitedQueue(store, rate=Rate(5, per=60))

    (start, *_) = (await q.ask("a", 5)).starts

    assert 0 < start.before - start.after <= Rate(5, per=60).slack / 2


async def test_starts_are_granted_a_little_ahead(store: Store) -> None:
    rate = Rate(2, per=0.2)
    q = LimitedQueue(store, rate=rate)
    await q.ask("a", 2)

    near = await q.ask("a", 1, within=1.0)

    assert near.granted == 1
    assert 0.1 < near.starts[0].after - near.starts[0].before + rate.slack / 2 + rate.window_ms / 1000 < 0.5
    await q.leave("a")


async def test_the_log_of_a_large_rate_stays_short(store: Store) -> None:
    q = LimitedQueue(store, rate=Rate(100_000, per=1))

    total = 0
    for _ in range(300):
        total += (await q.ask("a", 50)).granted

    assert total == 15_000
    assert len(await store.server.call("GET", store.names.queue("q") + "starts")) < 128 * 25


async def test_a_clock_that_was_set_back_blocks_no_longer_than_a_window(store: Store) -> None:
    q = LimitedQueue(store, rate=Rate(1, per=0.1))
    far = 9_999_999_999_999
    await store.server.call("SET", store.names.queue("q") + "starts", f"{far} {far}:1", "EX", 60)

    async def granted() -> bool:
        return (await q.ask("a", 1)).granted == 1

    async with asyncio.timeout(5):
        while not await granted():
            await asyncio.sleep(0.01)
    await q.leave("a")
