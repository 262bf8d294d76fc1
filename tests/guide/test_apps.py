"""Apps: a connection, a prefix, and a registry of queues. What the code does not say, the environment may."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

import qbull
from conftest import eventually
from qbull.postgres.outbox import Outbox
from qbull.store.store import Store


async def test_apps_with_different_prefixes_do_not_see_each_other(app: qbull.App, server_url: str) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    async with qbull.App(server_url, prefix="other") as other:
        elsewhere = other.queue("email")
        job = await send.enqueue()

        assert (await elsewhere.stats()).total == 0
        assert await elsewhere.job(job.id).info() is None


async def test_a_worker_takes_only_jobs_of_its_own_prefix(app: qbull.App, server_url: str) -> None:
    @app.queue("email").task
    async def send() -> str:
        return "ours"

    async with qbull.App(server_url, prefix="other") as other:

        @other.queue("email").task(name="send")
        async def send_elsewhere() -> str:
            return "theirs"

        ours, theirs = await send.enqueue(), await send_elsewhere.enqueue()
        async with other.worker():
            assert await theirs.result(timeout=10) == "theirs"

        assert await ours.state() == "waiting"


async def test_apps_with_different_databases_do_not_see_each_other(app: qbull.App, server_url: str) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    async with qbull.App(server_url.replace("db=0", "db=1"), prefix="test") as other:
        elsewhere = other.queue("email")
        await send.enqueue()

        assert (await elsewhere.stats()).total == 0
        assert await elsewhere.jobs("waiting") == []


async def test_two_apps_with_the_same_prefix_share_their_queues(app: qbull.App, server_url: str) -> None:
    @app.queue("email").task
    async def send(to: str) -> str:
        return to

    async with qbull.App(server_url, prefix="test:") as other:  # "test:" is "test"
        queue = other.queue("email")
        job = await send.enqueue("a@b.c")

        (seen,) = await queue.jobs("waiting")
        assert (seen.id, seen.payload) == (job.id, {"to": "a@b.c"})


async def test_the_environment_says_what_the_code_does_not(
    app: qbull.App, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server_url)
    monkeypatch.setenv("REDIS_PREFIX", "ceres:")
    monkeypatch.setenv("TOTAL_PARTITIONS", "4")

    async with qbull.App() as configured:
        queue = configured.queue("email")

        @queue.task
        async def send() -> None: ...

        await send.enqueue_many([{} for _ in range(8)])

        assert {job.partition for job in await queue.jobs("waiting")} == {0, 1, 2, 3}
        assert (configured.url, configured.prefix) == (server_url, "ceres")


async def test_what_the_code_says_wins(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBULL_URL", "redis://elsewhere")
    monkeypatch.setenv("QBULL_PREFIX", "elsewhere")
    monkeypatch.setenv("PARTITIONS", "9")

    app = qbull.App(server_url, prefix="here")
    queue = app.queue("email", partitions=2)

    assert (app.url, app.prefix, queue.settings.partitions) == (server_url, "here", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PARTITIONS", "many"),
        ("MIN_IDLE_TIME_MS", "-1"),
        ("QBULL_PREFIX", "{x}"),
        ("QBULL_LOG_LEVEL", "LOUD"),
    ],
)
async def test_a_wrong_value_in_the_environment_stops_the_start(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(qbull.ConfigError, match=f"^{name}='{value}': "):
        qbull.App("redis://localhost")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://localhost", 'unknown scheme "http"; use one of redis://'),
        ("redis://:secret@localhost:99999", "the port must be a number"),
        ("redis://", "it names no host"),
        ("redis://localhost/five", 'the database must be a number, not "five"'),
        ("localhost:6379", "unknown scheme"),
    ],
)
async def test_a_wrong_address_is_said_at_once_and_without_the_password(url: str, message: str) -> None:
    with pytest.raises(qbull.ConfigError, match=message) as refused:
        qbull.App(url)

    assert "secret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_said_at_the_first_call(app: qbull.App) -> None:
    async with qbull.App("redis://127.0.0.1:1") as lost:

        @lost.queue("email").task
        async def send() -> None: ...

        with pytest.raises(qbull.ServerAway, match=r"127\.0\.0\.1:1: cannot be reached"):
            await send.enqueue()


async def test_a_queue_is_declared_once(app: qbull.App) -> None:
    app.queue("email")

    with pytest.raises(qbull.ConfigError, match='queue "email": declared twice'):
        app.queue("email")


async def test_a_task_name_is_there_once_in_a_queue(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send() -> None: ...

    with pytest.raises(qbull.DeclarationError, match='queue "email": task "send" is there twice'):

        @queue.task(name="send")
        async def another() -> None: ...


async def test_the_number_of_partitions_is_the_same_for_all(app: qbull.App, server_url: str) -> None:
    @app.queue("email", partitions=4).task
    async def send() -> None: ...

    await send.enqueue()
    async with qbull.App(server_url, prefix="test") as other:

        @other.queue("email", partitions=8).task(name="send")
        async def send_elsewhere() -> None: ...

        with pytest.raises(qbull.ConfigError, match='queue "email": partitions=8 but the server has 4'):
            await send_elsewhere.enqueue()


async def test_the_queue_for_a_worker_must_be_known(app: qbull.App) -> None:
    app.queue("email")

    with pytest.raises(qbull.NotFound, match='queue "mail": not declared in this app; it has: email'):
        app.worker(queues=["mail"])


async def test_an_app_without_queues_has_no_worker(app: qbull.App) -> None:
    with pytest.raises(qbull.ConfigError, match="this app has no queues"):
        app.worker()


async def test_what_cannot_be_closed_keeps_nothing_else_open(
    server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Outbox) -> None:
        raise OSError("the database is away")

    async def connections() -> int:
        return len((await store.server.call("CLIENT", "LIST")).splitlines())

    monkeypatch.setattr(Outbox, "close", fail)
    before = await connections()
    app = qbull.App(server_url, database="postgresql://127.0.0.1:1/shop")
    await app.queue("email").stats()
    app._client().outbox(app.database)
    while_open = await connections()

    with pytest.raises(OSError, match="the database is away"):
        await app.close()

    async def are_closed() -> bool:
        return await connections() <= before

    await eventually(are_closed)
    assert while_open > before


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
async def test_a_fork_does_not_disturb_its_parent(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    await send.enqueue()
    child = os.fork()
    if child == 0:
        gc.collect()  # as it happens in a child that lives for a while
        os._exit(0)
    os.waitpid(child, 0)

    async with asyncio.timeout(5):
        await send.enqueue()
