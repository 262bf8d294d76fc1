"""A rolling upgrade with jobs of the other features: groups, chunks, outbox, unique, priority, expiry, limits, labels,
threads and processes, codecs, large arguments, cancel, redrive, streams. test_upgrade.py has the plain kinds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from releases import CURRENT, Release, Upgrade

import qbull
from conftest import eventually
from qbull.store.read.inspect import count
from qbull.store.store import Store

pytestmark = pytest.mark.xdist_group("upgrade")
QUEUES = ("mixed", "single", "rated", "left", "right", "chunked")
READ = 7
"""The lines of the log that reading the jobs of one release writes."""
LABEL = ("--label", "kind=special")


@pytest.fixture
def upgrade(store: Store, server_url: str, database: str, tmp_path: Path) -> Iterator[Upgrade]:
    upgrade = Upgrade(
        "upgrade_features",
        server_url,
        tmp_path,
        UPGRADE_DATABASE=database,
        UPGRADE_ARGUMENTS=str(tmp_path / "arguments"),
        UPGRADE_KEY=qbull.Encrypted.new_key(),
    )
    yield upgrade
    upgrade.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_every_feature_survives_a_rolling_upgrade(
    upgrade: Upgrade, earlier: Release, store: Store, direction: str
) -> None:
    first, second = (earlier, CURRENT) if direction == "up" else (CURRENT, earlier)
    before = upgrade.work(first, *LABEL)
    upgrade.run(first, "enqueue", "a")
    await eventually(lambda: is_in_flight(store, upgrade), within=60)

    upgrade.work(second, *LABEL)
    upgrade.run(second, "enqueue", "b")
    await eventually(lambda: has_workers(store, 2), within=60)
    await eventually(lambda: has(store, "mixed", "failed", 6), within=60)
    upgrade.run(second, "change", "a")
    upgrade.run(first, "change", "b")
    upgrade.run(second, "redrive", "b")
    before.terminate()
    await eventually(lambda: has_workers(store, 1), within=60)
    upgrade.gate.touch()
    await eventually(lambda: is_done(store), within=90)
    upgrade.run(first, "read", "b")
    upgrade.run(second, "read", "a")

    said = by_word(upgrade)
    assert [file for file, *_ in said["from"]] == [
        str(one.package / "__init__.py") for one in (first, second)
    ]
    check_once(said)
    check_limits(said)
    check_changes_and_reads(said)


def by_word(upgrade: Upgrade) -> dict[str, list[list[str]]]:
    """The lines of the log, by their first word."""
    said = defaultdict(list)
    for word, *rest in upgrade.lines():
        said[word].append(rest)
    return said


def check_once(said: dict[str, list[list[str]]]) -> None:
    """Each job had its effect; those that wait for the gate are repeated only before their effect."""
    numbers = sorted("012" * 2)
    for word in ("thread", "process", "special", "repaired"):
        assert sorted(number for number, *_ in said[word]) == numbers, word
    assert sorted(said["large"]) == sorted([[number, "50000"] for number in numbers])
    assert sorted(said["secret"]) == [["a-known"], ["b-known"]]
    assert sorted(said["shipped"]) == [["a"], ["b"]]
    assert sorted(said["total"]) == [["a", "6"], ["b", "6"]]
    assert said["notify"] == [["ann", "a1"]], "the window of a unique job counts calls of both releases"
    assert sorted(number for chunk in said["chunk"] for number in chunk) == sorted("0123456789" * 2)
    assert any(len(chunk) > 1 for chunk in said["chunk"])


def check_limits(said: dict[str, list[list[str]]]) -> None:
    """Priorities, rates and shared limits hold over both releases."""
    urgent = [int(priority) for [priority] in said["urgent"]]
    assert len(urgent) == 20 and urgent == sorted(urgent), "not the most urgent first"
    starts = sorted(float(moment) for _, moment in said["start"])
    assert len(starts) == 20
    assert all(late - early >= 0.99 for early, late in zip(starts, starts[4:], strict=False)), starts
    runs = sorted((float(started), float(ended)) for _, started, ended in said["shared"])
    assert len(runs) == 12
    assert all(ended <= started for (_, ended), (started, _) in pairwise(runs)), runs


def check_changes_and_reads(said: dict[str, list[list[str]]]) -> None:
    """Either release changes jobs of the other, and reads what the other has stored."""
    assert said["cancel"] == [["cancelling"], ["cancelling"]]
    assert said["redriven"] == [["b", "4"]]
    for who, read in (("B", said["read"][:READ]), ("A", said["read"][READ:])):
        [stream] = [words for what, *words in read if what == "stream"]
        assert stream[-3:] == ["one", "two", "three"] and set(stream[:-3]) == {"one"}
        assert [line for line in read if line[0] != "stream"] == [
            ["secret", f"{who}-KNOWN"],
            ["large", "50000"],
            ["process", "2"],
            ["chunk", "70"],
            ["expired", "cancelled"],
            ["endless", "cancelled"],
        ]


async def is_in_flight(store: Store, upgrade: Upgrade) -> bool:
    """Threads, processes, arguments from files, codecs, streams, flows and an endless job run; one `single` job too."""
    return await has(store, "mixed", "active", 3 + 3 + 3 + 1 + 1 + 1 + 3) and await has(
        store, "single", "active", 1
    )


async def has(store: Store, queue: str, state: str, wanted: int) -> bool:
    return queue in await store.queues() and await number(store, queue, state) >= wanted


async def number(store: Store, queue: str, state: str) -> int:
    partitions = await store.partitions(await store.settings(queue))
    return sum([int(getattr(await count(partition), state)) for partition in partitions])


async def has_workers(store: Store, wanted: int) -> bool:
    return len([1 for member in (await store.workers()).values() if "mixed" in member.queues]) == wanted


async def is_done(store: Store, queues: Sequence[str] = QUEUES) -> bool:
    states = ("waiting", "active", "delayed")
    return not any([await number(store, queue, state) for queue in queues for state in states])
