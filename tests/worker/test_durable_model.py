"""Durable tasks of any shape, whose workers die at any await or go on as zombies: the result is that of a plain function.

The oracle runs the same program without steps. A program is made of steps, calls and transactions that return or raise, sleeps,
waits for signals and published values, in sequence, in parallel, inside try and except, and in loops with a checkpoint; then the
job may start over. Workers die before a step's effect, after it, before its record is written, and when it is written but its reply
is lost; in a transaction also before and after the commit. A zombie goes on beside its successor and must record nothing.
Messages between jobs are delivered twice, and no called job is kept after its end. The effect of a transaction happens once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from partition_driver import CRASHED, PartitionDriver
from psycopg_pool import AsyncConnectionPool

from conftest import every_fault, strays
from qbull.config import Keep
from qbull.core.calls import CALL_PREFIX, CallOutcomes, HistoryChange
from qbull.core.durable import SLEEP_NAME, decode_record, digest_arguments, read_history
from qbull.core.flow import (
    HAS_DEPENDENTS_FLAG,
    Dependency,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    with_flow_flags,
)
from qbull.core.ids import new_id, new_token
from qbull.core.outcome import ContinuedAs, Suspended
from qbull.core.record import Ending, ExtendedBody, append_ending, body_of, pack, repack
from qbull.core.signals import WAIT_PREFIX, SignalWait, new_signal
from qbull.core.values import DEFAULT_HOOKS
from qbull.errors import JobFailed, TakenOver
from qbull.store.delivery import DeliveredJob
from qbull.store.store import Store
from qbull.store.verbs.flow_messages import awaited_by
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.history import (
    HistoryWrite,
    read_call_outcomes,
    read_job_data,
    read_published_values,
    read_records,
    write_history,
)
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.signals import PendingSignals, read_pending_signals, send_signal
from qbull.worker.current import RunningJob, running
from qbull.worker.durable import DurableRun
from qbull.worker.durable_services import NO_SPAN
from qbull.worker.step_calls import StepCall, StepOptions, WakeTime
from qbull.worker.task_calls import TaskCall

Program = Any
parts: st.SearchStrategy[Program] = st.recursive(
    st.tuples(
        st.sampled_from(["step", "step", "call", "transaction"]),
        st.sampled_from("abc"),
        st.integers(0, 1),
        st.sampled_from([False] * 4 + [True]),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("sleep"), st.integers(1, 3), inner),
        st.tuples(st.just("wait"), inner),
        st.tuples(st.just("publish"), inner),
        st.tuples(st.just("sequence"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("parallel"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("try"), inner, inner),
    ),
    max_leaves=7,
)
programs = st.tuples(parts, st.none() | st.tuples(st.integers(1, 3), parts), st.sampled_from([0, 0, 0, 1, 2]))
"""A part, and then perhaps a loop with a checkpoint: how many times, and its body. Then how often the job starts over."""
deaths = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6)
"""For each life: after how many awaits the worker dies, and whether it goes on as a zombie."""


class Broken(Exception):
    """What a failing step raises."""


class Life:
    """One run of the job by one worker, which dies after some awaits."""

    def __init__(
        self, world: World, worker: str, delivered: DeliveredJob, death: tuple[int, bool] | None
    ) -> None:
        self.world = world
        self.worker = worker
        self.delivered = delivered
        self.left, self.is_zombie = death or (-1, False)
        self.dies = asyncio.Event()
        self.sent: list[asyncio.Future[bool]] = []
        self.hooks = DEFAULT_HOOKS

    async def point(self) -> None:
        """A moment at which it may die. A zombie notices nothing, but lets its successor start."""
        self.left -= 1
        if self.left == 0:
            self.dies.set()
            if not self.is_zombie:
                await asyncio.Event().wait()
        await asyncio.sleep(0)

    def span(self, step: str) -> AbstractContextManager[object]:
        return NO_SPAN

    async def write(self, change: HistoryChange) -> bool:
        await self.point()
        sent = asyncio.ensure_future(self._send(change))
        # A call that was sent arrives, even if its sender dies meanwhile.
        self.sent.append(sent)
        is_ours = await asyncio.shield(sent)
        await self.point()
        return is_ours

    async def _send(self, change: HistoryChange) -> bool:
        job = self.delivered
        write = HistoryWrite(job.id, job.position, change)
        [is_ours] = await write_history(job.delivery.partition, None, self.worker, [write])
        self.world.note_written(is_ours, change)
        if change.call is not None and is_ours and self.world.is_eager:
            async with self.world.turn:
                await self.world.run_called()
        return is_ours

    async def plan_call(self, call: TaskCall) -> FlowPlan:
        await self.point()
        return await call.plan(Dependent("q", "job", None, 0, call=new_token()))

    async def call_outcomes(self, calls: Sequence[str]) -> CallOutcomes:
        await self.point()
        job = self.delivered
        return await read_call_outcomes(job.delivery.partition, job.id, calls)

    async def open_outcome(self, letter: str, told: Dependency) -> Dependency:
        return told

    async def signals(self) -> PendingSignals:
        await self.point()
        job = self.delivered
        return await read_pending_signals(job.delivery.partition, job.id)

    def open_signal(self, name: str, content: bytes) -> bytes:
        return content

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return msgspec.json.encode(args)

    def protect_published(self, name: str, content: bytes) -> bytes:
        return content

    def protect(self, number: int, content: bytes) -> bytes:
        return content

    def open(self, number: int, content: bytes) -> bytes:
        return content

    async def now_ms(self) -> int:
        await self.point()
        return 1_000_000

    def suspend(self, suspended: Suspended) -> bool:
        return False

    def is_interrupted(self) -> bool:
        return False

    def on_loop(self, call: Callable[[], None]) -> None:
        raise NotImplementedError

    def run_plain(self, call: Callable[[], Any]) -> Awaitable[Any]:
        raise NotImplementedError

    def wait_for(self, steps: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError


class ModelCall:
    """A call of a job that the world runs. It stands in for a `TaskCall`."""

    hold_lane = True
    step = SimpleNamespace(task="task")

    def __init__(self, name: str, argument: int, fails: bool) -> None:
        self.name = f"{CALL_PREFIX}{name}{fails}"
        self.digest = digest_arguments((argument,), {})
        self.payload = msgspec.json.encode([name, argument, fails])

    async def plan(self, caller: Dependent) -> FlowPlan:
        body = ExtendedBody("task", self.payload, tells=[caller])
        record = with_flow_flags(pack(body, priority=5, lane=b""), HAS_DEPENDENTS_FLAG)
        return FlowPlan(caller.call, [FlowJobSeed("q", new_id(0), None, False, 0, record)])

    def called_in(self, plan: FlowPlan) -> FlowJobSeed:
        return plan.seeds[0]

    def decode(self, content: bytes, hooks: Any) -> Any:
        return msgspec.json.decode(content)


class World:
    """How often each step and called job has run, and how often it was recorded; the signals that were sent and received.

    `is_eager`: called jobs run while their caller does, not when it waits for them.
    """

    def __init__(
        self, driver: PartitionDriver, *, is_eager: bool, pool: AsyncConnectionPool | None = None
    ) -> None:
        self.driver = driver
        self.pool = pool
        self.is_eager = is_eager
        self.flows = FlowStore(driver.store)
        # A zombie may still run what it has called while its successor starts.
        self.turn = asyncio.Lock()
        self.called: Counter[tuple[str, int]] = Counter()
        self.sent = 0
        self.received: list[int] = []
        self.effects: Counter[tuple[str, int]] = Counter()
        self.recorded: Counter[tuple[str, int]] = Counter()
        self.lives = 0
        self.shown: bytes | None = None

    def note_written(self, is_ours: bool, change: HistoryChange) -> None:
        for _, stored in change.records if is_ours else ():
            record = decode_record(stored)
            if change.published is not None:
                self.recorded["publish", 0] += 1
                self.shown = change.published.content
                continue
            if record.end == "r" and record.name.startswith(WAIT_PREFIX):
                self.received.append(int(record.content))
            elif record.end in "re" and record.name != SLEEP_NAME:
                argument = next(n for n in range(2) if digest_arguments((n,), {}) == record.arguments)
                name = record.name.removeprefix(CALL_PREFIX)
                self.recorded[name[0] + ("()" if name != record.name else ""), argument] += 1

    async def run_called(self) -> None:
        """Deliver the messages, each twice, and run the jobs that they enqueue."""
        await self._dispatch()
        for delivery in await self.driver.fetch("called"):
            job = delivery.job(0)
            if job.id == b"job":  # its caller, which was woken
                await self.driver.partition.release("called", [delivery.position])
                continue
            name, argument, fails = msgspec.json.decode(body_of(job.record).payload)
            self.called[name + "()", argument] += 1
            outcomes = PartitionOutcomes()
            if fails:
                ending = append_ending(Ending(1, 1.0, "w", error=f"{name}{argument}"))
                outcomes.dead(job.position, job.id, job.record, ending)
            else:
                result = msgspec.json.encode([name, argument])
                ending = append_ending(Ending(1, 1.0, "w", result))
                outcomes.done(delivery.level, delivery.entry, job.id, job.record + ending)
            assert await self.driver.partition.settle(outcomes) == []
        await self._dispatch()

    async def _dispatch(self) -> None:
        partition = self.driver.partition
        name = partition.base + "outgoing"
        before = await partition.server.call("XRANGE", name, "-", "+")
        assert await self.flows.dispatch(partition) is None
        for _, fields in before:
            await partition.server.call("XADD", name, "*", *fields)
        assert await self.flows.dispatch(partition) is None

    async def check_shown(self) -> None:
        """The last value that was published with its record is there, and no other."""
        found = await read_published_values(self.driver.partition, "job", "v")
        assert found.get("v") == self.shown

    async def send(self) -> None:
        self.sent += 1
        signal = new_signal("go", b"%d" % self.sent, str(self.sent))
        for _ in range(2):  # its reply was lost
            assert await send_signal(self.driver.partition, None, new_token(), "job", signal) == "sent"


async def interpret(
    program: Program,
    step: Callable[[str, int, bool], Awaitable[Any]],
    checkpoint: Callable[[int], Awaitable[int]],
    sleep: Callable[[int], Awaitable[None]],
    wait: Callable[[], Awaitable[None]],
    call: Callable[[str, int, bool], Awaitable[Any]],
    publish: Callable[[], Awaitable[None]],
    transaction: Callable[[str, int, bool], Awaitable[Any]],
) -> Any:
    """Run a program with the given steps."""

    async def run(part: Program) -> Any:
        match part:
            case ("step", name, argument, fails):
                return await step(name, argument, fails)
            case ("call", name, argument, fails):
                return await call(name, argument, fails)
            case ("transaction", name, argument, fails):
                return await transaction(name.upper(), argument, fails)
            case ("sleep", hours, after):
                await sleep(hours)
                return await run(after)
            case ("wait", after):
                await wait()
                return await run(after)
            case ("publish", after):
                await publish()
                return await run(after)
            case ("sequence", several):
                return [await run(one) for one in several]
            case ("parallel", several):
                found = await asyncio.gather(*map(run, several), return_exceptions=True)
                for one in found:
                    if isinstance(one, BaseException):
                        raise one
                return found
            case ("try", body, handler):
                try:
                    return await run(body)
                except Broken as error:
                    return [str(error), await run(handler)]

    first, loop, _ = program
    results = [await run(first)]
    if loop is not None:
        rounds, body = loop
        n = await checkpoint(0)
        while n < rounds:
            with suppress(Broken):
                await run(body)
            n = await checkpoint(n + 1)
        results.append(n)
    return results


async def expected(program: Program) -> tuple[Any, Counter[tuple[str, int]], Counter[tuple[str, int]]]:
    """The result of the plain function, how often it calls each step, and how often each transaction commits."""
    calls: Counter[tuple[str, int]] = Counter()
    commits: Counter[tuple[str, int]] = Counter()

    async def step(name: str, argument: int, fails: bool) -> Any:
        calls[name, argument] += 1
        if fails:
            raise Broken(f"{name}{argument}")
        return [name, argument]

    async def checkpoint(value: int) -> int:
        return value

    async def sleep(hours: int) -> None: ...

    async def wait() -> None: ...

    async def call(name: str, argument: int, fails: bool) -> Any:
        calls[name + "()", argument] += 1
        if fails:
            raise Broken(f"{name}{argument}")
        return [name, argument]

    async def publish() -> None:
        calls["publish", 0] += 1

    async def transaction(name: str, argument: int, fails: bool) -> Any:
        commits[name, argument] += not fails
        return await step(name, argument, fails)

    for _ in range(program[2] + 1):
        found = await outcome(interpret(program, step, checkpoint, sleep, wait, call, publish, transaction))
        if isinstance(found, str):
            break
    return found, calls, +commits


async def outcome(run: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await run
    except Broken as error:
        return f"failed: {error}"


async def live(world: World, life: Life, program: Program) -> Any:
    """One run of the job."""
    delivered = life.delivered
    data = await read_job_data(delivered.delivery.partition, delivered.id.decode())
    body = body_of(delivered.record)
    job = RunningJob("q", delivered.delivery.position, delivered.id, delivered.record, body)
    job.partition = delivered.delivery.partition
    running.set(job)
    run = DurableRun(job, read_history(data), life)
    world.lives += 1
    number = world.lives

    async def step(name: str, argument: int, fails: bool) -> Any:
        async def effect(argument: int) -> Any:
            await life.point()
            world.effects[name, argument] += 1
            await life.point()
            if fails:
                raise Broken(f"{name}{argument}")
            return [name, argument]

        # The flag is a part of the name, as two functions would have two names.
        call = StepCall(effect, (argument,), {}, StepOptions(f"{name}{fails}"))
        return await run.step(call)

    async def checkpoint(value: int) -> int:
        kept: int = await run.checkpoint("", value)
        return kept

    async def sleep(hours: int) -> None:
        await run.sleep(WakeTime(3600.0 * hours, None, hold_lane=True))

    async def wait() -> None:
        await run.wait_for(SignalWait("go", int, None, hold_lane=True))

    async def call(name: str, argument: int, fails: bool) -> Any:
        called: Any = ModelCall(name, argument, fails)
        try:
            return await run.call(called)
        except JobFailed as error:
            raise Broken(error.error) from None

    async def publish() -> None:
        # Each life would publish other values.
        await run.publish("v", number)

    async def transaction(name: str, argument: int, fails: bool) -> Any:
        async def effect(connection: Any, argument: int) -> Any:
            await life.point()
            world.effects[name, argument] += 1
            await connection.execute("INSERT INTO effects VALUES (%s, %s)", (name, argument))
            await life.point()
            if fails:
                raise Broken(f"{name}{argument}")
            return [name, argument]

        await life.point()
        call = StepCall(effect, (argument,), {}, StepOptions(f"{name}{fails}"), world.pool)
        return await run.step(call)

    try:
        found = await outcome(interpret(program, step, checkpoint, sleep, wait, call, publish, transaction))
        await life.point()
        if not isinstance(found, str) and body.continued < program[2]:
            run.continue_as((body.continued + 1,), {})
        run.ended()
        return found
    finally:
        run.close()


async def suspend(world: World, delivered: DeliveredJob, suspended: Suspended) -> None:
    """Let the job sleep, and let the time pass, run what it has called, or send a signal."""
    driver, outcomes = world.driver, PartitionOutcomes()
    record = repack(delivered.record, suspended.body(body_of(delivered.record)))
    outcomes.suspend(delivered.position, delivered.id, record, suspended.until, hold_lane=True)
    assert await driver.partition.settle(outcomes) == []
    if (await driver.partition.promote()).moved:
        return  # something has come meanwhile
    if await awaited_by(driver.partition, b"job"):
        await world.run_called()
        return
    if suspended.waits_for:
        await world.send()
        return
    await driver.let_time_pass("job")
    assert (await driver.partition.promote()).moved == 1


async def start_anew(world: World, delivered: DeliveredJob, continued: ContinuedAs) -> list[bytes]:
    """Let the job start over, and send the call again. Returns the jobs whose outcomes were refused."""
    outcomes = PartitionOutcomes()
    record = continued.record(delivered.record, body_of(delivered.record))
    outcomes.start_anew(delivered.position, delivered.id, record)
    refused = await world.driver.partition.settle(outcomes)
    assert await world.driver.partition.settle(outcomes) == [b"job"]
    return refused


async def committed(pool: AsyncConnectionPool) -> Counter[tuple[str, int]]:
    """How often each transaction has had its effect."""
    async with pool.connection() as connection:
        rows = await connection.execute(
            "SELECT name, argument, count(*) FROM effects GROUP BY name, argument"
        )
        return Counter({(name, argument): many for name, argument, many in await rows.fetchall()})


async def run_to_the_end(
    world: World, program: Program, lives: Iterator[tuple[int, bool]], early: int
) -> None:
    """Let workers run the job until one of them survives it. Some signals come before it starts."""
    driver = world.driver
    await driver.enqueue("job")
    for _ in range(early):
        await world.send()
    wanted, calls, commits = await expected(program)
    zombies: list[tuple[Life, asyncio.Task[Any]]] = []
    died_before = False
    for number in range(100):
        worker = f"w{number}"
        async with world.turn:
            (delivery,) = await driver.fetch(worker)
        life = Life(world, worker, delivery.job(0), next(lives, None))
        task = asyncio.create_task(live(world, life, program))
        death = asyncio.create_task(life.dies.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        died = life.dies.is_set()
        death.cancel()
        if not died and isinstance(suspended := task.exception(), Suspended):
            async with world.turn:
                await suspend(world, life.delivered, suspended)
            continue
        if not died and isinstance(continued := task.exception(), ContinuedAs):
            async with world.turn:
                assert await start_anew(world, life.delivered, continued) == []
            assert not await read_records(driver.partition, "job")
            continue
        if not died:
            assert await task == wanted
            await world.check_shown()
            await driver.finish(delivery)
            break
        died_before = True
        if life.is_zombie:
            zombies.append((life, task))
        else:
            task.cancel()
            await asyncio.wait([task, *life.sent])
        async with world.turn:
            await driver.partition.reclaim(worker, CRASHED, [])
        await world.check_shown()
    for life, zombie in zombies:
        await asyncio.wait([zombie])
        ended = zombie.exception()
        assert ended is None or isinstance(ended, TakenOver | Suspended | ContinuedAs)
        if isinstance(ended, ContinuedAs):
            assert await start_anew(world, life.delivered, ended) == [b"job"]
    # Each step is recorded once, and none is skipped. A step that has run more often had no record.
    assert world.recorded == calls
    # Each call has run one job, and no other job ran.
    own = Counter({key: times for key, times in calls.items() if key[0].endswith("()")})
    assert world.called == own
    # The effect of each transaction has happened once.
    if world.pool is not None:
        assert await committed(world.pool) == commits
    # Each signal is received once, and none is skipped.
    assert sorted(world.received) == list(range(1, len(world.received) + 1))
    assert len(world.received) <= world.sent
    own["publish", 0] = calls["publish", 0]
    assert all(world.effects[key] >= times for key, times in (calls - own).items())
    if not died_before:
        assert world.effects == calls - own
    assert await every_fault(driver.store) == []
    assert await strays(driver.store) == []


@pytest.fixture(name="effects")
def make_table(database: str) -> str:
    """A database with a table for the effects of transactions."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE effects (name text, argument int)")
    return database


@pytest.mark.timeout(300)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=programs, lives=deaths, early=st.integers(0, 2), is_eager=st.booleans())
def test_any_durable_task_ends_like_a_plain_function_wherever_its_workers_die(
    server_url: str, effects: str, program: Program, lives: list[tuple[int, bool]], early: int, is_eager: bool
) -> None:
    async def run() -> None:
        store = Store(server_url, "test")
        await store.open()
        await store.server.call("FLUSHALL")
        try:
            driver = await PartitionDriver.open(store, keep=Keep(completed=0, failed=0))
            # A successor may wait for the transaction of each zombie.
            async with AsyncConnectionPool(effects, min_size=1, max_size=50) as pool:
                async with pool.connection() as connection:
                    await connection.execute("TRUNCATE effects, qbull_inbox")
                world = World(driver, is_eager=is_eager, pool=pool)
                await run_to_the_end(world, program, iter(lives), early)
        finally:
            await store.close()

    asyncio.run(run())


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
