"""Bounds: no call reads more than it shows, however many jobs there are."""

from __future__ import annotations

from web import Person, make_viewer, open_web  # noqa: F401 - some are fixtures

import qbull
from qbull.api.table import TABLE
from qbull.store.store import Store

FEW, MANY = 1_000, 10_000
ROOM = 40_000
"""Bytes that two answers may differ by: numbers have more digits, and sizes of what is shown differ."""
BY_MEANING = ("/matching", "/failures", "/overview", "/facets")
"""They look at a bounded number of jobs to say what these have in common."""
ELSEWHERE = {"/api/events", "/api/queues/{queue}/jobs/{id}/stream", "/api/openapi.json"}
"""Streams go on until their job ends, or for ever; the document is made once."""


def calls(queue: str, id: str) -> list[str]:
    """Every way to look, with a queue and a job that are there."""
    paths = [e.path for e in TABLE if e.method == "GET" and e.role != "admin" and e.path not in ELSEWHERE]
    there = {"{queue}": queue, "{id}": id, "{key}": "key-1", "{name}": "nothing", "{operation}": "nothing"}
    for name, value in there.items():
        paths = [path.replace(name, value) for path in paths]
    jobs = f"/api/queues/{queue}/jobs"
    states = [
        f"{jobs}?state={state}&start=0&end=20" for state in ("waiting", "delayed", "completed", "failed")
    ]
    filtered = [f"{jobs}?state={state}&task=ship&limit=20" for state in ("waiting", "completed", "failed")]
    return [*paths, *states, *filtered, f"{jobs}?state=waiting&start=980&end=1000"]


async def test_no_call_reads_more_because_there_are_more(
    app: qbull.App, viewer: Person, store: Store
) -> None:
    few = await read_all(viewer, store, "few", await fill(app, "few", FEW))
    many = await read_all(viewer, store, "many", await fill(app, "many", MANY))

    sizes = list(zip(few, few.values(), many.values(), strict=True))
    grown = [(path, less, more) for path, less, more in sizes if more > less + ROOM]
    assert [one for one in grown if not bounded_otherwise(one[0], one[2])] == []
    assert len(sizes) > 30


async def fill(app: qbull.App, name: str, count: int) -> str:
    """A queue with so many jobs of every state; the id of one."""
    queue = app.queue(name, retry=qbull.Retry(attempts=1))

    @queue.task(name="ship")
    async def ship(n: int) -> None:
        if n % 40 == 0:
            raise qbull.Fail("no stamps")

    await ship.enqueue_many([{"n": n} for n in range(count)])
    async with app.worker([name]) as worker:
        await worker.drain()
    await ship.options(delay=600).enqueue_many([{"n": n} for n in range(count)])
    jobs = await ship.options(key="key-1").enqueue_many([{"n": n} for n in range(count)])
    return jobs[-1].id


async def read_all(person: Person, store: Store, queue: str, id: str) -> dict[str, int]:
    """By path, how many bytes the server of the jobs has answered with meanwhile."""
    read = {}
    for path in calls(queue, id):
        before = await answered(store)
        answer = await person.client.get(path)
        assert answer.status_code in (200, 404, 503), (path, answer.text)
        read[path] = await answered(store) - before
    return read


def bounded_otherwise(path: str, size: int) -> bool:
    """Counting and grouping what matches looks at many by their meaning, up to a number that is the same for a million."""
    return path.endswith(BY_MEANING) and size < 10_000 * 400


async def test_no_call_asks_each_of_many_partitions_by_itself(
    app: qbull.App, viewer: Person, store: Store
) -> None:
    queue = app.queue("wide", partitions=512, retry=qbull.Retry(attempts=1))

    @queue.task(name="ship")
    async def ship(n: int) -> None:
        if n % 2:
            raise qbull.Fail("no stamps")

    await ship.enqueue_many([{"n": n} for n in range(600)])
    async with app.worker(["wide"]) as worker:
        await worker.drain()
    await ship.options(delay=600).enqueue_many([{"n": n} for n in range(600)])
    jobs = await ship.enqueue_many([{"n": n} for n in range(600)])

    for path in calls("wide", jobs[-1].id):
        if not path.endswith(BY_MEANING) and "start=980" not in path:
            before = await asked(store)
            await viewer.client.get(path)
            assert await asked(store) - before < 200, path


async def test_a_day_of_minutes_is_read_once(app: qbull.App, viewer: Person, store: Store) -> None:
    queue = app.queue("wide", partitions=64)

    @queue.task(name="ship")
    async def ship() -> None: ...

    await ship.enqueue()
    first = await viewer.get("/api/queues/wide/metrics", minutes=1440)
    before = await answered(store)
    await ship.enqueue()
    again = await viewer.get("/api/queues/wide/metrics", minutes=1440)

    assert len(first["minutes"]) == len(again["minutes"]) == 1440
    assert sum(one["enqueued"] for one in again["minutes"]) == 2
    assert await answered(store) - before < 64 * 200


async def asked(store: Store) -> int:
    """Round trips so far."""
    info = (await store.server.call("INFO", "stats")).decode()
    return int(info.split("total_reads_processed:")[1].split("\r\n")[0])


async def answered(store: Store) -> int:
    info = (await store.server.call("INFO", "stats")).decode()
    return int(info.split("total_net_output_bytes:")[1].split("\r\n")[0])
