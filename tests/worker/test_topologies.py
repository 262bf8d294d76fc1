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
from topology import Node, raised_cluster, raised_trio

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
        assert await every_fault(app.client().store) == []
        await app.close()
