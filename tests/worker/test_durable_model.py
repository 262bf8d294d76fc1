"""Durable tasks of any shape, whose workers die at any await or go on as zombies: the result is that of a plain function.

The oracle runs the same program without steps. A program is made of steps that return or raise, sleeps and waits for
signals, in sequence, in parallel, inside try and except, and in loops with a checkpoint. Workers die before a step's effect, after it, before its record is
written, and when it is written but its reply is lost. A zombie goes on beside its successor and must record nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from partition_driver import CRASHED, PartitionDriver

from conftest import every_fault, strays
from qbull.core.durable import SLEEP_NAME, decode_record, digest_arguments, read_history
from qbull.core.ids import new_token
from qbull.core.outcome import Suspended
from qbull.core.record import body_of, repack
from qbull.core.signals import WAIT_PREFIX, SignalWait, new_signal
from qbull.core.values import DEFAULT_HOOKS
from qbull.errors import TakenOver
from qbull.store.delivery import DeliveredJob
from qbull.store.store import Store
from qbull.store.verbs.history import HistoryWrite, read_job_data, write_history
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.signals import PendingSignals, read_pending_signals, send_signal
from qbull.worker.current import RunningJob
from qbull.worker.durable import DurableRun
from qbull.worker.step_calls import StepCall, StepOptions, WakeTime

Program = Any
parts: st.SearchStrategy[Program] = st.recursive(
    st.tuples(
        st.just("step"), st.sampled_from("abc"), st.integers(0, 1), st.sampled_from([False] * 4 + [True])
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("sleep"), st.integers(1, 3), inner),
        st.tuples(st.just("wait"), inner),
        st.tuples(st.just("sequence"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("parallel"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("try"), inner, inner),
    ),
    max_leaves=7,
)
programs = st.tuples(parts, st.none() | st.tuples(st.integers(1, 3), parts))
"""A part, and then perhaps a loop with a checkpoint: how many times, and its body."""
deaths = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6)
"""For each life: after how many awaits the worker dies, and whether it goes on as a zombie."""


class Broken(Exception):
    """What a failing step raises."""


class Life:
    """One run of the job by one worker, which dies after some awaits."""

    def __init__(self, world: World, delivered: DeliveredJob, death: tuple[int, bool] | None) -> None:
        self.world = world
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

    async def write(
        self, records: Sequence[tuple[int, bytes]], first: int, last: int, taken: int = 0
    ) -> bool:
        await self.point()
        sent = asyncio.ensure_future(self._send(records, first, last, taken))
        # A call that was sent arrives, even if its sender dies meanwhile.
        self.sent.append(sent)
        is_ours = await asyncio.shield(sent)
        await self.point()
        return is_ours

    async def _send(self, records: Sequence[tuple[int, bytes]], first: int, last: int, taken: int) -> bool:
        job = self.delivered
        write = HistoryWrite(job.id, job.position, records, first, last, taken)
        [is_ours] = await write_history(job.delivery.partition, None, [write])
        self.world.note_written(is_ours, records)
        return is_ours

    async def signals(self) -> PendingSignals:
        await self.point()
        job = self.delivered
        return await read_pending_signals(job.delivery.partition, job.id)

    def open_signal(self, name: str, content: bytes) -> bytes:
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


class World:
    """How often each step has run, and how often it was recorded; the signals that were sent and received."""

    def __init__(self, driver: PartitionDriver) -> None:
        self.driver = driver
        self.sent = 0
        self.received: list[int] = []
        self.effects: Counter[tuple[str, int]] = Counter()
        self.recorded: Counter[tuple[str, int]] = Counter()

    def note_written(self, is_ours: bool, records: Sequence[tuple[int, bytes]]) -> None:
        for _, stored in records if is_ours else ():
            record = decode_record(stored)
            if record.end == "r" and record.name.startswith(WAIT_PREFIX):
                self.received.append(int(record.content))
            elif record.end in "re" and record.name != SLEEP_NAME:
                argument = next(n for n in range(2) if digest_arguments((n,), {}) == record.arguments)
                self.recorded[record.name[0], argument] += 1

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
) -> Any:
    """Run a program with the given steps."""

    async def run(part: Program) -> Any:
        match part:
            case ("step", name, argument, fails):
                return await step(name, argument, fails)
            case ("sleep", hours, after):
                await sleep(hours)
                return await run(after)
            case ("wait", after):
                await wait()
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

    first, loop = program
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


async def expected(program: Program) -> tuple[Any, Counter[tuple[str, int]]]:
    """The result of the plain function, and how often it calls each step."""
    calls: Counter[tuple[str, int]] = Counter()

    async def step(name: str, argument: int, fails: bool) -> Any:
        calls[name, argument] += 1
        if fails:
            raise Broken(f"{name}{argument}")
        return [name, argument]

    async def checkpoint(value: int) -> int:
        return value

    async def sleep(hours: int) -> None: ...

    async def wait() -> None: ...

    return await outcome(interpret(program, step, checkpoint, sleep, wait)), calls


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
    run = DurableRun(job, read_history(data), life)

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

    try:
        found = await outcome(interpret(program, step, checkpoint, sleep, wait))
        run.ended()
        return found
    finally:
        run.close()


async def suspend(world: World, delivered: DeliveredJob, suspended: Suspended) -> None:
    """Let the job sleep, and let the time pass or send a signal."""
    driver, outcomes = world.driver, PartitionOutcomes()
    record = repack(delivered.record, suspended.body(body_of(delivered.record)))
    outcomes.suspend(delivered.position, delivered.id, record, suspended.until, hold_lane=True)
    assert await driver.partition.settle(outcomes) == []
    if suspended.waits_for:
        await world.send()
        return
    await driver.let_time_pass("job")
    assert (await driver.partition.promote()).moved == 1


async def run_to_the_end(
    store: Store, program: Program, lives: Iterator[tuple[int, bool]], early: int
) -> None:
    """Let workers run the job until one of them survives it. Some signals come before it starts."""
    await store.server.call("FLUSHALL")
    driver = await PartitionDriver.open(store)
    world = World(driver)
    await driver.enqueue("job")
    for _ in range(early):
        await world.send()
    wanted, calls = await expected(program)
    zombies: list[asyncio.Task[Any]] = []
    died_before = False
    for number in range(100):
        worker = f"w{number}"
        (delivery,) = await driver.fetch(worker)
        life = Life(world, delivery.job(0), next(lives, None))
        task = asyncio.create_task(live(world, life, program))
        death = asyncio.create_task(life.dies.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        died = life.dies.is_set()
        death.cancel()
        if not died and isinstance(suspended := task.exception(), Suspended):
            await suspend(world, life.delivered, suspended)
            continue
        if not died:
            assert await task == wanted
            await driver.finish(delivery)
            break
        died_before = True
        if life.is_zombie:
            zombies.append(task)
        else:
            task.cancel()
            await asyncio.wait([task, *life.sent])
        await driver.partition.reclaim(worker, CRASHED, [])
    for zombie in zombies:
        await asyncio.wait([zombie])
        assert zombie.exception() is None or isinstance(zombie.exception(), TakenOver | Suspended)
    # Each step is recorded once, and none is skipped. A step that has run more often had no record.
    assert world.recorded == calls
    # Each signal is received once, and none is skipped.
    assert sorted(world.received) == list(range(1, len(world.received) + 1))
    assert len(world.received) <= world.sent
    assert all(world.effects[key] >= times for key, times in calls.items())
    if not died_before:
        assert world.effects == calls
    assert await every_fault(store) == []
    assert await strays(store) == []


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=programs, lives=deaths, early=st.integers(0, 2))
def test_any_durable_task_ends_like_a_plain_function_wherever_its_workers_die(
    server_url: str, program: Program, lives: list[tuple[int, bool]], early: int
) -> None:
    async def run() -> None:
        store = Store(server_url, "test")
        await store.open()
        try:
            await run_to_the_end(store, program, iter(lives), early)
        finally:
            await store.close()

    asyncio.run(run())


class _LateFirstWrite(Life):
    """The reply to the first record arrives after that to the second."""

    def __init__(self, world: World, delivered: DeliveredJob) -> None:
        super().__init__(world, delivered, None)
        self.second = asyncio.Event()

    async def write(
        self, records: Sequence[tuple[int, bytes]], first: int, last: int, taken: int = 0
    ) -> bool:
        is_ours = await self._send(records, first, last, taken)
        if records[0][0] == 1:
            await self.second.wait()
        else:
            self.second.set()
        return is_ours


async def test_parallel_steps_return_in_one_order_in_the_first_run_and_in_a_replay(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("job")
    (delivery,) = await driver.fetch("w")
    life = _LateFirstWrite(World(driver), delivery.job(0))

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
