"""The specification of beat: who lives, who does not, and who only could not say so."""

from __future__ import annotations

from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker

LONG, SHORT = 60.0, 0.05


async def test_a_worker_that_said_nothing_for_its_time_is_dead(store: Store) -> None:
    await store.heartbeat(SHORT, ["gone"])

    async def dead() -> list[str]:
        return await store.heartbeat(LONG, ["here"])

    assert await eventually(dead) == ["gone"]
    assert set(await store.workers()) == {"here"}


async def test_a_dead_worker_is_named_until_it_is_buried(store: Store) -> None:
    await silent(store, "gone")

    assert await store.heartbeat(LONG, ["here"]) == ["gone"]
    assert await store.heartbeat(LONG, ["here"]) == ["gone"]
    await store.forget_worker("gone")
    assert await store.heartbeat(LONG, ["here"]) == []


async def test_nobody_is_called_dead_by_one_who_was_late_himself(store: Store) -> None:
    await silent(store, "one", "other")

    assert await store.heartbeat(LONG, ["one"]) == []
    assert await store.heartbeat(LONG, ["third"]) == []
    assert await store.heartbeat(LONG, ["other"]) == []


async def test_one_who_enrolls_late_keeps_the_peace_too(store: Store) -> None:
    await silent(store, "one", "other")

    await store.register_worker("one", RegisteredWorker(), LONG)

    assert await store.heartbeat(LONG, ["one"]) == []


async def test_the_truce_ends(store: Store) -> None:
    await silent(store, "late", "gone")

    assert await store.heartbeat(SHORT, ["late"]) == []

    async def dead() -> list[str]:
        return await store.heartbeat(LONG, ["third"])

    assert set(await eventually(dead)) >= {"gone"}


async def test_a_worker_of_which_nobody_knows_whether_it_lives_is_remembered(store: Store) -> None:
    await silent(store, "one")

    assert await store.remembered_workers() == {"one"}
    assert await store.workers() == {}


async def silent(store: Store, *workers: str) -> None:
    """These have beaten, and their time is over."""
    await store.heartbeat(SHORT, workers)

    async def over() -> bool:
        return await store.workers() == {}

    await eventually(over)
