"""Draining Celery: messages that Celery itself has written, moved each once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from producers import Killed, Mortal, Old, move, open_old, open_old_server  # noqa: F401 - two are fixtures
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.compat.celery import Celery
from qbull.drain.celery import CelerySource
from qbull.drain.deliver import JobImporter
from qbull.drain.move import DrainReport, DrainRun
from qbull.drain.source import SourceServer
from qbull.store.store import Store

KEY = bytes(range(32))
NOW = qbull.Keep(completed=0, failed=0)


@pytest.fixture
async def new(server_url: str, store: Any) -> Any:
    """The program as it is now. `ran` is what its tasks were called with."""
    new = NewApp(server_url)
    yield new
    await new.app.close()
    await asyncio.to_thread(new.app.close_sync)


class NewApp:
    def __init__(self, url: str) -> None:
        self.app = app = Celery("shop", broker=url, prefix="test")
        self.ran: list[Any] = []
        app.queue("celery", partitions=2, keep=NOW)
        app.queue("mail")

        @app.task(name="add", bind=True)
        def add(self_: Any, x: Any, y: Any = 0) -> None:
            self.ran.append((x, y, self_.request.retries))

        @app.task(name="typed", queue="mail")
        def typed(when: datetime, day: date, price: Decimal, who: UUID) -> None:
            self.ran.append((when, day, price, who))

        @app.queues["mail"].task(name="own")
        def own(x: Any) -> None:
            self.ran.append(x)

    async def move(self, source: CelerySource, *, dry: bool = False, **options: Any) -> DrainReport:
        return await move(self.app, source, dry=dry, **options)

    async def work(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()


def source(old: Old, **options: Any) -> CelerySource:
    return CelerySource(SourceServer(old.url, "celery"), **options)


async def test_what_celery_has_written_is_run_here(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    for n in range(250):
        theirs.send_task("add", (n,), {"y": n * 2})

    report = await new.move(source(old))
    await new.work()

    assert sorted(new.ran) == [(n, n * 2, 0) for n in range(250)]
    assert (report.moved["celery"], report.left.total(), old.left()) == (250, 0, set())


async def test_everything_that_a_message_says_is_kept(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    ids = [
        theirs.send_task("add", (1,), eta=at, expires=at + timedelta(hours=1)).id,
        theirs.send_task("add", (2,), countdown=3600, priority=9, time_limit=40).id,
        theirs.send_task("add", (3,), eta=at.replace(tzinfo=None), retries=2, task_id="mine").id,
    ]

    await new.move(source(old, zone="UTC"))
    infos = [await new.app.job("celery", id).info() for id in ids]
    await new.app.job("celery", "mine").promote()
    for id in ids[:2]:
        await new.app.job("celery", id).cancel()
    await new.work()

    first, second, third = infos
    assert first is not None and second is not None and third is not None
    assert (first.due_at, first.expires_at, first.priority) == (at, at + timedelta(hours=1), 5)
    assert second.priority == 10
    assert second.due_at is not None and abs((second.due_at - at).total_seconds()) < 60
    assert third.due_at == at
    assert new.ran == [(3, 0, 2)]


async def test_what_is_more_than_json_arrives_as_it_was(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    call = {
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "price": Decimal("9.90"),
        "who": UUID(int=7),
    }
    theirs.send_task("typed", kwargs=call, queue="mail")
    theirs.send_task("add", (date(2026, 1, 2),))
    theirs.send_task("own", (date(2026, 1, 2),), queue="mail")

    report = await new.move(source(old))
    await new.work()

    assert sorted(new.ran, key=len) == [(date(2026, 1, 2), 0, 0), tuple(call.values())]
    [(queue, task, why)] = report.left
    assert (queue, task) == ("mail", "own")
    assert why.startswith('its argument "x" is a date, and would arrive as a str; annotate the parameter')


async def test_what_cannot_be_moved_stays_and_is_named(old: Old, new: NewApp) -> None:
    theirs = old.celery(accept_content=["json", "pickle"])
    add = theirs.signature("add", (1,))
    (add | theirs.signature("add")).apply_async()
    theirs.send_task("add", (1,), link=theirs.signature("add"))
    theirs.send_task("add", (1,), serializer="pickle")
    theirs.send_task("add", (1,), compression="zlib")
    theirs.send_task("add", (1, 2, 3))
    theirs.send_task("unheard.of", (1,))
    theirs.send_task("add", (1,), expires=datetime(2020, 1, 1, tzinfo=UTC))
    old.redis.lpush("celery", "no message")
    theirs.send_task("add", (9,))
    before = old.redis.lrange("celery", 0, -1)

    dry = await new.move(source(old), dry=True)
    assert old.redis.lrange("celery", 0, -1) == before
    report = await new.move(source(old))
    await new.work()

    assert new.ran == [(9, 0, 0)]
    assert (dry.moved, dry.left) == (report.moved, report.left)
    reasons = " | ".join(why for _, _, why in report.left)
    assert report.left.total() == 8
    for word in (
        "more tasks come after it (a chain)",
        "it has callbacks (link)",
        "its body is application/x-python-serialize, not JSON",
        "its body is compressed",
        "too many positional arguments",
        'no task "unheard.of" is declared in the app; name the one that is meant: --map unheard.of=NAME',
        "it has expired, at 2020-01-01",
        "it is not JSON",
    ):
        assert word in reasons
    assert old.redis.lrange("celery", 0, -1) == before[1:]


async def test_names_and_queues_can_be_other_ones(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    theirs.send_task("old.add", (1,), queue="numbers")
    theirs.send_task("typed", (), queue="numbers")

    report = await new.move(source(old), names={"old.add": "add"}, to="mail")
    counts = await new.app.queues["mail"].stats()
    await new.work()

    assert new.ran == [(1, 0, 0)]
    assert (counts.waiting, report.left.total()) == (1, 1)


async def test_of_two_messages_with_one_id_the_second_stays(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    theirs.send_task("add", (1,), task_id="same")
    theirs.send_task("add", (2,), task_id="same")

    report = await new.move(source(old))
    await new.work()
    again = await new.move(source(old))
    await new.work()

    assert "has a job with its id already" in next(iter(report.left))[2]
    assert [x for x, *_ in new.ran] == [1, 2]
    assert again.moved["celery"] == 1


async def test_what_workers_have_taken_is_left_to_them_unless_one_says_otherwise(
    old: Old, new: NewApp
) -> None:
    theirs = old.celery()
    theirs.send_task("add", (1,))
    with theirs.connection() as connection:
        theirs.send_task("add", (2,), countdown=3600)
        channel = connection.channel()
        consumer = theirs.amqp.TaskConsumer(channel)
        taken: list[Any] = []
        consumer.on_message = taken.append
        consumer.consume()
        while len(taken) < 2:
            connection.drain_events(timeout=10)
        channel.qos._delivered.clear()  # killed: it does not give back what it holds

    held = await new.move(source(old))
    moved = await new.move(source(old, unacked=True))
    counts = await new.app.queues["celery"].stats()

    assert (held.moved.total(), held.held) == (0, 2)
    assert (moved.moved["celery"], moved.held) == (2, 0)
    assert (counts.waiting, counts.delayed) == (1, 1)
    assert old.left() == set()


async def test_the_oldest_comes_first_for_each_key_of_an_ordered_queue(old: Old, new: NewApp) -> None:
    walked: list[tuple[str, int]] = []
    steps = new.app.queue("steps", partitions=3, order="key", keep=NOW)

    @steps.task(name="walk", key="{who}")
    async def walk(who: str, step: int) -> None:
        walked.append((who, step))

    theirs = old.celery()
    for step in range(40):
        for who in ("ann", "bob", "cy"):
            theirs.send_task("walk", (who, step), queue="feet")

    await new.move(source(old))
    await new.work()

    for who in ("ann", "bob", "cy"):
        assert [step for name, step in walked if name == who] == list(range(40))


class Tenant(qbull.Middleware):
    @contextmanager
    def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
        call.headers["tenant"] = f"of {call.arguments[0]['x']}"
        yield


async def test_moved_jobs_go_through_the_middleware_and_are_signed(
    old: Old, server_url: str, store: Store
) -> None:
    seen_by: list[Any] = []
    app = qbull.App(server_url, prefix="test", middleware=[Tenant(), qbull.Signed([KEY])])
    queue = app.queue("celery")

    @queue.task
    async def add(x: int) -> None:
        seen_by.append((x, dict(qbull.current_job().headers)))

    old.celery().send_task("add", (7,), retries=2)
    old_server = source(old)

    await DrainRun(old_server, JobImporter(app), dry=False, on_step=print).run(["celery"])
    async with app.worker() as worker:
        await worker.drain()
    await old_server.old.close()
    await app.close()

    assert seen_by == [(7, {"celery.retries": "2", "tenant": "of 7"})]


@pytest.mark.parametrize("heard", [False, True], ids=["before it is sent", "before it is answered"])
async def test_a_drain_that_dies_at_any_command_goes_on_and_each_runs_once(
    old: Old, new: NewApp, heard: bool
) -> None:
    theirs = old.celery()
    deaths = 0
    async with new.app.worker() as worker:
        for at in range(1, 100):
            for n in range(3):
                theirs.send_task("add", (at, n))
            dying = Mortal(old.url, "celery", at, heard=heard)
            try:
                await new.move(CelerySource(dying))
            except Killed:
                deaths += 1
                await worker.drain()  # what is there runs, and is not kept
            await new.move(source(old))
            if dying.left > 0:
                break
        await worker.drain()

    assert deaths >= 12
    assert sorted(new.ran) == [(x, n, 0) for x in range(1, deaths + 2) for n in range(3)]
    assert old.left() == set()


async def test_old_workers_that_still_run_take_what_the_drain_does_not(old: Old, new: NewApp) -> None:
    theirs = old.celery()
    for n in range(600):
        theirs.send_task("add", (n,))
    taken = []

    async def take() -> None:
        while (found := await asyncio.to_thread(old.redis.rpop, "celery")) is not None:
            taken.append(found)

    await asyncio.gather(new.move(source(old)), take())
    await new.work()

    here = [x for x, *_ in new.ran]
    assert len(here) + len(taken) == 600
    assert len(set(here)) == len(here) > 0


PROGRAM = """
from qbull.compat.celery import Celery
import qbull

