"""The courier: what one partition refuses holds up nothing of the others."""

from __future__ import annotations

import pytest

import qbull
from conftest import eventually
from qbull.core.route import digest
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
