"""Batches: what is added while others are in flight leaves together."""

from __future__ import annotations

import asyncio

import pytest

from qbull.store.batch import MIN_SPLIT_CALLS, Batcher


class RecordingSender:
    """What a batcher sends to; it answers when it is told to."""

    def __init__(self) -> None:
        self.flights: list[tuple[list[int], asyncio.Future[None]]] = []

    async def send(self, items: list[int]) -> list[int]:
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flights.append((items, landed))
        await landed
        return [-item for item in items]

    async def land(self) -> None:
        _, landed = self.flights.pop(0)
        if not landed.done():  # whoever waited for it may have given up
            landed.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


async def start(batcher: Batcher[int, int], items: range) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(batcher.add(item)) for item in items]
    for _ in range(2):
        await asyncio.sleep(0)
    return tasks


async def test_the_first_goes_at_once_and_the_others_go_together() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)

    tasks = await start(batcher, range(10))
    assert [items for items, _ in sender.flights] == [[0]]

    await sender.land()
    assert [items for items, _ in sender.flights] == [list(range(1, 10))]

    await sender.land()
    assert await asyncio.gather(*tasks) == [-n for n in range(10)]


async def test_with_many_callers_two_batches_are_in_flight() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=False)

    tasks = await start(batcher, range(3 * MIN_SPLIT_CALLS))
    await sender.land()
    tasks += await start(batcher, range(3 * MIN_SPLIT_CALLS, 6 * MIN_SPLIT_CALLS))

    assert len(sender.flights) == 2
    while sender.flights:
        await sender.land()
    assert await asyncio.gather(*tasks) == [-n for n in range(6 * MIN_SPLIT_CALLS)]


async def test_in_order_there_is_never_more_than_one() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)

    tasks = await start(batcher, range(3 * MIN_SPLIT_CALLS))
    await sender.land()
    tasks += await start(batcher, range(3 * MIN_SPLIT_CALLS, 6 * MIN_SPLIT_CALLS))

    assert len(sender.flights) == 1
    while sender.flights:
        await sender.land()
    await asyncio.gather(*tasks)


async def test_many_callers_in_order_go_in_halves() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)
    callers, rounds = 2 * MIN_SPLIT_CALLS, 6

    async def call(number: int) -> None:
        for _ in range(rounds):
            assert await batcher.add(number) == -number

    tasks = [asyncio.create_task(call(number)) for number in range(1, callers + 1)]
    sizes = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        assert len(sender.flights) <= 1
        if sender.flights:
            sizes.append(len(sender.flights[0][0]))
            await sender.land()

    await asyncio.gather(*tasks)
    assert sum(sizes) == callers * rounds
    assert sizes[3:8] == [callers // 2] * 5


async def test_the_next_batch_leaves_before_the_answered_callers_go_on() -> None:
    happened: list[str] = []
    landing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(items: list[int]) -> list[int]:
        happened.append(f"sent {items}")
        if items == [1]:
            await landing
        return items

    batcher = Batcher(send, 500, in_order=True)

    async def call(number: int) -> None:
        happened.append(f"answered {await batcher.put(number)}")

    tasks = [asyncio.create_task(call(number)) for number in (1, 2)]
    while not happened:
        await asyncio.sleep(0)
    landing.set_result(None)
    await asyncio.gather(*tasks)

    assert happened == ["sent [1]", "sent [2]", "answered 1", "answered 2"]


async def test_a_batcher_that_is_closed_leaves_nothing_behind() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)
    answers = [batcher.put(item) for item in range(3)]
    await asyncio.sleep(0)

    await batcher.close()

    assert all(answer.cancelled() for answer in answers)
    assert [items for items, _ in sender.flights] == [[0]]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_that_has_not_left_is_given_up_too_and_holds_up_no_later_one() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)
    answer = batcher.put(0)

    await batcher.close()

    assert answer.cancelled()
    (later,) = await start(batcher, range(1, 2))
    while sender.flights:
        await sender.land()
    assert later.done()
    assert await later == -1


async def test_a_batch_is_not_larger_than_it_may_be() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 4, in_order=True)
    tasks = await start(batcher, range(10))

    sizes = []
    while sender.flights:
        sizes.append(len(sender.flights[0][0]))
        await sender.land()

    assert sizes == [1, 4, 4, 1]
    await asyncio.gather(*tasks)


async def test_an_error_reaches_everybody_in_its_batch_and_nobody_else() -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=True)
    (first,) = await start(batcher, range(1))
    others = await start(batcher, range(1, 4))
    await sender.land()

    sender.flights.pop(0)[1].set_exception(ConnectionError("away"))
    outcomes = await asyncio.gather(*others, return_exceptions=True)

    assert await first == 0
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 3
    (after,) = await start(batcher, range(9, 10))
    await sender.land()
    assert await after == -9


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_caller_that_gives_up_holds_up_nobody(in_order: bool) -> None:
    sender = RecordingSender()
    batcher = Batcher(sender.send, 500, in_order=in_order)
    tasks = await start(batcher, range(5))

    tasks[0].cancel()
    tasks[2].cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    while sender.flights:
        await sender.land()

    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [-1, -3, -4]
