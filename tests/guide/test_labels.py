"""Labels and resources: jobs go to the workers that have what they need, as docs/guides/labels.md shows it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.core.health import HealthLimits, find_problems
from qbull.environment import read_environment
from qbull.store.read.health import read_health
from qbull.store.store import Store

A100 = {"gpu": "a100"}


@pytest.fixture(autouse=True)
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has its own host."""
    monkeypatch.setenv("QBULL_RESOURCE_DIR", str(tmp_path / "tokens"))
    return tmp_path / "tokens"


class Peak:
    """How many run at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


async def test_a_job_runs_only_on_a_worker_that_has_its_label(app: qbull.App) -> None:
    queue = app.queue("media", partitions=4)
    ran: list[str] = []

    @queue.task(labels=A100)
    async def render(n: int) -> None:
        assert qbull.current_job().attempt == 1
        ran.append("render")

    @queue.task
    async def notify(n: int) -> None:
        ran.append("notify")

    async with app.worker() as plain:
        jobs = [await render.enqueue(n) for n in range(20)]
        for n in range(20):
            await notify.enqueue(n)
        await plain.drain()
        assert ran == ["notify"] * 20
        why = await jobs[0].why()
        assert [reason.code for reason in why.reasons] == ["no-label"]
        assert "label gpu=a100, and none of 1 live workers" in str(why)
        async with app.worker(labels=A100):
            for job in jobs:
                await job.result(timeout=20)

    assert ran.count("render") == 20


@pytest.mark.parametrize(("labels", "fits"), [
    ({"gpu": "a100", "region": "eu"}, True),
    ({"gpu": "h100"}, True),
    ({"gpu": "t4"}, False),
    ({"region": "a100"}, False),
])  # fmt: skip
async def test_a_task_can_accept_several_values_of_a_label(
    app: qbull.App, labels: dict[str, str], fits: bool
) -> None:
    queue = app.queue("media", labels={"gpu": ["a100", "h100"]})
    ran: list[int] = []

    @queue.task
    async def render() -> None:
        ran.append(1)

    await render.enqueue()
    async with app.worker(labels=labels) as worker:
        await worker.drain()

    assert bool(ran) is fits
    await queue.purge()


async def test_a_task_can_ask_for_other_labels_than_its_queue(app: qbull.App) -> None:
    queue = app.queue("media", labels=A100)
    ran: list[str] = []

    @queue.task(labels={})
    async def anywhere() -> None:
        ran.append("anywhere")

    @queue.task
    async def render() -> None:
        ran.append("render")

    await render.enqueue()
    await anywhere.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    assert ran == ["anywhere"]
    await queue.purge()


async def test_a_key_keeps_its_order_when_its_jobs_need_different_workers(app: qbull.App) -> None:
    queue = app.queue("media", order="key", partitions=2)
    ran: list[tuple[str, int]] = []

    @queue.task(key="{film}", labels=A100)
    async def render(film: str, n: int) -> None:
        ran.append((film, n))

    @queue.task(key="{film}")
    async def notify(film: str, n: int) -> None:
        ran.append((film, n))

    for n in range(30):
        for film in "abc":
            await (render if n % 3 else notify).enqueue(film, n)
    async with app.worker() as plain, app.worker(labels=A100):
        await eventually(lambda: _has(ran, 90), within=30)
        await plain.drain()

    for film in "abc":
        assert [n for each, n in ran if each == film] == list(range(30))


async def test_jobs_that_wait_for_a_label_start_by_priority(app: qbull.App, store: Store) -> None:
    queue = app.queue("media", concurrency=1)
    ran: list[int] = []

    @queue.task(labels=A100)
    async def render(n: int) -> None:
        ran.append(n)

    async with app.worker(concurrency=10) as plain:
        for n in range(20):
            await render.enqueue(n)
        await render.options(priority=1).enqueue(99)
        await plain.drain()
    async with app.worker(labels=A100):
        await eventually(lambda: _has(ran, 21))

    # Jobs that were enqueued in the same millisecond may start in any order.
    assert ran[0] == 99 and sorted(ran[1:]) == list(range(20))


@pytest.mark.parametrize("plain", [True, False])
async def test_jobs_never_hold_more_tokens_than_the_host_has(app: qbull.App, plain: bool) -> None:
    queue = app.queue("media", concurrency=10, partitions=3)
    peak, held = Peak(), set[int]()
    lock = threading.Lock()

    def render() -> None:
        [number] = qbull.current_job().resources["gpu"]
        with peak:
            with lock:
                assert number not in held
                held.add(number)
            threading.Event().wait(0.01)
            with lock:
                held.remove(number)

    async def render_on_the_loop() -> None:
        [number] = qbull.current_job().resources["gpu"]
        with peak:
            assert number not in held
            held.add(number)
            await asyncio.sleep(0.01)
            held.remove(number)

    task = queue.task(name="render", resources={"gpu": 1})(render if plain else render_on_the_loop)
    jobs = [await task.enqueue() for _ in range(40)]
    async with app.worker(resources={"gpu": 2}) as first, app.worker(resources={"gpu": 2}):
        await first.drain()
        for job in jobs:
            assert (await job.info()).state == "completed"

    assert peak.most == 2


async def test_a_worker_without_the_resource_leaves_its_jobs_to_one_that_has_it(app: qbull.App) -> None:
    queue = app.queue("media")

    @queue.task(resources={"gpu": 2})
    async def train() -> int:
        return len(qbull.current_job().resources["gpu"])

    async with app.worker(resources={"gpu": 1}) as small:
        job = await train.enqueue()
        await small.drain()
        assert "resource gpu=2, and none of 1 live workers" in str(await job.why())
        async with app.worker(resources={"gpu": 2}):
            assert await job.result(timeout=20) == 2


async def test_why_says_that_the_tokens_are_in_use(app: qbull.App) -> None:
    queue, go = app.queue("media"), asyncio.Event()

    @queue.task(resources={"gpu": 1})
    async def render() -> None:
        await go.wait()

    async with app.worker(resources={"gpu": 1}):
        first, second = await render.enqueue(), await render.enqueue()
        await eventually(lambda: _why(second, "resource"))
        assert "it waits for resource gpu=1" in str(await second.why())
        go.set()
        await second.result(timeout=20)
        await first.result(timeout=20)


async def test_one_call_for_a_chunk_holds_the_tokens_once(app: qbull.App) -> None:
    queue = app.queue("media", concurrency=20)
    peak, sizes = Peak(), []

    @queue.task(chunk=8, wait=0.1, resources={"gpu": 1})
    async def embed(texts: list[str]) -> list[int]:
        sizes.append(len(texts))
        assert {tuple(job.resources["gpu"]) for job in qbull.current_jobs()} == {(0,)}
        with peak:
            await asyncio.sleep(0.02)
        return [len(text) for text in texts]

    jobs = await embed.enqueue_many([{"item": "x" * n} for n in range(40)])
    async with app.worker(resources={"gpu": 1}):
        assert [await job.result(timeout=20) for job in jobs] == list(range(40))

    assert peak.most == 1
    assert max(sizes) == 8
    assert len(sizes) <= 15


async def test_a_durable_job_gives_its_tokens_back_while_it_sleeps(app: qbull.App) -> None:
    queue, free = app.queue("media"), list[bool]()

    @queue.task(durable=True, resources={"gpu": 1})
    async def train() -> int:
        await qbull.current_job().sleep(3)
        return len(qbull.current_job().resources["gpu"])

    @queue.task(resources={"gpu": 1})
    async def render() -> None:
        free.append(True)

    async with app.worker(resources={"gpu": 1}):
        slow = await train.enqueue()
        await eventually(lambda: _why(slow, "sleeping"))
        await (await render.enqueue()).result(timeout=20)
        assert (await slow.info()).state == "delayed"
        assert await slow.result(timeout=20) == 1

    assert free == [True]


async def test_a_function_that_outlives_its_timeout_keeps_its_tokens(app: qbull.App) -> None:
    queue, go = app.queue("media", retry=qbull.Retry(attempts=1)), threading.Event()
    started, overlapped = threading.Event(), []

    @queue.task(resources={"gpu": 1}, timeout=0.1)
    def hang() -> None:
        started.set()
        go.wait(20)

    @queue.task(resources={"gpu": 1})
    def render() -> None:
        overlapped.append(not go.is_set())

    async with app.worker(resources={"gpu": 1}):
        hung = await hang.enqueue()
        await asyncio.to_thread(started.wait)
        with pytest.raises(qbull.JobFailed):
            await hung.result(timeout=20)
        job = await render.enqueue()
        await eventually(lambda: _why(job, "resource"))
        go.set()
        await job.result(timeout=20)

    assert overlapped == [False]


async def test_the_registry_and_the_health_check_tell_what_nobody_has(app: qbull.App, store: Store) -> None:
    queue = app.queue("media")

    @queue.task(labels=A100)
    async def render() -> None: ...

    async with app.worker(labels={"gpu": "t4"}, resources={"disk": 3}) as worker:
        await render.enqueue()
        await worker.drain()
        [member] = (await store.workers()).values()
        assert (member.labels, member.resources) == ({"gpu": "t4"}, {"disk": 3})
        limits = HealthLimits(unread_after=0)
        problems = find_problems((await read_health(store, [queue.settings], limits)).facts, limits)
        assert [problem.fact for problem in problems if problem.kind == "unknown"] == [
            '1 job waits for task "render", which asks for label gpu=a100, which no worker has'
        ]
    await queue.purge()


def test_the_environment_gives_labels_and_resources() -> None:
    offer = read_environment({"QBULL_LABELS": "gpu=a100, region=eu", "QBULL_RESOURCES": "gpu=2"}).offer
    assert (offer.labels, offer.resources) == ({"gpu": "a100", "region": "eu"}, {"gpu": 2})
    assert read_environment({"QBULL_LABELS": "", "QBULL_RESOURCES": ""}).offer.labels == {}


@pytest.mark.parametrize("variable", [
    {"QBULL_LABELS": "gpu"}, {"QBULL_LABELS": "gpu=a,gpu=b"}, {"QBULL_LABELS": "gpu=a b"},
    {"QBULL_RESOURCES": "gpu=many"}, {"QBULL_RESOURCES": "gpu=0"}, {"QBULL_RESOURCES": "=1"},
])  # fmt: skip
def test_wrong_labels_in_the_environment_are_refused(variable: dict[str, str]) -> None:
    with pytest.raises(qbull.ConfigError, match=r"gpu|QBULL_RESOURCES"):
        read_environment(variable)


@pytest.mark.parametrize("wrong", [
    {"labels": {"gpu": []}}, {"labels": {"gpu": 3}}, {"labels": "gpu"}, {"labels": {"g p u": "a"}},
    {"resources": {"gpu": 0}}, {"resources": {"gpu": "1"}}, {"resources": {"gpu": True}},
])  # fmt: skip
async def test_wrong_demands_are_refused_at_the_declaration(app: qbull.App, wrong: Any) -> None:
    with pytest.raises(qbull.ConfigError, match=r"gpu|g p u"):
        app.queue("media", **wrong)


async def test_a_worker_that_alone_reads_its_partitions_must_have_the_labels(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBULL_SHARING", "leased")
    leased = qbull.App(app.url, prefix=app.prefix)
    queue = leased.queue("media")

    @queue.task(labels=A100)
    async def render() -> None: ...

    with pytest.raises(qbull.ConfigError, match=r'"render" asks for label gpu=a100'):
        leased.worker()
    leased.worker(labels=A100)


async def _has(ran: list[Any], count: int) -> bool:
    return len(ran) >= count


async def _why(job: qbull.Job[Any], code: str) -> bool:
    return [reason.code for reason in (await job.why()).reasons] == [code]
