"""Events: what happens is told to whoever listens, nothing is done where nobody does, and whoever comes back hears what was missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from web import PASSWORD, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api.live_stream import MAX_PENDING_EVENTS, EventBroadcaster, EventListener, StreamEvent
from qbull.manage.dead_letters import DeadLetterReader
from qbull.store.store import Store


class Told(NamedTuple):
    name: str
    data: Any
    id: str


class Stream:
    """What somebody hears. Every look for something has a bound."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.heard: list[Told] = []

    async def _next(self) -> Told:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line == "" and "event" in fields:
                told = Told(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
                self.heard.append(told)
                return told
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError

    async def until(self, name: str, **data: Any) -> Told:
        """The next event of this name that has this in it."""
        async with asyncio.timeout(20):
            while True:
                told = await self._next()
                if told.name == name and all(told.data.get(key) == value for key, value in data.items()):
                    return told

    async def end(self) -> list[Told]:
        async with asyncio.timeout(20):
            try:
                while True:
                    await self._next()
            except EOFError:
                return self.heard


@asynccontextmanager
async def listening(person: Person, after: str = "", **query: str) -> AsyncIterator[Stream]:
    headers = {"last-event-id": after} if after else {}
    async with person.client.stream("GET", "/api/events", params=query, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


class OrdersApp:
    def __init__(self, app: qbull.App) -> None:
        self.orders = app.queue("orders", partitions=2, retry=qbull.Retry(attempts=1))
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

        @self.orders.task
        async def ship(customer: str, fail: str = "") -> str:
            if fail:
                raise ValueError(fail)
            return customer

        @self.orders.task
        async def slow() -> None:
            await qbull.current_job().progress(10)
            self.begun.set()
            await self.let_go.wait()

        self.ship, self.slow = ship, slow


@pytest.fixture(name="orders_app")
def make_orders_app(app: qbull.App) -> OrdersApp:
    app.queue("other", order="key")
    return OrdersApp(app)


async def test_a_listener_hears_how_everything_is_and_what_changes(
    orders_app: OrdersApp, viewer: Person
) -> None:
    await orders_app.ship.enqueue("ada")
    async with listening(viewer) as stream:
        snapshot = await stream.until("snapshot")
        await orders_app.ship.enqueue("bob")
        changed = await stream.until("stats")

    assert snapshot.data["queues"]["orders"]["waiting"] == 1
    assert [snapshot.data["queues"][name]["hasLanes"] for name in ("orders", "other")] == [False, True]
    assert set(snapshot.data["queues"]) == {"orders", "other"}
    assert (set(changed.data["queues"]), changed.data["queues"]["orders"]["waiting"]) == ({"orders"}, 2)
    assert changed.data["queues"]["orders"]["perSecond"]["enqueued"] > 0


async def test_jobs_that_finish_are_told(app: qbull.App, orders_app: OrdersApp, viewer: Person) -> None:
    async with listening(viewer) as stream, app.worker():
        await stream.until("snapshot")
        good = await orders_app.ship.enqueue("ada")
        bad = await orders_app.ship.enqueue("bob", fail="no stamps")
        gone = await orders_app.ship.options(delay=60).enqueue("eve")
        await gone.cancel()

        told = [await stream.until("job") for _ in range(3)]

    by_id = {one.data["id"]: one.data for one in told}
    assert (by_id[good.id]["state"], by_id[good.id]["task"], by_id[good.id]["error"]) == (
        "completed",
        "ship",
        None,
    )
    assert (by_id[bad.id]["state"], by_id[bad.id]["error"]) == ("failed", "ValueError: no stamps")
    assert by_id[gone.id]["state"] == "cancelled"
    assert by_id[good.id]["finishedAt"].endswith("Z")


async def test_the_past_is_no_news(app: qbull.App, orders_app: OrdersApp, viewer: Person) -> None:
    await orders_app.ship.enqueue("ada")
    async with app.worker() as worker:
        await worker.drain()
        async with listening(viewer) as stream:
            await stream.until("snapshot")
            new = await orders_app.ship.enqueue("bob")
            told = await stream.until("job")

    assert told.data["id"] == new.id


async def test_whoever_comes_back_hears_what_was_missed(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    async with app.worker() as worker:
        async with listening(viewer) as stream:
            await stream.until("snapshot")
            seen = await orders_app.ship.enqueue("ada")
            await stream.until("job", id=seen.id)
            last = await stream.until("stats")
        missed = [await orders_app.ship.enqueue("bob") for _ in range(3)]
        await worker.drain()

        async with listening(viewer, after=last.id) as stream:
            await stream.until("snapshot")

    told = [one.data["id"] for one in stream.heard if one.name == "job"]
    assert {job.id for job in missed} <= set(told)
    assert set(told) <= {seen.id, *(job.id for job in missed)}


async def test_another_process_knows_where_to_go_on(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    async with app.worker() as worker:
        async with listening(viewer) as stream:
            place = (await stream.until("snapshot")).id
        job = await orders_app.ship.enqueue("ada")
        await worker.drain()
        async with opened(app) as other:
            person = await other.person("viewer-token-for-the-tests")
            async with listening(person, after=place) as stream:
                told = await stream.until("job")

    assert told.data["id"] == job.id


async def test_one_queue_can_be_listened_to(app: qbull.App, orders_app: OrdersApp, viewer: Person) -> None:
    other = app.queues["other"]

    @other.task
    async def noise() -> None: ...

    async with listening(viewer, queue="orders") as stream, app.worker():
        await stream.until("snapshot")
        await noise.enqueue()
        job = await orders_app.ship.enqueue("ada")
        told = await stream.until("job")

    assert told.data["id"] == job.id
    assert {one.data["queue"] for one in stream.heard if one.name == "job"} == {"orders"}


async def test_a_job_is_followed_closely(app: qbull.App, orders_app: OrdersApp, viewer: Person) -> None:
    job = await orders_app.slow.enqueue()
    async with listening(viewer, queue="orders", job=job.id) as stream:
        assert (await stream.until("progress")).data["state"] == "waiting"
        async with app.worker():
            running = await stream.until("progress", state="active", progress=10)
            orders_app.let_go.set()
            ended = await stream.until("progress", state="completed")

    assert (running.data["attempt"], ended.data["id"]) == (1, job.id)


async def test_one_stream_follows_jobs_of_several_queues(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    async with app.worker():
        first = await orders_app.slow.options(id="a,b/c").enqueue()
        async with listening(viewer, watch="orders/a%2Cb%2Fc,other/nothing") as stream:
            await stream.until("progress", id=first.id, progress=10)
            orders_app.let_go.set()
            await stream.until("progress", id=first.id, state="completed")

    followed = {told.data["id"] for told in stream.heard if told.name == "progress"}
    assert followed == {"a,b/c", "nothing"}


def _no_dead_letters(queue: qbull.Queue) -> DeadLetterReader:
    return DeadLetterReader(queue, frozenset())


async def test_slow_counts_do_not_look_like_a_silent_server(app: qbull.App, store: Store) -> None:
    """The counts come once and then take long: listeners hear that the server answers, and the counts' age."""
    counted, never = asyncio.Event(), asyncio.Event()

    async def queues() -> list[qbull.Queue]:
        if counted.is_set():
            await never.wait()
        counted.set()
        return []

    broadcaster = EventBroadcaster(lambda: store, queues, _no_dead_letters, errors=True)
    listener = EventListener(None, freshness=True)
    broadcaster.subscribe(listener)
    ages: list[int] = []
    async with asyncio.timeout(20):
        while len(ages) < 4:
            ages += [json.loads(event.data)["ageMs"] for event in await listener.next()]
    await broadcaster.leave(listener)

    assert ages[0] == 0 and ages == sorted(ages) and ages[-1] >= 2000


async def test_a_listener_may_hear_that_the_counts_are_fresh(orders_app: OrdersApp, viewer: Person) -> None:
    async with listening(viewer, freshness="true") as stream:
        assert (await stream.until("fresh")).data["nextMs"] > 0
        await stream.until("fresh")
    async with listening(viewer) as stream:
        await orders_app.ship.enqueue("ada")
        await stream.until("stats")
        assert "fresh" not in {told.name for told in stream.heard}


async def test_nothing_is_asked_where_nobody_listens(
    orders_app: OrdersApp, web: Web, viewer: Person, store: Store
) -> None:
    async def asked() -> int:
        stats = (await store.server.call("INFO", "commandstats")).decode()
        return sum(
            int(line.split("calls=")[1].split(",")[0])
            for line in stats.splitlines()
            if "cmdstat_evalsha:" in line
        )

    async with listening(viewer) as stream:
        await stream.until("snapshot")

    async def quiet() -> bool:
        return web.api.context.broadcaster._reading is None

    await eventually(quiet)
    before = await asked()
    await asyncio.sleep(1.2)  # longer than it takes to look once more
    assert await asked() == before


async def test_a_stream_ends_when_its_session_does(
    orders_app: OrdersApp, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.api.events.STREAM_HEARTBEAT_SECONDS", 0.3)
    person = await web.person()
    await person.post("/api/login", {"password": PASSWORD})
    async with listening(person) as stream:
        await stream.until("snapshot")
        await web.api.context.auth.log_all_out()

        assert "not valid" in (await stream.end())[-1].data["reason"]


async def test_streams_end_when_the_server_does(orders_app: OrdersApp, web: Web, viewer: Person) -> None:
    async with listening(viewer) as stream:
        await stream.until("snapshot")
        web.api.context.shutting_down.set()

        heard = await stream.end()

    assert (heard[-1].name, heard[-1].data["reason"]) == ("bye", "the server ends")
    await viewer.refused(503, "GET", "/api/events")


async def test_somebody_who_is_slow_is_told_that_some_were_left_out() -> None:
    listener = EventListener(None)
    for n in range(MAX_PENDING_EVENTS + 3):
        listener.push(StreamEvent("job", b"%d" % n))

    events = await listener.next()

    assert len(events) == MAX_PENDING_EVENTS + 1
    assert (events[-1].name, json.loads(events[-1].data)) == ("gap", {"leftOut": 3})


async def test_what_does_not_fit_into_a_look_is_said_to_be_left_out(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    async with listening(viewer) as stream:
        await stream.until("snapshot")
        await orders_app.ship.enqueue_many([{"customer": "ada", "fail": "x"} for _ in range(600)])
        async with app.worker() as worker:
            await worker.drain()
        await stream.until("gap")

    assert sum(one.name == "job" for one in stream.heard) < 600


@pytest.mark.parametrize("watch", ["orders", "/id", "orders/", ",".join(f"orders/{n}" for n in range(21))])
async def test_jobs_to_watch_are_given_as_queue_and_id(
    orders_app: OrdersApp, viewer: Person, watch: str
) -> None:
    answer = await viewer.client.get("/api/events", params={"watch": watch})

    assert answer.status_code == 400
    assert "queue/id" in answer.json()["detail"]


async def test_what_cannot_be_listened_to_is_refused(
    orders_app: OrdersApp, viewer: Person, nobody: Person
) -> None:
    await viewer.refused(404, "GET", "/api/events", params={"queue": "nothing"})
    await viewer.refused(400, "GET", "/api/events", params={"job": "x"})
    await nobody.refused(401, "GET", "/api/events")
    await viewer.refused(400, "GET", "/api/events", headers={"last-event-id": "yesterday"})
