"""Calls of durable tasks: another job runs, once for each call, and its result comes back without a slot."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull import testing
from qbull.errors import ServerAway
from qbull.store.verbs import flows
from qbull.store.verbs.history import HistoryWrite
from qbull.store.verbs.partition import Partition
from qbull.worker import history
from topology import DURABLE, raised_cluster

AT_ONCE = qbull.Retry(attempts=3, delay=0)
ONCE = qbull.Retry(attempts=1)


async def calls(job: qbull.Job[Any]) -> bool:
    return (await job.why()).reasons[0].code == "called"


async def has_waiting(queue: qbull.Queue, many: int) -> bool:
    return (await queue.stats()).waiting == many


async def test_a_call_holds_no_slot_and_returns_the_result(app: qbull.App) -> None:
    orders = app.queue("orders", concurrency=1, max_active=1)
    printing = app.queue("printing")

    @printing.task
    async def label(parcels: list[str]) -> dict[str, int]:
        return {parcel: len(parcel) for parcel in parcels}

    @orders.task(durable=True)
    async def fulfil() -> tuple[dict[str, int], int]:
        job = qbull.current_job()
        return await job.call(label.step(["ab", "c"])), job.attempt

    @orders.task
    async def other() -> str:
        return "ran"

    job = await fulfil.enqueue()
    async with app.worker(queues=["orders"]):
        await eventually(lambda: calls(job))
        assert await (await other.enqueue()).result(timeout=20) == "ran"
        info = await job.info()
        assert info is not None
        assert (info.state, info.suspended, info.waits_for) == ("delayed", "calling", ())
        (step,) = await job.steps()
        assert step.called is not None
        assert (step.name, step.state, step.called["queue"]) == ("call label", "calling", "printing")
        why = await job.why()
        assert why.text == (
            f'it has called job {step.called["id"]} (label) of queue "printing", and waits for it'
        )
    async with app.worker():
        assert await job.result(timeout=20) == ({"ab": 2, "c": 1}, 1)
    (step,) = await job.steps()
    assert (step.name, step.state, step.result) == ("call label", "completed", {"ab": 2, "c": 1})
    assert (await printing.stats()).completed == 1


async def test_parallel_calls_of_several_queues_come_back_in_their_places(app: qbull.App) -> None:
    queues = [app.queue(name, partitions=3) for name in ("orders", "a", "b")]
    ran: Counter[int] = Counter()

    async def square(number: int) -> int:
        ran[number] += 1
        return number * number

    tasks = [queue.task(square) for queue in queues[1:]]

    @queues[0].task(durable=True)
    async def work() -> list[int]:
        job = qbull.current_job()
        first = await asyncio.gather(*(job.call(tasks[n % 2].step(n)) for n in range(12)))
        return [*first, await job.call(tasks[0].step(3)), await job.step(square, 20)]

    job = await work.enqueue()
    async with app.worker(), app.worker():
        assert await job.result(timeout=30) == [*(n * n for n in range(12)), 9, 400]
    assert ran == Counter({**dict.fromkeys(range(12), 1), 3: 2, 20: 1})


async def test_a_call_beside_a_step_that_takes_longer_ends_in_the_same_run(app: qbull.App) -> None:
    queue = app.queue("orders")
    runs, called = list[int](), asyncio.Event()

    @queue.task
    async def other() -> str:
        called.set()
        return "other"

    async def step() -> str:
        await called.wait()
        await asyncio.sleep(0.7)
        return "step"

    @queue.task(durable=True)
    async def work() -> list[str]:
        runs.append(1)
        job = qbull.current_job()
        return await asyncio.gather(job.call(other.step()), job.step(step))

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == ["other", "step"]
    assert len(runs) == 1


async def test_a_failing_call_raises_and_can_be_caught(app: qbull.App) -> None:
    queue = app.queue("orders", retry=ONCE)
    seen: set[str] = set()

    @queue.task
    async def broken() -> None:
        raise ConnectionError("no paper")

    async def refund() -> str:
        return "refunded"

    @queue.task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        try:
            await job.call(broken.step())
        except qbull.JobFailed as error:
            seen.add(error.error)
            return await job.step(refund)
        return "printed"

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "refunded"
    assert seen == {"ConnectionError: no paper"}
    assert [(step.name, step.state) for step in await job.steps()] == [
        ("call broken", "failed"),
        ("refund", "completed"),
    ]


async def test_a_failure_that_the_task_lets_through_calls_anew_in_the_next_attempt(app: qbull.App) -> None:
    queue, others = app.queue("orders", retry=AT_ONCE), app.queue("others", retry=ONCE)
    tries: list[int] = []

    @others.task
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return "worked"

    @queue.task(durable=True)
    async def work() -> tuple[str, int]:
        job = qbull.current_job()
        return await job.call(flaky.step()), job.attempt

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == ("worked", 2)
    assert len(tries) == 2


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("which", ["start", "end"])
async def test_a_record_of_a_call_whose_reply_is_lost_calls_once(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch, which: str, arrives: bool
) -> None:
    write, lost, ran = history.write_history, list[int](), list[int]()

    async def lose_once(
        partition: Partition, confirmed: Any, worker: str, writes: list[HistoryWrite]
    ) -> list[bool]:
        hits = any(one.change.call if which == "start" else one.change.joined for one in writes)
        if hits and not lost:
            lost.append(1)
            if arrives:
                await write(partition, confirmed, worker, writes)
            raise ServerAway("the connection broke")
        return await write(partition, confirmed, worker, writes)

    monkeypatch.setattr(history, "write_history", lose_once)
    queue = app.queue("orders")

    @queue.task
    async def other() -> int:
        ran.append(1)
        return 7

    @queue.task(durable=True)
    async def work() -> int:
        return await qbull.current_job().call(other.step())

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == 7
    assert (lost, ran) == ([1], [1])


async def test_messages_that_are_delivered_twice_change_nothing(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped, drop = list[int](), flows.drop_messages

    async def drop_the_second_time(partition: Partition, entries: Any) -> None:
        if entries and len(dropped) % 2 == 0:
            dropped.append(1)
            raise ServerAway("the reply was lost")
        dropped.append(1)
        await drop(partition, entries)

    monkeypatch.setattr(flows, "drop_messages", drop_the_second_time)
    ran: list[int] = []
    others = app.queue("others", keep=qbull.Keep(completed=0))

    @others.task
    async def other(number: int) -> int:
        ran.append(number)
        return number

    @app.queue("orders").task(durable=True)
    async def work() -> list[int]:
        job = qbull.current_job()
        return [await job.call(other.step(number)) for number in range(3)]

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=60) == [0, 1, 2]
    assert ran == [0, 1, 2]


async def test_a_result_that_its_queue_does_not_keep_is_not_lost(app: qbull.App) -> None:
    others = app.queue("others", keep=qbull.Keep(completed=0))

    @others.task
    async def other() -> str:
        return "kept by its caller"

    orders = app.queue("orders")

    @orders.task(durable=True)
    async def work() -> str:
        return await qbull.current_job().call(other.step())

    job = await work.enqueue()
    async with app.worker(queues=["orders"]):
        await eventually(lambda: calls(job))
        await eventually(lambda: has_waiting(others, 1))
    async with app.worker(queues=["others"]):

        async def ended() -> bool:
            return (await others.stats()).unfinished == 0 and await job.state() == "waiting"

        await eventually(ended)
    async with app.worker(queues=["orders"]):
        assert await job.result(timeout=20) == "kept by its caller"


async def test_cancelling_the_caller_cancels_waiting_running_and_called_jobs(app: qbull.App) -> None:
    orders, others, idle = app.queue("orders"), app.queue("others"), app.queue("idle")
    started = asyncio.Event()

    @idle.task
    async def never() -> None: ...

    @others.task
    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    @others.task(durable=True)
    async def nested() -> None:
        await qbull.current_job().call(never.step())

    @orders.task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        await asyncio.gather(job.call(never.step()), job.call(slow.step()), job.call(nested.step()))

    job = await work.enqueue()

    async def all_wait() -> bool:
        return started.is_set() and (await idle.stats()).waiting == 2 and await calls(job)

    async def all_ended() -> bool:
        stats = [await queue.stats() for queue in (others, idle)]
        return [(one.unfinished, one.cancelled) for one in stats] == [(0, 2), (0, 2)]

    async with app.worker(queues=["orders", "others"]):
        await eventually(all_wait)
        assert await job.cancel() == "cancelled"
        await eventually(all_ended)
    first = (await idle.jobs("cancelled"))[0]
    assert first.error == "the job that called it was cancelled"


async def test_a_cancelled_call_raises_in_the_caller(app: qbull.App) -> None:
    others = app.queue("others")

    @others.task
    async def other() -> None: ...

    @app.queue("orders").task(durable=True)
    async def work() -> str:
        try:
            await qbull.current_job().call(other.step())
        except qbull.JobCancelled as error:
            return str(error)
        return "ran"

    job = await work.enqueue()
    await others.pause()
    async with app.worker():
        await eventually(lambda: calls(job))
        await eventually(lambda: has_waiting(others, 1))
        assert await others.cancel(state="waiting") == 1
        assert (await job.result(timeout=20)).endswith("was cancelled: cancelled")


async def test_the_caller_keeps_its_place_in_its_lane(app: qbull.App) -> None:
    orders, others = app.queue("orders", order="key"), app.queue("others")
    order: list[str] = []

    @others.task
    async def other() -> None:
        order.append("called")

    @orders.task(durable=True, key="a")
    async def work(name: str, hold_lane: bool) -> None:
        order.append(f"{name} starts")
        await qbull.current_job().call(other.step(), hold_lane=hold_lane)
        order.append(f"{name} ends")

    @orders.task(key="a")
    async def behind() -> None:
        order.append("behind")

    for hold_lane in (True, False):
        order.clear()
        job, after = await work.enqueue("job", hold_lane), await behind.enqueue()
        async with app.worker(queues=["orders"]):
            await eventually(lambda: calls(job))  # noqa: B023
            if not hold_lane:
                await after.result(timeout=20)
        async with app.worker():
            await asyncio.gather(job.result(timeout=20), after.result(timeout=20))
        assert order.index("job ends") < order.index("behind") if hold_lane else "behind" in order[:2]


async def test_a_call_that_would_wait_for_its_caller_is_refused(app: qbull.App) -> None:
    orders = app.queue("orders", order="key", retry=ONCE)

    @orders.task(key="{key}")
    async def other(key: str) -> str:
        return key

    @orders.task(durable=True, key="a")
    async def work(key: str, hold_lane: bool) -> str:
        return await qbull.current_job().call(other.step(key), hold_lane=hold_lane)

    async with app.worker():
        with pytest.raises(qbull.JobFailed, match='the key "a" of its caller, so each would wait'):
            await (await work.enqueue("a", True)).result(timeout=20)
        assert await (await work.enqueue("b", True)).result(timeout=20) == "b"
        assert await (await work.enqueue("a", False)).result(timeout=20) == "a"


async def test_plain_tasks_call_too(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task
    def other(number: int) -> int:
        return number + 1

    @queue.task(durable=True)
    def work() -> int:
        return qbull.current_job().call_sync(other.step(1)) + 40

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == 42


async def test_results_of_calls_are_encrypted_and_cannot_be_swapped(server_url: str) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:
        orders = app.queue("orders", retry=ONCE)
        others = app.queue("others")

        @others.task
        async def secret(text: str) -> str:
            return f"secret {text}"

        @orders.task(durable=True)
        async def work() -> list[str]:
            job = qbull.current_job()
            return await asyncio.gather(job.call(secret.step("a")), job.call(secret.step("b")))

        job = await work.enqueue()
        async with app.worker(queues=["orders"]):
            await eventually(lambda: calls(job))
            await eventually(lambda: has_waiting(others, 2))
        found = await app._client().find(orders.settings, job.id)
        assert found is not None
        partition = found[0]
        name = f"{partition.base}job:{job.id}"
        async with app.worker(queues=["others"]):

            async def ended() -> bool:
                data = await partition.server.call("HGETALL", name)
                return sum(value[:1] == b"c" for value in data[1::2]) == 2

            await eventually(ended)
        data = await partition.server.call("HGETALL", name)
        assert not any(b"secret a" in part for part in data)
        fields = {key: value for key, value in zip(data[::2], data[1::2], strict=True) if key[:5] == b"call:"}
        first, second = fields
        await partition.server.call("HSET", name, first, fields[second], second, fields[first])
        async with app.worker(queues=["orders"]):
            with pytest.raises(qbull.JobFailed, match="that of another job: somebody has changed it"):
                await job.result(timeout=20)


async def test_bad_calls_are_refused_in_one_line(app: qbull.App) -> None:
    queue = app.queue("orders", retry=ONCE)
    stranger = qbull.App(app.url, prefix="stranger").queue("orders")

    @queue.task
    async def other() -> None: ...

    @stranger.task(name="other")
    async def elsewhere() -> None: ...

    @queue.task(durable=True)
    async def work(which: int) -> None:
        wrong: Any = [other, other(), elsewhere.step()][which]
        try:
            await qbull.current_job().call(wrong)
        finally:
            if which == 1:
                wrong.close()

    async with app.worker():
        for which, text in enumerate(["give a task with its arguments"] * 2 + ["a task of another app"]):
            with pytest.raises(qbull.JobFailed, match=text):
                await (await work.enqueue(which)).result(timeout=20)


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_calls_reach_other_nodes_of_a_cluster_and_move_with_their_caller(tmp_path: Any) -> None:
    with raised_cluster(tmp_path, DURABLE) as raised:
        app = qbull.App(raised.url, prefix="test")
        orders, others = app.queue("orders", partitions=4), app.queue("others", partitions=8)
        ran: Counter[int] = Counter()

        @others.task
        async def other(number: int) -> int:
            ran[number] += 1
            return number

        @orders.task(durable=True)
        async def work(first: int) -> list[int]:
            job = qbull.current_job()
            return await asyncio.gather(*(job.call(other.step(first + n)) for n in range(4)))

        jobs = [await work.enqueue(first) for first in range(0, 40, 4)]
        async with app.worker(queues=["orders"]):
            for job in jobs:
                await eventually(lambda job=job: calls(job))
            await orders.repartition(6)
        async with app.worker():
            for first, job in zip(range(0, 40, 4), jobs, strict=True):
                assert await job.result(timeout=60) == [*range(first, first + 4)]
        assert ran == Counter(range(40))
        await app.close()


async def test_calls_work_inline(app: qbull.App) -> None:
    queue, others = app.queue("orders"), app.queue("others", retry=ONCE)

    @others.task
    async def other(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number * 2

    @others.task(durable=True)
    async def nested(number: int) -> int:
        job = qbull.current_job()
        await job.sleep(hours=1)
        return await job.call(other.step(number))

    @queue.task(durable=True)
    async def work() -> list[Any]:
        job = qbull.current_job()
        found: list[Any] = await asyncio.gather(*(job.call(other.step(n)) for n in range(3)))
        try:
            await job.call(other.step(-1))
        except qbull.JobFailed as error:
            found.append(error.error)
        return [*found, await job.call(nested.step(5))]

    with testing.inline(app) as jobs:
        job = await work.enqueue()
        assert await job.state() == "delayed"
        await jobs.advance(3600)
        assert await job.result(timeout=1) == [0, 2, 4, "ValueError: -1", 10]
        assert len(jobs.enqueued(other)) == 5
