"""Enqueue by name: a producer without the code is checked by what workers have published."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import qbull
from qbull.store.verbs.descriptions import TaskDescriptions


@dataclass
class Line:
    article: str
    count: int = 1


@pytest.fixture
async def producer(app: qbull.App) -> AsyncIterator[qbull.App]:
    """An app of the same server that declares nothing."""
    made = qbull.App(app.url, prefix=app.prefix)
    yield made
    await made.close()


async def published(app: qbull.App) -> None:
    """A worker has run once, and has published its tasks."""
    async with app.worker():
        pass


async def test_a_job_is_enqueued_by_the_names_of_its_queue_and_task(
    app: qbull.App, producer: qbull.App
) -> None:
    orders = app.queue("orders", partitions=2)

    @orders.task
    async def book(customer: str, lines: list[Line], note: str | None = None) -> list[Line]:
        return lines

    async with app.worker():
        job = await producer.send(
            "orders", "book", {"customer": "c1", "lines": [{"article": "pen"}]}, returns=list[Line]
        )
        plain = await producer.send("orders", "book", {"customer": "c1", "lines": [Line("ink", 2)]})

        assert await job.result(timeout=10) == [Line("pen")]
        assert await plain.result(timeout=10) == [{"article": "ink", "count": 2}]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"lines": []}, "customer: is missing; expected string"),
        ({"customer": 7, "lines": []}, "customer: expected string, got integer"),
        ({"customer": "c", "lines": [{"count": 1}]}, "lines[0].article: is missing; expected string"),
        ({"customer": "c", "lines": [], "notes": "n"}, "notes: is unknown"),
        ({"customer": "c", "lines": [], "at": "noon"}, 'at: expected date-time or null, got "noon"'),
    ],
)
async def test_a_call_that_does_not_fit_is_refused_with_one_line_before_it_is_sent(
    app: qbull.App, producer: qbull.App, arguments: dict[str, Any], why: str
) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str, lines: list[Line], at: datetime | None = None) -> None: ...

    await published(app)
    with pytest.raises(qbull.ArgumentsError) as refused:
        await producer.send("orders", "book", arguments)

    expected = "book(customer: string, lines: array of Line, at: date-time or null = …)"
    assert str(refused.value) == f'task "book": {why}; expected: {expected}'
    assert (await orders.stats()).total == 0


async def test_an_unknown_queue_or_task_is_answered_with_the_known_ones(
    app: qbull.App, producer: qbull.App
) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str) -> None: ...

    with pytest.raises(qbull.NotFound, match='queue "orders": not on this server; it has: none yet'):
        await producer.send("orders", "book", {"customer": "c"})
    await published(app)

    with pytest.raises(qbull.NotFound, match='no task "boook" is known to the server; there is: book'):
        await producer.send("orders", "boook", {"customer": "c"})
    with pytest.raises(qbull.NotFound, match='queue "order": not on this server; it has: orders'):
        await producer.send("order", "book", {"customer": "c"})


async def test_an_unknown_option_is_named(app: qbull.App) -> None:
    with pytest.raises(qbull.ArgumentsError, match=r"send\(dealy=5\): is no option .*did you mean delay="):
        await app.send("orders", "book", {}, dealy=5)  # type: ignore[call-arg]
    with pytest.raises(qbull.ArgumentsError, match="call 1 is 'c'; give the arguments by name"):
        await app.send("orders", "book", "c")  # type: ignore[arg-type]
    with pytest.raises(qbull.ArgumentsError, match="one id cannot serve many jobs"):
        await app.send_many("orders", "book", [{}, {}], id="mine")


async def test_options_and_many_calls_at_a_time(app: qbull.App, producer: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str) -> str:
        return customer

    await published(app)
    late = await producer.send("orders", "book", {"customer": "c"}, delay=60, priority=1, id="mine")
    many = await producer.send_many("orders", "book", ({"customer": str(n)} for n in range(3)), key="k")
    none = await producer.send_many("orders", "book", [])
    with pytest.raises(qbull.ArgumentsError, match="customer: expected string, got integer"):
        await producer.send_many("orders", "book", [{"customer": "c"}, {"customer": 3}])

    info = await orders.job(late.id).info()
    assert info is not None
    assert (late.id, info.state, info.priority, none) == ("mine", "delayed", 1, [])
    infos = [await orders.job(job.id).info() for job in many]
    assert [(info.key, info.payload) for info in infos if info] == [
        ("k", {"customer": str(n)}) for n in range(3)
    ]
    assert (await orders.stats()).total == 4


def test_synchronous_code_sends_too(app: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str) -> str:
        return customer

    app.run_sync(published(app))
    producer = qbull.App(app.url, prefix=app.prefix)
    try:
        job = producer.send_sync("orders", "book", {"customer": "c"})
        jobs = producer.send_many_sync("orders", "book", [{"customer": "d"}])
        assert [job.queue, *(each.queue for each in jobs)] == ["orders", "orders"]
        assert producer.send_many_sync("orders", "book", []) == []
        assert app.run_sync(orders.stats()).total == 2
    finally:
        producer.close_sync()
        app.close_sync()


async def test_key_id_expiry_and_unique_window_are_those_of_the_code(
    app: qbull.App, producer: qbull.App
) -> None:
    orders = app.queue("orders", order="key")

    @orders.task(key="{customer}", id="book:{customer}:{number}", expires=60)
    async def book(customer: str, number: int = 7) -> None: ...

    @orders.task(key="{customer}", unique=qbull.Unique(window=60, by=("customer",)))
    async def remind(customer: str, at: datetime) -> None: ...

    await published(app)
    by_code = await book.enqueue("c")
    by_name = await producer.send("orders", "book", {"customer": "c"})
    other = await producer.send("orders", "book", {"customer": "c", "number": 8})
    first = await remind.enqueue("c", datetime.now(UTC))
    again = await producer.send("orders", "remind", {"customer": "c", "at": datetime.now(UTC)})

    assert (by_name.id, by_name.created) == (by_code.id, False)
    assert (other.id, other.created) == ("book:c:8", True)
    assert (again.id, again.created) == (first.id, False)
    infos = [await orders.job(id).info() for id in (by_code.id, other.id)]
    assert [info.key for info in infos if info] == ["c", "c"]
    assert [round((info.expires_at - info.created_at).total_seconds()) for info in infos if info and info.expires_at] == [60, 60]  # fmt: skip


async def test_a_key_that_only_the_code_can_make_must_be_given(app: qbull.App, producer: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task(key=lambda at: at.isoformat())
    async def book(at: datetime) -> None: ...

    @orders.task(unique=qbull.Unique(window=60))
    async def remind(at: datetime) -> None: ...

    await published(app)
    at = {"at": datetime.now(UTC)}
    with pytest.raises(qbull.ArgumentsError, match=r"its code makes the key of a job.*give key=…"):
        await producer.send("orders", "book", at)
    with pytest.raises(qbull.ArgumentsError, match="only its code knows which values of at are the same"):
        await producer.send("orders", "remind", at)

    assert (await producer.send("orders", "book", at, key="k")).created


async def test_in_a_rolling_deploy_a_call_must_fit_one_version(app: qbull.App, producer: qbull.App) -> None:
    old, new = app, qbull.App(app.url, prefix=app.prefix)
    before, after = old.queue("orders"), new.queue("orders")

    @before.task(name="book")
    async def book_before(customer: str) -> str:
        return f"before {customer}"

    @after.task(name="book")
    async def book_after(customer: str, express: bool) -> str:
        return f"after {customer}"

    async with old.worker():
        await producer.send("orders", "book", {"customer": "warm"})
        with pytest.raises(qbull.ArgumentsError, match="express: is unknown"):
            await producer.send("orders", "book", {"customer": "c", "express": True})
        async with new.worker():
            # The producer remembers the old description, and asks again before it refuses.
            fits_new = await producer.send("orders", "book", {"customer": "c", "express": True})
            fits_old = await producer.send("orders", "book", {"customer": "c"})

            assert await fits_new.result(timeout=20) == "after c"
            assert await fits_old.result(timeout=20) == "before c"
            with pytest.raises(
                qbull.ArgumentsError, match=r"expected: book\(customer: string, express: boolean\)"
            ):
                await producer.send("orders", "book", {"customer": 1})
    await new.close()


async def test_a_version_that_no_worker_has_had_for_an_hour_is_forgotten(app: qbull.App) -> None:
    from qbull.core.task_description import TaskDescription

    store = app._client().store
    descriptions = TaskDescriptions(store)
    await store.register(app.queue("orders").settings, ["book"])
    one, other = TaskDescription({"title": "one"}), TaskDescription({"title": "other"})

    await descriptions.publish("orders", {"book": one}, starts=True)
    await descriptions.publish("orders", {"book": one}, starts=True)  # sent twice
    await descriptions.publish("orders", {"book": other}, starts=True)
    known = await descriptions.find("orders", "book")
    assert known is not None and known.versions == [other, one]

    name = store.names.settings("orders")
    lines = (await store.server.call("HGET", name, "described:book")).split(b"\n")
    aged = [b"1 1 " + line.split(b" ", 2)[2] for line in lines]
    await store.server.call("HSET", name, "described:book", b"\n".join(aged))
    known = await descriptions.find("orders", "book")
    assert known is not None and len(known.versions) == 2, "without a worker, nothing is forgotten"

    await descriptions.publish("orders", {"book": one})
    known = await descriptions.find("orders", "book")
    assert known is not None and known.versions == [one]


@pytest.mark.parametrize("started", ["9" * 5000, "²", "x"])
async def test_a_description_with_no_number_for_its_time_stops_no_producer(
    app: qbull.App, producer: qbull.App, started: str
) -> None:
    @app.queue("orders").task
    async def book(customer: str) -> str:
        return customer

    await published(app)
    server, name = app._client().store.server, app._client().store.names.settings("orders")
    line = await server.call("HGET", name, "described:book")
    planted = started.encode() + b" " + line.split(b" ", 1)[1]

    await server.call("HSET", name, "described:book", planted + b"\n" + line)

    assert (await producer.send("orders", "book", {"customer": "c"})).created
    with pytest.raises(qbull.ArgumentsError):
        await producer.send("orders", "book", {"customer": 7})


async def test_a_task_that_nobody_has_described_is_checked_by_its_worker(
    app: qbull.App, producer: qbull.App
) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str) -> str:
        return customer

    await book.enqueue("c")  # A producer with the code registers the name, and no worker has run yet.

    job = await producer.send("orders", "book", {"customer": "d"})
    async with app.worker() as worker:
        await worker.drain()

    assert await job.result(timeout=10) == "d"


async def test_an_app_with_the_code_checks_by_the_code(app: qbull.App) -> None:
    orders = app.queue("orders")

    @orders.task
    async def book(customer: str) -> str:
        return customer

    assert (await app.send("orders", "book", {"customer": "c"})).created
    with pytest.raises(qbull.ArgumentsError, match="customer: expected str, got int"):
        await app.send("orders", "book", {"customer": 1})
