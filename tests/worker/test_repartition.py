"""Workers and producers while the number of partitions changes: they follow without a restart, and lose nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest

import qbull
from conftest import eventually
from proxy import Proxy
from qbull.core.sharing import Sharing
from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store
from qbull.worker.worker import Worker


@pytest.mark.parametrize(
    "sharings",
    [
        [Sharing(), Sharing()],
        [Sharing("static", instance=0, instances=2), Sharing("static", instance=1, instances=2)],
        [Sharing("leased", most=3), Sharing("leased", most=3)],
    ],
    ids=["auto", "static", "leased"],
)
async def test_running_workers_share_the_new_partitions_out(
    app: qbull.App, store: Store, sharings: list[Sharing]
) -> None:
    queue = app.queue("work", partitions=4, order="key")

    @queue.task(key="{key}")
    async def step(key: str) -> None: ...

    async def shares() -> list[list[int]]:
        layout = await store.layout(queue.settings)
        serving = [member.queues["work"] for member in (await store.workers()).values()]
        return sorted(
            sorted(number - layout.current.numbers[0] for number in one.partitions) for one in serving
        )

    async def shared_out() -> bool:
        found = await shares()
        return sorted(place for share in found for place in share) == list(range(6)) and len(found[0]) == 3

    await step.enqueue(key="a")
    workers = [Worker(app._make_store, app._assignments(), sharing=sharing) for sharing in sharings]
    async with workers[0], workers[1]:
        await queue.repartition(6)
        await eventually(shared_out)

    if sharings[0].mode == "static":
        assert await shares() == []


async def test_no_reply_that_is_lost_runs_a_job_twice_or_puts_one_out_of_order(
    server: EmbeddedServer, store: Store
) -> None:
    ran: dict[str, list[int]] = defaultdict(list)
    luck = random.Random(11)
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        direct = qbull.App(f"unix://:{server.password}@{server.socket}?db=0", prefix="test")
        queue, same = (one.queue("work", partitions=4, order="key") for one in (app, direct))

        @queue.task(key="{key}")
        async def step(key: str, n: int) -> None: ...

        @same.task(key="{key}", name="step")
        async def run(key: str, n: int) -> None:
            ran[key].append(n)

        async def produce(key: str) -> None:
            for n in range(40):
                await step.enqueue(key=key, n=n)

        async def lose_replies() -> None:
            while True:
                proxy.mood = "loses replies"
                await asyncio.sleep(0.02)
                proxy.mood = "fair"
                await asyncio.sleep(luck.uniform(0.02, 0.1))

        async with direct.worker() as worker:
            await step.enqueue(key="first", n=0)
            losing = asyncio.create_task(lose_replies())
            producing = [asyncio.create_task(produce(f"k{k}")) for k in range(10)]
            for count in (16, 6, 3):
                await asyncio.sleep(0.3)
                await same.repartition(count)
            await asyncio.gather(*producing)
            losing.cancel()
            proxy.mood = "fair"
            await worker.drain()
        await app.close()
        await direct.close()

    assert proxy.lost > 5, "the test lost no replies"
    assert ran == {"first": [0], **{f"k{k}": list(range(40)) for k in range(10)}}


async def test_ids_chosen_by_many_at_once_are_taken_once(app: qbull.App, server_url: str) -> None:
    ran: Counter[str] = Counter()
    apps = [app, *(qbull.App(server_url, prefix="test") for _ in range(3))]
    tasks = []
    for one in apps:
        queue = one.queue("mail", partitions=4, keep=qbull.Keep(completed=10_000))

        @queue.task(id="welcome:{user}")
        async def welcome(user: int) -> None:
            ran[f"{user}"] += 1
            await asyncio.sleep(0)

        tasks.append(welcome)

    async def produce(task: object) -> int:
        created = 0
        for user in range(150):
            created += (await task.enqueue(user=user)).created  # type: ignore[attr-defined]
        return created

    async with app.worker() as worker:
        await tasks[0].enqueue(user=0)
        producing = [asyncio.create_task(produce(task)) for task in tasks]
        for count in (16, 6):
            await asyncio.sleep(0.05)
            await app.queues["mail"].repartition(count)
        created = await asyncio.gather(*producing)
        await worker.drain()
    for one in apps[1:]:
        await one.close()

    assert sum(created) == 149
    assert ran == {f"{user}": 1 for user in range(150)}


async def test_schedules_come_along(app: qbull.App, store: Store) -> None:
    ticks: list[int] = []
    queue = app.queue("reports", partitions=4)

    @queue.cron(every=0.1, name="report")
    async def report() -> None:
        ticks.append(len(ticks))

    async def ticked_again(since: int) -> bool:
        return len(ticks) > since + 2

    async with app.worker():
        await eventually(lambda: ticked_again(0))
        await queue.repartition(7)
        await eventually(lambda: _settled(queue))
        since = len(ticks)
        await eventually(lambda: ticked_again(since))

    place = await store.server.call("HGET", store.names.schedules, "report")
    layout = await store.layout(queue.settings)
    assert int(place.rpartition(b"/")[2]) in layout.current.numbers


async def test_a_paused_queue_can_be_repartitioned(app: qbull.App) -> None:
    ran: list[int] = []
    queue = app.queue("work", partitions=2, order="key")

    @queue.task(key="a")
    async def step(n: int) -> None:
        ran.append(n)

    async with app.worker() as worker:
        await queue.pause()
        await step.enqueue(n=0)
        later = await step.options(delay=2).enqueue(n=9)
        await queue.repartition(5)
        await step.enqueue(n=1)
        await eventually(lambda: _moved(later, queue))
        assert ran == []

        await queue.resume()
        await eventually(lambda: _settled(queue))
        await worker.drain()

    assert [n for n in ran if n != 9] == [0, 1]
    assert sorted(ran) == [0, 1, 9]


async def test_a_worker_that_starts_later_finds_its_way(app: qbull.App) -> None:
    queue = app.queue("work", partitions=4, order="key")
    ran: dict[str, list[int]] = defaultdict(list)

    @queue.task(key="{key}")
    async def step(key: str, n: int) -> None:
        ran[key].append(n)

    for n, count in enumerate((2, 5, 3)):
        await step.enqueue_many([{"key": f"k{k}", "n": n} for k in range(10)])
        await queue.repartition(count)

    async with app.worker() as worker:
        await worker.drain()
        await eventually(lambda: _settled(queue))

    assert ran == {f"k{k}": [0, 1, 2] for k in range(10)}


async def _settled(queue: qbull.Queue) -> bool:
    return await queue.repartitioning() is None


async def _moved(job: qbull.Job[None], queue: qbull.Queue) -> bool:
    """Whether it is in a partition of now."""
    client = queue.app._client()
    found = await client.find(queue.settings, job.id)
    layout = await client.router.layout(queue.settings)
    return found is not None and found[0].number in layout.current.numbers


async def test_a_partition_that_refuses_holds_up_no_lane_of_the_others(app: qbull.App, store: Store) -> None:
    queue = app.queue("work", order="key")
    ends = {key: asyncio.Event() for key in ("long", "short")}
    begun: Counter[str] = Counter()

    @queue.task(key="{key}")
    async def step(key: str) -> None:
        begun[key] += 1
        await ends[key].wait()

    async def has_begun(**many: int) -> None:
        async def look() -> bool:
            return begun == many

        await eventually(look)

    broken = store.names.partition("work", 0) + "leaving"
    async with app.worker() as worker:
        await step.enqueue(key="long")
        await step.enqueue(key="short")
        await has_begun(long=1, short=1)
        await store.server.call("SET", broken, "no sorted set")
        await queue.repartition(2)
        await step.enqueue(key="short")
        ends["short"].set()

        await has_begun(long=1, short=2)

        await store.server.call("DEL", broken)
        ends["long"].set()
        await worker.drain()
