"""Durable tasks of any shape, whose workers die at any await or go on as zombies: the result is that of a plain function.

The oracle runs the same program without steps. A program is made of steps, calls and transactions that return or raise, sleeps,
waits for signals, published and emitted values, and changes of the code, in sequence, in parallel, inside try and except, and in
loops with a checkpoint; then the job may start over. Workers die before a step's effect, after it, before its record is written,
and when it is written but its reply is lost; in a transaction also before and after the commit. A zombie goes on beside its
successor and must record nothing. Messages between jobs and emitted values are sent twice, and no called job is kept after its end.
The effect of a transaction happens once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from durable_program import EVERYTHING, Program, programs
from durable_world import Life, World, run_to_the_end
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from partition_driver import PartitionDriver
from psycopg_pool import AsyncConnectionPool

from qbull.config import Keep
from qbull.core.calls import HistoryChange
from qbull.core.durable import read_history
from qbull.core.record import body_of
from qbull.store.delivery import DeliveredJob
from qbull.store.store import Store
from qbull.store.verbs.history import read_job_data
from qbull.worker.current import RunningJob
from qbull.worker.durable import DurableRun
from qbull.worker.step_calls import StepCall, StepOptions

deaths = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6)
"""For each life: after how many awaits the worker dies, and whether it goes on as a zombie."""


@pytest.fixture(name="effects")
def make_table(database: str) -> str:
    """A database with a table for the effects of transactions."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE effects (name text, argument int)")
    return database


@asynccontextmanager
async def parts_of_a_world(url: str, database: str) -> AsyncIterator[tuple[Store, AsyncConnectionPool]]:
    store = Store(url, "test")
    await store.open()
    try:
        # A successor may wait for the transaction of each zombie.
        async with AsyncConnectionPool(database, min_size=1, max_size=50) as pool:
            yield store, pool
    finally:
        await store.close()


async def empty_driver(store: Store, pool: AsyncConnectionPool) -> PartitionDriver:
    await store.server.call("FLUSHALL")
    async with pool.connection() as connection:
        await connection.execute("TRUNCATE effects, qbull_inbox")
    return await PartitionDriver.open(store, keep=Keep(completed=0, failed=0))


@pytest.mark.timeout(300)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    program=programs,
    lives=deaths,
    early=st.integers(0, 2),
    is_eager=st.booleans(),
    changed_in_life=st.integers(1, 4),
)
def test_any_durable_task_ends_like_a_plain_function_wherever_its_workers_die(
    server_url: str,
    effects: str,
    program: Program,
    lives: list[tuple[int, bool]],
    early: int,
    is_eager: bool,
    changed_in_life: int,
) -> None:
    async def run() -> None:
        async with parts_of_a_world(server_url, effects) as (store, pool):
            driver = await empty_driver(store, pool)
            world = World(driver, is_eager=is_eager, pool=pool, changed_in_life=changed_in_life)
            await run_to_the_end(world, program, iter(lives), early)

    asyncio.run(run())


NO_AWAIT = 0
AWAITS_OF_SECOND_START = 6
"""The job starts over and makes the same awaits again. Deaths at the first of them are enough."""


def one_death(world: World, await_number: int, *, is_zombie: bool) -> Iterator[tuple[int, bool]]:
    """The worker that makes this await of the job dies there, in whichever life that is."""
    while True:
        yield await_number - world.awaits, is_zombie


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("is_zombie", "is_changed"),
    [(False, False), (True, False), (False, True)],
    ids=["killed", "zombie", "killed for a change"],
)
async def test_a_task_with_every_call_survives_a_death_at_each_of_its_awaits(
    server_url: str, effects: str, is_zombie: bool, is_changed: bool
) -> None:
    async with parts_of_a_world(server_url, effects) as (store, pool):

        async def run(await_number: int) -> tuple[World, bool]:
            driver = await empty_driver(store, pool)
            changed_in_life = None if is_changed else 1
            world = World(driver, is_eager=is_zombie, pool=pool, changed_in_life=changed_in_life)
            deaths = one_death(world, await_number, is_zombie=is_zombie)
            return world, await run_to_the_end(world, EVERYTHING, deaths, early=0)

        world, has_died = await run(NO_AWAIT)
        assert not has_died and world.awaits_of_first_start > 80
        for await_number in range(1, world.awaits_of_first_start + AWAITS_OF_SECOND_START + 1):
            _, has_died = await run(await_number)
            assert has_died


class _LateFirstWrite(Life):
    """The reply to the first record arrives after that to the second."""

    def __init__(self, world: World, delivered: DeliveredJob) -> None:
        super().__init__(world, "w1", delivered, None)
        self.second = asyncio.Event()

    async def write(self, change: HistoryChange) -> bool:
        is_ours = await self._send(change)
        if change.records[0][0] == 1:
            await self.second.wait()
        else:
            self.second.set()
        return is_ours


async def test_parallel_steps_return_in_one_order_in_the_first_run_and_in_a_replay(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("job")
    (delivery,) = await driver.fetch("w1")
    life = _LateFirstWrite(World(driver, is_eager=False), delivery.job(0))

    async def returned() -> list[str]:
        delivered = life.delivered
        data = await read_job_data(delivered.delivery.partition, "job")
        job = RunningJob(
            "q", delivered.delivery.position, delivered.id, delivered.record, body_of(delivered.record)
        )
        run, order = DurableRun(job, read_history(data), life), []

        async def step(name: str) -> None:
            async def effect(argument: int) -> None: ...

            await run.step(StepCall(effect, (0,), {}, StepOptions(name)))
            order.append(name)

        await asyncio.gather(step("a"), step("b"))
        run.close()
        return order

    first = await returned()
    replayed = await returned()

    assert first == replayed == ["a", "b"]
