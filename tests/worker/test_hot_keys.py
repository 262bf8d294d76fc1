"""A key with most of the jobs does not slow the others. Judged by the order in which jobs start, not by the clock."""

from __future__ import annotations

import asyncio

import pytest

import qbull

CONCURRENCY = 10
HOT, OTHERS = 900, 100


@pytest.mark.parametrize("partitions", [1, 16])
@pytest.mark.parametrize("keys", [100, 10], ids=["own keys", "few keys"])
async def test_others_start_as_early_with_a_key_that_has_nine_of_ten_jobs_as_without_it(
    app: qbull.App, partitions: int, keys: int
) -> None:
    alone = await positions(app, "alone", partitions, keys, hot=0)
    beside = await positions(app, "beside", partitions, keys, hot=HOT)

    # Of ten slots the hot key takes one at a time: it moves the others back by a tenth or so. In the way
    # of all of them, it would move them back tenfold.
    assert alone == list(range(OTHERS))
    assert beside[OTHERS // 2] < 2 * OTHERS / 2
    assert beside[-1] < 2 * OTHERS, f"the last of {OTHERS} others was the {beside[-1]}th to start"


async def positions(app: qbull.App, name: str, partitions: int, keys: int, hot: int) -> list[int]:
    """At which place of all starts the jobs of other keys began, while the jobs of a hot one were there before them."""
    started: list[str] = []

    @app.queue(name, order="key", concurrency=CONCURRENCY, partitions=partitions).task(key="{key}", name=name)
    async def step(key: str) -> None:
        started.append(key)
        await asyncio.sleep(0.002)

    await step.enqueue_many([{"key": "hot"} for _ in range(hot)])
    await step.enqueue_many([{"key": f"k{n % keys}"} for n in range(OTHERS)])
    async with app.worker([name]) as worker:
        await worker.drain()

    assert started.count("hot") == hot
    return [place for place, key in enumerate(started) if key != "hot"]
