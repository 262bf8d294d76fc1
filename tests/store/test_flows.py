"""Flows in the store: planting, and telling those that wait. Each step may be done twice, by several, and by whoever comes after a death."""

from __future__ import annotations

from typing import Any

import pytest
from flow_driver import FLOW, FlowDriver
from partition_driver import DONE

import qbull
from qbull.core.flow import (
    HAS_DEPENDENTS_FLAG,
    NEVER_DUE_MS,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    with_flow_flags,
)
from qbull.core.ids import new_id
from qbull.core.record import ExtendedBody, pack
from qbull.errors import ServerAway
from qbull.store.connection.server import Server
from qbull.store.read import inspect
from qbull.store.read.integrity import check_integrity
from qbull.store.store import Store
from qbull.store.verbs import flows
from qbull.store.verbs.flow_messages import DependencyEnding, deliver_endings, dependencies_of
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.layout import repartition
from qbull.store.verbs.move import PartitionMoves


async def test_who_waits_is_planted_first_and_the_rest_is_noted_with_it(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()

    await flow_driver.flows._enqueue_next(plan, store.server, first=True)  # and then its process dies

    assert (await flow_driver.state(1, parent), await flow_driver.state(0, child)) == ("delayed", None)
    assert await flow_driver.notes(1) == 1
    await flow_driver.ship()
    assert await flow_driver.state(0, child) == "waiting"
    assert (await flow_driver.notes(0), await flow_driver.notes(1)) == (0, 0)


async def test_planting_twice_adds_nothing_even_when_the_job_has_been_forgotten(store: Store) -> None:
    from qbull.config import Keep

    flow_driver = await FlowDriver.open(store, keep=Keep(completed=0))
    plan, _, parent = flow_driver.pair()
    assert await flow_driver.flows.start(plan, None)
    await flow_driver.driver(0).complete_together()
    await flow_driver.ship()

    await flow_driver.flows.enqueue_rest(plan.after(1))  # by somebody who has read the note before

    assert (await flow_driver.driver(0).counts()).total == 0
    assert await flow_driver.state(1, parent) == "waiting"


async def test_the_end_of_a_job_is_noted_with_it_and_told_once(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    await flow_driver.driver(0).complete_together()
    assert (await flow_driver.notes(0), await flow_driver.state(1, parent)) == (1, "delayed")

    await flow_driver.ship()
    told = DependencyEnding(b"", Dependent("q", parent, None, 0), FLOW, "c", b"", DONE)
    words = await deliver_endings(flow_driver.driver(1).partition, [told])

    assert words == ["known"]
    assert (await flow_driver.notes(0), await flow_driver.state(1, parent)) == (0, "waiting")
    [(letter, facts)] = await dependencies_of(flow_driver.driver(1).partition, parent)
    assert (letter, facts.id, facts.result) == ("c", child, b"1")


@pytest.mark.parametrize(
    ("word", "end"),
    [("dead", "failed"), ("cancel", "cancelled"), ("remove", "cancelled"), ("expire", "cancelled")],
)
async def test_whatever_way_a_job_ends_those_that_wait_for_it_hear_of_it(
    store: Store, word: str, end: str
) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    driver = flow_driver.driver(0)

    if word == "remove":
        assert await driver.remove(child) == ["removed"]
    elif word == "expire":
        await store.server.call("ZADD", driver.partition.base + "expiring", 1, child)
        await driver.partition.promote()
    else:
        [delivery] = await driver.fetch()
        await driver.settle(delivery, 0, word)
    await flow_driver.ship()

    assert await flow_driver.state(1, parent) == end


async def test_a_job_that_kills_its_workers_is_an_end_too(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    driver = flow_driver.driver(0)

    for n in range(3):
        [delivery] = await driver.fetch(f"w{n}")
        await driver.partition.reclaim(f"w{n}", DONE, [delivery.position])
    await flow_driver.ship()

    assert await flow_driver.state(1, parent) == "failed"


async def test_one_that_is_stopped_goes_on_when_the_other_has_been_retried(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    await flow_driver.driver(0).fail(child)
    await flow_driver.ship()
    assert await flow_driver.state(1, parent) == "failed"

    await flow_driver.driver(0).retry(child)
    await flow_driver.driver(0).complete_together()
    await flow_driver.ship()

    assert await flow_driver.state(1, parent) == "waiting"
    assert (await flow_driver.driver(1).counts()).failed == 0


async def test_an_old_message_of_a_failure_does_no_lasting_harm(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    await flow_driver.driver(0).fail(child)
    await flow_driver.ship()
    await flow_driver.driver(0).retry(child)
    await flow_driver.driver(1).retry(parent)
    assert await flow_driver.state(1, parent) == "delayed"

    await deliver_endings(
        flow_driver.driver(1).partition,
        [DependencyEnding(b"", Dependent("q", parent, None, 0), FLOW, "f", b"", DONE)],
    )
    await flow_driver.driver(0).complete_together()
    await flow_driver.ship()

    assert await flow_driver.state(1, parent) == "waiting"


async def test_a_message_of_another_flow_is_not_heard(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)

    words = await deliver_endings(
        flow_driver.driver(1).partition,
        [DependencyEnding(b"", Dependent("q", parent, None, 0), "other", "c", b"", DONE)],
    )

    assert (words, await flow_driver.state(1, parent)) == (["known"], "delayed")


async def test_what_nobody_waits_for_any_more_is_dropped(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    await flow_driver.driver(1).remove(parent)

    await flow_driver.driver(0).complete_together()
    await flow_driver.ship()

    assert await flow_driver.notes(0) == 0


async def test_one_that_waits_is_found_where_it_was_moved(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    moves = PartitionMoves(store, flow_driver.settings)
    await repartition(store, flow_driver.settings, 3)
    await moves.all_steps()

    await flow_driver.driver(0).complete_together()
    assert await flow_driver.state(1, parent) is None
    await flow_driver.ship()

    layout = await store.layout(flow_driver.settings)
    home = store.partition(flow_driver.settings, layout.home_of_id(parent))
    found = await inspect.find(home, parent)
    assert found is not None and found.state == "waiting"
    assert [letter for letter, _ in await dependencies_of(home, parent)] == ["c"]
    assert child != parent


async def test_one_that_is_being_moved_is_told_when_it_is_there(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    layout = await repartition(store, flow_driver.settings, 3)
    await store.server.script("move_out", flow_driver.driver(1).partition.base, 0, 100)
    await flow_driver.driver(0).complete_together()

    again = await flow_driver.flows.dispatch(flow_driver.driver(0).partition)
    assert again is not None
    await PartitionMoves(store, flow_driver.settings).all_steps()
    assert await flow_driver.flows.dispatch(flow_driver.driver(0).partition) is None

    home = store.partition(flow_driver.settings, layout.home_of_id(parent))
    found = await inspect.find(home, parent)
    assert found is not None and found.state == "waiting"


async def test_what_was_planted_before_a_repartitioning_is_not_planted_again_after_it(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, _ = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    layout = await repartition(store, flow_driver.settings, 3)

    await FlowStore(store).enqueue_rest(plan.after(1))

    home = store.partition(flow_driver.settings, layout.home_of_id(child))
    assert await inspect.find(home, child) is None
    assert await flow_driver.state(0, child) == "waiting"


async def test_a_flow_begun_in_a_closed_partition_goes_to_where_its_keys_are_now(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    await flow_driver.flows._queue("q")  # it knows the old layout
    layout = await repartition(store, flow_driver.settings, 3)

    assert await flow_driver.flows.start(plan, None)

    for id, state in ((parent, "delayed"), (child, "waiting")):
        found = await inspect.find(store.partition(flow_driver.settings, layout.home_of_id(id)), id)
        assert found is not None and found.state == state
    await PartitionMoves(store, flow_driver.settings).all_steps()


async def test_a_group_of_thousands_is_one_call_for_each_some_hundred(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    parent, children = new_id(1), [new_id(0) for _ in range(1200)]
    seeds = [flow_driver.seed(parent, awaits=[Dependency("q", id, "task") for id in children])]
    seeds += [flow_driver.seed(id, tells=[Dependent("q", parent, None, n)]) for n, id in enumerate(children)]
    await flow_driver.flows.start(FlowPlan(FLOW, seeds), None)

    while (await flow_driver.driver(0).counts()).waiting:
        await flow_driver.driver(0).complete_together()
    while await flow_driver.flows.dispatch(flow_driver.driver(0).partition) is not None:
        pass

    assert await flow_driver.state(1, parent) == "waiting"


async def test_the_jobs_of_a_group_that_go_to_one_partition_are_planted_in_one_step(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step notes all that is left of the flow: one for each job would write the whole group as often as it has jobs."""
    queue = app.queue("many", partitions=4)
    steps, script = list[str](), Server.script

    @queue.task
    async def work(number: int = 0) -> None: ...

    async def counted(self: Server, name: str, *args: Any) -> Any:
        steps.append(name)
        return await script(self, name, *args)

    monkeypatch.setattr(Server, "script", counted)
    flow = await qbull.group(*(work.step(n) for n in range(100)), then=work.step()).enqueue()

    assert steps.count("flow_start") + steps.count("flow_continue") <= 5
    assert [job.id for job in flow.jobs][-1] == flow.last.id


async def test_a_note_is_small_though_the_arguments_were_large(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, child, parent = flow_driver.pair()
    body = ExtendedBody("task", b"x" * 100_000, flow=FLOW, tells=[Dependent("q", parent, None, 0)])
    seed = plan.seeds[1]
    large = FlowJobSeed(
        *(
            seed.queue,
            child,
            None,
            False,
            0,
            with_flow_flags(pack(body, priority=5, lane=b""), HAS_DEPENDENTS_FLAG),
        )
    )
    await flow_driver.flows.start(FlowPlan(FLOW, [plan.seeds[0], large]), None)

    await flow_driver.driver(0).complete_together()
    name = flow_driver.driver(0).partition.base + "outgoing"
    size = await store.server.call("MEMORY", "USAGE", name)
    await flow_driver.ship()

    assert size < 5000
    assert await flow_driver.state(1, parent) == "waiting"


async def test_the_audit_finds_a_job_that_would_wait_for_ever(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    name = flow_driver.driver(1).partition.base + "job:" + parent
    await store.server.call("HSET", name, "left", 2)

    faults = await check_integrity(flow_driver.driver(1).partition)
    await store.server.call("HSET", name, "left", 1)

    assert [
        fault for fault in faults if "counts 2 jobs of its flow that it waits for, and there are 1" in fault
    ]


@pytest.mark.parametrize(
    ("word", "state"), [("done", "waiting"), ("dead", "failed"), ("cancel", "cancelled")]
)
async def test_a_message_that_was_lost_with_its_server_is_asked_for(
    store: Store, word: str, state: str
) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    [delivery] = await flow_driver.driver(0).fetch()
    await flow_driver.driver(0).settle(delivery, 0, word)
    await store.server.call("DEL", flow_driver.driver(0).partition.base + "outgoing")
    await flow_driver.ship()
    assert await flow_driver.state(1, parent) == "delayed"

    after = await flow_driver.flows.recheck(flow_driver.driver(1).partition, 0)

    assert (after, await flow_driver.state(1, parent)) == (0, state)


async def test_asking_again_for_what_still_runs_changes_nothing(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plans = [flow_driver.pair() for _ in range(12)]
    for plan, _, _ in plans:
        await flow_driver.flows.start(FlowPlan(plan.seeds[0].id[-8:], plan.seeds), None)

    after = await flow_driver.flows.recheck(flow_driver.driver(1).partition, 0)
    again = await flow_driver.flows.recheck(flow_driver.driver(1).partition, after)

    assert (after, again) == (10, 0)
    assert (await flow_driver.driver(1).counts()).delayed == 12


@pytest.mark.parametrize("courier", ["", "one"])
async def test_notes_for_a_partition_that_is_away_do_not_hold_up_those_behind_them(
    store: Store, monkeypatch: pytest.MonkeyPatch, courier: str
) -> None:
    flow_driver = await FlowDriver.open(store)
    dead, script, tried = flow_driver.driver(1).partition.base, Server.script, list[str]()
    here, there = new_id(0), [new_id(1) for _ in range(5)]
    for n, parent in enumerate([*there, here]):
        child, flow = new_id(0), f"{FLOW}{n}"
        seeds = [
            flow_driver.seed(parent, awaits=[Dependency("q", child, "task")], flow=flow),
            flow_driver.seed(child, tells=[Dependent("q", parent, None, 0)], flow=flow),
        ]
        await flow_driver.flows.start(FlowPlan(flow, seeds), None)
        await flow_driver.driver(0).complete_together()

    async def away(self: Server, name: str, key: str, *args: Any) -> Any:
        if (name, key) == ("flow_deliver", dead):
            tried.append(name)
            raise ServerAway("the server is away")
        return await script(self, name, key, *args)

    monkeypatch.setattr(flows, "FLOW_MESSAGE_BATCH_SIZE", 2)
    with monkeypatch.context() as outage:
        outage.setattr(Server, "script", away)
        with pytest.raises(ServerAway):
            await flow_driver.flows.dispatch(flow_driver.driver(0).partition, courier)
    assert (await flow_driver.notes(0), await flow_driver.state(0, here), len(tried)) == (5, "waiting", 1)

    while await flow_driver.flows.dispatch(flow_driver.driver(0).partition, courier) is not None:
        pass
    assert [await flow_driver.state(1, parent) for parent in there] == ["waiting"] * 5


async def test_one_courier_at_a_time_and_another_when_that_one_has_gone(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)
    await flow_driver.driver(0).complete_together()
    source = flow_driver.driver(0).partition
    await store.server.script("flow_outbox", source.base, "first", 10_000, 100, "-")  # and then it dies

    assert await flow_driver.flows.dispatch(source, "second") is not None
    assert (await flow_driver.notes(0), await flow_driver.state(1, parent)) == (1, "delayed")
    await store.server.call("DEL", source.base + "courier")
    assert await flow_driver.flows.dispatch(source, "second") is None

    assert (await flow_driver.notes(0), await flow_driver.state(1, parent)) == (0, "waiting")


async def test_a_job_that_waits_is_due_at_the_end_of_time(store: Store) -> None:
    flow_driver = await FlowDriver.open(store)
    plan, _, parent = flow_driver.pair()
    await flow_driver.flows.start(plan, None)

    found = await inspect.find(flow_driver.driver(1).partition, parent)
    promoted = await flow_driver.driver(1).partition.promote()

    assert found is not None and found.due_ms == NEVER_DUE_MS
    assert promoted.moved == 0
