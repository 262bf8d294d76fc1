"""Large arguments: they are stored elsewhere as long as their job exists, and no longer."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

import qbull
from qbull.core.argument_names import argument_name, read_argument_name
from qbull.store.verbs.argument_tokens import ArgumentTokens
from qbull.worker.argument_sweeper import ArgumentSweeper

LARGE = "x" * 2_000_000
KEY = qbull.Encrypted.new_key()


class Large:
    """An app with a store of arguments, and a queue on it."""

    def __init__(self, app: qbull.App, directory: Path, middleware: Any = (), **settings: Any) -> None:
        self.arguments = qbull.FileArguments(directory, over=1000)
        self.app = qbull.App(app.url, prefix=app.prefix, arguments=self.arguments, middleware=middleware)
        self.queue = self.app.queue("large", **settings)
        self.failing = True

        @self.queue.task
        async def count(text: str) -> int:
            return len(text)

        @self.queue.task(retry=qbull.Retry(attempts=2, delays=(0.01,)))
        async def fail(text: str) -> int:
            if self.failing:
                raise ValueError("not yet")
            return len(text)

        self.count, self.fail = count, fail

    async def stored(self) -> list[str]:
        folder = await ArgumentTokens(self.app._client().store).known_folder("large")
        return [] if folder is None else await self.arguments.names(folder)

    async def sweep(self) -> int:
        store = self.app._client().store
        return await ArgumentSweeper(store, self.queue.settings, self.arguments).sweep(grace=-5)


@pytest.fixture
async def large(app: qbull.App, tmp_path: Path) -> Any:
    made = Large(app, tmp_path / "arguments")
    yield made
    await made.app.close()


async def test_large_arguments_are_stored_elsewhere_and_reach_the_task(large: Large) -> None:
    job, small = await large.count.enqueue(LARGE), await large.count.enqueue("small")
    many = await large.count.enqueue_many([{"text": LARGE}, {"text": "y"}])
    async with large.app.worker() as worker:
        await worker.drain()

    assert await job.result(timeout=10) == len(LARGE)
    assert [await each.result(timeout=10) for each in (small, *many)] == [5, len(LARGE), 1]
    info, other = await job.info(), await small.info()
    assert info is not None and other is not None
    assert info.payload["bytes"] == len(LARGE) + len('{"text":""}')
    assert info.payload["stored"] in await large.stored()
    assert other.payload == {"text": "small"}
    assert len(await large.stored()) == 2


async def test_without_a_store_the_call_is_refused_and_the_job_says_why(app: qbull.App, large: Large) -> None:
    job = await large.count.enqueue(LARGE)
    queue = app.queue("large")

    @queue.task
    async def count(text: str) -> int:
        return len(text)

    with pytest.raises(qbull.TooLarge):
        await count.enqueue(LARGE)
    async with app.worker() as worker:
        await worker.drain()

    with pytest.raises(qbull.JobFailed, match=r"is stored elsewhere.*give this app the same arguments=…"):
        await job.result(timeout=10)
    await job.retry()
    async with large.app.worker() as worker:
        await worker.drain()
    assert await job.result(timeout=10) == len(LARGE)


async def test_a_retry_and_a_dead_letter_keep_their_arguments_until_the_job_is_removed(large: Large) -> None:
    job = await large.fail.enqueue(LARGE)
    async with large.app.worker() as worker:
        await worker.drain()
        assert await job.state() == "failed"
        assert await large.sweep() == 0

        large.failing = False
        assert await large.queue.redrive() == 1
        assert await job.result(timeout=10) == len(LARGE)
        assert await large.sweep() == 0, "the finished job is kept, and can run again"

        await job.remove()
        assert await large.sweep() == 1
        assert await large.stored() == []


async def test_retention_is_followed_and_orphans_go_after_the_grace(app: qbull.App, tmp_path: Path) -> None:
    large = Large(app, tmp_path, keep=qbull.Keep(completed=1))
    for _ in range(3):
        await large.count.enqueue(LARGE)
    folder = await ArgumentTokens(large.app._client().store).folder("large")
    await large.arguments.put(argument_name(folder, "never-sent", 1), b"orphan")
    other = "large-" + "0" * 32
    await large.arguments.put(argument_name(other, "of-another-server", 1), b"kept")
    async with large.app.worker() as worker:
        await worker.drain()

    sweeper = ArgumentSweeper(large.app._client().store, large.queue.settings, large.arguments)
    assert await sweeper.sweep() == 1, "within the grace only the old orphan goes"
    assert await large.sweep() == 2
    assert len(await large.stored()) == 1
    assert len(await large.arguments.names(other)) == 1
    await large.app.close()


async def test_other_arguments_by_hand_and_unfinished_jobs(large: Large) -> None:
    delayed = await large.count.options(delay=3600).enqueue(LARGE)
    assert await large.sweep() == 0

    await delayed.update({"text": "short"})
    info = await delayed.info()
    assert info is not None and info.payload == {"text": "short"}
    await delayed.cancel()
    await delayed.retry({"text": "other"})
    async with large.app.worker() as worker:
        await worker.drain()
    assert await delayed.result(timeout=10) == 5


async def test_jobs_keep_their_arguments_through_repartitioning(app: qbull.App, tmp_path: Path) -> None:
    large = Large(app, tmp_path, partitions=2)
    jobs = [await large.count.options(delay=0.5).enqueue(LARGE) for _ in range(6)]
    folder = await ArgumentTokens(large.app._client().store).folder("large")
    await large.arguments.put(argument_name(folder, "orphan", 1), b"orphan")
    await large.queue.repartition(5)
    assert await large.sweep() == 0, "while jobs move, nothing is deleted"
    async with large.app.worker() as worker:
        await worker.drain()
        assert [await job.result(timeout=10) for job in jobs] == [len(LARGE)] * 6
        assert await large.sweep() == 1
    assert len(await large.stored()) == 6
    await large.app.close()


@pytest.mark.parametrize("kind", [qbull.Signed, qbull.Encrypted])
async def test_signed_and_encrypted_arguments_are_stored_as_such(
    app: qbull.App, tmp_path: Path, kind: Any
) -> None:
    pytest.importorskip("cryptography")
    large = Large(app, tmp_path, middleware=[qbull.Compressed(), kind([KEY])])
    text = "".join(map(str, range(50_000)))
    first, second = await large.count.enqueue(text), await large.count.enqueue(text + "1")
    names = await large.stored()
    files = {name: tmp_path / name for name in names}
    assert all(text[:100].encode() not in path.read_bytes() for path in files.values())
    one, two = [read_argument_name(name) for name in names]
    assert one is not None and two is not None and {one.id, two.id} == {first.id, second.id}
    # Somebody who can write to the store gives the arguments of one job to the other.
    swapped = {read_argument_name(name).id: path for name, path in files.items()}  # type: ignore[union-attr]
    swapped[first.id].write_bytes(swapped[second.id].read_bytes())
    async with large.app.worker() as worker:
        await worker.drain()

    assert await second.result(timeout=10) == len(text) + 1
    with pytest.raises(qbull.JobFailed, match="payload"):
        await first.result(timeout=10)
    await large.app.close()


async def test_flows_and_their_reruns(large: Large) -> None:
    flow = await qbull.chain(large.count.step(LARGE), large.count.step(LARGE + "1")).enqueue()
    async with large.app.worker():
        assert await flow.result(timeout=20) == len(LARGE) + 1
        again = await flow.rerun(flow.last)
        assert await again.result(timeout=20) == len(LARGE) + 1
        for job in flow.jobs:
            await job.remove()
        await large.sweep()
        assert len(await large.stored()) == 1, "the new job has arguments of its own"


async def test_a_process_gets_them_too(large: Large, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "measuring.py").write_text("def length(text: str) -> int:\n    return len(text)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    length = importlib.import_module("measuring").length
    task = large.queue.task(cpu=True, retry=qbull.Retry(attempts=1))(length)
    job = await task.enqueue(LARGE)
    async with large.app.worker() as worker:
        await worker.drain()
    assert await job.result(timeout=30) == len(LARGE)


async def test_unique_calls(large: Large) -> None:
    first = large.count.options(unique=qbull.Unique(window=60, by=("text",)))
    last = large.count.options(unique=qbull.Unique(window=60, by=(), mode="last"))
    one, same = await first.enqueue(LARGE), await first.enqueue(LARGE)
    assert (one.id, same.created) == (same.id, False)

    with pytest.raises(qbull.TooLarge, match="a unique job that takes newer arguments cannot be stored"):
        await last.enqueue(LARGE)
    middle = await last.enqueue("y" * 5000)
    info = await middle.info()
    assert info is not None and info.payload == {"text": "y" * 5000}, "it stays with the job"


async def test_a_store_that_fails_or_has_lost_them(large: Large, tmp_path: Path) -> None:
    job = await large.count.enqueue(LARGE)
    for name in await large.stored():
        await large.arguments.delete(name)
    async with large.app.worker() as worker:
        await worker.drain()
    with pytest.raises(qbull.JobFailed, match="its stored arguments are gone"):
        await job.result(timeout=10)

    async def refuse(name: str, content: bytes) -> None:
        raise OSError("disk full")

    large.arguments.put = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="disk full"):
        await large.count.enqueue(LARGE)
    assert (await large.queue.stats()).waiting == 0


async def test_a_read_that_fails_is_a_failed_attempt(large: Large) -> None:
    job, get, tries = await large.fail.enqueue(LARGE), large.arguments.get, 0
    large.failing = False

    async def flaky(name: str) -> bytes:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("no route")
        return await get(name)

    large.arguments.get = flaky  # type: ignore[method-assign]
    async with large.app.worker() as worker:
        await worker.drain()
    assert await job.result(timeout=10) == len(LARGE)


async def test_by_name_and_in_tests_without_a_server(app: qbull.App, large: Large, tmp_path: Path) -> None:
    producer = qbull.App(app.url, prefix=app.prefix, arguments=large.arguments)
    async with large.app.worker():
        job = await producer.send("large", "count", {"text": LARGE})
        assert await job.result(timeout=10) == len(LARGE)
    await producer.close()

    from qbull.testing import inline

    with inline(large.app):
        done = await large.count.enqueue(LARGE)
        assert await done.result(timeout=5) == len(LARGE)


async def test_the_folder_of_a_queue_is_decided_once(large: Large) -> None:
    tokens = ArgumentTokens(large.app._client().store)
    folders = await asyncio.gather(*(tokens.folder("large") for _ in range(5)))

    assert len(set(folders)) == 1
    assert await tokens.known_folder("large") == folders[0]
    assert await tokens.known_folder("other") is None
