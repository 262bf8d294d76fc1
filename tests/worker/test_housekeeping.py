"""House-keeping: what the dead and the removed leave behind goes by itself."""

from __future__ import annotations

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs import tokens
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.process.reclaimer import Reclaimer


async def test_what_a_dead_worker_said_of_itself_goes(
    server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIN_IDLE_TIME_MS", "10000")
    app = qbull.App(server_url, prefix="test")
    app.queue("email")
    await store.register_worker("ghost", RegisteredWorker("gone.example", 1), 0.1)

    async def forgotten() -> bool:
        roster = await store.server.call("HEXISTS", store.names.app + "roster", "ghost")
        return roster == 0 and await store.server.call("ZSCORE", store.names.workers, "ghost") is None

    async with app.worker():
        await eventually(forgotten)

    assert await store.server.call("HLEN", store.names.app + "roster") == 0
    assert await store.server.call("ZCARD", store.names.workers) == 0


async def test_a_worker_that_registers_during_a_sweep_keeps_its_deliveries(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue("email")

    @queue.task
    async def send() -> None: ...

    await send.enqueue()
    [partition] = await store.partitions(queue.settings)
    streams = await store.streams([partition])
    await store.ensure_groups(streams)
    remembered_workers = store.remembered_workers

    async def and_a_worker_starts() -> set[str]:
        known = await remembered_workers()
        if "new" not in known:
            await store.register_worker("new", RegisteredWorker("here.example", 1), 30.0)
            assert len(await store.fetch(streams, "new", 1, None)) == 1
        return known

    monkeypatch.setattr(store, "remembered_workers", and_a_worker_starts)
    await Reclaimer(store, [queue.settings], -1.0).sweep(set())

    assert len(await store.fetch(streams, "new", 1, None, again=True)) == 1


async def test_every_name_that_counts_a_minute_expires(app: qbull.App, store: Store) -> None:
    @app.queue("email").cron(every=0.1, name="s")
    async def tick() -> None: ...

    async with app.worker():
        await eventually(lambda: _fired(app))

    minutes = [name async for name in _names(store) if b":stats:" in name]
    assert minutes
    for name in minutes:
        assert 0 < await store.server.call("TTL", name) <= 90_000


async def test_schedules_of_a_queue_that_nobody_serves_any_more_can_be_removed(
    app: qbull.App, store: Store
) -> None:
    @app.queue("old", partitions=4).cron("@daily", name="nightly")
    async def nightly() -> None: ...

    async with app.worker():
        with pytest.raises(qbull.ConfigError, match="declares it and would bring it back"):
            await app.schedules.remove("nightly")
    await app.schedules.remove("nightly")

    left = [name async for name in _names(store) if b"schedule" in name]
    assert [name for name in left if await store.server.call("TTL", name) == -1] == []


async def test_tokens_that_expired_long_ago_go_when_another_is_made(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = await tokens.create(store, "old", "viewer", by="me", lasts=0.001)
    kept, _ = await tokens.create(store, "kept", "viewer", by="me")
    assert {token.id for token in await tokens.list_all(store)} == {old.id, kept.id}
    monkeypatch.setattr(tokens, "EXPIRED_TOKEN_RETENTION_SECONDS", -1)  # a month later
    new, _ = await tokens.create(store, "new", "viewer", by="me")

    assert {token.id for token in await tokens.list_all(store)} == {kept.id, new.id}


async def _fired(app: qbull.App) -> bool:
    return (await app.schedules.get("s")).fired > 0


async def _names(store: Store):  # type: ignore[no-untyped-def]
    cursor = b"0"
    while True:
        cursor, names = await store.server.call("SCAN", cursor, "COUNT", 500)
        for name in names:
            yield name
        if cursor == b"0":
            return
