"""PostgreSQL: enqueue with your data, effects once, a record of every job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.fixture(name="orders_db")
async def open_orders_db(app: qbull.App, database: str) -> AsyncIterator[AsyncConnection]:
    """A connection to a database with a table of the user's own. The app knows the database."""
    app.database = database
    async with await AsyncConnection.connect(database) as connection:
        await connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, status text NOT NULL)")
        await connection.commit()
        yield connection


async def new_order(orders_db: AsyncConnection) -> int:
    cursor = await orders_db.execute("INSERT INTO orders (status) VALUES ('pending') RETURNING id")
    return (await cursor.fetchone() or (0,))[0]


async def test_a_job_is_enqueued_when_its_transaction_commits(
    app: qbull.App, orders_db: AsyncConnection
) -> None:
    orders = app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> str:
        return f"processed {order_id}"

    async with app.worker():
        async with orders_db.transaction():
            order_id = await new_order(orders_db)
            job = await process_order.options(transaction=orders_db).enqueue(order_id=order_id)
            before = await job.state()
        result = await job.result(timeout=20)

    assert before is None
    assert result == f"processed {order_id}"


async def test_a_job_is_rolled_back_with_the_data(app: qbull.App, orders_db: AsyncConnection) -> None:
    orders = app.queue("orders")
    ran = []

    @orders.task
    async def process_order(order_id: int) -> None:
        ran.append(order_id)

    async with app.worker() as worker:
        with pytest.raises(RuntimeError):
            async with orders_db.transaction():
                await process_order.options(transaction=orders_db).enqueue(await new_order(orders_db))
                raise RuntimeError("the payment was refused")
        async with orders_db.transaction():
            order_id = await new_order(orders_db)
            job = await process_order.options(transaction=orders_db).enqueue(order_id)
        await job.result(timeout=20)
        await worker.drain()

    assert ran == [order_id]


async def test_many_jobs_are_written_with_one_statement(app: qbull.App, orders_db: AsyncConnection) -> None:
    orders = app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> int:
        return order_id

    async with app.worker():
        async with orders_db.transaction():
            jobs = await process_order.options(transaction=orders_db).enqueue_many(
                [{"order_id": n} for n in range(1000)]
            )
        results = [await job.result(timeout=20) for job in jobs]

    assert results == list(range(1000))


async def test_jobs_of_one_key_keep_the_order_of_their_commits(
    app: qbull.App, orders_db: AsyncConnection
) -> None:
    orders = app.queue("orders", order="key", partitions=2)
    seen: dict[str, list[int]] = {}

    @orders.task(key="{customer}")
    async def charge(customer: str, number: int) -> None:
        seen.setdefault(customer, []).append(number)

    async with app.worker() as worker:
        for number in range(30):
            async with orders_db.transaction():
                outbox = charge.options(transaction=orders_db)
                jobs = await outbox.enqueue_many([{"customer": c, "number": number} for c in ("ana", "bob")])
        for job in jobs:
            await job.result(timeout=20)
        await worker.drain()

    assert seen == {"ana": list(range(30)), "bob": list(range(30))}


async def test_options_travel_with_the_row_and_a_delay_counts_from_the_writing(
    app: qbull.App, orders_db: AsyncConnection
) -> None:
    orders = app.queue("orders")

    @orders.task
    async def remind(order_id: int) -> None: ...

    written = time.time()
    async with orders_db.transaction():
        soon = await remind.options(transaction=orders_db, delay=60, priority=2, id="remind-1").enqueue(1)
    async with app.worker():
        info = await eventually(soon.info)

    assert (info.id, info.state, info.priority) == ("remind-1", "delayed", 2)
    assert info.due_at is not None and 59 < info.due_at.timestamp() - written < 70


async def test_an_autocommitting_connection_is_refused(app: qbull.App, database: str) -> None:
    orders = app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> None: ...

    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(qbull.ArgumentsError, match="is not in a transaction"):
            await process_order.options(transaction=connection).enqueue(1)
        async with connection.transaction():
            await process_order.options(transaction=connection).enqueue(1)
        rows = await (await connection.execute("SELECT task FROM qbull_outbox")).fetchall()

    assert rows == [("process_order",)]


