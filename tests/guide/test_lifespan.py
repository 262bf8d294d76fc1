"""Lifespans: objects that a process makes before its first job and closes after its last one."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull import testing


class Said(list[str]):
    """The lines that lifespans and tasks have written."""

    def lifespan(self, app: qbull.App, name: str) -> qbull.Lifespan[str]:
        async def run() -> AsyncIterator[str]:
            self.append(f"start {name}")
            yield f"the {name}"
            self.append(f"stop {name}")

        run.__name__ = run.__qualname__ = name
        return app.lifespan(run)


async def test_a_lifespan_starts_before_the_first_job_and_stops_after_the_last(app: qbull.App) -> None:
    said = Said()
    client = said.lifespan(app, "client")

    @app.queue("pages").task
    async def fetch(number: int) -> str:
        said.append(f"job {number}")
        return client.value

    jobs = [await fetch.enqueue(number) for number in range(2)]
    async with app.worker(concurrency=1):
        assert [await job.result(timeout=20) for job in jobs] == ["the client"] * 2

    assert said == ["start client", "job 0", "job 1", "stop client"]


async def test_lifespans_start_in_order_use_earlier_ones_and_stop_in_reverse(app: qbull.App) -> None:
    said = Said()
    first = said.lifespan(app, "first")

    @app.lifespan
    async def second() -> AsyncIterator[str]:
        said.append(f"start second with {first.value}")
        yield "the second"
        said.append(f"stop second with {first.value}")

    app.queue("pages")
    async with app.worker():
        assert second.value == "the second"

    assert said == ["start first", "start second with the first", "stop second with the first", "stop first"]


async def test_a_plain_lifespan_may_block_and_plain_tasks_use_it(app: qbull.App) -> None:
    threads: list[str] = []

    @app.lifespan
    def model() -> Iterator[dict[str, int]]:
        threads.append(threading.current_thread().name)
        yield {"six": 6}

    @app.queue("numbers").task
    def look(word: str) -> int:
        return model.value[word]

    job = await look.enqueue("six")
    async with app.worker():
        assert await job.result(timeout=20) == 6

    assert threading.current_thread().name not in threads


async def test_a_context_manager_is_a_lifespan_too(app: qbull.App) -> None:
    said: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def http() -> AsyncIterator[str]:
        said.append("start")
        yield "http"
        said.append("stop")

    class Pool(AbstractAsyncContextManager["Pool"]):
        async def __aexit__(self, *_: object) -> None:
            said.append("close")

    pool = app.lifespan(Pool)

    app.queue("pages")
    async with app.worker():
        assert isinstance(pool.value, Pool)
        assert http.value == "http"

    assert said == ["start", "close", "stop"]


async def test_the_same_task_of_asyncio_starts_and_stops_a_lifespan(app: qbull.App) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @app.lifespan
    async def group() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup():
            yield
        tasks.append(asyncio.current_task())

    app.queue("pages")
    worker = app.worker()
    await asyncio.create_task(worker.start())
    await asyncio.create_task(worker.stop())

    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


async def test_two_workers_in_one_event_loop_share_it(app: qbull.App) -> None:
    said = Said()
    client = said.lifespan(app, "client")
    app.queue("pages")

    async with app.worker():
        async with app.worker():
            pass
        assert client.value == "the client"
        assert said == ["start client"]

    assert said == ["start client", "stop client"]


async def test_a_start_that_fails_stops_the_others_and_takes_no_job(app: qbull.App) -> None:
    said = Said()
    said.lifespan(app, "client")

    @app.lifespan
    async def database() -> AsyncIterator[str]:
        raise ConnectionRefusedError("nobody listens")
        yield "database"

    @app.queue("pages").task
    async def fetch() -> str:
        return database.value

    job = await fetch.enqueue()
    with pytest.raises(qbull.LifespanError) as failed:
        async with app.worker():
            pytest.fail("it has started")

    line = test_a_start_that_fails_stops_the_others_and_takes_no_job.__code__.co_firstlineno + 6
    assert str(failed.value) == (
        'lifespan "database" failed to start: ConnectionRefusedError: nobody listens '
        f"({__file__}, line {line})"
    )
    assert isinstance(failed.value.__cause__, ConnectionRefusedError)
    assert said == ["start client", "stop client"]
    assert await job.state() == "waiting"


async def test_an_error_while_stopping_is_logged_and_the_others_stop(
    app: qbull.App, caplog: pytest.LogCaptureFixture
) -> None:
    said = Said()
    said.lifespan(app, "client")

    @app.lifespan
    async def database() -> AsyncIterator[None]:
        yield
        raise OSError("gone")

    app.queue("pages")
    with caplog.at_level(logging.ERROR, "qbull.worker"):
        async with app.worker():
            pass

    assert said == ["start client", "stop client"]
    assert [record.getMessage() for record in caplog.records] == ['lifespan "database" failed to stop']


async def test_a_process_that_runs_no_jobs_has_no_value(app: qbull.App) -> None:
    client = Said().lifespan(app, "client")

    with pytest.raises(qbull.LifespanError, match="has not started in this process"):
        _ = client.value


def test_a_function_that_cannot_be_a_lifespan_is_refused() -> None:
    app = qbull.App()

    async def connect() -> None: ...

    def load(path: str) -> Iterator[str]:
        yield path

    with pytest.raises(qbull.DeclarationError, match=r'lifespan "connect" has no yield\. Write "yield"'):
        app.lifespan(connect)  # type: ignore[arg-type]
    with pytest.raises(qbull.DeclarationError, match='lifespan "load" needs the argument "path"'):
        app.lifespan(load)  # type: ignore[arg-type]


async def test_a_function_that_returns_something_else_names_the_mistake(app: qbull.App) -> None:
    app.lifespan(lambda: 5)  # type: ignore[arg-type,return-value]
    app.queue("pages")

    with pytest.raises(qbull.LifespanError, match="it returned 5, which is no context manager; use yield"):
        async with app.worker():
            pass


# In tests.


async def test_inline_runs_lifespans_around_the_job(app: qbull.App) -> None:
    said = Said()
    client = said.lifespan(app, "client")
    queue = app.queue("pages")

    @queue.task
    async def fetch() -> str:
        await look.enqueue()
        return client.value

    @queue.task
    def look() -> str:
        said.append(client.value)
        return client.value

    with testing.inline(app):
        job = await fetch.enqueue()
        assert await job.result() == "the client"

    assert said == ["start client", "the client", "stop client"], "the job within uses the same one"


def test_inline_runs_them_in_synchronous_code() -> None:
    said = Said()
    app = qbull.App("redis://127.0.0.1:1/0")
    client = said.lifespan(app, "client")
    queue = app.queue("pages")

    @queue.task
    def look() -> str:
        fetch.enqueue_sync()
        return client.value

    @queue.task
    async def fetch() -> str:
        said.append(client.value)
        return client.value

    with testing.inline(app):
        assert app.run_sync(look.enqueue_sync().result()) == "the client"

    assert said[0] == "start client"
    assert said[-1] == "stop client"
    assert said.count("start client") == said.count("stop client")


async def test_a_test_gives_another_value(app: qbull.App) -> None:
    said = Said()
    client = said.lifespan(app, "client")

    @app.queue("pages").task
    async def fetch() -> str:
        return client.value

    with testing.inline(app), client.override("a fake"):
        assert await (await fetch.enqueue()).result() == "a fake"
    async with testing.embedded(app) as server:
        with client.override("another fake"):
            job = await fetch.enqueue()
            await server.run_due()
            assert await job.result() == "another fake"
        again = await fetch.enqueue()
        assert said == [], "the function does not run"
        await server.run_due()
        assert await again.result() == "the client"

    assert said == ["start client", "stop client"]


# In processes of cpu=True tasks.


@pytest.fixture
async def tasks(
    store: object, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    """A module of this directory, which the processes import as well."""
    monkeypatch.setenv("LIFESPAN_LOG", str(tmp_path / "lines"))
    monkeypatch.setenv("LIFESPAN_FAILS", str(tmp_path / "model"))
    monkeypatch.setenv("LIFESPAN_URL", server_url)
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(".")
    sys.modules.pop("lifespan_tasks", None)
    module = importlib.import_module("lifespan_tasks")
    async with module.app:
        yield module


def noted(word: str = "") -> list[list[str]]:
    lines = [line.split() for line in Path(os.environ["LIFESPAN_LOG"]).read_text().splitlines()]
    return [line for line in lines if word in ("", line[0])]


@pytest.mark.timeout(120)
async def test_each_process_has_its_own_values(tasks: Any) -> None:
    async with tasks.app.worker():
        here = await (await tasks.ask.enqueue()).result(timeout=60)
        thread = await (await tasks.ask_in_a_thread.enqueue()).result(timeout=60)
        there = await (await tasks.compute.enqueue("process")).result(timeout=60)
        again = await (await tasks.compute.enqueue("six")).result(timeout=60)

    me, process = os.getpid(), there[0]
    assert here == thread == [me, f"client of {me}", f"pool of {me}"]
    assert there == [process, f"client of {process}", process]
    assert again == [process, f"client of {process}", 6]
    assert process != me
    starts = [["start", "client", str(me)], ["start", "pool", str(me)]]
    assert [line for line in noted("start") if line[2] == str(me)] == starts
    of_the_process = [line[:2] for line in noted() if line[2] == str(process)]
    assert of_the_process == [["start", "client"], ["start", "model"], ["stop", "model"], ["stop", "client"]]


@pytest.mark.timeout(120)
async def test_a_start_does_not_count_towards_the_timeout_of_a_job(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFESPAN_SECONDS", "3")
    job = await tasks.compute.enqueue("six")

    async with tasks.app.worker():
        assert (await job.result(timeout=60))[2] == 6


@pytest.mark.timeout(120)
async def test_a_job_waits_while_its_process_cannot_start(
    tasks: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model").touch()
    job = await tasks.compute.enqueue("six")

    async with tasks.app.worker():
        await eventually(lambda: put_off(job), within=60)
        (tmp_path / "model").unlink()
        assert (await job.result(timeout=60))[2] == 6

    finished = await job.info()
    assert finished is not None
    assert (finished.attempt, finished.history) == (1, ()), "a failed start is no attempt"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert lines[0].startswith('lifespan "model" failed to start: OSError: no model today (')


async def put_off(job: qbull.Job[Any]) -> bool:
    return await job.state() == "delayed"


@pytest.mark.timeout(120)
async def test_a_lifespan_without_cpu_has_no_value_in_a_process(tasks: Any) -> None:
    job = await tasks.refused.enqueue()

    async with tasks.app.worker():
        with pytest.raises(qbull.JobFailed, match='lifespan "pool" has not started in this process'):
            await job.result(timeout=60)


@pytest.mark.timeout(120)
async def test_a_lifespan_that_a_process_cannot_import_is_named(
    tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Said().lifespan(tasks.app, "hidden")
    job = await tasks.compute.enqueue("six")

    async with tasks.app.worker():
        await eventually(lambda: said_in(caplog, "hidden"), within=60)

    assert await job.state() == "delayed"
    assert 'lifespan "hidden" of module' in caplog.text
    assert "cannot be imported by a process of cpu=True" in caplog.text
    await job.remove()


async def said_in(caplog: pytest.LogCaptureFixture, word: str) -> bool:
    return word in caplog.text
