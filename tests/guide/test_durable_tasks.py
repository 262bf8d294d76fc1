"""Durable tasks: recorded steps are read and not run again, errors can be caught, and changed code is noticed."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

import qbull
from conftest import eventually
from qbull import testing
from qbull.store.store import Store
from qbull.worker import history, replay

AT_ONCE = qbull.Retry(attempts=5, delay=0)


class OutOfStock(Exception):
    def __init__(self, item: str) -> None:
        super().__init__(f"no {item} left")
        self.item = item


@dataclass
class Price:
    amount: Decimal
    valid: timedelta


async def test_a_recorded_step_is_not_run_again(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def charge(order: int) -> str:
        calls["charge"] += 1
        return f"payment-{order}"

    async def ship(order: int, payment: str) -> str:
        calls["ship"] += 1
        if calls["ship"] < 3:
            raise ConnectionError
        return f"{order} for {payment}"

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def fulfil(order: int) -> str:
        job = qbull.current_job()
        payment = await job.step(charge, order)
        return await job.step(ship, order, payment=payment)

    job = await fulfil.enqueue(7)
    async with app.worker():
        assert await job.result(timeout=20) == "7 for payment-7"

    assert calls == {"charge": 1, "ship": 3}


async def test_the_record_is_there_before_the_next_line_runs(app: qbull.App) -> None:
    seen: list[list[str]] = []

    async def note(n: int) -> None: ...

    @app.queue("orders").task(durable=True)
    async def fulfil() -> None:
        job = qbull.current_job()
        for n in range(3):
            await job.step(note, n)
            seen.append([step.name for step in await app.job("orders", job.id).steps()])

    job = await fulfil.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    assert [len(names) for names in seen] == [1, 2, 3]


async def test_an_interrupted_job_goes_on_in_another_worker(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    waits = asyncio.Event()

    async def charge() -> str:
        calls["charge"] += 1
        return "paid"

    async def ship() -> None:
        calls["ship"] += 1
        if calls["ship"] == 1:
            waits.set()
            await asyncio.Event().wait()

    @app.queue("orders").task(durable=True)
    async def fulfil() -> str:
        job = qbull.current_job()
        payment = await job.step(charge)
        await job.step(ship)
        return payment

    job = await fulfil.enqueue()
    first = app.worker()
    await first.start()
    await waits.wait()
    await first.stop(grace=0)
    async with app.worker():
        assert await job.result(timeout=20) == "paid"

    info = await job.info()
    assert calls == {"charge": 1, "ship": 2}
    assert info is not None and info.attempt == 1


async def test_a_caught_error_is_raised_again_in_a_replay(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    caught: list[OutOfStock] = []

    async def reserve() -> None:
        calls["reserve"] += 1
        raise OutOfStock("pens")

    async def refund() -> str:
        calls["refund"] += 1
        if calls["refund"] == 1:
            raise ConnectionError
        return "refunded"

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def buy() -> str:
        job = qbull.current_job()
        try:
            await job.step(reserve)
        except OutOfStock as error:
            caught.append(error)
            return await job.step(refund)
        return "bought"

    job = await buy.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "refunded"

    assert calls == {"reserve": 1, "refund": 2}
    assert [(error.item, str(error)) for error in caught] == [("pens", "no pens left")] * 2


async def test_an_error_after_compensation_is_final(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def reserve() -> None:
        calls["reserve"] += 1
        raise OutOfStock("pens")

    async def refund() -> None:
        calls["refund"] += 1

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def buy() -> None:
        job = qbull.current_job()
        try:
            await job.step(reserve)
        except OutOfStock:
            await job.step(refund)
            raise

    job = await buy.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="OutOfStock: no pens left"):
            await job.result(timeout=20)

    assert calls == {"reserve": 1, "refund": 1}


async def test_an_error_that_cannot_be_stored_is_a_step_failed_in_every_run(app: qbull.App) -> None:
    caught: list[qbull.StepFailed] = []
    runs: list[int] = []

    async def fetch() -> None:
        request = httpx.Request("GET", "http://localhost")
        raise httpx.HTTPStatusError("503 here", request=request, response=httpx.Response(503))

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def read() -> None:
        runs.append(1)
        try:
            await qbull.current_job().step(fetch)
        except qbull.StepFailed as error:
            caught.append(error)
        if len(runs) == 1:
            raise ConnectionError

    job = await read.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    assert len(caught) == 2
    for error in caught:
        assert (error.step, error.error_type) == ("fetch", "HTTPStatusError")
        assert str(error) == 'step "fetch" failed: HTTPStatusError: 503 here'


async def test_a_step_has_its_own_retries(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def unsteady() -> str:
        calls["unsteady"] += 1
        if calls["unsteady"] < 3:
            raise ConnectionError
        return "there"

    async def hopeless() -> None:
        calls["hopeless"] += 1
        raise qbull.Fail("never")

    @app.queue("orders").task(durable=True)
    async def work() -> str:
        steps = qbull.current_job().options(retry=AT_ONCE)
        with pytest.raises(qbull.Fail, match="never"):
            await steps.step(hopeless)
        return await steps.step(unsteady)

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "there"

    assert calls == {"unsteady": 3, "hopeless": 1}
    failed, tried = await job.steps()
    assert (failed.name, failed.state, failed.error, failed.attempts) == ("hopeless", "failed", "never", 1)
    assert (tried.name, tried.state, tried.result, tried.attempts) == ("unsteady", "completed", "there", 3)


async def test_a_step_has_its_own_timeout_and_name(app: qbull.App) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.queue("orders").task(durable=True)
    async def work() -> str:
        try:
            await qbull.current_job().options(timeout=0.01, name="the slow one").step(slow)
        except TimeoutError as error:
            return str(error)
        return ""

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == 'step "the slow one" ran longer than its timeout of 0.01 s'

    assert [step.name for step in await job.steps()] == ["the slow one"]


async def test_parallel_steps_match_however_they_interleave(app: qbull.App) -> None:
    calls: Counter[int] = Counter()
    runs: list[int] = []

    async def pack(n: int) -> int:
        calls[n] += 1
        # The first run ends them in another order than the second one asks for them.
        await asyncio.sleep(0.001 * (7 * n % 5))
        if n == 3 and len(runs) == 1:
            raise ConnectionError
        return n * n

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def pack_all() -> list[int]:
        runs.append(1)
        job = qbull.current_job()
        numbers = range(8) if len(runs) == 1 else reversed(range(8))
        return sorted(await asyncio.gather(*(job.step(pack, n) for n in numbers)))

    job = await pack_all.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == [n * n for n in range(8)]

    # The steps that were running when the attempt failed have no record.
    assert calls[3] == 2
    assert all(calls[n] <= 2 for n in range(8))
    recorded = [step.result for step in await job.steps() if step.state == "completed"]
    assert sorted(recorded) == [n * n for n in range(8)]


async def test_the_same_step_twice_is_two_steps(app: qbull.App) -> None:
    calls: list[int] = []
    runs: list[int] = []

    async def draw(n: int) -> int:
        calls.append(n)
        return len(calls)

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> list[int]:
        runs.append(1)
        job = qbull.current_job()
        drawn = [await job.step(draw, 1), await job.step(draw, 1), await job.step(draw, 2)]
        if len(runs) == 1:
            raise ConnectionError
        return drawn

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == [1, 2, 3]


async def test_a_race_ends_in_a_replay_as_it_did_before(app: qbull.App) -> None:
    winners: list[str] = []

    async def racer(name: str) -> str:
        await asyncio.sleep(0.02 if name == "tortoise" and not winners else 0.0)
        return name

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def race() -> str:
        job = qbull.current_job()
        both = [asyncio.create_task(job.step(racer, name)) for name in ("tortoise", "hare")]
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        winners.append(*(task.result() for task in done))
        await asyncio.wait(both)
        if len(winners) < 4:
            raise ConnectionError
        return winners[0]

    job = await race.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "hare"

    assert winners == ["hare"] * 4


async def test_a_task_group_fails_in_a_replay_because_of_the_same_step(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def good(n: int) -> None:
        calls["good"] += 1

    async def bad() -> None:
        calls["bad"] += 1
        raise OutOfStock("pens")

    async def slow() -> None:
        calls["slow"] += 1
        await asyncio.Event().wait()

    async def refund() -> str:
        calls["refund"] += 1
        if calls["refund"] < 3:
            raise ConnectionError
        return "refunded"

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def buy() -> str:
        job = qbull.current_job()

        async def several() -> None:
            await job.step(good, 1)
            await job.step(good, 2)
            await job.step(slow)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(several())
                await asyncio.sleep(0.05)
                await job.step(bad)
        except* OutOfStock:
            pass
        return await job.step(refund)

    job = await buy.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "refunded"

    assert calls == {"good": 2, "bad": 1, "slow": 1, "refund": 3}


async def test_a_checkpoint_keeps_the_position_of_a_loop(app: qbull.App) -> None:
    imported: list[int] = []
    starts: list[int] = []

    async def import_page(page: int) -> int:
        if page in (1200, 1700) and imported.count(page) == 0:
            imported.append(page)
            raise ConnectionError
        imported.append(page)
        return page + 1

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def import_all() -> int:
        job = qbull.current_job()
        page = await job.checkpoint(0)
        starts.append(page)
        while page < 2000:
            following = await job.step(import_page, page)
            page = await job.checkpoint(following)
        return page

    job = await import_all.enqueue()
    async with app.worker():
        assert await job.result(timeout=60) == 2000

    assert starts == [0, 1200, 1700]
    assert imported == [*range(1200), 1200, *range(1200, 1700), 1700, *range(1700, 2000)]
    assert [(step.state, step.result) for step in await job.steps()] == [("checkpoint", 2000)]


async def test_plain_tasks_have_steps_too(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    threads: set[int] = set()

    def render(order: int) -> str:
        calls["render"] += 1
        threads.add(threading.get_ident())
        return f"invoice {order}"

    def send(text: str) -> str:
        calls["send"] += 1
        if calls["send"] == 1:
            raise ConnectionError
        return f"sent {text}"

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    def invoice(order: int) -> str:
        job = qbull.current_job()
        threads.add(threading.get_ident())
        text = job.step_sync(render, order)
        assert job.checkpoint_sync(5, name="row") == 5
        return job.step_sync(send, text)

    job = await invoice.enqueue(7)
    async with app.worker():
        assert await job.result(timeout=20) == "sent invoice 7"

    assert calls == {"render": 1, "send": 2}


async def test_a_coroutine_may_have_plain_functions_as_steps(app: qbull.App) -> None:
    def where() -> int:
        assert qbull.current_job().task == "work"
        return threading.get_ident()

    @app.queue("orders").task(durable=True)
    async def work() -> bool:
        return await qbull.current_job().step(where) != threading.get_ident()

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20)


async def test_results_have_their_annotated_types_in_every_run(app: qbull.App) -> None:
    seen: list[object] = []

    async def price() -> Price:
        return Price(Decimal("1.10"), timedelta(days=1))

    async def pair() -> tuple[int, str]:
        return 1, "a"

    async def anything():  # type: ignore[no-untyped-def]
        return (1, 2)

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        seen.append([await job.step(price), await job.step(pair), await job.step(anything)])
        if len(seen) == 1:
            raise ConnectionError

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    assert seen == [[Price(Decimal("1.10"), timedelta(days=1)), (1, "a"), [1, 2]]] * 2


async def test_a_changed_step_fails_with_both_names_and_runs_nothing(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HELD_STEP_SECONDS", 0.05)
    calls: Counter[str] = Counter()
    runs: list[int] = []

    async def charge() -> None:
        calls["charge"] += 1

    async def charge_by_card() -> None:
        calls["charge_by_card"] += 1

    @app.queue("orders", retry=qbull.Retry(attempts=2, delay=0)).task(durable=True)
    async def fulfil() -> None:
        runs.append(1)
        job = qbull.current_job()
        try:
            await job.step(charge if len(runs) == 1 else charge_by_card)
        except Exception:
            calls["caught"] += 1
        if len(runs) == 1:
            raise ConnectionError

    job = await fulfil.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=20)

    assert failed.value.error.startswith(
        'HistoryMismatch: task "fulfil": number 1 of the recorded steps is "charge", '
        'but the code asks for "charge_by_card"'
    )
    assert calls == {"charge": 1, "caught": 1}


async def test_a_removed_step_is_noticed(app: qbull.App) -> None:
    runs: list[int] = []

    async def charge() -> None: ...

    @app.queue("orders", retry=qbull.Retry(attempts=2, delay=0)).task(durable=True)
    async def fulfil() -> None:
        runs.append(1)
        if len(runs) == 1:
            await qbull.current_job().step(charge)
            raise ConnectionError

    job = await fulfil.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match='steps is "charge", but the code ends without it'):
            await job.result(timeout=20)


async def test_other_arguments_are_another_step(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "HELD_STEP_SECONDS", 0.05)
    runs: list[int] = []

    async def charge(amount: int) -> None: ...

    @app.queue("orders", retry=qbull.Retry(attempts=2, delay=0)).task(durable=True)
    async def fulfil() -> None:
        runs.append(1)
        await qbull.current_job().step(charge, len(runs))
        raise ConnectionError

    job = await fulfil.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match='asks for "charge" with other arguments'):
            await job.result(timeout=20)


async def test_a_dead_letter_continues_where_it_stopped(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    is_up = asyncio.Event()

    async def charge() -> None:
        calls["charge"] += 1

    async def ship() -> str:
        calls["ship"] += 1
        if not is_up.is_set():
            raise ConnectionError("the carrier is down")
        return "shipped"

    @app.queue("orders", retry=qbull.Retry(attempts=1)).task(durable=True)
    async def fulfil() -> str:
        job = qbull.current_job()
        await job.step(charge)
        return await job.step(ship)

    job = await fulfil.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="the carrier is down"):
            await job.result(timeout=20)
        assert [step.state for step in await job.steps()] == ["completed", "retrying"]
        is_up.set()
        await job.retry()
        assert await job.result(timeout=20) == "shipped"

    assert calls == {"charge": 1, "ship": 2}
    assert [step.state for step in await job.steps()] == ["completed", "retrying", "completed"]


async def test_the_history_goes_with_its_job(app: qbull.App) -> None:
    async def note() -> None: ...

    @app.queue("orders", keep=qbull.Keep(completed=0)).task(durable=True)
    async def work() -> None:
        await qbull.current_job().step(note)

    await work.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    client = app._client()
    assert await client.store.server.call("KEYS", "*job:*") == []


async def test_a_history_has_a_bound(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbull.worker.recorded_run.MAX_STEPS", 3)
    calls: list[int] = []

    async def note(n: int) -> None:
        calls.append(n)

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> None:
        for n in range(5):
            await qbull.current_job().step(note, n)

    job = await work.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=r"has at most 3 steps; use checkpoint\(\) in loops"):
            await job.result(timeout=20)

    assert calls == [0, 1, 2]


async def test_a_history_is_bounded_in_bytes(app: qbull.App) -> None:
    calls: list[int] = []

    async def large(n: int) -> str:
        calls.append(n)
        return "x" * 400_000

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> None:
        for n in range(5):
            await qbull.current_job().step(large, n)

    job = await work.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="has at most 1,048,576 bytes"):
            await job.result(timeout=20)

    assert calls == [0, 1, 2]


async def test_wrong_calls_are_refused_with_the_remedy(app: qbull.App) -> None:
    said: list[str] = []

    async def inner() -> None: ...

    async def outer() -> None:
        await qbull.current_job().step(inner)

    def plain() -> None: ...

    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        wrong = [
            lambda: job.step(outer),
            lambda: job.step(lambda: 1),
            lambda: job.step(5),  # type: ignore[call-overload]
            lambda: job.options(timeout=1).step(plain),
        ]
        for call in wrong:
            with pytest.raises(qbull.QbullError) as refused:
                await call()
            said.append(str(refused.value))
        with pytest.raises(qbull.QbullError, match="would block the running event loop"):
            job.step_sync(plain)

    @orders.task
    async def fleeting() -> None:
        await qbull.current_job().step(inner)

    job, other = await work.enqueue(), await fleeting.enqueue()
    async with app.worker():
        await job.result(timeout=20)
        with pytest.raises(qbull.JobFailed, match="it is not durable; declare it with durable=True"):
            await other.result(timeout=20)

    assert [text.partition("; ")[2] for text in said] == [
        "call the function instead",
        "give one: options(name=…)",
        "",
        "give the function a timeout of its own",
    ]


def test_a_task_cannot_be_durable_and_run_in_a_process_or_in_chunks() -> None:
    queue = qbull.App("redis://nowhere").queue("orders")

    for settings in ({"cpu": True}, {"chunk": 3}):
        with pytest.raises(qbull.DeclarationError, match=r"durable and (cpu|chunk): give one of them"):

            @queue.task(durable=True, **settings)  # type: ignore[call-overload]
            def work(items: list[int]) -> None: ...


async def test_a_cancelled_job_can_compensate(app: qbull.App) -> None:
    running, refunded = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        running.set()
        await asyncio.Event().wait()

    async def refund() -> None:
        refunded.set()

    @app.queue("orders").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        try:
            await job.step(wait)
        except asyncio.CancelledError:
            await job.step(refund)
            raise

    job = await work.enqueue()
    async with app.worker():
        await running.wait()
        await job.cancel()
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=20)

    assert refunded.is_set()


async def test_a_worker_that_stops_does_not_let_a_task_compensate(app: qbull.App) -> None:
    running = asyncio.Event()
    calls: Counter[str] = Counter()

    async def wait() -> None:
        calls["wait"] += 1
        if calls["wait"] == 1:
            running.set()
            await asyncio.Event().wait()

    async def refund() -> None:
        calls["refund"] += 1

    @app.queue("orders").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        try:
            await job.step(wait)
        except asyncio.CancelledError:
            await job.step(refund)
            raise

    job = await work.enqueue()
    worker = app.worker()
    await worker.start()
    await running.wait()
    await worker.stop(grace=0)
    async with app.worker():
        await job.result(timeout=20)

    assert calls == {"wait": 2}


async def test_steps_of_many_jobs_share_calls(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    together = asyncio.Barrier(40)
    sizes: list[int] = []
    write = history.write_history

    async def counted(partition: Any, confirmed: Any, worker: str, writes: Any) -> list[bool]:
        sizes.append(len(writes))
        return await write(partition, confirmed, worker, writes)

    monkeypatch.setattr(history, "write_history", counted)

    async def note(n: int) -> int:
        return n

    @app.queue("orders", concurrency=40).task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        await together.wait()
        for n in range(10):
            await job.step(note, n)

    jobs = await work.enqueue_many([{}] * 40)
    async with app.worker():
        for job in jobs:
            await job.result(timeout=60)

    assert sum(sizes) == 400
    assert len(sizes) <= 100
    for job in jobs:
        assert [step.result for step in await job.steps()] == list(range(10))


async def test_histories_are_encrypted_and_bound_to_their_place(server_url: str, store: Store) -> None:
    secret, runs = "4111-1111-1111-1111", list[int]()
    calls: Counter[str] = Counter()
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:

        async def charge(card: str) -> str:
            calls["charge"] += 1
            return f"charged {card}"

        @app.queue("orders", retry=AT_ONCE).task(durable=True)
        async def work(card: str) -> str:
            runs.append(1)
            job = qbull.current_job()
            paid = await job.step(charge, card)
            if len(runs) == 1:
                raise ConnectionError
            return paid

        job = await work.enqueue(secret)
        async with app.worker():
            assert await job.result(timeout=20) == f"charged {secret}"
        (step,) = await job.steps()
        stored = await store.server.call("HGET", f"{{test:orders:0}}:job:{job.id}", "step:1")
        other = await work.enqueue(secret)
        await store.server.call("HSET", f"{{test:orders:0}}:job:{other.id}", "step:1", stored)
        await store.server.call("SADD", "{test:orders:0}:extras", other.id)
        [moved] = await other.steps()

    assert step.result == f"charged {secret}"
    assert calls == {"charge": 1}
    assert secret.encode() not in stored
    assert secret not in str(moved.result)


async def test_inline_runs_have_steps(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def charge(order: int) -> str:
        calls["charge"] += 1
        return f"payment-{order}"

    async def ship() -> str:
        calls["ship"] += 1
        if calls["ship"] == 1:
            raise ConnectionError
        return "shipped"

    @app.queue("orders", retry=qbull.Retry(attempts=3, delay=60)).task(durable=True)
    async def fulfil(order: int) -> str:
        job = qbull.current_job()
        await job.step(charge, order)
        return await job.step(ship)

    with testing.inline(app, propagate=False) as jobs:
        job = await fulfil.enqueue(7)
        await jobs.advance(60)
        assert await job.result(timeout=1) == "shipped"

    assert calls == {"charge": 1, "ship": 2}


def test_inline_runs_of_plain_tasks_have_steps() -> None:
    app = qbull.App("redis://nowhere")
    calls: Counter[str] = Counter()

    def render(order: int) -> str:
        calls["render"] += 1
        return f"invoice {order}"

    def send(text: str) -> str:
        calls["send"] += 1
        if calls["send"] == 1:
            raise ConnectionError
        return f"sent {text}"

    @app.queue("orders", retry=qbull.Retry(attempts=3, delay=60)).task(durable=True)
    def invoice(order: int) -> str:
        job = qbull.current_job()
        return job.step_sync(send, job.step_sync(render, order))

    with testing.inline(app, propagate=False) as jobs:
        job = invoice.enqueue_sync(7)
        jobs.advance_sync(60)
        assert jobs.kept["orders", job.id].state == "completed"

    assert calls == {"render": 1, "send": 2}


async def test_a_patch_keeps_the_old_path_for_jobs_that_have_passed_it(app: qbull.App) -> None:
    calls: list[str] = []
    is_new = False

    async def note(what: str) -> str:
        calls.append(what)
        return what

    @app.queue("orders", retry=AT_ONCE).task(durable=True)
    async def work() -> list[bool]:
        job, taken = qbull.current_job(), []
        for turn in ("first", "second"):
            if is_new:
                taken.append(await job.patched("weigh"))
                if taken[-1]:
                    await job.step(note, f"weigh {turn}")
            await job.step(note, turn)
            if turn == "first":
                await job.wait_for("go")
        if job.attempt == 1:
            raise ConnectionError
        return taken

    async def waits(job: qbull.Job[Any]) -> bool:
        return (await job.why()).reasons[0].code == "signal"

    async with app.worker():
        old = await work.enqueue()
        await eventually(lambda: waits(old))
        is_new = True
        new = await work.enqueue()
        await eventually(lambda: waits(new))
        for job in (old, new):
            await job.signal("go")
        assert await old.result(timeout=20) == [False, True]
        assert await new.result(timeout=20) == [True, True]
    assert sorted(calls) == sorted(["first", "weigh first", "first", *["weigh second", "second"] * 2])


async def test_a_plain_task_can_be_patched_and_a_wrong_name_is_refused(app: qbull.App) -> None:
    @app.queue("orders", retry=qbull.Retry(attempts=1)).task(durable=True)
    def work(change: str) -> bool:
        return qbull.current_job().patched_sync(change)

    good, bad = await work.enqueue("v2"), await work.enqueue("")
    async with app.worker():
        assert await good.result(timeout=20) is True
        with pytest.raises(qbull.JobFailed, match="give a name of 1 to 200 characters"):
            await bad.result(timeout=20)
