"""The overview, and changing the number of partitions: what the dashboard asks for besides the rest of the API."""

from __future__ import annotations

from web import Person, Web, make_admin, make_viewer, open_web  # noqa: F401 - fixtures

import qbull
from conftest import eventually
from qbull.api.overview import RECENT_WAITS_MINUTES
from qbull.store.read import histograms
from qbull.store.read.inspect import server_time
from qbull.store.store import Store


async def test_the_overview_sums_up_all_queues(app: qbull.App, viewer: Person) -> None:
    mail, pay = app.queue("mail", retry=qbull.Retry(attempts=1)), app.queue("pay", partitions=3)

    @mail.task
    async def send(to: str) -> None:
        if "@" not in to:
            raise ValueError(f"{to} is no address")

    @pay.task
    async def charge(n: int) -> int:
        return n

    await send.enqueue_many([{"to": "a@b.c"}, {"to": "nowhere"}, {"to": "nowhere"}])
    await charge.enqueue_many([{"n": n} for n in range(5)])
    async with app.worker() as worker:
        await worker.drain()

    async def counted() -> bool:
        told = await viewer.get("/api/overview", minutes=60)
        return told["wait"]["p50Ms"] is not None

    await eventually(counted)
    told = await viewer.get("/api/overview", minutes=60)

    assert len(told["minutes"]) == 60
    assert sum(minute["completed"] for minute in told["minutes"]) == 6
    assert sum(minute["failed"] for minute in told["minutes"]) == 2
    [failing] = told["failing"]
    assert (failing["queue"], failing["group"]["count"]) == ("mail", 2)
    assert 0 <= told["wait"]["p50Ms"] <= told["wait"]["p95Ms"]


async def test_a_failed_flow_counts_once_under_its_cause(app: qbull.App, viewer: Person) -> None:
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))

    @orders.task
    async def reserve() -> None:
        raise LookupError("sold out")

    @orders.task
    async def pick() -> None: ...

    @orders.task
    async def ship() -> None: ...

    flow = await qbull.chain(reserve.step(), pick.step(), ship.step()).enqueue()
    async with app.worker():

        async def has_failed() -> bool:
            info = await flow.last.info()
            return info is not None and info.state == "failed"

        await eventually(has_failed)
    told = await viewer.get("/api/overview", minutes=60)

    [failing] = told["failing"]
    assert failing["group"]["lastError"] == "LookupError: sold out"
    assert (failing["group"]["count"], failing["cascades"], told["cascades"]) == (1, 2, 2)
    groups = (await viewer.get("/api/queues/orders/failures"))["groups"]
    assert {group["cascade"]: group["count"] for group in groups if not group["cascade"]} == {False: 1}
    assert sum(group["count"] for group in groups if group["cascade"]) == 2


async def test_an_empty_server_has_an_overview_too(web: Web, viewer: Person) -> None:
    told = await viewer.get("/api/overview")

    assert told["failing"] == [] and set(told["wait"].values()) == {None}


async def test_waits_are_those_of_the_last_minutes_even_if_the_api_just_started(
    app: qbull.App, store: Store, viewer: Person
) -> None:
    app.queue("mail")
    minute = int(await server_time(store) // 60) - RECENT_WAITS_MINUTES - 1
    hour = store.names.queue("mail") + f"latency:minutes:{minute // 60}"
    await store.server.call("HSET", hour, f"{minute % 60}:v:30:send", 900)
    await store.server.call("EXPIRE", hour, 3600)
    await histograms.add(store, "mail", "a-token", {"w:30": 900, "w:11": 9, "v:11:send": 9})

    told = await viewer.get("/api/overview", minutes=60)

    assert 1 <= told["wait"]["p50Ms"] <= told["wait"]["p95Ms"] <= 3


async def test_the_queue_with_the_longest_waits_is_named(
    app: qbull.App, store: Store, viewer: Person
) -> None:
    """The waits of one queue vanish among those of all, or look like all of them."""
    app.queue("imports")
    app.queue("mail")
    await histograms.add(store, "mail", "a-token", {"w:15": 900, "v:15:send": 900})
    await histograms.add(store, "imports", "b-token", {"w:30": 9, "v:30:read": 9})

    told = (await viewer.get("/api/overview", minutes=60))["wait"]

    assert told["p95Ms"] < 100
    assert (told["slowestQueue"], told["slowestP95Ms"] > 300_000) == ("imports", True)


async def test_the_number_of_partitions_is_changed_while_jobs_wait(app: qbull.App, admin: Person) -> None:
    queue = app.queue("mail", partitions=2)

    @queue.task
    async def send(n: int) -> int:
        return n

    await send.enqueue_many([{"n": n} for n in range(20)])
    told = await admin.put("/api/queues/mail/partitions", {"partitions": 5})

    moving = told["repartitioning"]
    assert (moving["partitions"], moving["before"], moving["jobs"]) == (5, [2], 20)
    async with app.worker() as worker:
        await worker.drain()
    after = await admin.get("/api/queues/mail/partitions")
    assert after["repartitioning"] is None and len(after["partitions"]) == 5
    assert "partitions" in await admin.refused(400, "PUT", "/api/queues/mail/partitions", {"partitions": 0})
