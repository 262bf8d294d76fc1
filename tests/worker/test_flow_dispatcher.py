"""The courier: what one partition refuses holds up nothing of the others."""

from __future__ import annotations

from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.core.route import digest
from qbull.errors import ServerAway
from qbull.store.connection.server import Server
from qbull.store.store import Store


async def test_a_flow_goes_on_while_another_partition_refuses(
    app: qbull.App, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    work = app.queue("work", partitions=2, order="key")

    @work.task(key="{key}")
    async def make(key: str) -> str:
        return key

    @app.queue("end").task
    async def tell() -> str:
        return "told"

    layout = await store.register(work.settings, ["make"])
    key = next(key for key in "abcdefgh" if layout.home(digest(key)) == 1)
    broken = store.names.partition("work", 0) + "outgoing"
    await store.server.call("SET", broken, "no stream")

    async def is_refused() -> bool:
        return broken.removesuffix("outgoing") in caplog.text

    async with app.worker():
        await eventually(is_refused)
        flow = await qbull.chain(make.step(key), tell.step()).enqueue()
        assert await flow.result(timeout=15) == "told"

    await store.server.call("DEL", broken)


async def test_a_flow_that_was_cancelled_before_all_of_it_was_planted_does_not_run(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, script = list[str](), Server.script

    @app.queue("work", partitions=2).task
    async def make(what: str) -> None:
        ran.append(what)

    @app.queue("end").task
    async def tell() -> None:
        ran.append("tell")

    async def cut_off(self: Server, name: str, *args: Any) -> Any:
        if name == "flow_continue":
            raise ServerAway("the server is away")
        return await script(self, name, *args)

    with monkeypatch.context() as outage:
        outage.setattr(Server, "script", cut_off)
        flow = await qbull.group(*(make.step(what) for what in "abcd"), then=tell.step()).enqueue()

    await flow.cancel()
    after = await make.enqueue("after")
    async with app.worker():
        await after.result(timeout=15)

    assert [await job.state() for job in flow.jobs] == ["cancelled"] * 5
    assert ran == ["after"]
