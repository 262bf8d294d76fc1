"""Uniqueness: of the jobs that ask for the same thing within a window, only one counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qbull
from conftest import eventually


class Search:
    """A queue with one task, and what it has run."""

    def __init__(self, app: qbull.App, **settings: Any) -> None:
        self.ran: list[str] = []
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.queue = app.queue("search", **settings)

        @self.queue.task
        async def reindex(user_id: str, reason: str) -> str:
            self.begun.set()
            await self.let_go.wait()
            self.ran.append(reason)
            return reason

        self.reindex = reindex

    async def ask(self, reason: str, user_id: str = "u1", **unique: Any) -> qbull.Job[str]:
        options = {"window": 60, "by": ("user_id",)} | unique
        return await self.reindex.options(unique=qbull.Unique(**options)).enqueue(user_id, reason)


async def test_the_first_one_counts_and_others_add_nothing(app: qbull.App) -> None:
    search = Search(app)

    first = await search.ask("signed up")
    second = await search.ask("paid")
    other = await search.ask("signed up", user_id="u2")

    assert (first.created, second.created, other.created) == (True, False, True)
    assert first.id == second.id != other.id
    async with app.worker() as worker:
        await worker.drain()
    assert search.ran == ["signed up", "signed up"]


async def test_a_default_asks_for_the_same_thing_whether_it_is_given_or_not(app: qbull.App) -> None:
    @app.queue("search").task(unique=qbull.Unique(window=60))
    async def reindex(user_id: str, full: bool = False) -> None: ...

    first = await reindex.enqueue("u1")
    second = await reindex.enqueue(user_id="u1", full=False)
    other = await reindex.enqueue("u1", full=True)

    assert (first.created, second.created, other.created) == (True, False, True)


async def test_the_window_goes_on_when_the_job_has_finished(app: qbull.App) -> None:
    search = Search(app)

    first = await search.ask("signed up")
    async with app.worker():
        await first.result(timeout=10)
        second = await search.ask("paid")

    assert (second.created, await second.result()) == (False, "signed up")


async def test_after_the_window_there_is_a_new_one(app: qbull.App) -> None:
    search = Search(app)
    first = await search.ask("signed up", window=0.05)

    async def added() -> bool:
        return (await search.ask("paid", window=0.05)).id != first.id

    await eventually(added)


async def test_of_many_calls_at_once_one_adds_a_job(app: qbull.App) -> None:
    search = Search(app, partitions=4)

    jobs = await asyncio.gather(*(search.ask(f"call {n}") for n in range(100)))

    assert sum(job.created for job in jobs) == 1
    assert len({job.id for job in jobs}) == 1


async def test_a_task_can_be_declared_so(app: qbull.App) -> None:
    @app.queue("search").task(unique=qbull.Unique(window=60, by=("user_id",)))
    async def reindex(user_id: str, reason: str) -> None: ...

    jobs = await reindex.enqueue_many([{"user_id": u, "reason": r} for u in ("a", "b") for r in ("x", "y")])

    assert [job.created for job in jobs] == [True, False, True, False]


async def test_without_by_all_arguments_count(app: qbull.App) -> None:
    search = Search(app)

    jobs = [await search.ask(reason, by=None) for reason in ("x", "y", "x")]

    assert [job.created for job in jobs] == [True, True, False]


async def test_with_an_empty_by_there_is_one_for_the_whole_task(app: qbull.App) -> None:
    search = Search(app)

    jobs = [await search.ask("x", user, by=()) for user in ("a", "b")]

    assert [job.created for job in jobs] == [True, False]


@pytest.mark.parametrize("settings", [{}, {"order": "partition"}])
async def test_the_last_one_counts_while_the_job_waits(app: qbull.App, settings: dict[str, Any]) -> None:
    search = Search(app, **settings)

    jobs = [await search.ask(reason, mode="last") for reason in ("a", "b", "c")]

    assert [job.created for job in jobs] == [True, False, False]
    info = await jobs[0].info()
    assert info is not None and info.payload["reason"] == "c"
    async with app.worker() as worker:
        await worker.drain()
    assert search.ran == ["c"]


async def test_a_delayed_job_takes_the_newer_arguments_and_keeps_its_time(app: qbull.App) -> None:
    search = Search(app)
    unique = qbull.Unique(window=60, by=("user_id",), mode="last")

    first = await search.reindex.options(delay=3600, unique=unique).enqueue("u1", "a")
    before = await first.info()
    await search.reindex.options(unique=unique).enqueue("u1", "b")

    after = await first.info()
    assert before is not None and after is not None
    assert (after.state, after.due_at, after.payload["reason"]) == ("delayed", before.due_at, "b")


async def test_jobs_behind_others_of_their_key_take_the_newer_arguments(app: qbull.App) -> None:
    ran: list[str] = []

    @app.queue("chat", order="key").task(key="{phone}", unique=qbull.Unique(60, ("topic",), "last"))
    async def answer(phone: str, topic: str, text: str) -> None:
        ran.append(f"{topic} {text}")

    for text in ("1", "2"):
        for topic in ("a", "b", "c"):
            await answer.enqueue("+1", topic, text)
    async with app.worker() as worker:
        await worker.drain()

    assert ran == ["a 2", "b 2", "c 2"]


async def test_once_a_worker_has_it_the_next_call_is_a_new_job(app: qbull.App) -> None:
    search = Search(app)
    search.let_go.clear()

    first = await search.ask("a", mode="last")
    async with app.worker() as worker:
        await search.begun.wait()
        second = await search.ask("b", mode="last")
        search.let_go.set()
        await worker.drain()

    assert (second.created, second.id != first.id) == (True, True)
    assert sorted(search.ran) == ["a", "b"]


async def test_debounced_it_runs_after_quiet_with_the_newest_arguments(app: qbull.App) -> None:
    search = Search(app)

    async with app.worker():
        jobs = [await search.ask(letter, window=2, mode="debounce") for letter in "qbull"]
        assert {job.id for job in jobs} == {jobs[0].id}
        assert search.ran == []

        assert await jobs[0].result(timeout=10) == "l"
    assert search.ran == ["l"]


async def test_every_call_puts_a_debounced_job_off(app: qbull.App) -> None:
    search = Search(app)

    job = await search.ask("a", window=60, mode="debounce")
    first = await job.info()
    await asyncio.sleep(0.01)
    await search.ask("b", window=60, mode="debounce")
    second = await job.info()

    assert first is not None and second is not None
    assert first.due_at is not None and second.due_at is not None
    assert second.due_at > first.due_at


async def test_what_comes_while_one_runs_waits_for_its_end(app: qbull.App) -> None:
    search = Search(app, concurrency=5)
    search.let_go.clear()

    async with app.worker() as worker:
        first = await search.ask("running", mode="after", window=None)
        await search.begun.wait()
        others = [await search.ask(reason, mode="after", window=None) for reason in ("a", "b", "c")]

        assert [job.created for job in others] == [True, False, False]
        assert (await first.state(), await others[0].state()) == ("active", "waiting")
        search.let_go.set()
        assert await others[0].result(timeout=10) == "c"
        await worker.drain()

    assert search.ran == ["running", "c"]


async def test_a_job_that_waits_for_its_retry_takes_the_newer_arguments(app: qbull.App) -> None:
    ran: list[tuple[str, int]] = []

    @app.queue("search", retry=qbull.Retry(delays=(0.5,))).task(unique=qbull.Unique(by=(), mode="after"))
    async def reindex(reason: str) -> None:
        ran.append((reason, qbull.current_job().attempt))
        if reason == "a":
            raise ConnectionError("away")

    async with app.worker() as worker:
        job = await reindex.enqueue("a")

        async def waits_for_its_retry() -> bool:
            return await job.state() == "delayed"

        await eventually(waits_for_its_retry)
        again = await reindex.enqueue("b")
        await worker.drain()

    assert (again.created, again.id) == (False, job.id)
    assert ran == [("a", 1), ("b", 1)]


async def test_windows_leave_nothing_behind(app: qbull.App) -> None:
    search = Search(app)

    await search.ask("a", window=0.05)
    await search.ask("b", window=0.05, mode="debounce", by=())

    async def gone() -> bool:
        names = await app._client().store.server.call("KEYS", "*unique:*")
        return names == []

    await eventually(gone)


def test_a_wrong_declaration_is_refused(app: qbull.App) -> None:
    queue = app.queue("search")

    with pytest.raises(qbull.ConfigError, match=r'Unique\(mode="first"\): give window='):
        qbull.Unique()
    with pytest.raises(qbull.ConfigError, match=r"Unique\(window=0\): must be more than 0 seconds"):
        qbull.Unique(window=0)
    with pytest.raises(
        qbull.ConfigError, match=r'mode=.*use "first", "last", "reschedule", "debounce" or "after"'
    ):
        qbull.Unique(window=1, mode="both")  # type: ignore[arg-type]
    with pytest.raises(qbull.ConfigError, match=r'Unique\(by="user_id"\): give a tuple'):
        qbull.Unique(window=1, by="user_id")  # type: ignore[arg-type]
    with pytest.raises(qbull.DeclarationError, match='has no argument "nobody"'):

        @queue.task(unique=qbull.Unique(window=1, by=("nobody",)))
        async def reindex(user_id: str) -> None: ...


async def test_what_does_not_go_together_is_refused(app: qbull.App) -> None:
    search = Search(app)
    debounce = qbull.Unique(window=1, mode="debounce")

    with pytest.raises(qbull.ArgumentsError, match="id and unique: give one of them"):
        await search.reindex.options(id="x", unique=debounce).enqueue("u1", "a")
    with pytest.raises(qbull.ArgumentsError, match="a debounced job has its time from window"):
        await search.reindex.options(delay=1, unique=debounce).enqueue("u1", "a")
    with pytest.raises(qbull.ArgumentsError, match='has no argument "nobody"'):
        await search.reindex.options(unique=qbull.Unique(window=1, by=("nobody",))).enqueue("u1", "a")
    limited = app.queue("export", lane=qbull.Lane(limit=2))
    with pytest.raises(qbull.DeclarationError, match=r'mode="after".*Lane\(limit=2\)'):

        @limited.task(key="{tenant}", unique=qbull.Unique(mode="after"))
        async def export(tenant: str) -> None: ...
