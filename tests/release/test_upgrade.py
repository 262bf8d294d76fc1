"""A rolling upgrade: an earlier release and the code of today serve one server, in both directions.

Jobs are in flight while one replaces the other: plain, failing, durable, ordered and scheduled ones here, those with
other features in test_upgrade_features.py. The earlier release is run from its wheel (releases.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from releases import CURRENT, Release, Upgrade

import qbull
from conftest import eventually
from qbull.store.store import Store

pytestmark = pytest.mark.xdist_group("upgrade")

SUSPENDED = {"remind": "sleeping", "approve": "waiting", "ask": "calling"}
"""Durable tasks of the app, and what their jobs do while the releases change."""


@pytest.fixture
def upgrade(store: Store, server_url: str, tmp_path: Path) -> Iterator[Upgrade]:
    upgrade = Upgrade("upgrade_app", server_url, tmp_path)
    yield upgrade
    upgrade.stop()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_jobs_of_every_kind_survive_a_rolling_upgrade(
    upgrade: Upgrade, earlier: Release, store: Store, server_url: str, direction: str
) -> None:
    first, second = (earlier, CURRENT) if direction == "up" else (CURRENT, earlier)
    before = upgrade.work(first)
    upgrade.run(first, "a")
    await eventually(lambda: counted(store, "plain", "active", 4), within=60)

    await eventually(lambda: are_suspended(server_url, "a"), within=60)

    upgrade.work(second)
    upgrade.run(second, "b")
    await eventually(lambda: has_workers(store, 2), within=60)
    await eventually(lambda: are_suspended(server_url, "b"), within=60)
    before.terminate()
    await eventually(lambda: has_workers(store, 1), within=60)
    upgrade.gate.touch()
    await wake(server_url)
    await eventually(lambda: is_done(store), within=90)

    ran = Counter(word for word, *_ in upgrade.lines())
    steps = defaultdict(list)
    for word, *rest in upgrade.lines():
        if word == "step":
            steps[rest[0]].append(int(rest[1]))
    assert steps.keys() == {f"{who}{n}" for who in "ab" for n in range(4)}
    assert all(sorted(set(numbers)) == numbers == list(range(20)) for numbers in steps.values()), steps
    assert (ran["hold"], ran["lasting"], ran["flaky"]) == (6, 6, 6)
    # The jobs that slept, waited or called run on after their recorded step.
    suspended = sorted(words for words in upgrade.lines() if words[0] in ("prepare", *SUSPENDED))
    assert suspended == sorted(
        [["prepare", kind, n] for kind in SUSPENDED for n in "12"]
        + [[kind, n] for kind in ("remind", "ask") for n in "12"]
        + [["approve", "yes-a"], ["approve", "yes-b"]]
    )
    # Delayed ones, one for each id, and two of each chain.
    assert ran["quick"] == 6 + 2 + 4
    ticks = {file for word, file, *_ in upgrade.lines() if word == "tick"}
    producers = [file for word, file, *_ in upgrade.lines() if word == "from"]
    assert producers == [str(release.package / "__init__.py") for release in (first, second)]
    assert producers[1] in ticks, "the second release has fired the schedule of the first"
    assert await number(store, "plain", "failed") == 6


async def number(store: Store, queue: str, state: str) -> int:
    from qbull.store.read.inspect import count

    partitions = await store.partitions(await store.settings(queue))
    return sum([int(getattr(await count(partition), state)) for partition in partitions])


async def counted(store: Store, queue: str, state: str, wanted: int) -> bool:
    return queue in await store.queues() and await number(store, queue, state) >= wanted


async def are_suspended(url: str, who: str) -> bool:
    async with qbull.App(url, prefix="test") as app:
        patient = app.queue("patient")
        infos = [await patient.job(f"{kind}-{who}").info() for kind in SUSPENDED]
    return [info.suspended if info else None for info in infos] == [*SUSPENDED.values()]


async def wake(url: str) -> None:
    """Let the jobs that sleep or wait go on. Those that call do so by themselves."""
    async with qbull.App(url, prefix="test") as app:
        patient = app.queue("patient")
        for who in "ab":
            await patient.job(f"remind-{who}").promote()
            await patient.job(f"approve-{who}").signal("approval", f"yes-{who}")


async def has_workers(store: Store, wanted: int) -> bool:
    return len([1 for member in (await store.workers()).values() if "ordered" in member.queues]) == wanted


async def is_done(store: Store) -> bool:
    """All but the schedule: its next run is always to come."""
    active = [
        await number(store, queue, state)
        for queue in ("plain", "patient", "ordered")
        for state in ("waiting", "active")
    ]
    delayed = [await number(store, queue, "delayed") for queue in ("plain", "patient")]
    return not any(active) and not any(delayed)
