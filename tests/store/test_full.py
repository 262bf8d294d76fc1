"""The specification of a full server: whatever makes it emptier is let through, and only what adds jobs is refused."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from partition_driver import CRASHED, PartitionDriver

from conftest import every_fault
from qbull.core.flow import FlowJobSeed, FlowPlan
from qbull.core.ids import new_id
from qbull.core.record import ExtendedBody, pack
from qbull.core.route import digest
from qbull.errors import ServerRefused
from qbull.store.connection.scripts import script
from qbull.store.rights import ACL_ROLES
from qbull.store.store import Store
from qbull.store.verbs import alerts, operations, sessions, tokens
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.layout import repartition
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.operations import Operation
from qbull.store.verbs.sessions import Session

HOUR = 3_600_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """That of a server of the test's own; afterwards every job must be in exactly one place."""
    store = Store(f"embedded://{tmp_path}", "test")
    await store.open()
    yield store
    faults = await every_fault(store)
    await store.close()
    assert faults == []


async def fill(store: Store) -> None:
    """From now on there is no room."""
    await store.server.call("CONFIG", "SET", "maxmemory", 1)


def test_only_verbs_that_add_jobs_or_signals_are_refused() -> None:
    verbs = {verb for role in ACL_ROLES.values() for verb in role.verbs}

    refused = {verb for verb in verbs if not script(verb).source.startswith("#!lua flags=")}

    assert refused == {
        *("put", "enqueue", "deposit", "unique", "flow_start", "tick", "schedule_run", "signal"),
        "flow_follow",
        "import_failed",
        "fork",
        # Data of RQ's callers: the metadata of a job, and the jobs of a group.
        *("set_published", "group_change"),
    }


async def test_no_command_that_is_sent_besides_verbs_is_refused(store: Store) -> None:
    """Except for the mover's: the server to which it moves jobs needs room for them."""
    roles = [role for name, role in ACL_ROLES.items() if name != "mover"]
    words = sorted({word for role in roles for word in role.commands})

    known = await store.server.call("COMMAND", "INFO", *words)

    assert [row[0] for row in known if b"denyoom" in row[2]] == []


async def test_a_new_job_is_refused(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await fill(store)

    with pytest.raises(ServerRefused, match="out of memory"):
        await driver.enqueue("a")


async def test_a_suspect_may_run_alone(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("poison")
    for _ in range(2):
        await driver.fetch("dead")
        await driver.partition.reclaim("dead", CRASHED, None)
    (delivery,) = await driver.fetch("dead")
    await fill(store)

    await driver.partition.mark_isolated(b"poison", delivery.position)
    await driver.partition.reclaim("dead", CRASHED, None)

    assert await driver.state("poison") == "failed"


async def test_delayed_jobs_come_to_their_new_partitions(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("later", when=HOUR)
    layout = await repartition(store, driver.settings, 2)
    await fill(store)

    await PartitionMoves(store, driver.settings).move_jobs(layout, 0)

    home = store.partition(driver.settings, layout.home(digest("later")))
    assert await home.has(["later"]) == {"later"}
    assert await driver.partition.has(["later"]) == set()


async def test_a_lane_of_a_new_partition_begins_when_the_older_have_nothing_of_it(store: Store) -> None:
    """Before it was told which lanes are in older ones a partition holds each of them."""
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("busy", key="other")
    layout = await repartition(store, driver.settings, 2)
    home = store.partition(driver.settings, layout.home(digest("k")))
    await home.enqueue([driver.job("free", "k")])
    await fill(store)

    moves = PartitionMoves(store, driver.settings)
    await moves.announce_lanes(layout)
    looked = await moves.free_lanes(layout, home.number)

    assert (looked.held, looked.freed) == (0, 1)
    assert await store.server.call("HGET", home.base + "index", "\n") == b"known"


async def test_an_operator_can_log_in(store: Store) -> None:
    now = int(time.time() * 1000)
    await fill(store)

    text = await sessions.create(store, Session("ann", "admin", now, now + HOUR), idle=60)

    found = await sessions.find(store, text, 60)
    assert found is not None
    assert found.name == "ann"


async def test_an_alert_is_raised(store: Store) -> None:
    """It may be the one that says that the server is full."""
    await store.register(alerts.ALERT_QUEUE, ["say"])
    seen = await alerts.take_turn(store, "w1", 10)
    assert seen is not None
    driver = PartitionDriver(store, alerts.ALERT_QUEUE)
    await fill(store)

    assert await alerts.write(store, seen, seen.state, [driver.job("message", when="0 60000")])

    (delivery,) = await driver.fetch()
    await driver.finish(delivery)


async def test_a_flow_that_was_begun_is_planted_to_its_end_and_a_new_one_is_refused(store: Store) -> None:
    driver = await PartitionDriver.open(store, partitions=2)
    begun, other = (FlowPlan(flow, [_seed(flow, 0), _seed(flow, 1)]) for flow in ("begun", "other"))
    flows = FlowStore(store)
    assert await flows._enqueue_next(begun, store.server, first=True)
    await fill(store)

    await flows.dispatch(driver.partition)

    last = store.partition(driver.settings, 1)
    assert await last.has([seed.id for seed in begun.seeds]) == {begun.seeds[1].id}
    with pytest.raises(ServerRefused, match="out of memory"):
        await flows.start(other, None)


def _seed(flow: str, partition: int) -> FlowJobSeed:
    record = pack(ExtendedBody("task", b"{}", flow=flow), priority=5, lane=b"")
    return FlowJobSeed("q", new_id(partition), None, False, 0, record, "stop", [])


async def test_an_operation_can_be_stopped(store: Store) -> None:
    operation = Operation("o1", "clean", "q", {}, "ann", int(time.time() * 1000))
    await fill(store)
    assert not await operations.write(store, operation)

    await operations.ask_to_stop(store, "o1")

    assert await operations.write(store, operation)


async def test_it_is_said_that_a_job_has_begun(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await fill(store)

    await driver.partition.report([b"aone", b"begun", b"atwo", b"begun"])

    [(_, fields)], _ = await driver.partition.reports([], 10)
    assert fields == [b"aone", b"begun", b"atwo", b"begun"]


async def test_a_token_can_be_made(store: Store) -> None:
    await fill(store)

    token, _ = await tokens.create(store, "night shift", "admin", by="ann")

    assert await tokens.find(store, token.id) is not None
