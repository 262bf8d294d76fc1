"""Signals of durable tasks: the job leaves its worker until a signal comes, and each is delivered once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull import testing
from qbull.errors import ServerAway
from qbull.store.store import Store
from qbull.store.verbs.history import HistoryWrite, read_job_data
from qbull.store.verbs.partition import Partition
from qbull.worker import history

AT_ONCE = qbull.Retry(attempts=3, delay=0)


@dataclass
class Approval:
    by: str
    items: list[str]


async def code_of(job: qbull.Job[Any]) -> str:
    return (await job.why()).reasons[0].code


async def happened(what: object) -> bool:
    return bool(what)


async def waits(job: qbull.Job[Any]) -> bool:
    return await code_of(job) == "signal"


async def test_a_waiting_job_holds_no_slot_and_goes_on_with_the_signal(app: qbull.App) -> None:
    orders = app.queue("orders", concurrency=1, max_active=1)

    @orders.task(durable=True)
    async def approve() -> tuple[str, int]:
        job = qbull.current_job()
        answer = await job.wait_for("approval", type=Approval, timeout=86_400)
        return answer.by, job.attempt

    @orders.task
    async def other() -> str:
        return "ran"

    job = await approve.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        assert await (await other.enqueue()).result(timeout=20) == "ran"
        info = await job.info()
        assert info is not None and info.due_at is not None
        assert (info.state, info.suspended, info.waits_for) == ("delayed", "waiting", ("approval",))
        assert str(await job.why()).startswith('it waits for the signal "approval", until ')
        (waiting,) = await job.steps()
        assert waiting.state == "waiting" and waiting.schema is not None
        assert "items" in waiting.schema["$defs"]["Approval"]["properties"]
        assert await job.signal("approval", Approval("ada", [])) == "sent"
        assert await job.result(timeout=20) == ("ada", 1)

    (step,) = await job.steps()
    assert step.schema is None
    assert (step.name, step.state, step.result) == (
        "wait_for approval",
        "completed",
        {"by": "ada", "items": []},
    )


async def test_an_early_signal_is_kept_and_signals_come_in_order(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> list[int]:
        job = qbull.current_job()
        last = await job.wait_for("last", type=int)
        return [*[await job.wait_for("number", type=int) for _ in range(3)], last]

    job = await work.enqueue()
    for number in (3, 1, 2):
        await job.signal("number", number)
    async with app.worker():
        await eventually(lambda: waits(job))
        await job.signal("last", 9)
        assert await job.result(timeout=20) == [3, 1, 2, 9]


async def test_a_wait_without_a_timeout_has_no_due_time(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task(durable=True)
    async def work() -> None:
        await qbull.current_job().wait_for("go")

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        info = await job.info()
        assert info is not None and info.due_at is None
        assert (await job.why()).reasons[0].text == 'it waits for the signal "go"'
        stats = await queue.stats()
        assert (stats.waiting, stats.delayed) == (0, 1)
        assert [one.id for one in await queue.jobs("delayed")] == [job.id]
        assert await queue.jobs("waiting") == []
        # Running it early changes nothing: it looks, and waits again.
        await job.promote()
        await eventually(lambda: waits(job))
        await job.signal("go")
        assert await job.result(timeout=20) is None


async def test_a_timeout_is_recorded_and_can_be_caught(app: qbull.App) -> None:
    runs: list[int] = []
    kinds: set[type] = set()

    async def remind() -> str:
        runs.append(len(runs))
        if len(runs) == 1:
            raise ConnectionError
        return "reminded"

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        try:
            return await job.wait_for("approval", type=str, timeout=0.1)
        except TimeoutError as late:
            kinds.add(type(late))
            return await job.step(remind)

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "reminded"

    assert len(runs) == 2
    assert kinds == {qbull.SignalTimeout}
    states = [(step.name, step.state) for step in await job.steps() if step.name != "remind"]
    assert states == [("wait_for approval", "failed")]


async def test_a_signal_that_is_there_wins_over_a_timeout_that_has_passed(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> str:
        return await qbull.current_job().wait_for("approval", type=str, timeout=0.3)

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
    ended = time.time() + 0.5
    await job.signal("approval", "in time")
    await asyncio.sleep(max(ended - time.time(), 0))
    async with app.worker():
        assert await job.result(timeout=20) == "in time"


async def test_a_signal_after_the_timeout_is_for_the_next_wait(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> list[str]:
        job, seen = qbull.current_job(), []
        for timeout in (0.0, None):
            try:
                seen.append(await job.wait_for("approval", type=str, timeout=timeout))
            except TimeoutError:
                seen.append("late")
        return seen

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        await job.signal("approval", "next")
        assert await job.result(timeout=20) == ["late", "next"]


async def test_a_value_that_does_not_fit_fails_the_attempt_and_the_next_one_waits_again(
    app: qbull.App,
) -> None:
    said: list[str] = []

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> str:
        try:
            answer = await qbull.current_job().wait_for("approval", type=Approval, timeout=86_400)
        except qbull.SignalMismatch as error:
            said.append(str(error))
            raise
        return answer.by

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        await job.signal("approval", {"by": 7})
        await eventually(lambda: happened(said))
        await eventually(lambda: waits(job))
        await job.signal("approval", Approval("ada", []))
        assert await job.result(timeout=20) == "ada"

    assert said[0].startswith('signal "approval": its value does not fit Approval: ')


async def test_a_mismatch_can_be_caught_and_is_seen_again_by_a_replay(app: qbull.App) -> None:
    runs: Counter[str] = Counter()

    async def tell() -> None:
        runs["tell"] += 1
        if runs["tell"] == 1:
            raise ConnectionError

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        runs["work"] += 1
        while True:
            try:
                return (await job.wait_for("approval", type=Approval)).by
            except qbull.SignalMismatch:
                await job.step(tell)

    job = await work.enqueue()
    await job.signal("approval", "yes")
    async with app.worker():
        await eventually(lambda: happened(runs["tell"] == 2))
        await job.signal("approval", Approval("ada", []))
        assert await job.result(timeout=20) == "ada"

    assert [step.state for step in await job.steps()].count("failed") == 1


async def test_a_signal_reaches_a_run_that_other_steps_keep_in_its_worker(app: qbull.App) -> None:
    over = asyncio.Event()

    async def slow() -> str:
        await over.wait()
        return "done"

    @app.queue("orders").task(durable=True)
    async def work() -> list[Any]:
        job = qbull.current_job()

        async def answer() -> str:
            value = await job.wait_for("approval", type=str)
            over.set()
            return value

        return list(await asyncio.gather(job.step(slow), answer()))

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: has_steps(job, "waiting"))
        await job.signal("approval", "yes")
        assert await job.result(timeout=20) == ["done", "yes"]


async def has_steps(job: qbull.Job[Any], state: str) -> bool:
    return any(step.state == state for step in await job.steps())


async def test_a_signal_does_not_end_a_sleep_beside_it(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> list[str]:
        job, seen = qbull.current_job(), []

        async def sleeper() -> None:
            await job.sleep(1)
            seen.append("slept")

        async def waiter() -> None:
            seen.append(await job.wait_for("go", type=str))

        await asyncio.gather(sleeper(), waiter())
        return seen

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        await job.signal("go", "signal")
        assert await job.result(timeout=20) == ["signal", "slept"]


async def test_parallel_waits_get_one_signal_each(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> list[int]:
        job = qbull.current_job()
        return list(await asyncio.gather(*(job.wait_for("vote", type=int) for _ in range(3))))

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        for vote in (1, 2, 3):
            await job.signal("vote", vote)
        assert sorted(await job.result(timeout=20)) == [1, 2, 3]


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_worker_that_dies_while_it_takes_a_signal_neither_loses_nor_repeats_it(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    write, lost = history.write_history, list[int]()

    async def lose_once(
        partition: Partition, confirmed: Any, worker: str, writes: list[HistoryWrite]
    ) -> list[bool]:
        if any(one.change.taken for one in writes) and not lost:
            lost.append(1)
            if arrives:
                await write(partition, confirmed, worker, writes)
            raise ServerAway("the connection broke")
        return await write(partition, confirmed, worker, writes)

    monkeypatch.setattr(history, "write_history", lose_once)

    @app.queue("orders").task(durable=True)
    async def work() -> list[int]:
        job = qbull.current_job()
        return [await job.wait_for("number", type=int) for _ in range(2)]

    job = await work.enqueue()
    for number in (1, 2):
        await job.signal("number", number)
    async with app.worker():
        assert await job.result(timeout=20) == [1, 2]
    assert lost == [1]


async def test_a_job_that_waits_can_be_cancelled(app: qbull.App) -> None:
    @app.queue("orders", order="key").task(durable=True, key="a")
    async def work(waits: bool) -> str:
        if waits:
            await qbull.current_job().wait_for("go")
        return "ran"

    job, behind = await work.enqueue(True), await work.enqueue(False)
    async with app.worker():
        await eventually(lambda: waits(job))
        assert await code_of(behind) == "behind"
        assert await job.cancel() == "cancelled"
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=20)
        assert await behind.result(timeout=20) == "ran"
        with pytest.raises(qbull.Conflict, match="was cancelled"):
            await job.signal("go")


async def test_a_waiting_job_moves_with_its_signals_to_another_partition(app: qbull.App) -> None:
    queue = app.queue("orders", partitions=2)

    @queue.task(durable=True)
    async def work() -> list[str]:
        job = qbull.current_job()
        first = await job.wait_for("go", type=str)
        return [first, await job.wait_for("early", type=str)]

    jobs = [await work.enqueue() for _ in range(4)]
    async with app.worker():
        for job in jobs:
            await eventually(lambda job=job: waits(job))
            await job.signal("early", "kept", id="once")
        await queue.repartition(3)
        for job in jobs:
            assert await job.signal("early", "twice", id="once") == "sent"
            await job.signal("go", "moved")
        for job in jobs:
            assert await job.result(timeout=30) == ["moved", "kept"]


async def test_plain_tasks_wait_too(app: qbull.App) -> None:
    @app.queue("orders", concurrency=1).task(durable=True)
    def work() -> str:
        return qbull.current_job().wait_for_sync("go", type=str)

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: waits(job))
        await job.signal("go", "plain")
        assert await job.result(timeout=20) == "plain"


async def test_wrong_signals_are_refused_where_they_are_sent(app: qbull.App) -> None:
    queue = app.queue("orders")

    @queue.task
    async def plain() -> str:
        return "ran"

    @queue.task(durable=True)
    async def work() -> str:
        return "ran"

    job = await work.enqueue()
    with pytest.raises(qbull.ArgumentsError, match="1 to 100 characters"):
        await job.signal("")
    with pytest.raises(qbull.TooLarge, match='signal "a": its value takes more than 65,536 bytes'):
        await job.signal("a", "x" * 70_000)
    with pytest.raises(qbull.PayloadError, match='signal "a": a value of type object has no JSON form'):
        await job.signal("a", object())
    with pytest.raises(qbull.NotFound):
        await queue.job("nobody").signal("a")
    with pytest.raises(qbull.Conflict, match="it is not durable"):
        await (await plain.enqueue()).signal("a")
    async with app.worker():
        await job.result(timeout=20)
    with pytest.raises(qbull.Conflict, match="has completed; no task takes the signal"):
        await job.signal("a")


async def test_signals_are_encrypted_and_bound_to_their_name(server_url: str, store: Store) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:
        queue = app.queue("orders", retry=qbull.Retry(attempts=1))

        @queue.task(durable=True)
        async def work(name: str) -> str:
            return await qbull.current_job().wait_for(name, type=str)

        job, other = await work.enqueue("secret"), await work.enqueue("forged")
        await job.signal("secret", "visible")
        await other.signal("genuine", "visible")
        partition = store.partition(queue.settings, 0)
        stored = await read_job_data(partition, job.id)
        assert b"visible" not in b"".join(stored.values())
        # Somebody who can write to the server renames a signal.
        data = await read_job_data(partition, other.id)
        forged = data[b"signal:1"].replace(b"\xa7genuine", b"\xa6forged")
        await store.server.call("HSET", f"{partition.base}job:{other.id}", "signal:1", forged)
        async with app.worker():
            assert await job.result(timeout=20) == "visible"
            with pytest.raises(qbull.JobFailed):
                await other.result(timeout=20)


async def test_a_signal_from_an_app_without_the_key_is_refused_with_the_remedy(server_url: str) -> None:
    async with (
        qbull.App(server_url, prefix="test", middleware=[qbull.Signed([qbull.Signed.new_key()])]) as app,
        qbull.App(server_url, prefix="test") as keyless,
    ):
        queue = app.queue("orders", retry=qbull.Retry(attempts=1))

        @queue.task(durable=True)
        async def work() -> None:
            await qbull.current_job().wait_for("go")

        job = await work.enqueue()
        keyless.queue("orders")
        await keyless.job("orders", job.id).signal("go")
        async with app.worker():
            with pytest.raises(qbull.JobFailed, match=r"is not signed.*send it from an app with the key"):
                await job.result(timeout=20)


async def test_signals_work_inline_with_a_clock_that_moves(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        try:
            first = await job.wait_for("approval", type=str, timeout=3600)
        except TimeoutError:
            first = "late"
        return first + await job.wait_for("more", type=str)

    with testing.inline(app) as jobs:
        job = await work.enqueue()
        assert await job.state() == "delayed"
        await jobs.advance(3600)
        await job.signal("more", "!")
        assert await job.result(timeout=1) == "late!"

        job = await work.enqueue()
        await job.signal("more", "!")
        await job.signal("approval", "yes", id="a")
        await job.signal("approval", "yes", id="a")
        assert await job.result(timeout=1) == "yes!"
        with pytest.raises(qbull.Conflict):
            await job.signal("approval", "again")