app = Celery("shop", prefix="test")
app.queue("celery", partitions=2, keep=qbull.Keep(completed=0), concurrency=1)


@app.task
def note(n):
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
"""


def test_a_drain_that_is_killed_while_workers_run_moves_each_once(
    shell: Shell, old: Old, store: Store
) -> None:
    (shell.directory / "shop.py").write_text(PROGRAM)
    theirs = old.celery()
    with theirs.producer_pool.acquire(block=True) as producer:
        for n in range(900):
            theirs.send_task("shop.note", (n,), producer=producer)
    shell.start("worker", "shop:app")
    kills = 0
    while old.redis.llen("celery") > 500:
        before = old.redis.llen("celery")
        dying = shell.start("drain", "celery", "--from", old.url, "--app", "shop:app")
        while dying.poll() is None and old.redis.llen("celery") == before:
            time.sleep(0.001)
        os.killpg(dying.pid, signal.SIGKILL)
        dying.wait()
        kills += 1

    report = shell.json("drain", "celery", "--from", old.url, "--app", "shop:app")
    ran = Path(shell.directory / "ran")
    seen(lambda: ran.exists() and len(ran.read_text().splitlines()) >= 900, within=60)

    assert kills >= 1
    assert sorted(map(int, ran.read_text().splitlines())) == list(range(900))
    assert (report["left"], old.left()) == ([], set())


def test_the_command_says_what_it_did_and_what_not(shell: Shell, old: Old, store: Store) -> None:
    (shell.directory / "shop.py").write_text(PROGRAM)
    theirs = old.celery()
    theirs.send_task("shop.note", (1,))
    theirs.send_task("gone", (1,), task_id="lost")

    command = ("drain", "celery", "--from", old.url, "--app", "shop:app")
    dry = shell.ok(*command, "--dry-run")
    done = shell.run(*command)

    assert "1 can be moved, 1 would stay" in dry
    assert done.code == 1
    assert "1 moved, 1 left" in done.out
    assert 'no task "gone" is declared in the app' in done.out and "lost" in done.out
    assert shell.refused(*command, "--map", "x", code=2).startswith("Invalid value for '--map'")


async def test_without_the_code_only_named_arguments_can_be_moved(
    old: Old, new: NewApp, server_url: str
) -> None:
    await new.app.tasks["add"].enqueue(0)
    theirs = old.celery()
    theirs.send_task("add", (1,))
    theirs.send_task("add", kwargs={"x": 2})
    other = qbull.App(server_url, prefix="test")

    report = await DrainRun(source(old), JobImporter(other), dry=False, on_step=print).run(["celery"])
    await other.close()
    await new.work()

    assert "give --app" in next(iter(report.left))[2]
    assert sorted(x for x, *_ in new.ran) == [0, 2]
