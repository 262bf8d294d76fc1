"""Declare: of several versions of the code that run side by side, all agree on which one decides."""

from __future__ import annotations

from qbull.store.store import Store
from qbull.store.verbs.declare import ScheduleDeclarations

HOUR = 3_600_000


async def test_the_version_that_came_last_decides(store: Store) -> None:
    declared = ScheduleDeclarations(store)

    assert await declared.newest("q", ["old"]) == "old"
    await _age(store, "old", since=HOUR // 2, seen=0)

    assert await declared.newest("q", ["old", "new"]) == "new"
    assert await declared.newest("q", ["new", "old"]) == "new"


async def test_an_old_worker_that_is_started_again_does_not_decide(store: Store) -> None:
    declared = ScheduleDeclarations(store)
    await declared.newest("q", ["old"])
    await _age(store, "old", since=HOUR // 2, seen=HOUR // 4)
    await declared.newest("q", ["new"])

    for _ in range(3):  # it crashes again and again
        assert await declared.newest("q", ["old", "new"]) == "new"


async def test_when_the_last_worker_of_the_newest_has_gone_the_next_newest_decides(store: Store) -> None:
    declared = ScheduleDeclarations(store)
    await declared.newest("q", ["old"])
    await _age(store, "old", since=HOUR // 2, seen=0)
    await declared.newest("q", ["old", "new"])

    assert await declared.newest("q", ["old"]) == "old"


async def test_a_version_that_nobody_has_run_for_an_hour_is_new_when_it_comes_back(store: Store) -> None:
    declared = ScheduleDeclarations(store)
    await declared.newest("q", ["old"])
    await declared.newest("q", ["new"])
    await _age(store, "old", since=3 * HOUR, seen=2 * HOUR)
    await _age(store, "new", since=HOUR // 2, seen=0)

    assert await declared.newest("q", ["old", "new"]) == "old"


async def test_two_that_came_in_the_same_moment_are_told_apart_by_everybody_alike(store: Store) -> None:
    declared = ScheduleDeclarations(store)
    await declared.newest("q", ["a", "b"])
    for version in ("a", "b"):
        await _age(store, version, since=5, seen=5)

    assert await declared.newest("q", ["a", "b"]) == await declared.newest("q", ["b", "a"])


async def test_what_is_remembered_of_versions_expires(store: Store) -> None:
    await ScheduleDeclarations(store).newest("q", ["a"])

    assert 0 < await store.server.call("PTTL", store.names.queue("q") + "versions") <= 2 * HOUR


async def _age(store: Store, version: str, *, since: int, seen: int) -> None:
    """As if it had been seen first and last so many milliseconds ago."""
    seconds, microseconds = await store.server.call("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    name = store.names.queue("q") + "versions"
    await store.server.call("HSET", name, version, f"{now_ms - since} {now_ms - seen}")
