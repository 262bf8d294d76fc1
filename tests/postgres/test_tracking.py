"""Tracking: reports become rows, in whatever order and however often they come; PostgreSQL may be away meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import AsyncConnection

import qbull
from conftest import eventually
from database import Postgres
from qbull.core.record import (
    Attempt,
    Body,
    Ending,
    StartReport,
    append_ending,
    encode_start_report,
    pack,
)
from qbull.postgres import maintenance, tracking
from qbull.postgres.maintenance import DatabaseMaintenance
from qbull.postgres.tracking import TrackedJob, tracked_ending, tracked_job
from qbull.store.store import Store
from qbull.worker.actor import start_actor, stop_actors

NOON = 1_800_000_000_000


def record(attempt: int = 1, error: str | None = None) -> bytes:
    history = [Attempt(1, NOON, 5.0, error, "w1")] if error else []
    return pack(Body("charge", b"{}", "ada", attempt, history=history), priority=5, lane=b"", reports=4)


def life() -> list[TrackedJob]:
    """One job: enqueued, failed once, tried again, done; then somebody sends it round again."""
    begun = encode_start_report(StartReport(NOON, 20, "w1", record()))
    again = encode_start_report(StartReport(NOON + 1000, 20, "w2", record(2, "no money")))
    done = Ending(2, 30.0, "w2", created_ms=NOON)
    reports = [
        ("w", record(), NOON),
        ("a", begun, NOON + 120),
        ("d", record(2, "no money"), NOON + 200),
        ("a", again, NOON + 1100),
        ("w", record(), NOON + 5000),
    ]
    lines = [tracked_job(letter, "j1", value, at) for letter, value, at in reports]
    found = [line for line in lines if line is not None]
    return [*found[:4], tracked_ending("c", "j1", done, NOON + 1200), *found[4:]]


def test_a_life_in_rows() -> None:
    waiting, active, delayed, _, done, _ = life()

    assert [line.status for line in life()] == [
        "waiting",
        "active",
        "delayed",
        "active",
        "completed",
        "waiting",
    ]
    assert [line.attempts for line in life()] == [0, 1, 1, 2, 2, 0]
    assert (waiting.task, waiting.key, waiting.error_message) == ("charge", "ada", None)
    assert active.started_at is not None and (active.started_at - waiting.created_at).total_seconds() == 0.1
    assert delayed.error_message == "no money"
    assert done.finished_at is not None and done.started_at is not None
    assert (done.finished_at - done.started_at).total_seconds() == 0.03
    assert (done.error_message, done.worker, done.created_at) == (None, "w2", waiting.created_at)


def crashed(times: int, ending: Ending | None = None, attempt: int = 1) -> bytes:
    """A record whose worker died so often, and how its job ended."""
    packed = record(attempt)
    packed = packed[:3] + bytes((times,)) + packed[4:]
    return packed if ending is None else packed + append_ending(ending)


@pytest.mark.parametrize(
    ("letter", "value", "attempts"),
    [
        ("w", crashed(1), 1),
        ("a", encode_start_report(StartReport(NOON, 20, "w1", crashed(1))), 2),
        ("c", crashed(1, Ending(1, 30.0, "w2")), 2),
        ("c", crashed(2, Ending(3, 30.0, "w2"), attempt=3), 5),
        ("f", crashed(3, Ending(0, 0.0, "w2", error="its worker died 3 times while it ran")), 3),
        ("x", crashed(1, Ending(0, 0.0, "")), 1),
    ],
)
def test_an_attempt_counts_although_its_worker_died(letter: str, value: bytes, attempts: int) -> None:
    line = tracked_job(letter, "j1", value, NOON)

    assert line is not None and line.attempts == attempts


def test_versions_rise_with_the_life_of_a_job() -> None:
    versions = [line.version for line in life()]

    assert versions == sorted(set(versions))


@pytest.mark.parametrize("garbage", [b"", b"x", b"not a record at all", record()[:11], record()[:-2]])
@pytest.mark.parametrize("letter", "wafx")
def test_what_cannot_be_read_is_left_out(letter: str, garbage: bytes) -> None:
    line = tracked_job(letter, "j1", garbage, NOON)

    assert line is None or line.task == "charge"


@given(st.binary(max_size=200), st.sampled_from("wdafx-"))
def test_no_bytes_can_stop_the_maintenance(value: bytes, letter: str) -> None:
    tracked_job(letter, "j1", value, NOON)


async def test_reports_may_come_in_any_order_and_twice(database: str) -> None:
    lines = life()[:-1]
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        for number, order in enumerate(itertools.permutations(range(len(lines)))):
            for at in (*order, order[0]):
                await tracking.write(connection, f"app{number}", "orders", [lines[at]])
        cursor = await connection.execute(
            "SELECT status, attempts, error_message, worker, created_at, started_at, finished_at, count(*) "
            "FROM qbull_jobs GROUP BY 1, 2, 3, 4, 5, 6, 7"
        )
        rows = await cursor.fetchall()

    done = lines[-1]
    assert rows == [("completed", 2, None, "w2", done.created_at, done.started_at, done.finished_at, 120)]


async def test_a_batch_may_have_a_job_more_than_once(database: str) -> None:
    async with await AsyncConnection.connect(database) as connection:
        await tracking.write(connection, "test", "orders", [*life(), *reversed(life())])
        cursor = await connection.execute("SELECT job_id, queue, app, status FROM qbull_jobs")

        assert await cursor.fetchall() == [("j1", "orders", "test", "waiting")]


@pytest.mark.parametrize("together", [True, False])
async def test_another_job_with_the_id_of_one_that_has_ended_has_times_of_its_own(
    database: str, together: bool
) -> None:
    first, later = life()[:-1], tracked_job("w", "j1", record(), NOON + 9000)
    assert later is not None
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        for lines in [[*first, later]] if together else [first, [later]]:
            await tracking.write(connection, "test", "orders", lines)
        cursor = await connection.execute("SELECT status, created_at, started_at, worker FROM qbull_jobs")

        assert await cursor.fetchall() == [("waiting", later.created_at, None, None)]


@pytest.fixture(name="impatient")
def make_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ELECTION_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(maintenance, "MAINTENANCE_POLL_SECONDS", 0.1)


@asynccontextmanager
async def keeping(app: qbull.App, database: str) -> AsyncIterator[None]:
    running = start_actor(DatabaseMaintenance(database, app.prefix, app._make_store).run)
    try:
        yield
    finally:
        await stop_actors([running])


async def rows(database: str, query: str = "SELECT status, count(*) FROM qbull_jobs GROUP BY 1") -> Any:
    async with await AsyncConnection.connect(database) as connection:
        return dict(await (await connection.execute(query.encode())).fetchall())


async def test_reports_wait_while_the_database_is_away(
    app: qbull.App, database: str, postgres: Postgres, impatient: None, store: Store
) -> None:
    queue = app.queue("orders", track=True, partitions=2)

    @queue.task
    async def charge(n: int) -> None: ...

    async with keeping(app, database):
        await charge.enqueue(0)
        await eventually(lambda: there_are(database, {"waiting": 1}))
        postgres.stop()
        async with app.worker() as worker:
            await charge.enqueue_many([{"n": n} for n in range(500)])
            await worker.drain()
        postgres.start()
        await eventually(lambda: there_are(database, {"completed": 501}), within=40)
        await eventually(lambda: nothing_is_left(store))


async def test_another_process_takes_over_the_maintenance(
    app: qbull.App, database: str, impatient: None
) -> None:
    queue = app.queue("orders", track=True)

    @queue.task
    async def charge() -> None: ...

    async with keeping(app, database):
        async with keeping(app, database):
            await charge.enqueue()
            await eventually(lambda: there_are(database, {"waiting": 1}))
        await charge.enqueue()
        await eventually(lambda: there_are(database, {"waiting": 2}))


async def test_one_id_in_two_queues_and_two_apps_is_two_jobs(
    app: qbull.App, database: str, impatient: None, server_url: str
) -> None:
    other = qbull.App(server_url, prefix="other")
    for each in (app, other):
        for name in ("orders", "refunds"):
            task: qbull.Task[[], None] = each.queue(name, track=True).task(name="charge")(nothing)
            await task.options(id="same").enqueue()
    async with keeping(app, database), keeping(other, database):
        await eventually(lambda: there_are(database, {"waiting": 4}))
    await other.close()


async def nothing() -> None: ...


async def there_are(database: str, expected: dict[str, int]) -> bool:
    found = await rows(database)
    return bool(found == expected)


async def nothing_is_left(store: Store) -> bool:
    partitions = await store.partitions(await store.settings("orders"))
    return not any([(await partition.reports([], 1))[1] for partition in partitions])
