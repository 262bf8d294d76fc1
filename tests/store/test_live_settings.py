"""The specification of live settings: kept under the queue's tag, told to everybody, unharmed by what cannot be read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from qbull.config import QueueSettings
from qbull.core.retry import Retry
from qbull.store.store import Store
from qbull.store.verbs import live_settings

EMAIL = QueueSettings("email", concurrency=4)


async def test_every_change_is_told_once(store: Store) -> None:
    async with aclosing(store.server.listen(store.names.bell)) as bell:
        await anext(bell)

        await live_settings.change(store, "email", {"concurrency": 8}, "ada")
        await live_settings.change(store, "email", {"concurrency": 8}, "ada")
        await live_settings.change(store, "email", {"paused": True, "retry": Retry(attempts=1)}, "ada")

        heard = [await anext(bell) for _ in range(2)]
        assert [message for _, message in heard] == [b"{test:email}:\nsettings"] * 2
        await live_settings.change(store, "email", {"paused": live_settings.RESET_SETTING}, "ada")
        assert (await asyncio.wait_for(anext(bell), 5))[1] == b"{test:email}:\nsettings"


async def test_a_change_that_is_sent_twice_is_one(store: Store) -> None:
    counts = [await live_settings.change(store, "email", {"concurrency": 8}, "ada") for _ in range(2)]

    assert counts == [1, 0]
    assert len(await live_settings.history(store, "email")) == 1


async def test_what_another_version_has_set_is_left_alone(store: Store) -> None:
    await live_settings.change(store, "email", {"concurrency": 8}, "ada")
    base = store.names.queue("email")
    await store.server.call("HSET", base + "live", "colour", '1000\nada\n"green"')
    await store.server.call("HSET", base + "live", "retry", '1000\nada\n{"attempts": "many"}')

    found = await live_settings.read(store, EMAIL)

    assert found.settings.concurrency == 8
    assert set(found.changed) == {"concurrency"}


async def test_what_no_longer_fits_the_declaration_does_not_stop_a_worker(store: Store) -> None:
    await store.server.call("HSET", store.names.queue("email") + "live", "concurrency", "1000\nada\n0")

    assert (await live_settings.read(store, EMAIL)).settings == EMAIL
