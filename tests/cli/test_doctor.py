"""doctor: what is wrong, and what to do. Each test has a server of its own, since most of them harm it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from own import open_own  # noqa: F401 - a fixture
from sample_app import SampleApp
from shell import Shell

import qbull
from conftest import eventually
from qbull.store import clock
from qbull.store.store import Store


@pytest.fixture
async def broken(own: str) -> AsyncIterator[Store]:
    store = Store(own, "test")
    yield store
    await store.close()


@pytest.fixture
async def sample(own: str) -> AsyncIterator[SampleApp]:
    async with qbull.App(own, prefix="test") as app:
        yield SampleApp(app)


@pytest.fixture
def shell(own: str, tmp_path: Path) -> Shell:
    return Shell(own, tmp_path)


def examine(shell: Shell, **environment: str) -> dict[str, Any]:
    done = shell.run("doctor", "--json", **environment)
    found: dict[str, Any] = json.loads(done.out)
    assert done.code == (0 if found["ok"] else 1)
    return found


def lines(found: dict[str, Any], level: str) -> str:
    return "\n".join(
        f"{f['subject']}: {f['fact']}; {f['next']}" for f in found["findings"] if f["level"] == level
    )


async def test_a_sound_server_has_no_problems(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")
    async with sample.email.app.worker():
        found = await asyncio.to_thread(examine, shell)
        shown = await asyncio.to_thread(shell.ok, "doctor")

    assert found["ok"] is True
    assert lines(found, "problem") == lines(found, "note") == ""
    assert 'durability: "durable"' in lines(found, "ok")
    assert 'queue "email": the data of its 1 jobs in 1 partition is consistent' in lines(found, "ok")
    assert "workers: 1 alive" in lines(found, "ok")
    assert shown.endswith("no problems\n")


async def test_waiting_jobs_without_a_worker_are_noted_and_become_a_problem(
    shell: Shell, sample: SampleApp, own: str
) -> None:
    await sample.send.enqueue(to="a")
    assert 'queue "email": 1 waiting and no worker; run "qbull worker' in lines(examine(shell), "note")

    async with qbull.App(f"{own}?test_clock=1", prefix="test") as earlier:
        await clock.advance_clock(earlier._client().store, -3_600_000)
        await SampleApp(earlier).send.options(priority=1).enqueue(to="b")
    found = lines(examine(shell), "problem")
    assert 'queue "email": 2 jobs wait and no worker serves it; run "qbull worker' in found


async def test_a_job_out_of_place_is_a_problem(shell: Shell, sample: SampleApp, broken: Store) -> None:
    job = await sample.send.options(delay=60).enqueue(to="a")
    await broken.server.call("ZREM", broken.names.partition("email", 0) + "delayed", job.id)

    assert f"job {job.id}: index says" in lines(examine(shell), "problem")


async def test_settings_that_cannot_be_read_are_a_problem(
    shell: Shell, sample: SampleApp, broken: Store
) -> None:
    await sample.send.enqueue(to="a")
    await broken.server.call("HSET", broken.names.settings("email"), "declared", "{")

    assert "its settings on the server cannot be read" in lines(examine(shell), "problem")


@pytest.mark.parametrize(
    ("setting", "level", "line"),
    [
        (("maxmemory-policy", "allkeys-lru"), "problem", 'maxmemory-policy is "allkeys-lru"'),
        (("appendonly", "no"), "problem", "no append-only file: a restart loses jobs"),
        (("appendfsync", "no"), "problem", "appendfsync no"),
        (("appendfsync", "everysec"), "note", 'durability: "fast"'),
        (("no-appendfsync-on-rewrite", "yes"), "note", 'durability: "fast"'),
        (("maxmemory", "0"), "note", "maxmemory is not set"),
        (("maxmemory", "1mb"), "problem", "new jobs will soon be refused"),
    ],
)
async def test_the_servers_settings_are_judged(
    shell: Shell, broken: Store, setting: tuple[str, str], level: str, line: str
) -> None:
    await broken.server.call("CONFIG", "SET", *setting)

    assert line in lines(examine(shell), level)


async def test_missing_rights_are_named(shell: Shell, own: str, broken: Store) -> None:
    await broken.server.call(
        "ACL", "SETUSER", "guest", "on", ">word", "~*", "&*", "+@all", "-config", "-@scripting"
    )

    found = examine(shell, QBULL_URL=f"unix://guest:word@{own.rpartition('@')[2]}")

    assert "allow the user EVAL" in lines(found, "problem")
    assert '"durable" is not: it has settings that this user may not read' in lines(found, "note")


async def test_a_silent_worker_is_noted(shell: Shell, broken: Store) -> None:
    await broken.server.call("ZADD", broken.names.workers, 1, "ghost")

    assert "workers: ghost sends no heartbeats any more; start a worker" in lines(examine(shell), "note")


async def test_dead_letters_are_noted(shell: Shell, sample: SampleApp) -> None:
    await sample.bounce.enqueue(to="a")
    async with sample.email.app.worker() as worker:
        await worker.drain()

    assert 'queue "email": 1 jobs failed permanently' in lines(examine(shell), "note")


async def test_what_waits_for_a_person_is_noted_as_the_api_says_it(shell: Shell, sample: SampleApp) -> None:
    app = sample.email.app
    pay = app.queue("pay", order="key", on_failed="halt", retry=qbull.Retry(attempts=1))

    @pay.task(key="{account}")
    async def charge(account: str) -> None:
        raise TimeoutError("the bank does not answer")

    for _ in range(3):
        await charge.enqueue("ann")
    await sample.bounce.enqueue(to="a")
    await sample.email.pause()
    async with app.worker():
        await eventually(lambda: _failed(pay))

    noted = lines(examine(shell), "note")
    assert (
        'queue "pay": 1 key is halted by a dead letter, 2 jobs wait behind; see "qbull partitions pay"'
        in noted
    )
    assert 'queue "email": paused, 1 job waits; run "qbull resume email"' in noted


async def _failed(queue: qbull.Queue) -> bool:
    return (await queue.stats()).failed == 1


def test_a_server_that_is_away_is_a_problem(shell: Shell) -> None:
    found = examine(shell, QBULL_URL="redis://127.0.0.1:1")

    assert "cannot be reached" in lines(found, "problem")
    assert len(found["findings"]) == 1


async def test_something_of_the_wrong_type_is_named(shell: Shell, sample: SampleApp, broken: Store) -> None:
    await sample.send.enqueue(to="a")
    await broken.server.call("SET", "{test:email:0}:delayed", "not ours")

    done = shell.run("doctor")

    assert done.code == 1
    assert (
        'queue "email": the key "{test:email:0}:delayed": is a string, and must be a zset; another'
        in done.out
    )
