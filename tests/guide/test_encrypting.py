"""Compressing, encrypting, signing: how arguments and results lie on the server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store

OLD, NEW = qbull.Encrypted.new_key(), qbull.Encrypted.new_key()
SECRET = "4111-1111-1111-1111"


def app_with(server_url: str, *middleware: qbull.Middleware, **settings: Any) -> qbull.App:
    return qbull.App(server_url, prefix="test", middleware=middleware, **settings)


def charging(app: qbull.App, **settings: Any) -> qbull.Task[..., dict[str, str]]:
    @app.queue("billing", retry=qbull.Retry(attempts=1), **settings).task
    async def charge(card: str) -> dict[str, str]:
        return {"charged": card}

    return charge


async def on_the_server(store: Store) -> bytes:
    """All that is stored, in one piece."""
    found = b""
    cursor = b"0"
    while True:
        cursor, names = await store.server.call("SCAN", cursor, "COUNT", 1000)
        for name in names:
            found += await store.server.call("DUMP", name) or b""
        if cursor == b"0":
            return found


@pytest.mark.parametrize("codec", [qbull.Encrypted([NEW]), qbull.Signed([NEW])])
async def test_patched_arguments_are_protected_again_and_refused_without_the_key(
    server_url: str, store: Store, codec: qbull.Middleware
) -> None:
    async with app_with(server_url, codec) as app, app_with(server_url) as stranger:
        fails = True

        @app.queue("billing", retry=qbull.Retry(attempts=1)).task
        async def charge(card: str, amount: int) -> str:
            if fails:
                raise ConnectionError("no till")
            return f"{card} {amount}"

        job = await charge.enqueue(card=SECRET, amount=1)
        async with app.worker() as worker:
            await worker.drain()
        fails = False
        steps: list[qbull.Redriven] = []

        refused = await stranger.queue("billing").redrive(patch={"amount": 2}, on_step=steps.append)
        redriven = await app.queues["billing"].redrive(patch={"amount": 2})
        stored = await on_the_server(store)
        async with app.worker():
            answer = await job.result(timeout=10)

    assert (refused, redriven, answer) == (0, 1, f"{SECRET} 2")
    assert steps[-1].refused == 1
    assert "key" in (steps[-1].refusal or "")
    assert isinstance(codec, qbull.Signed) or SECRET.encode() not in stored


async def test_arguments_and_results_are_encrypted_on_the_server(server_url: str, store: Store) -> None:
    async with app_with(server_url, qbull.Encrypted([NEW])) as app:
        charge = charging(app)

        job = await charge.enqueue(card=SECRET)
        waiting = await on_the_server(store)
        async with app.worker():
            answer = await job.result(timeout=10)
        finished = await on_the_server(store)
        info = await job.info()
        api = qbull.asgi(app, qbull.Access(admin_token="a-token-that-is-long-enough-to-be-one"))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(api), base_url="http://localhost"
        ) as client:
            client.headers["authorization"] = "Bearer a-token-that-is-long-enough-to-be-one"
            shown = (await client.get(f"/api/queues/billing/jobs/{job.id}")).json()
        await api.close()

    assert answer == {"charged": SECRET}
    assert SECRET.encode() not in waiting + finished
    assert info is not None
    assert list(info.payload) == list(info.result) == ["encrypted"]
    assert (shown["payload"], shown["result"]) == (info.payload, info.result)


async def test_all_three_work_together_and_a_large_payload_gets_small(server_url: str, store: Store) -> None:
    codecs = (qbull.Compressed(over=100), qbull.Encrypted([NEW]), qbull.Signed([OLD]))
    async with app_with(server_url, *codecs) as app:
        charge = charging(app)

        job = await charge.enqueue(card=SECRET * 5000)
        size = len(await on_the_server(store))
        async with app.worker():
            answer = await job.result(timeout=10)

    assert answer == {"charged": SECRET * 5000}
    assert size < 5000


async def test_keys_are_changed_one_process_after_the_other(server_url: str, store: Store) -> None:
    async with (
        app_with(server_url, qbull.Encrypted([OLD])) as before,
        app_with(server_url, qbull.Encrypted([NEW, OLD])) as after,
    ):
        charge, charge_anew = charging(before), charging(after)

        jobs = [await charge.enqueue(card="old"), await charge_anew.enqueue(card="new")]
        async with after.worker():
            answers = [await after.job("billing", job.id).result(timeout=10) for job in jobs]

        assert answers == [{"charged": "old"}, {"charged": "new"}]
        with pytest.raises(
            qbull.PayloadError, match=r"its result is encrypted with key .*, which is not among"
        ):
            await before.job("billing", jobs[1].id).result(timeout=10)


async def test_what_cannot_be_opened_is_a_dead_letter_and_runs_when_the_key_is_there(
    server_url: str, store: Store
) -> None:
    async with (
        app_with(server_url, qbull.Encrypted([NEW])) as producer,
        app_with(server_url) as keyless,
        app_with(server_url, qbull.Encrypted([OLD])) as mistaken,
    ):
        job = await charging(producer).enqueue(card=SECRET)
        charging(keyless), charging(mistaken)

        async with keyless.worker() as worker:
            await worker.drain()
        said = (await job.info()).error  # type: ignore[union-attr]
        await job.retry()
        async with mistaken.worker() as worker:
            await worker.drain()
        said_then = (await job.info()).error  # type: ignore[union-attr]
        await job.retry()
        async with producer.worker():
            answer = await job.result(timeout=10)

    assert said is not None and said_then is not None
    assert said.startswith('task "charge": its payload is encrypted with key ')
    assert said.endswith("and this app has no keys; give it middleware=[qbull.Encrypted(…)]")
    assert said_then.endswith("which is not among those of this app")
    assert "\n" not in said + said_then
    assert answer == {"charged": SECRET}


async def test_a_worker_without_the_setting_reads_what_is_compressed_or_signed(
    server_url: str, store: Store
) -> None:
    async with (
        app_with(server_url, qbull.Compressed(over=10), qbull.Signed([NEW])) as producer,
        app_with(server_url) as plain,
    ):
        job = await charging(producer).enqueue(card="x" * 500)
        info = await job.info()
        charging(plain)
        async with plain.worker():
            answer = await plain.job("billing", job.id).result(timeout=10)

    assert info is not None
    assert info.payload == {"card": "x" * 500}
    assert answer == {"charged": "x" * 500}


async def test_a_worker_runs_only_what_is_signed(server_url: str, store: Store) -> None:
    async with (
        app_with(server_url, qbull.Signed([NEW])) as signing,
        app_with(server_url) as stranger,
        app_with(server_url, qbull.Signed([OLD])) as other,
        app_with(server_url, qbull.Signed([NEW], require=False)) as lenient,
    ):
        unsigned = await charging(stranger).enqueue(card="unsigned")
        foreign = await charging(other).enqueue(card="foreign")
        mine = await charging(signing).enqueue(card="mine")
        charging(lenient)

        async with signing.worker():
            assert await mine.result(timeout=10) == {"charged": "mine"}
            with pytest.raises(qbull.JobFailed, match="its payload is not signed, and this app requires it"):
                await unsigned.result(timeout=10)
            with pytest.raises(qbull.JobFailed, match=r"is signed with key .*, which is not among those"):
                await foreign.result(timeout=10)
        await unsigned.retry()
        async with lenient.worker():
            assert await unsigned.result(timeout=10) == {"charged": "unsigned"}


async def test_edited_arguments_schedules_and_the_command_line_are_encrypted_too(
    server_url: str, store: Store
) -> None:
    async with app_with(server_url, qbull.Encrypted([NEW], require=True)) as app:
        queue = app.queue("billing", order="key", retry=qbull.Retry(attempts=1))

        @queue.task(key="{user}")
        async def charge(user: str, card: str) -> str:
            if card == "bad":
                raise qbull.Fail("refused")
            return card

        job = await charge.enqueue(user="u", card="bad")
        await app.schedules.upsert("monthly", charge, every=3600, args={"user": "u", "card": SECRET})
        async with app.worker() as worker:
            ticked = await app.schedules.run("monthly")
            assert await ticked.result(timeout=10) == SECRET
            await worker.drain()
            await job.retry({"user": "u", "card": "good"})
            assert await app.job(queue, job.id).result(timeout=10) == "good"
        await app.schedules.remove("monthly")


PROTECTED = (qbull.Compressed(over=100), qbull.Encrypted([NEW]), qbull.Signed([OLD]))


async def test_jobs_of_every_kind_are_protected_and_run(server_url: str, store: Store) -> None:
    """Custom ids, keys, headers, unique jobs that take over later arguments, flows with a fallback."""

    class Tenant(qbull.Middleware):
        @contextmanager
        def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
            call.headers["tenant"] = "acme"
            yield

    ran: list[Any] = []
    async with app_with(server_url, *PROTECTED, Tenant()) as app:
        queue = app.queue("billing", order="key", partitions=2, retry=qbull.Retry(attempts=1))
        loose = app.queue("loose", partitions=2, retry=qbull.Retry(attempts=1))

        @queue.task(id="charge:{n}", key="{user}")
        async def charge(n: int, user: str) -> int:
            ran.append((n, qbull.current_job().headers["tenant"]))
            return n

        @loose.task
        async def refresh(user: str, at: int) -> int:
            return at

        @loose.task
        async def fail() -> None:
            raise qbull.Fail("no")

        @loose.task
        async def collect() -> Any:
            return list(qbull.current_job().results)

        charged = [await charge.enqueue(n=n, user="u") for n in range(5)]
        again = await charge.enqueue(n=0, user="u")
        unique = {
            mode: [
                await refresh.options(unique=qbull.Unique(window=60, by=("user",), mode=mode)).enqueue(
                    user=mode, at=at
                )
                for at in (1, 2)
            ]
            for mode in ("first", "last", "after")
        }
        flow = await qbull.group(
            charge.step(n=7, user="v"),
            qbull.chain(fail.step(), fallback=refresh.step(user="f", at=9)),
            then=collect.step(),
        ).enqueue()
        async with app.worker():
            results = [await job.result(timeout=20) for job in charged]
            refreshed = {mode: await jobs[0].result(timeout=20) for mode, jobs in unique.items()}
            collected = await flow.result(timeout=20)

    assert results == list(range(5)) and not again.created
    assert [run for run in ran if run[0] < 5] == [(n, "acme") for n in range(5)]
    assert refreshed == {"first": 1, "last": 2, "after": 2}
    assert collected == [7, 9]


async def test_schedules_are_protected_on_the_server_and_each_run_has_its_own_id(
    server_url: str, store: Store
) -> None:
    ran: list[str] = []
    async with app_with(server_url, *PROTECTED) as app:
        queue = app.queue("billing")

        @queue.cron(every=1, catch_up="all", overlap="allow", args={"card": SECRET})
        async def charge(card: str) -> None:
            ran.append(qbull.current_job().id)

        await app.schedules.upsert("second", charge, every=1, args={"card": SECRET})
        async with app.worker():
            await eventually(lambda: _true(len(ran) >= 4))
        there = await on_the_server(store)
        shown = await app.schedules.get("charge")

    assert SECRET.encode() not in there
    assert len(set(ran)) == len(ran)
    assert list(shown.args) == ["encrypted"]


async def _true(value: bool) -> bool:
    return value


async def test_a_signed_schedule_is_shown_as_it_is_and_survives_a_restart(
    server_url: str, store: Store
) -> None:
    async with app_with(server_url, qbull.Signed([NEW])) as app:
        charge = charging(app)
        charge.queue.cron(every=3600, name="monthly", args={"card": "c"})(charge)
        async with app.worker():
            first = await app.schedules.get("monthly")
        revision = await schedule_revision(store, "monthly")
        async with app.worker():
            second = await app.schedules.get("monthly")
        same = await schedule_revision(store, "monthly")

    assert first.args == second.args == {"card": "c"}
    assert (first.source, same) == ("code", revision)


async def schedule_revision(store: Store, name: str) -> bytes:
    revision: bytes = await store.server.call(
        "HGET", store.names.partition("billing", 0) + f"schedule:{name}", "rev"
    )
    return revision


async def test_an_existing_queue_is_moved_in_two_steps(server_url: str, store: Store) -> None:
    """The steps of the guide: unprotected jobs and schedules first, then lenient apps, then strict ones."""
    lenient = (qbull.Encrypted([NEW], require=False), qbull.Signed([OLD], require=False))
    async with (
        app_with(server_url) as before,
        app_with(server_url, *lenient) as moving,
        app_with(server_url, qbull.Encrypted([NEW]), qbull.Signed([OLD])) as after,
    ):
        apps = {
            name: charging(app) for name, app in (("before", before), ("moving", moving), ("after", after))
        }
        for task in apps.values():
            task.queue.cron(every=3600, name="monthly", args={"card": "code"})(task)
        await before.schedules.upsert("own", apps["before"], every=3600, args={"card": "own"})
        early = await apps["before"].enqueue(card="early")
        left = await apps["before"].options(delay=600).enqueue(card="left")
        async with before.worker():
            await early.result(timeout=10)

        waiting = await apps["before"].enqueue(card="waiting")
        async with moving.worker():
            assert await moving.job("billing", waiting.id).result(timeout=10) == {"charged": "waiting"}
            assert await moving.job("billing", early.id).result(timeout=10) == {"charged": "early"}
            await moving.schedules.upsert("own", apps["moving"], every=3600, args={"card": "own"})
            protected = await apps["moving"].options(delay=600).enqueue(card="protected")

        async with after.worker():
            await protected.promote()
            assert await after.job("billing", protected.id).result(timeout=10) == {"charged": "protected"}
            for name, card in (("own", "own"), ("monthly", "code")):
                run = await after.schedules.run(name)
                assert await run.result(timeout=10) == {"charged": card}
            await left.promote()
            with pytest.raises(qbull.JobFailed, match="its payload is not signed"):
                await left.result(timeout=10)
        await left.retry()
        async with moving.worker():
            assert await moving.job("billing", left.id).result(timeout=10) == {"charged": "left"}


async def test_the_outbox_is_encrypted_and_a_relay_needs_no_key(
    server_url: str, store: Store, database: str
) -> None:
    async with app_with(server_url, qbull.Encrypted([NEW]), database=database) as app:
        charge = charging(app)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            job = await charge.options(transaction=connection).enqueue(card=SECRET)
            [[row]] = await (await connection.execute("SELECT payload::text FROM qbull_outbox")).fetchall()
        async with app.worker():
            answer = await job.result(timeout=20)

    assert row.startswith('"')
    assert SECRET not in row
    assert answer == {"charged": SECRET}


async def test_a_large_result_is_encrypted_where_it_is_kept(
    server_url: str, store: Store, tmp_path: Path
) -> None:
    results = qbull.FileResults(tmp_path, over=10)
    async with app_with(server_url, qbull.Encrypted([NEW]), results=results) as app:
        job = await charging(app).enqueue(card=SECRET)
        async with app.worker():
            answer = await job.result(timeout=10)

    [kept] = [path.read_bytes() for path in tmp_path.rglob("billing-*")]
    assert answer == {"charged": SECRET}
    assert SECRET.encode() not in kept


@pytest.fixture
async def numbers(server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("cpu_tasks", None)
    import cpu_tasks

    async with app_with(server_url, qbull.Encrypted([NEW])) as app:
        yield app, app.queue("numbers").task(cpu=True)(cpu_tasks.factorise.spec.function)
    sys.modules.pop("cpu_tasks", None)


async def test_a_process_gets_its_arguments_without_a_key(numbers: Any) -> None:
    app, factorise = numbers

    job = await factorise.enqueue(n=12)
    async with app.worker():
        answer = await job.result(timeout=20)

    assert answer.factors == (2, 2, 3)


def test_wrong_settings_are_said_at_once() -> None:
    for wrong, line in (
        (lambda: qbull.Encrypted(NEW), "give a list of keys, the one to use first"),
        (lambda: qbull.Encrypted([]), "give a list of keys"),
        (lambda: qbull.Signed(["no key"]), r"a key is not base64; make one with qbull\.Signed\.new_key\(\)"),
        (lambda: qbull.Signed([b"short"]), "a key must have 32 bytes"),
        (lambda: qbull.Compressed(level=0), "give 1"),
        (lambda: qbull.App(middleware=[qbull.Signed([NEW]), qbull.Signed([OLD])]), "Signed is there twice"),
        (
            lambda: qbull.App(middleware=[qbull.Encrypted([NEW]), qbull.Compressed()]),
            "put Compressed before Encrypted",
        ),
    ):
        with pytest.raises(qbull.ConfigError, match=line):
            wrong()