def test_from_synchronous_code(app: qbull.App, database: str) -> None:
    orders = app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> None: ...

    with psycopg.connect(database) as connection:
        one = process_order.options(transaction=connection).enqueue_sync(1)
        many = process_order.options(transaction=connection).enqueue_many_sync(
            [{"order_id": 2}, {"order_id": 3}]
        )
        rows = connection.execute("SELECT job_id, payload FROM qbull_outbox ORDER BY seq").fetchall()

    assert rows == [(job.id, {"order_id": n}) for n, job in enumerate([one, *many], 1)]


async def test_without_tables_the_next_step_is_said(app: qbull.App, orders_db: AsyncConnection) -> None:
    orders = app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> None: ...

    await orders_db.execute("DROP TABLE qbull_outbox")
    with pytest.raises(qbull.DatabaseRefused, match="qbull migrate"):
        await process_order.options(transaction=orders_db).enqueue(1)


def test_importing_qbull_does_not_import_a_database_driver() -> None:
    import subprocess
    import sys

    look = "import qbull, sys; print([m for m in ('psycopg', 'asyncpg', 'sqlalchemy', 'qbull.postgres') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_without_a_driver_everything_else_works_and_the_next_step_is_said() -> None:
    import subprocess
    import sys

    look = """if True:
        import sys
        sys.modules["psycopg"] = None
        import qbull
        app = qbull.App("redis://localhost", database="postgresql://localhost/shop")
        assert app._alongside() == []
        assert qbull.postgres.once
        try:
            qbull.postgres.migrate("postgresql://localhost/shop")
        except qbull.ConfigError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert done.stdout == 'PostgreSQL needs psycopg; install it with: pip install "qbull[postgres]"\n'


@pytest.fixture(name="pool")
async def open_pool(orders_db: AsyncConnection, database: str) -> AsyncIterator[AsyncConnectionPool]:
    async with AsyncConnectionPool(database, min_size=1, max_size=5) as pool:
        yield pool


async def balance(orders_db: AsyncConnection) -> int:
    cursor = await orders_db.execute("SELECT count(*) FROM orders WHERE status = 'charged'")
    count = (await cursor.fetchone() or (0,))[0]
    await orders_db.rollback()
    return int(count)


async def test_an_effect_happens_once_although_the_job_runs_twice(
    app: qbull.App, orders_db: AsyncConnection, pool: AsyncConnectionPool
) -> None:
    orders = app.queue("orders", retry=qbull.Retry(delays=(0,)))
    runs = []

    @orders.task
    async def charge(order_id: int) -> None:
        runs.append(qbull.current_job().attempt)
        async with qbull.postgres.once(pool) as conn:
            await conn.execute("INSERT INTO orders (status) VALUES ('charged')")
        if qbull.current_job().attempt == 1:
            raise ConnectionError("the effect is there, but the answer was lost")

    job = await charge.enqueue(1)
    async with app.worker():
        await job.result(timeout=20)

    assert runs == [1, 2]
    assert await balance(orders_db) == 1
    assert await job.state() == "completed"


async def test_an_effect_that_fails_leaves_nothing_and_is_tried_again(
    app: qbull.App, orders_db: AsyncConnection, pool: AsyncConnectionPool
) -> None:
    orders = app.queue("orders", retry=qbull.Retry(delays=(0,)))

    @orders.task
    async def charge(order_id: int) -> None:
        async with qbull.postgres.once(pool) as conn:
            await conn.execute("INSERT INTO orders (status) VALUES ('charged')")
            if qbull.current_job().attempt == 1:
                raise ConnectionError

    job = await charge.enqueue(1)
    async with app.worker():
        await job.result(timeout=20)

    assert await balance(orders_db) == 1


async def test_as_a_decorator_it_gives_the_connection_and_keeps_the_result(
    app: qbull.App, orders_db: AsyncConnection, pool: AsyncConnectionPool
) -> None:
    orders = app.queue("orders")

    @orders.task
    @qbull.postgres.once(pool)
    async def charge(conn: AsyncConnection, order_id: int) -> str:
        await conn.execute("INSERT INTO orders (status) VALUES ('charged')")
        return f"receipt {order_id}"

    job = await charge.enqueue(order_id=8)
    async with app.worker():
        result = await job.result(timeout=20)
    cursor = await orders_db.execute("SELECT queue, job_id, done, result FROM qbull_inbox")

    assert result == "receipt 8"
    assert await cursor.fetchall() == [("orders", job.id, True, "receipt 8")]


async def test_a_task_with_several_effects_goes_on_after_those_that_are_done(
    app: qbull.App, orders_db: AsyncConnection, pool: AsyncConnectionPool
) -> None:
    orders = app.queue("orders", retry=qbull.Retry(delays=(0,)))

    @qbull.postgres.once(pool, step="charge")
    async def charge(conn: AsyncConnection) -> tuple[int, str]:
        await conn.execute("INSERT INTO orders (status) VALUES ('charged')")
        return 7, "receipt"

    @qbull.postgres.once(pool, step="ship")
    async def ship(conn: AsyncConnection, receipt: tuple[int, str]) -> None:
        await conn.execute("INSERT INTO orders (status) VALUES ('charged')")
        if qbull.current_job().attempt == 1:
            raise ConnectionError

    @orders.task
    async def process_order() -> tuple[int, str]:
        receipt = await charge()
        await ship(receipt)
        return receipt  # type: ignore[no-any-return]

    job = await process_order.enqueue()
    async with app.worker():
        result = await job.result(timeout=20)

    assert result == (7, "receipt")
    assert await balance(orders_db) == 2


async def test_two_blocks_in_one_task_are_refused(
    app: qbull.App, orders_db: AsyncConnection, pool: AsyncConnectionPool
) -> None:
    """A later run would end at the first, and the second would never be done."""
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task
    async def one_after_the_other() -> None:
        for _ in range(2):
            async with qbull.postgres.once(pool):
                pass

    @orders.task
    async def one_in_the_other() -> None:
        async with qbull.postgres.once(pool), qbull.postgres.once(pool):
            pass

    @orders.task
    async def named() -> None:
        async with qbull.postgres.once(pool, step="charge"):
            pass

    jobs = [await task.enqueue() for task in (one_after_the_other, one_in_the_other, named)]
    async with app.worker() as worker:
        await worker.drain()
    infos = [await job.info() for job in jobs]
    errors = [str(info.error) for info in infos if info is not None]

    assert "once() was used twice in one run" in errors[0]
    assert "once() was used twice in one run" in errors[1]
    assert "steps are for decorated functions" in errors[2]


async def test_plain_functions_use_it_without_await(
    app: qbull.App, orders_db: AsyncConnection, database: str
) -> None:
    orders = app.queue("orders", retry=qbull.Retry(delays=(0,)))

    with ConnectionPool(database, min_size=1, max_size=2) as pool:

        @orders.task
        def charge() -> None:
            with qbull.postgres.once(pool) as conn:
                conn.execute("INSERT INTO orders (status) VALUES ('charged')")
            if qbull.current_job().attempt == 1:
                raise ConnectionError

        job = await charge.enqueue()
        async with app.worker():
            await job.result(timeout=20)

    assert await balance(orders_db) == 1


async def test_outside_of_a_task_it_is_refused(pool: AsyncConnectionPool) -> None:
    with pytest.raises(qbull.NotFound, match=r"once\(\) is for code inside a task"):
        async with qbull.postgres.once(pool):
            pass


@asynccontextmanager
async def beside(app: qbull.App) -> AsyncIterator[None]:
    """What "qbull relay" does: ship the outbox, and keep the tables."""
    duties = [asyncio.create_task(duty()) for duty in app._alongside()]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.wait(duties)


async def outbox(orders_db: AsyncConnection) -> int:
    cursor = await orders_db.execute("SELECT count(*) FROM qbull_outbox")
    count = (await cursor.fetchone() or (0,))[0]
    await orders_db.rollback()
    return int(count)


async def test_a_durable_job_survives_everything_that_happens_to_redis(
    app: qbull.App, orders_db: AsyncConnection, store: Store
) -> None:
    orders = app.queue("orders", order="key")
    ran: dict[str, list[int]] = {}

    @orders.task(key="{customer}")
    async def charge(customer: str, number: int) -> None:
        ran.setdefault(customer, []).append(number)

    durable = charge.options(durability="outbox")
    async with beside(app):
        for number in range(5):
            await durable.enqueue("ana", number)
        jobs = await durable.enqueue_many([{"customer": "bob", "number": n} for n in range(5)])
        await eventually(jobs[-1].state)
        await store.server.call("FLUSHALL")
        lost = await jobs[-1].state()
        await eventually(jobs[-1].state, within=40)
        async with app.worker():
            for job in jobs:
                await job.result(timeout=20)
            await eventually(lambda: is_empty(orders_db), within=40)

    assert lost is None
    assert ran == {"ana": [0, 1, 2, 3, 4], "bob": [0, 1, 2, 3, 4]}


async def is_empty(orders_db: AsyncConnection) -> bool:
    return await outbox(orders_db) == 0


async def test_a_durable_row_stays_until_its_job_has_ended(
    app: qbull.App, orders_db: AsyncConnection
) -> None:
    orders = app.queue("orders", keep=qbull.Keep(completed=0), retry=qbull.Retry(attempts=1))

    @orders.task
    async def charge(works: bool) -> None:
        if not works:
            raise ValueError

    async with orders_db.transaction():
        with_data = charge.options(transaction=orders_db, durability="outbox")
        jobs = await with_data.enqueue_many([{"works": True}, {"works": False}])
    async with beside(app):
        await eventually(jobs[-1].state)
        shipped = await outbox(orders_db)
        async with app.worker():
            await eventually(lambda: is_empty(orders_db), within=40)

    assert shipped == 2
    assert (await orders.stats()).failed == 1


async def test_durability_outbox_needs_a_database(app: qbull.App) -> None:
    @app.queue("orders").task
    async def charge() -> None: ...

    with pytest.raises(qbull.ConfigError, match="no database is configured"):
        await charge.options(durability="outbox").enqueue()


async def test_every_job_of_a_tracked_queue_has_its_row(app: qbull.App, orders_db: AsyncConnection) -> None:
    orders = app.queue("orders", track=True, retry=qbull.Retry(delays=(0.05,)))
    others = app.queue("others")
    begun, go = asyncio.Event(), asyncio.Event()

    @orders.task(key="{customer}")
    async def charge(customer: str) -> None:
        if customer == "eve":
            raise ValueError("no money")
        if customer == "slow":
            begun.set()
            await go.wait()

    @others.task
    async def unseen() -> None: ...

    await unseen.enqueue()
    async with beside(app):
        ada, eve, later, slow = [
            await charge.options(delay=60 if customer == "later" else None).enqueue(customer)
            for customer in ("ada", "eve", "later", "slow")
        ]
        await eventually(lambda: statuses(orders_db, "waiting", "waiting", "delayed", "waiting"))
        async with app.worker():
            await begun.wait()
            await eventually(lambda: statuses(orders_db, "completed", "failed", "delayed", "active"))
            go.set()
            await eventually(lambda: statuses(orders_db, "completed", "failed", "delayed", "completed"))
        await later.remove()
        await eventually(lambda: statuses(orders_db, "completed", "failed", "removed", "completed"))

    row = await (
        await orders_db.execute(
            """SELECT job_id, queue, task, key, status, attempts, error_message,
                      created_at <= started_at AND started_at <= finished_at AND finished_at <= updated_at
               FROM qbull_jobs WHERE key IN ('ada', 'eve') ORDER BY key"""
        )
    ).fetchall()
    assert row == [
        (ada.id, "orders", "charge", "ada", "completed", 1, None, True),
        (eve.id, "orders", "charge", "eve", "failed", 2, "ValueError: no money", True),
    ]
    assert slow.id != later.id


async def statuses(orders_db: AsyncConnection, *expected: str) -> bool:
    """Of the jobs by their keys: several may have been enqueued in one millisecond."""
    cursor = await orders_db.execute("SELECT status FROM qbull_jobs ORDER BY key")
    found = tuple(row[0] for row in await cursor.fetchall())
    await orders_db.rollback()
    return found == expected
