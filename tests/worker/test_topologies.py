"""A queue of sixteen partitions on a real cluster and under sentinels: order is kept through the death of a server."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import qbull
from conftest import eventually, every_fault
from topology import DURABLE, Node, raised_cluster, raised_trio

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(120)]


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, Callable[[], Node]]]:
    with raised_cluster(directory) as raised:
        yield raised.url, lambda: raised.primaries()[0]


@contextmanager
def sentinels(directory: Path) -> Iterator[tuple[str, Callable[[], Node]]]:
    with raised_trio(directory) as raised:
        yield raised.url, raised.master


@pytest.mark.parametrize("raise_up", [cluster, sentinels])
async def test_every_job_runs_in_order_although_a_server_dies(raise_up: Callable, tmp_path: Path) -> None:
    keys, each = 60, 40
    with raise_up(tmp_path) as (url, a_primary):
        app = qbull.App(url, prefix="test")
        queue = app.queue("work", partitions=16, order="key", concurrency=8)
        ran: dict[str, list[int]] = defaultdict(list)

        @queue.task(key="{key}")
        async def step(key: str, n: int) -> None:
            await asyncio.sleep(0.002)
            ran[key].append(n)

        async def some_ran() -> bool:
            return sum(map(len, ran.values())) > keys * each / 4

        async def empty() -> bool:
            return (await queue.stats()).unfinished == 0

        await step.enqueue_many([{"key": f"k{k}", "n": n} for n in range(each) for k in range(keys)])
        async with app.worker(), app.worker():
            await eventually(some_ran, within=30)
            victim = a_primary()
            victim.wait_for_replicas()  # what was acknowledged is to be there after the failover
            victim.kill(signal.SIGKILL)
            await eventually(empty, within=60)

        assert len(ran) == keys
        assert [
            key for key, numbers in ran.items() if list(dict.fromkeys(numbers)) != list(range(each))
        ] == []
        assert await every_fault(app._client().store) == []
        await app.close()


async def test_every_flow_comes_to_its_end_although_a_server_dies(tmp_path: Path) -> None:
    many = 60
    with raised_cluster(tmp_path, DURABLE) as raised:
        app = qbull.App(raised.url, prefix="test", durability="replicated")
        upper = app.queue("upper", partitions=8, concurrency=20)
        lower = app.queue("lower", partitions=8, concurrency=20)
        ended: set[int] = set()

        @upper.task
        async def first(flow: int) -> int:
            return flow

        @lower.task
        async def part(number: int) -> int:
            await asyncio.sleep(0.01)
            return qbull.current_job().results[0] * 10 + number  # type: ignore[no-any-return]

        @lower.task
        async def last(flow: int) -> None:
            assert qbull.current_job().results == [flow * 10, flow * 10 + 1]
            ended.add(flow)

        async def some_ended() -> bool:
            return len(ended) > many / 6

        async def a_replica_took_over() -> bool:
            return len(raised.primaries()) == 3

        async def empty() -> bool:
            return (await upper.stats()).unfinished + (await lower.stats()).unfinished == 0

        async with app.worker(), app.worker():
            flows = [
                await qbull.chain(
                    first.step(flow), qbull.group(part.step(0), part.step(1)), last.step(flow)
                ).enqueue()
                for flow in range(many)
            ]
            await eventually(some_ended, within=30)
            victim = raised.primaries()[0]
            victim.kill(signal.SIGKILL)
            await eventually(a_replica_took_over, within=30)
            victim.start()  # without it, nothing could be confirmed
            await eventually(empty, within=60)

        assert ended == set(range(many))
        assert [await flow.last.state() for flow in flows] == ["completed"] * many
        assert await every_fault(app._client().store) == []
        await app.close()
