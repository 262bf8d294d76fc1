"""Middleware: around every enqueue and every run, and told what became of each job."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Plain(qbull.Middleware):
    """Synchronous hooks that write down what they see."""

    def __init__(self, name: str, said: list[Any]) -> None:
        self.name = name
        self.said = said

    @contextmanager
    def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
        call.headers[self.name] = f"{call.queue}/{call.task}"
        self.said.append((self.name, "enqueue", call.arguments))
        yield
        self.said.append((self.name, "enqueued", [job.created for job in call.jobs]))

    @contextmanager
    def around_run(self, job: qbull.CurrentJob) -> Iterator[None]:
        token = tenant.set(job.headers[self.name])
        self.said.append((self.name, "run", job.attempt))
        yield
        self.said.append((self.name, "ran", job.attempt))
        tenant.reset(token)

    def settled(self, run: qbull.Settled) -> None:
        self.said.append((self.name, run.state, run.error))


class Patient(qbull.Middleware):
    """Asynchronous ones."""

    def __init__(self, name: str, said: list[Any]) -> None:
        self.name = name
        self.said = said

    @asynccontextmanager
    async def around_enqueue(self, call: qbull.Enqueueing) -> AsyncIterator[None]:
        self.said.append((self.name, "enqueue", call.arguments))
        yield
        self.said.append((self.name, "enqueued", [job.created for job in call.jobs]))

    @asynccontextmanager
    async def around_run(self, job: qbull.CurrentJob) -> AsyncIterator[None]:
        self.said.append((self.name, "run", job.attempt))
        yield
        self.said.append((self.name, "ran", job.attempt))


@pytest.fixture
def said() -> list[Any]:
    return []


def app_with(server_url: str, *middleware: qbull.Middleware, **settings: Any) -> qbull.App:
    return qbull.App(server_url, prefix="test", middleware=middleware, **settings)


async def test_the_first_is_the_outermost_and_headers_reach_the_task(
    server_url: str, store: Store, said: list[Any]
) -> None:
    async with app_with(server_url, Plain("outer", said), Patient("inner", said)) as app:

        @app.queue("mail").task
        def send(to: str) -> str:
            return f"{to} for {tenant.get()}, {dict(qbull.current_job().headers)}"

        job = await send.enqueue(to="ada")
        async with app.worker() as worker:
            answer = await job.result(timeout=10)
            await worker.drain()

    assert answer == "ada for mail/send, {'outer': 'mail/send'}"
    assert said == [
        ("outer", "enqueue", [{"to": "ada"}]),
        ("inner", "enqueue", [{"to": "ada"}]),
        ("inner", "enqueued", [True]),
        ("outer", "enqueued", [True]),
        ("outer", "run", 1),
        ("inner", "run", 1),
        ("inner", "ran", 1),
        ("outer", "ran", 1),
        ("outer", "completed", None),
    ]


async def test_many_are_one_enqueue_and_headers_stay_through_a_retry(
    server_url: str, store: Store, said: list[Any]
) -> None:
    async with app_with(server_url, Plain("log", said)) as app:

        @app.queue("mail", retry=qbull.Retry(delays=(0,))).task
        async def send(n: int) -> str:
            if qbull.current_job().attempt == 1:
                raise OSError("no line")
            return qbull.current_job().headers["log"]

        assert await send.enqueue_many([]) == []
        jobs = await send.enqueue_many([{"n": 1}, {"n": 2}])
        async with app.worker():
            answers = [await job.result(timeout=10) for job in jobs]

    assert answers == ["mail/send"] * 2
    assert said[:2] == [("log", "enqueue", [{"n": 1}, {"n": 2}]), ("log", "enqueued", [True, True])]
    assert said.count(("log", "delayed", "OSError: no line")) == 2
    assert said.count(("log", "completed", None)) == 2


def test_synchronous_callers_have_it_too(server_url: str, said: list[Any]) -> None:
    app = app_with(server_url, Plain("plain", said), Patient("patient", said))

    @app.queue("mail", keep=qbull.Keep(completed=0)).task(id="only-{to}")
    async def send(to: str) -> None: ...

    first, second = send.enqueue_sync(to="ada"), send.enqueue_sync(to="ada")
    app.run_sync(first.remove())
    app.close_sync()

    assert (first.created, second.created) == (True, False)
    assert [what for what in said if what[1] == "enqueued"] == [
        ("patient", "enqueued", [True]),
        ("plain", "enqueued", [True]),
        ("patient", "enqueued", [False]),
        ("plain", "enqueued", [False]),
    ]


async def test_what_is_written_into_a_transaction_has_it_too(
    server_url: str, store: Store, database: str, said: list[Any]
) -> None:
    async with app_with(server_url, Plain("tx", said), Patient("slow", said), database=database) as app:

        @app.queue("mail").task
        async def send(to: str) -> str:
            return qbull.current_job().headers["tx"]

        async with await psycopg.AsyncConnection.connect(database) as connection:
            awaited = await send.options(transaction=connection).enqueue(to="ada")
        job = await asyncio.to_thread(_write, database, send)
        async with app.worker():
            answers = [await awaited.result(timeout=20), await job.result(timeout=20)]
        await asyncio.to_thread(app.close_sync)

    assert answers == ["mail/send"] * 2
    assert said.count(("slow", "enqueued", [True])) == 2


def _write(database: str, send: qbull.Task[..., str]) -> qbull.Job[str]:
    with psycopg.connect(database) as connection:
        return send.options(transaction=connection).enqueue_sync(to="bob")


async def test_a_task_in_a_process_has_it_in_the_worker(
    server_url: str, store: Store, said: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    function = importlib.import_module("cpu_tasks").factorise.spec.function
    async with app_with(server_url, Plain("outer", said)) as app:
        factorise = app.queue("numbers").task(cpu=True)(function)

        job = await factorise.enqueue(n=12)
        async with app.worker():
            assert (await job.result(timeout=20)).factors == (2, 2, 3)

    assert said[2:4] == [("outer", "run", 1), ("outer", "ran", 1)]


class Guard(qbull.Middleware):
    """Refuses what it does not like."""

    @contextmanager
    def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
        if call.arguments[0]["to"] == "mallory":
            raise PermissionError("mallory gets no mail")
        yield
        raise OSError("the log is full")


async def test_what_it_raises_before_refuses_the_job_and_afterwards_is_logged(
    server_url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_with(server_url, Guard()) as app:
        queue = app.queue("mail")

        @queue.task
        async def send(to: str) -> None: ...

        with pytest.raises(PermissionError, match="mallory gets no mail"):
            await send.enqueue(to="mallory")
        job = await send.enqueue(to="ada")

        assert job.created
        assert (await queue.stats()).waiting == 1
        assert f"middleware failed when {job.id} had been enqueued" in caplog.text
        assert "the log is full" in caplog.text


class Spell(qbull.Middleware):
    """Runs badly, in several ways."""

    @contextmanager
    def around_run(self, job: qbull.CurrentJob) -> Iterator[None]:
        if job.task == "never":
            raise qbull.Fail("not today")
        if job.task == "swallowed":
            try:
                yield
            except OSError:
                return
        else:
            yield
            if job.attempt == 1:
                raise OSError("could not clean up")

    def settled(self, run: qbull.Settled) -> None:
        raise ValueError("this must not matter")


async def test_what_it_raises_around_a_run_is_what_the_run_raised(
    server_url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with app_with(server_url, Spell()) as app:
        queue = app.queue("mail", retry=qbull.Retry(delays=(0,)))

        @queue.task
        async def never() -> None: ...

        @queue.task
        async def swallowed() -> int:
            raise OSError("gone")

        @queue.task
        async def twice() -> int:
            return qbull.current_job().attempt

        refused, quiet, again = await never.enqueue(), await swallowed.enqueue(), await twice.enqueue()
        async with app.worker():
            with pytest.raises(qbull.JobFailed, match="not today"):
                await refused.result(timeout=10)
            assert await quiet.result(timeout=10) is None
            assert await again.result(timeout=10) == 2

    assert "middleware Spell.settled: failed" in caplog.text


async def test_a_cancelled_run_is_told_of(server_url: str, store: Store, said: list[Any]) -> None:
    async with app_with(server_url, Plain("log", said)) as app:

        @app.queue("mail").task
        async def send() -> None:
            await asyncio.Event().wait()

        job = await send.enqueue()
        async with app.worker():
            await eventually(lambda: _runs(job))
            await job.cancel("changed my mind")
            with pytest.raises(qbull.JobCancelled):
                await job.result(timeout=10)

    assert ("log", "cancelled", "changed my mind") in said


async def _runs(job: qbull.Job[None]) -> bool:
    return await job.state() == "active"


class Forgotten(qbull.Middleware):
    def around_run(self, job: qbull.CurrentJob) -> Iterator[None]:  # type: ignore[override]
        yield


class Slow(qbull.Middleware):
    async def settled(self, run: qbull.Settled) -> None:  # type: ignore[override]
        """Nobody would wait for it."""


class Empty(qbull.Middleware):
    def around_enqueue(self, call: qbull.Enqueueing) -> Any:
        """Gives None."""


async def test_wrong_middleware_is_said_at_once(server_url: str, store: Store) -> None:
    with pytest.raises(qbull.ConfigError, match=r"Forgotten\.around_run: decorate it with @contextmanager"):
        qbull.App(server_url, middleware=[Forgotten()])
    with pytest.raises(qbull.ConfigError, match=r"Slow\.settled: must be a plain function"):
        qbull.App(server_url, middleware=[Slow()])
    with pytest.raises(qbull.ConfigError, match=r"give a list of qbull\.Middleware"):
        qbull.App(server_url, middleware=[print])  # type: ignore[list-item]
    with pytest.raises(qbull.ConfigError, match=r"give a list of qbull\.Middleware"):
        qbull.App(server_url, middleware=Empty())  # type: ignore[arg-type]
    async with app_with(server_url, Empty()) as app:

        @app.queue("mail").task
        async def send() -> None: ...

        with pytest.raises(qbull.ConfigError, match=r"Empty\.around_enqueue: gave None, no context manager"):
            await send.enqueue()
