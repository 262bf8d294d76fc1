"""Repartitioning: the number of a queue's partitions is changed while it is used. Nothing is lost, keys keep their order."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

import pytest

import qbull
from conftest import eventually


class Messages:
    """A queue ordered by key whose jobs say what they did, and can be held up."""

    def __init__(
        self, app: qbull.App, partitions: int = 4, name: str = "messages", **settings: object
    ) -> None:
        self.app = app
        self.ran: dict[str, list[int]] = defaultdict(list)
        self.gate = asyncio.Event()
        self.gate.set()
        self.queue = app.queue(name, partitions=partitions, **{"order": "key", **settings})  # type: ignore[arg-type]

        @self.queue.task(key="{phone}")
        async def send(phone: str, n: int) -> int:
            await self.gate.wait()
            self.ran[phone].append(n)
            return n

        self.send = send

    async def enqueue(self, *numbers: int, phones: int = 20) -> None:
        await self.send.enqueue_many([{"phone": f"+{p}", "n": n} for n in numbers for p in range(phones)])

    async def worked_off(self) -> None:
        """Until nothing is left in old partitions."""
        await eventually(self._settled, within=30)

    async def _settled(self) -> bool:
        return await self.queue.repartitioning() is None

    def in_order(self, *numbers: int, phones: int = 20) -> bool:
        return self.ran == {f"+{p}": list(numbers) for p in range(phones)}


@pytest.mark.parametrize("partitions", [1, 3, 16])
async def test_jobs_from_before_run_before_those_from_after(app: qbull.App, partitions: int) -> None:
    messages = Messages(app)

    await messages.enqueue(0, 1, 2)
    await messages.queue.repartition(partitions)
    await messages.enqueue(3, 4, 5)
    async with app.worker() as worker, app.worker():
        await worker.drain()
        await messages.worked_off()

    assert messages.in_order(0, 1, 2, 3, 4, 5)


async def test_several_changes_in_a_row(app: qbull.App) -> None:
    messages = Messages(app)

    async with app.worker() as worker:
        for n, partitions in enumerate([16, 6, 1, 9, 4]):
            await messages.enqueue(2 * n, 2 * n + 1)
            await messages.queue.repartition(partitions)
        await messages.enqueue(10)
        await worker.drain()
        await messages.worked_off()

    assert messages.in_order(*range(11))


async def test_running_workers_and_other_producers_follow(app: qbull.App, server_url: str) -> None:
    messages = Messages(app)
    async with qbull.App(server_url, prefix="test") as elsewhere, app.worker() as worker:
        other = Messages(elsewhere)
        await messages.enqueue(0)
        await other.enqueue(1)

        await messages.queue.repartition(16)
        await other.enqueue(2)

        await worker.drain()
        await messages.worked_off()
    assert messages.in_order(0, 1, 2)


async def test_a_key_waits_for_its_jobs_in_the_old_partition_and_others_do_not(app: qbull.App) -> None:
    messages = Messages(app)
    messages.gate.clear()
    async with app.worker():
        first = await messages.send.enqueue(phone="+1", n=0)
        await eventually(lambda: _is(first, "active"))

        await messages.queue.repartition(16)
        second = await messages.send.enqueue(phone="+1", n=1)
        other = await messages.send.enqueue(phone="+2", n=0)

        await eventually(lambda: _is(other, "active"))
        left = await messages.queue.repartitioning()
        assert left is not None
        assert (left.partitions, left.before, left.jobs, left.keys) == (16, (4,), 1, 1)
        assert await second.state() == "waiting"
        messages.gate.set()
        assert await second.result(timeout=10) == 1
        await messages.worked_off()

    assert messages.ran["+1"] == [0, 1]


async def test_delayed_jobs_come_along(app: qbull.App) -> None:
    messages = Messages(app)
    later = [await messages.send.options(delay=3600).enqueue(phone=f"+{p}", n=0) for p in range(20)]

    async with app.worker():
        await messages.queue.repartition(16)
        await messages.worked_off()
        infos = [info for job in later if (info := await job.info()) is not None]
        await later[7].promote()
        assert await later[7].result(timeout=10) == 0

    assert [info.state for info in infos] == ["delayed"] * 20
    assert len({info.partition for info in infos}) > 4


async def test_who_waits_for_a_result_goes_on_waiting(app: qbull.App) -> None:
    messages = Messages(app)
    job = await messages.send.options(delay=1).enqueue(phone="+1", n=7)
    waiting = asyncio.create_task(job.result(timeout=20))

    async with app.worker():
        await messages.queue.repartition(16)

        assert await waiting == 7


async def test_an_id_stays_taken(app: qbull.App) -> None:
    queue = app.queue("mail", partitions=4)

    @queue.task(id="welcome:{user}")
    async def welcome(user: str) -> str:
        return user

    before = [await welcome.enqueue(user=f"u{n}") for n in range(10)]
    late = await welcome.options(delay=3600).enqueue(user="late")
    await queue.repartition(7)
    waiting = [await welcome.enqueue(user=f"u{n}") for n in range(10)]
    async with app.worker() as worker:
        await eventually(lambda: _none_left(queue))
        done = [await welcome.enqueue(user=f"u{n}") for n in range(10)]
        again = await welcome.enqueue(user="late")
        new = await welcome.enqueue(user="new")
        await late.remove()
        await worker.drain()

    assert all(job.created for job in [*before, late, new])
    assert not any(job.created for job in [*waiting, *done, again])
    assert (await queue.stats()).totals["completed"] == 11


@pytest.mark.parametrize("ordered", [None, "key"])
async def test_a_window_of_uniqueness_holds_across_the_change(app: qbull.App, ordered: str | None) -> None:
    ran: list[tuple[str, int]] = []
    queue = app.queue("mail", partitions=4, order=ordered)  # type: ignore[arg-type]

    def declare(mode: str, window: float) -> qbull.Task[[str, int], None]:
        unique = qbull.Unique(window=window, by=("user",), mode=mode)  # type: ignore[arg-type]

        @queue.task(name=mode, key="{user}", unique=unique)
        async def task(user: str, n: int) -> None:
            ran.append((mode, n))

        return task

    first, last, debounced = declare("first", 60), declare("last", 60), declare("debounce", 1.5)
    before = [await task.enqueue(user="u", n=0) for task in (first, last, debounced)]
    await queue.repartition(7)
    waiting = [await task.enqueue(user="u", n=1) for task in (first, last, debounced)]
    async with app.worker() as worker:
        await eventually(lambda: _none_left(queue))
        moved = await debounced.enqueue(user="u", n=2)
        await worker.drain()
    done = await first.enqueue(user="u", n=3)

    assert [job.id for job in waiting] == [job.id for job in before]
    assert [job.created for job in waiting] == [False] * 3
    assert (moved.id, done.id) == (before[2].id, before[0].id)
    assert sorted(ran) == [("debounce", 2), ("first", 0), ("last", 1)]


async def test_one_runs_and_one_waits_across_the_change(app: qbull.App) -> None:
    begun: list[int] = []
    gate = asyncio.Event()
    queue = app.queue("sync", partitions=4, concurrency=5)

    @queue.task(unique=qbull.Unique(by=("user",), mode="after"))
    async def sync(user: str, n: int) -> None:
        begun.append(n)
        await gate.wait()

    async with app.worker() as worker:
        running = await sync.enqueue(user="u", n=0)
        await eventually(lambda: _is(running, "active"))
        await queue.repartition(7)
        waiting = [await sync.enqueue(user="u", n=n) for n in (1, 2, 3)]
        assert begun == [0]
        gate.set()
        await worker.drain()

    assert len({job.id for job in waiting}) == 1
    assert begun == [0, 3]


async def test_a_job_that_has_not_begun_in_time_is_cancelled_in_its_new_partition(app: qbull.App) -> None:
    messages = Messages(app)
    messages.gate.clear()
    async with app.worker():
        first = await messages.send.enqueue(phone="+1", n=0)
        await eventually(lambda: _is(first, "active"))
        late = await messages.send.options(delay=0.2, expires=0.6).enqueue(phone="+1", n=1)
        await messages.queue.repartition(16)

        with pytest.raises(qbull.JobCancelled):
            await late.result(timeout=10)
        messages.gate.set()
        await messages.worked_off()


async def test_finished_jobs_of_old_partitions_are_still_there(app: qbull.App) -> None:
    messages = Messages(app)
    async with app.worker() as worker:
        job = await messages.send.enqueue(phone="+1", n=1)
        await worker.drain()
        await messages.queue.repartition(6)
        await messages.worked_off()

        assert await job.result(timeout=5) == 1
        assert (await messages.queue.stats()).completed == 1
        assert [info.id for info in await messages.queue.jobs("completed")] == [job.id]


async def test_a_dead_letter_of_an_old_partition_goes_round_in_the_new_one(app: qbull.App) -> None:
    queue = app.queue("mail", partitions=4, order="key", retry=qbull.Retry(attempts=1))
    fail = True

    @queue.task(key="{user}")
    async def welcome(user: str) -> str:
        if fail:
            raise ValueError("no mailbox")
        return user

    async with app.worker() as worker:
        job = await welcome.enqueue(user="u1")
        await worker.drain()
        await queue.repartition(7)
        await eventually(lambda: _none_left(queue))
        fail = False

        await job.retry()

        assert await job.result(timeout=10) == "u1"


async def test_a_key_that_halts_stays_where_it_is_until_it_is_redriven(app: qbull.App) -> None:
    ran: list[int] = []
    ledger = app.queue("ledger", partitions=4, order="key", on_failed="halt", retry=qbull.Retry(attempts=1))
    fail = True

    @ledger.task(key="{account}")
    async def book(account: str, n: int) -> None:
        if fail and n == 0:
            raise ValueError("no such account")
        ran.append(n)

    async with app.worker() as worker:
        first = await book.enqueue(account="a", n=0)
        await worker.drain()
        await ledger.repartition(16)
        await book.enqueue(account="a", n=1)
        left = await eventually(lambda: _halted(ledger))
        assert (left.jobs, left.keys, left.halted) == (0, 1, 1)
        fail = False

        await first.retry()

        await eventually(lambda: _none_left(ledger))
        await worker.drain()
    assert ran == [0, 1]


async def test_order_by_partition_keeps_the_order_of_every_key(app: qbull.App) -> None:
    messages = Messages(app, order="partition")

    async with app.worker() as worker, app.worker():
        await messages.enqueue(0, 1)
        await messages.queue.repartition(6)
        await messages.enqueue(2, 3)
        await messages.queue.repartition(3)
        await messages.enqueue(4)
        await worker.drain()
        await messages.worked_off()

    assert messages.in_order(0, 1, 2, 3, 4)


async def test_a_limit_for_a_key_holds_for_old_and_new_partitions_together(app: qbull.App) -> None:
    running, most = 0, 0
    queue = app.queue("api", partitions=2, concurrency=20, lane=qbull.Lane(limit=2))

    @queue.task(key="{tenant}")
    async def call(tenant: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with app.worker() as worker:
        await call.enqueue_many([{"tenant": "acme"} for _ in range(10)])
        await queue.repartition(8)
        await call.enqueue_many([{"tenant": "acme"} for _ in range(10)])
        await worker.drain()

    assert most == 2
    assert (await queue.stats()).completed == 20


async def test_code_with_an_earlier_number_follows_and_says_so_once(
    app: qbull.App, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = Messages(app, name="letters")
    await messages.enqueue(0)
    await messages.queue.repartition(16)
    caplog.set_level(logging.WARNING, "qbull")

    async with qbull.App(server_url, prefix="test") as restarted:
        again = Messages(restarted, name="letters")
        await again.enqueue(1)
        async with restarted.worker() as worker:
            await worker.drain()

    lines = [record.getMessage() for record in caplog.records if record.name == "qbull"]
    assert lines == [
        'queue "letters": partitions=4 but the server has 16 by now; following it; set partitions=16'
    ]
    assert again.in_order(0, 1)


async def test_a_number_that_the_queue_never_had_is_refused(app: qbull.App, server_url: str) -> None:
    messages = Messages(app)
    await messages.enqueue(0)
    await messages.queue.repartition(16)

    async with qbull.App(server_url, prefix="test") as wrong:
        with pytest.raises(qbull.ConfigError) as error:
            await Messages(wrong, partitions=5).enqueue(1)

    assert str(error.value) == (
        'queue "messages": partitions=5 but the server has 16; '
        'run "qbull repartition messages 5" or set partitions=16'
    )


@pytest.mark.parametrize("partitions", [0, -1, 4097, 1.5, True])
async def test_a_number_that_cannot_be_is_refused(app: qbull.App, partitions: int) -> None:
    messages = Messages(app)
    await messages.enqueue(0)

    with pytest.raises(qbull.ConfigError, match="partitions="):
        await messages.queue.repartition(partitions)

    assert await messages.queue.repartitioning() is None


async def test_the_number_that_it_has_changes_nothing(app: qbull.App) -> None:
    messages = Messages(app)
    await messages.enqueue(0)

    await messages.queue.repartition(4)

    assert await messages.queue.repartitioning() is None


async def _is(job: qbull.Job[int], state: str) -> bool:
    return await job.state() == state


async def _none_left(queue: qbull.Queue) -> bool:
    return await queue.repartitioning() is None


async def _halted(queue: qbull.Queue) -> object:
    left = await queue.repartitioning()
    return left if left is not None and left.halted and not left.jobs else None
