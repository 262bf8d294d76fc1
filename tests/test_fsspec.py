"""Stores on file systems of fsspec: a directory, memory, and S3."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import qbull
from qbull.core.argument_names import read_argument_name
from qbull.store.verbs.argument_tokens import ArgumentTokens
from qbull.worker.argument_sweeper import ArgumentSweeper


@pytest.fixture(params=["file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of an empty folder, and the options of its file system."""
    if request.param == "file":
        yield f"file://{tmp_path}/folder", {}
    elif request.param == "memory":
        yield f"memory://{uuid4().hex}", {}
    else:
        import s3fs
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        server.start()
        host, port = server.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}", "key": "k", "secret": "s"}
        bucket = f"bucket-{uuid4().hex[:8]}"  # All servers of a process have the same memory.
        s3fs.S3FileSystem(**options).mkdir(bucket)
        yield f"s3://{bucket}/deep/folder", options
        server.stop()


async def test_a_result_is_stored_read_and_missing(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    results = qbull.FsspecResults(url, **options)

    reference = await results.put("q", "id", b"content")
    other = await results.put("q", "id", b"")

    assert reference != other
    assert (await results.get(reference), await results.get(other)) == (b"content", b"")
    for wrong in (f"{reference}x", "1/../secret", "../secret", "", "1/.x", "1/a/b", "x/y", "/etc/passwd"):
        with pytest.raises(qbull.NotFound):
            await results.get(wrong)


async def test_old_results_go_and_others_stay(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    results, hour = qbull.FsspecResults(url, keep_for=86_400, **options), int(time.time() // 3600)
    for age in (0, 20, 30, 1000):
        await results._folder.write(f"{hour - age}/q-old", b"old")
    await results._folder.write("notes.txt", b"not ours")

    results._swept = float("-inf")
    await results.put("q", "id", b"new")

    assert sorted(await results._folder.names()) == sorted([str(hour), str(hour - 20), "notes.txt"])


async def test_large_results_of_jobs_are_there(
    app: qbull.App, place: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = place
    served = qbull.App(app.url, prefix=app.prefix, results=qbull.FsspecResults(url, over=100, **options))
    queue = served.queue("large")

    @queue.task
    async def make(size: int) -> str:
        return "x" * size

    async with served, served.worker():
        small, large = await make.enqueue(10), await make.enqueue(2_000_000)
        assert await small.result(timeout=10) == "x" * 10
        assert await large.result(timeout=30) == "x" * 2_000_000
        info = await large.info()
    assert info is not None and list(info.result) == ["stored"]


async def test_large_arguments_are_stored_listed_and_deleted(
    app: qbull.App, place: tuple[str, dict[str, Any]]
) -> None:
    url, options = place
    stored = qbull.FsspecArguments(url, over=100, **options)
    served = qbull.App(app.url, prefix=app.prefix, arguments=stored)
    queue = served.queue("large")

    @queue.task
    async def count(text: str) -> int:
        return len(text)

    async with served:
        waiting = await count.options(delay=60).enqueue("y" * 2_000_000)
        done = await count.options(id="ä" * 200).enqueue("x" * 2_000_000)
        store = served._client().store
        folder = await ArgumentTokens(store).folder("large")
        assert len(await stored.names(folder)) == 2
        async with served.worker() as worker:
            assert await done.result(timeout=10) == 2_000_000
            await done.remove()
            sweeper = ArgumentSweeper(store, queue.settings, stored)
            assert (await sweeper.sweep(), await sweeper.sweep(grace=-5)) == (0, 1)
            [name] = await stored.names(folder)
            told = read_argument_name(name)
            assert told is not None and told.id == waiting.id
            await waiting.promote()
            await worker.drain()
        await stored.delete(name)
        await stored.delete(name)
        assert await stored.names(folder) == []
        for wrong in (name, "../secret", f"{folder}/../x-1-{'0' * 16}", ""):
            with pytest.raises(qbull.NotFound):
                await stored.get(wrong)


def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"over": -1}, {"keep_for": 0}):
        with pytest.raises(qbull.ConfigError, match="FsspecResults"):
            qbull.FsspecResults("memory://x", **options)  # type: ignore[arg-type]
    with pytest.raises(qbull.ConfigError, match='"nosuch://x" cannot be used'):
        qbull.FsspecResults("nosuch://x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(qbull.ConfigError, match=r'needs fsspec; pip install "qbull\[fsspec\]"'):
        qbull.FsspecResults("memory://x")
