"""A rolling deploy as users make it: `qbull worker` with two versions of a module, side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import deploy_app
import pytest
from program import WorkerProgram, children_of, lines

import qbull
from conftest import eventually
from qbull.store.read.parked import parked_tasks
from qbull.store.store import Store


class Deploy:
    """Programs of both versions. `log` has what their jobs did."""

    def __init__(self, url: str, log: Path, stack: AsyncExitStack) -> None:
        self._url = url
        self.log = log
        self._stack = stack

    async def start(self, version: int, *options: str) -> WorkerProgram:
        environment = {"DEPLOY_VERSION": str(version)}
        program = WorkerProgram(self._url, self.log, options, environment, "deploy_app:app")
        return await self._stack.enter_async_context(program)


@pytest.fixture
async def deploy(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Deploy]:
    monkeypatch.setattr(deploy_app.app, "url", server_url)
    async with AsyncExitStack() as stack:
        yield Deploy(server_url, tmp_path / "log", stack)
    await deploy_app.app.close()


@pytest.mark.timeout(180)
async def test_jobs_of_the_new_version_run_in_order_beside_the_old_one(deploy: Deploy) -> None:
    old, new = await deploy.start(1), await deploy.start(2)
    jobs: list[qbull.Job[Any]] = []
    for number in range(10):
        for key in ("a", "b", "c"):
            match number % 4:
                case 0:
                    jobs.append(await deploy_app.pay_in.enqueue(key, number))
                case 1:
                    jobs.append(await deploy_app.pay_in.enqueue(key, number, currency="ARS"))
                case 2:
                    jobs.append(await deploy_app.refund.enqueue(key, number))
                case _:
                    jobs.append(await deploy_app.render.enqueue(key, number))
    for job in jobs:
        await job.result(timeout=90)

    started = lines(deploy.log, "start")
    for key in ("a", "b", "c"):
        assert [line.number for line in started if line.key == key] == list(range(10))
    assert {line.attempt for line in started} == {1}
    of_old = set(old.children())
    assert [line.number % 4 for line in started if line.pid in of_old and line.number % 4] == []
    assert {line.pid for line in started if line.number % 4 == 3} <= {
        process for worker in new.children() for process in children_of(worker)
    }


@pytest.mark.timeout(180)
async def test_chunks_flows_and_limits_of_the_new_version_run_beside_the_old_one(deploy: Deploy) -> None:
    await deploy.start(1)
    counts = [await deploy_app.count.enqueue(number) for number in range(20)]
    slow = [await deploy_app.slow.enqueue(number) for number in range(12)]
    flow = await qbull.group(
        deploy_app.count.step(1), deploy_app.count.step(2), then=deploy_app.thank.step()
    ).enqueue()
    for task in (deploy_app.known_bulk, deploy_app.known_few):
        # The old version has passed by the others.
        await (await task.enqueue()).result(timeout=60)
    await deploy.start(2)

    assert [await job.result(timeout=60) for job in counts] == list(range(1, 21))
    assert await flow.result(timeout=60) == 5
    for job in slow:
        await job.result(timeout=60)
    running = most = 0
    for line in lines(deploy.log, key="slow"):
        running += 1 if line.word == "start" else -1
        most = max(most, running)
    assert most <= 2


@pytest.mark.timeout(180)
async def test_with_static_sharing_parked_jobs_wait_for_the_new_version_of_their_instance(
    deploy: Deploy, store: Store
) -> None:
    first = await deploy.start(1, "--instance-count", "2", "--instance-id", "0")
    await deploy.start(2, "--instance-count", "2", "--instance-id", "1")
    jobs = [await deploy_app.refund.enqueue(f"k{number}", number) for number in range(20)]
    parked = await eventually(lambda: _waiting_jobs(store, jobs), within=60)
    assert 0 < parked < 20
    first.process.terminate()
    await first.ended()
    await deploy.start(2, "--instance-count", "2", "--instance-id", "0")

    for job in jobs:
        await job.result(timeout=60)
    assert {line.attempt for line in lines(deploy.log, "start")} == {1}


@pytest.mark.timeout(180)
async def test_with_leased_sharing_parked_jobs_go_to_the_worker_that_gets_the_lease(
    deploy: Deploy, store: Store
) -> None:
    old = await deploy.start(1, "--sharing", "leased")
    jobs = [await deploy_app.refund.enqueue(f"k{number}", number) for number in range(10)]
    await eventually(lambda: _all_parked(store, jobs), within=60)
    old.process.terminate()
    await old.ended()
    await deploy.start(2, "--sharing", "leased")

    for job in jobs:
        await job.result(timeout=60)
    assert {line.attempt for line in lines(deploy.log, "start")} == {1}


async def _waiting_jobs(store: Store, jobs: list[qbull.Job[None]]) -> int:
    """How many jobs are parked, once all others have ended."""
    parked = sum(one.jobs for one in await parked_tasks(store, deploy_app.shop.settings))
    ended = [await job.state() for job in jobs].count("completed")
    return parked if parked + ended == len(jobs) else 0


async def _all_parked(store: Store, jobs: list[qbull.Job[None]]) -> bool:
    return await _waiting_jobs(store, jobs) == len(jobs)
