"""The world of the model of durable tasks: a real partition, workers that die, called jobs, signals, and what has happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import msgspec
from durable_program import (
    AnswerKey,
    Broken,
    Program,
    Questions,
    interpret,
    outcome,
    run_plain_function,
    words_in_parallel,
)
from partition_driver import CRASHED, PartitionDriver
from psycopg_pool import AsyncConnectionPool

from conftest import every_fault, strays
from qbull.core.calls import CALL_PREFIX, CallOutcomes, HistoryChange
from qbull.core.durable import (
    PATCH_PREFIX,
    SLEEP_NAME,
    StepRecord,
    decode_record,
    digest_arguments,
    read_history,
)
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
from qbull.core.streams import DEFAULT_STREAM_LIMITS, EmittedKey
from qbull.core.values import DEFAULT_HOOKS
from qbull.errors import JobFailed, TakenOver
from qbull.store.delivery import DeliveredJob
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
from qbull.store.verbs.streams import Emission, emit, read_stream
from qbull.worker.current import RunningJob, running
from qbull.worker.durable import DurableRun
from qbull.worker.durable_services import NO_SPAN
from qbull.worker.step_calls import StepCall, StepOptions, WakeTime
from qbull.worker.task_calls import TaskCall


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
        self.emitting = asyncio.Lock()
        self.sent: list[asyncio.Future[Any]] = []
        self.hooks = DEFAULT_HOOKS

    async def point(self) -> None:
        """A moment at which it may die. A zombie notices nothing, but lets its successor start."""
        self.world.awaits += 1
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

    async def emit(self, job: RunningJob, run: DurableRun, value: object) -> bool:
        """Send a value as a worker does. The reply to the first sending is lost."""
        content = msgspec.json.encode(value)
        await self.point()
        # Values that get their numbers at the same time are sent in the order of these.
        key = run.emission(content)
        if key is None:
            return True
        if not key.name:
            job.emitted += 1
            key = EmittedKey("", job.emitted)
        sent = asyncio.ensure_future(self._send_value(job, key, content))
        self.sent.append(sent)
        is_ours = await asyncio.shield(sent)
        await self.point()
        return is_ours

    async def _send_value(self, job: RunningJob, key: EmittedKey, content: bytes) -> bool:
        emission = Emission(job.id, job.position, job.lane, key, content)
        partition = self.delivered.delivery.partition
        async with self.emitting:
            is_ours, is_still_ours = await emit(partition, DEFAULT_STREAM_LIMITS, [emission, emission])
        assert is_ours or not is_still_ours
        if is_ours and not key.name:
            self.world.emitted_in_steps[content] += 1
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

    def protect(self, record: StepRecord) -> bytes:
        return record.content

    def open(self, record: StepRecord) -> bytes:
        return record.content

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
    `changed_in_life`: from this life on, workers run the changed code, which asks `patched`; None: from the first death on.
    """

    def __init__(
        self,
        driver: PartitionDriver,
        *,
        is_eager: bool,
        pool: AsyncConnectionPool | None = None,
        changed_in_life: int | None = 1,
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
        self.emitted_in_steps: Counter[bytes] = Counter()
        self.recorded: Counter[tuple[str, int]] = Counter()
        self.lives = 0
        self.awaits = 0
        self.awaits_of_first_start = 0
        self.changed_in_life = changed_in_life
        self.answers: dict[AnswerKey, bool] = {}
        self.answered: dict[AnswerKey, bool] = {}
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
            elif record.name.startswith(PATCH_PREFIX):
                self.recorded["patched", 0] += 1
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

    async def check_stream(self, program: Program, wanted: list[int]) -> None:
        """The stream has each value once, in order. A value of a step is there once for each step that has run."""
        found = [entry.content for entry in await read_stream(self.driver.partition, "job", 0)]
        assert Counter(one for one in found if not one.isdigit()) == self.emitted_in_steps
        emitted = [int(one) for one in found if one.isdigit()]
        if "emit" in words_in_parallel(program):
            assert sorted(emitted) == sorted(wanted)
        else:
            assert emitted == wanted

    def answer(self, key: AnswerKey, answer: bool) -> bool:
        """The changed code was answered. It gets the same answer in every run."""
        assert self.answered.setdefault(key, answer) == answer
        self.answers[key] = answer
        return answer

    async def send(self) -> None:
        self.sent += 1
        signal = new_signal("go", b"%d" % self.sent, str(self.sent))
        for _ in range(2):  # its reply was lost
            assert await send_signal(self.driver.partition, None, new_token(), "job", signal) == "sent"


class LiveCalls:
    """The calls of one run of the job."""

    def __init__(self, life: Life, job: RunningJob, run: DurableRun) -> None:
        self._life = life
        self._world = life.world
        self._job = job
        self._run = run
        self._questions = Questions(job.body.continued)
        self._world.lives += 1
        self._number = self._world.lives

    async def step(self, name: str, argument: int, fails: bool) -> Any:
        async def effect(argument: int) -> Any:
            await self._life.point()
            self._world.effects[name, argument] += 1
            if name == "c":
                await self._life.emit(self._job, self._run, [name, argument])
            await self._life.point()
            if fails:
                raise Broken(f"{name}{argument}")
            return [name, argument]

        # The flag is a part of the name, as two functions would have two names.
        call = StepCall(effect, (argument,), {}, StepOptions(f"{name}{fails}"))
        return await self._run.step(call)

    async def call(self, name: str, argument: int, fails: bool) -> Any:
        called: Any = ModelCall(name, argument, fails)
        try:
            return await self._run.call(called)
        except JobFailed as error:
            raise Broken(error.error) from None

    async def transaction(self, name: str, argument: int, fails: bool) -> Any:
        async def effect(connection: Any, argument: int) -> Any:
            await self._life.point()
            self._world.effects[name, argument] += 1
            await connection.execute("INSERT INTO effects VALUES (%s, %s)", (name, argument))
            await self._life.point()
            if fails:
                raise Broken(f"{name}{argument}")
            return [name, argument]

        await self._life.point()
        call = StepCall(effect, (argument,), {}, StepOptions(f"{name}{fails}"), self._world.pool)
        return await self._run.step(call)

    async def checkpoint(self, value: int) -> int:
        kept: int = await self._run.checkpoint("", value)
        self._questions.start_round(kept)
        return kept

    async def sleep(self, hours: int) -> None:
        await self._run.sleep(WakeTime(3600.0 * hours, None, hold_lane=True))

    async def wait(self) -> None:
        await self._run.wait_for(SignalWait("go", int, None, hold_lane=True))

    async def publish(self) -> None:
        # Each life would publish other values.
        await self._run.publish("v", self._number)

    async def emit(self, value: int) -> None:
        if not await self._life.emit(self._job, self._run, value):
            raise TakenOver("another worker has the job")

    async def patched(self) -> bool:
        key = self._questions.next()
        changed = self._world.changed_in_life
        if changed is None or self._number < changed:
            # The code before the change takes the old path, and asks nothing.
            self._world.answers.setdefault(key, False)
            return False
        return self._world.answer(key, await self._run.patched("change"))


async def live(life: Life, program: Program) -> Any:
    """One run of the job."""
    delivered = life.delivered
    data = await read_job_data(delivered.delivery.partition, delivered.id.decode())
    body = body_of(delivered.record)
    job = RunningJob("q", delivered.delivery.position, delivered.id, delivered.record, body)
    job.partition = delivered.delivery.partition
    running.set(job)
    run = DurableRun(job, read_history(data), life)
    try:
        found = await outcome(interpret(program, LiveCalls(life, job, run)))
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
    world: World, program: Program, deaths: Iterator[tuple[int, bool]], early: int
) -> bool:
    """Let workers run the job until one of them survives it. Some signals come before it starts.

    Returns whether a worker has died.
    """
    driver = world.driver
    await driver.enqueue("job")
    for _ in range(early):
        await world.send()
    zombies: list[tuple[Life, asyncio.Task[Any]]] = []
    died_before = False
    for number in range(100):
        worker = f"w{number}"
        async with world.turn:
            (delivery,) = await driver.fetch(worker)
        life = Life(world, worker, delivery.job(0), next(deaths, None))
        task = asyncio.create_task(live(life, program))
        death = asyncio.create_task(life.dies.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        died = life.dies.is_set()
        death.cancel()
        if not died and isinstance(suspended := task.exception(), Suspended):
            async with world.turn:
                await suspend(world, life.delivered, suspended)
            continue
        if not died and isinstance(continued := task.exception(), ContinuedAs):
            world.awaits_of_first_start = world.awaits_of_first_start or world.awaits
            async with world.turn:
                assert await start_anew(world, life.delivered, continued) == []
            assert not await read_records(driver.partition, "job")
            continue
        if not died:
            expected = await run_plain_function(program, world.answers)
            assert await task == expected.result
            await world.check_shown()
            # A zombie may not yet know of values that it sent while the job was its own.
            if sent := [one for life, _ in zombies for one in life.sent]:
                await asyncio.wait(sent)
            await world.check_stream(program, expected.emitted)
            await driver.finish(delivery)
            break
        died_before = True
        if world.changed_in_life is None:
            world.changed_in_life = world.lives + 1
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
    calls = expected.calls
    # Each step is recorded once, and none is skipped. A step that has run more often had no record.
    assert world.recorded == calls
    # Each call has run one job, and no other job ran.
    own = Counter({key: times for key, times in calls.items() if key[0].endswith("()")})
    assert world.called == own
    # The effect of each transaction has happened once.
    if world.pool is not None:
        assert await committed(world.pool) == expected.commits
    # Each signal is received once, and none is skipped.
    assert sorted(world.received) == list(range(1, len(world.received) + 1))
    assert len(world.received) <= world.sent
    own["publish", 0], own["patched", 0] = calls["publish", 0], calls["patched", 0]
    assert all(world.effects[key] >= times for key, times in (calls - own).items())
    if not died_before:
        assert world.effects == calls - own
    assert await every_fault(driver.store) == []
    assert await strays(driver.store) == []
    return died_before
