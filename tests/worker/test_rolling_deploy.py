"""Every row of the table in docs/operate/upgrade.md, with two versions of the code side by side."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.store.read.parked import parked_tasks
from qbull.store.store import Store

PAGE = Path(__file__).parents[2] / "docs/operate/upgrade.md"


class Deploy:
    """The old and the new version of an app. `ran` has the version that ran each job."""

    def __init__(self, url: str) -> None:
        self.old = qbull.App(url, prefix="test")
        self.new = qbull.App(url, prefix="test")
        self.ran: list[str] = []

    def task(self, version: str, function: Callable[..., Any], name: str = "pay", queue: str = "shop") -> Any:
        app: qbull.App = getattr(self, version)
        declared = app.queues.get(queue) or app.queue(queue)

        async def run(*args: Any, **kwargs: Any) -> None:
            self.ran.append(version)

        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        run.__annotations__ = function.__annotations__
        return declared.task(name=name)(run)

    async def finish(self, job: Awaitable[qbull.Job[Any]]) -> str:
        """The state in which a job ends that is enqueued while workers of both versions live."""
        async with self.old.worker(), self.new.worker():
            return await _ended(await job)

    async def finish_with(self, version: str, job: Awaitable[qbull.Job[Any]]) -> str:
        """The state in which a job ends if only one version lives."""
        async with getattr(self, version).worker():
            return await _ended(await job)


async def _existing(job: qbull.Job[Any]) -> qbull.Job[Any]:
    return job


async def _ended(job: qbull.Job[Any]) -> str:
    try:
        await job.result(timeout=30)
    except qbull.JobFailed:
        return "failed"
    return "completed"


@pytest.fixture
async def deploy(server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deploy]:
    monkeypatch.setattr("qbull.worker.unpark.MISFIT_GRACE_SECONDS", 0.5)
    deploy = Deploy(server_url)
    yield deploy
    await deploy.old.close()
    await deploy.new.close()


def plain(order: int) -> None: ...


def with_default(order: int, currency: str = "EUR") -> None: ...


def without_default(order: int, currency: str) -> None: ...


def text(order: str) -> None: ...


async def waits_unknown(store: Store, app: qbull.App) -> bool:
    settings = next(iter(app.queues.values())).settings
    return any(not parked.known for parked in await parked_tasks(store, settings))


async def new_task(deploy: Deploy, store: Store) -> None:
    deploy.task("old", plain)
    deploy.task("new", plain)
    job = await deploy.task("new", plain, name="refund").enqueue(order=1)
    assert await deploy.finish(_existing(job)) == "completed"
    assert deploy.ran == ["new"]


async def renamed_task(deploy: Deploy, store: Store) -> None:
    job = await deploy.task("old", plain).enqueue(order=1)
    deploy.task("new", plain, name="charge")
    async with deploy.new.worker():
        await eventually(lambda: waits_unknown(store, deploy.new))
    assert await deploy.finish(_existing(job)) == "completed"
    assert deploy.ran == ["old"]


async def removed_task(deploy: Deploy, store: Store) -> None:
    job = await deploy.task("old", plain).enqueue(order=1)
    deploy.task("new", plain, name="refund")
    async with deploy.new.worker():
        await eventually(lambda: waits_unknown(store, deploy.new))
        why = str(await job.why())
    assert "pay" in why
    await job.cancel()


async def argument_with_default(deploy: Deploy, store: Store) -> None:
    old, new = deploy.task("old", plain), deploy.task("new", with_default)
    assert await deploy.finish_with("old", new.enqueue(order=1)) == "completed"
    assert await deploy.finish_with("new", old.enqueue(order=1)) == "completed"
    assert await deploy.finish(new.enqueue(order=1, currency="ARS")) == "completed"
    assert deploy.ran == ["old", "new", "new"]


async def argument_without_default(deploy: Deploy, store: Store) -> None:
    old = deploy.task("old", plain)
    deploy.task("new", without_default)
    assert await deploy.finish(old.enqueue(order=1)) == "completed"
    assert await deploy.finish_with("new", old.enqueue(order=1)) == "failed"
    assert deploy.ran == ["old"]


async def argument_removed(deploy: Deploy, store: Store) -> None:
    old = deploy.task("old", with_default)
    deploy.task("new", plain)
    assert await deploy.finish(old.enqueue(order=1, currency="ARS")) == "completed"
    assert await deploy.finish_with("new", old.enqueue(order=1, currency="ARS")) == "failed"
    assert deploy.ran == ["old"]


async def argument_retyped(deploy: Deploy, store: Store) -> None:
    old, new = deploy.task("old", plain), deploy.task("new", text)
    assert await deploy.finish(old.enqueue(order=1)) == "completed"
    assert await deploy.finish(new.enqueue(order="A-1")) == "completed"
    assert await deploy.finish_with("new", old.enqueue(order=1)) == "failed"
    assert deploy.ran == ["old", "new"]


async def moved_task(deploy: Deploy, store: Store) -> None:
    job = await deploy.task("old", plain).enqueue(order=1)
    deploy.task("new", plain, name="refund")
    deploy.task("new", plain, queue="payments")
    async with deploy.new.worker():
        await eventually(lambda: waits_unknown(store, deploy.new))
    assert await deploy.finish(_existing(job)) == "completed"
    assert deploy.ran == ["old"]


ROWS = {
    "new task": new_task,
    "renamed task": renamed_task,
    "removed task": removed_task,
    "argument added, with a default": argument_with_default,
    "argument added, without a default": argument_without_default,
    "argument removed": argument_removed,
    "argument with another type": argument_retyped,
    "task moved to another queue": moved_task,
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("row", ROWS)
async def test_a_change_of_the_code_does_what_the_page_says(row: str, deploy: Deploy, store: Store) -> None:
    await ROWS[row](deploy, store)


def test_every_row_of_the_page_is_tested() -> None:
    table = PAGE.read_text().partition("| change |")[2].partition("\n\n")[0]

    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    assert [row for row in rows if set(row) != {"-"}] == list(ROWS)
