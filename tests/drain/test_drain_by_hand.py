"""Draining hand-made lists and streams: each message once, pending ones included, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from producers import Killed, Mortal, Old, move, open_old, open_old_server  # noqa: F401 - two are fixtures
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.drain.by_hand import ListSource, MessageFormat, StreamSource
from qbull.drain.move import DrainReport
from qbull.drain.source import SourceServer
from qbull.errors import ArgumentsError, NotFound

NOTE = MessageFormat(task="note")


class NewApp:
    def __init__(self, url: str) -> None:
        self.app = qbull.App(url, prefix="test")
        self.ran: list[Any] = []
        jobs = self.app.queue("jobs", keep=qbull.Keep(completed=0, failed=100))

        @jobs.task
        async def note(n: int, tags: list[str] | None = None) -> None:
            self.ran.append(n if tags is None else (n, tags))

        @jobs.task
        async def say(text: str, day: date | None = None) -> None:
            self.ran.append(text if day is None else (text, day))

    async def lists(self, old: Old, form: MessageFormat, *names: str, **options: Any) -> DrainReport:
        dry = options.pop("dry", False)
        return await move(
            self.app, ListSource(SourceServer(old.url, "list"), form, names, **options), dry=dry
        )

    async def streams(self, old: Old, form: MessageFormat, *names: str, **options: Any) -> DrainReport:
        options = {"group": "workers", "min_idle": 0, **options}
        source = StreamSource(SourceServer(old.url, "stream"), form, names, **options)
        return await move(self.app, source, dry=options.get("dry", False))

    async def work(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()


@pytest.fixture
async def new(server_url: str, store: Any) -> AsyncIterator[NewApp]:
    new = NewApp(server_url)
    yield new
    await new.app.close()


def pending(old: Old, stream: str = "jobs", group: str = "workers") -> int:
    return int(old.redis.xpending(stream, group)["pending"])


async def test_equal_messages_of_a_list_are_jobs_of_their_own(old: Old, new: NewApp) -> None:
    for n in (1, 2, 2, 2, 3):
        old.redis.lpush("orders", json.dumps({"n": n}))
    old.redis.lpush("processing", json.dumps({"n": 9}))

    report = await new.lists(old, NOTE, "orders", processing=["processing"])
    await new.work()

    assert Counter(new.ran) == Counter([1, 2, 2, 2, 3, 9])
    assert (report.moved["orders"], report.moved["processing"], old.left()) == (5, 1, set())


@pytest.mark.parametrize("pop", ["right", "left"])
async def test_the_oldest_message_of_a_list_comes_first(old: Old, new: NewApp, pop: str) -> None:
    push = old.redis.lpush if pop == "right" else old.redis.rpush
    steps = new.app.queue("steps", order="key")

    @steps.task(key="{who}")
    async def walk(who: str, step: int) -> None:
        new.ran.append(step)

    for step in range(300):
        push("feet", json.dumps({"who": "ann", "step": step}))

    await new.lists(old, MessageFormat(task="walk"), "feet", pop=pop)
    await new.work()

    assert new.ran == list(range(300))


async def test_a_message_may_name_its_task_and_hold_its_arguments(old: Old, new: NewApp) -> None:
    form = MessageFormat(task_field="type", args_field="payload", id_field="id", snake_case=True)
    message = {"type": "Say", "payload": {"text": "hello"}, "id": "mine", "at": 5}
    old.redis.lpush("a:1", json.dumps(message))
    old.redis.lpush("a:2", json.dumps({**message, "id": "other", "payload": "plain"}))
    old.redis.lpush("a:2", json.dumps({"payload": {}}), b"\xff", "no object")

    dry = await new.lists(old, form, "a:*", dry=True)
    report = await move(
        new.app, ListSource(SourceServer(old.url, "list"), form, ["a:*"]), names={"Say": "say"}
    )
    await new.work()

    assert sorted(new.ran) == ["hello", "plain"]
    assert dry.left.total() == 5
    reasons = " | ".join(why for _, _, why in report.left)
    assert 'it has no field "type"' in reasons
    assert "it is not text" in reasons
    assert old.redis.llen("a:2") == 3


async def test_waiting_and_pending_entries_of_a_group_are_moved_and_done_ones_are_not(
    old: Old, new: NewApp
) -> None:
    for n in range(10):
        old.redis.xadd("jobs", {"n": n, "tags": '["a"]'})
    old.redis.xgroup_create("jobs", "workers", "0")
    read = old.redis.xreadgroup("workers", "one", {"jobs": ">"}, count=6)
    entries = [id for id, _ in read[0][1]]
    old.redis.xack("jobs", "workers", *entries[:3])

    fresh = await new.streams(old, NOTE, "jobs", min_idle=3600)
    report = await new.streams(old, NOTE, "jobs")
    await new.work()

    assert (fresh.moved["jobs"], fresh.held) == (4, 3)
    assert report.moved["jobs"] == 3
    assert sorted(new.ran) == [(n, ["a"]) for n in range(3, 10)]
    assert pending(old) == 0
    assert [id for id, _ in old.redis.xrange("jobs")] == entries[:3]


async def test_the_order_of_a_stream_is_kept_for_each_key(old: Old, new: NewApp) -> None:
    steps = new.app.queue("steps", partitions=3, order="key")

    @steps.task(key="{who}")
    async def walk(who: str, step: int) -> None:
        new.ran.append((who, step))

    for step in range(150):
        for who in ("ann", "bob"):
            old.redis.xadd("feet:0", {"data": json.dumps({"who": who, "step": step})})
    old.redis.xgroup_create("feet:0", "workers", "0")
    old.redis.xreadgroup("workers", "one", {"feet:0": ">"}, count=40)

    await new.streams(old, MessageFormat(task="walk", args_field="data"), "feet:*")
    await new.work()

    for who in ("ann", "bob"):
        assert [step for name, step in new.ran if name == who] == list(range(150))


async def test_other_groups_of_a_stream_lose_nothing(old: Old, new: NewApp) -> None:
    for n in range(6):
        old.redis.xadd("jobs", {"n": n if n != 3 else "three"})
    for group in ("workers", "audit"):
        old.redis.xgroup_create("jobs", group, "0")
    old.redis.xreadgroup("workers", "one", {"jobs": ">"}, count=2)

    dry = await new.streams(old, NOTE, "jobs", dry=True)
    report = await new.streams(old, NOTE, "jobs")
    await new.work()

    assert sorted(new.ran) == [0, 1, 2, 4, 5]
    assert (dry.moved, dry.left) == (report.moved, report.left)
    assert len(old.redis.xreadgroup("audit", "one", {"jobs": ">"})[0][1]) == 6
    assert pending(old) == 1
    assert [entry["consumer"] for entry in old.redis.xpending_range("jobs", "workers", "-", "+", 9)] == [
        b"qbull-drain"
    ]


async def test_a_stream_without_a_group_is_moved_as_a_whole(old: Old, new: NewApp) -> None:
    old.redis.xadd("jobs", {"text": "5", "day": "2026-01-02"})
    old.redis.xadd("jobs", {"text": "x", "day": "no day"})

    report = await new.streams(old, MessageFormat(task="say"), "jobs", group=None)
    await new.work()
    old.redis.xgroup_create("jobs", "workers", "0")

    assert new.ran == [("5", date(2026, 1, 2))]
    assert report.left.total() == 1
    with pytest.raises(NotFound, match="has consumer groups; say which with --group"):
        await new.streams(old, NOTE, "jobs", group=None)
    with pytest.raises(NotFound, match=r'has no group "other"\. There is: workers'):
        await new.streams(old, NOTE, "jobs", group="other")
    with pytest.raises(NotFound, match='"jobs" is a stream, not a list'):
        await new.lists(old, NOTE, "jobs")
    with pytest.raises(ArgumentsError, match="Give --task NAME, or --task-field FIELD"):
        MessageFormat()


async def test_messages_that_another_drain_has_set_aside_wait_for_it(old: Old, new: NewApp) -> None:
    old.redis.lpush("notes", json.dumps({"n": 1}))
    dying = Mortal(old.url, "list", 4, heard=True)
    with pytest.raises(Killed):
        await move(new.app, ListSource(dying, NOTE, ["notes"]))
    assert old.redis.hlen("qbull:drain:list") == 1

    other = await new.lists(old, MessageFormat(task="say"), "texts")
    assert 'set it aside from "notes"' in next(iter(other.left))[2]
    await new.lists(old, NOTE, "notes")
    await new.work()

    assert (new.ran, old.left()) == ([1], set())


def fill(old: Old, kind: str) -> None:
    """Three messages, and one that a consumer has."""
    if kind == "list":
        old.redis.lpush("jobs", *(json.dumps({"n": n}) for n in (1, 2, 2)))
        old.redis.lpush("taken", json.dumps({"n": 4}))
        return
    for n in (4, 1, 2, 2):
        old.redis.xadd("jobs", {"n": n})
    old.redis.xgroup_create("jobs", "workers", "0")
    if kind == "shared stream":
        old.redis.xgroup_create("jobs", "audit", "0")
    old.redis.xreadgroup("workers", "one", {"jobs": ">"}, count=1)


def source_of(old: SourceServer, kind: str) -> Any:
    if kind == "list":
        return ListSource(old, NOTE, ["jobs"], processing=["taken"])
    return StreamSource(old, NOTE, ["jobs"], group="workers", min_idle=0)


@pytest.mark.parametrize("heard", [False, True], ids=["before it is sent", "before it is answered"])
@pytest.mark.parametrize("kind", ["list", "stream", "shared stream"])
async def test_a_drain_that_dies_at_any_command_goes_on_and_each_runs_once(
    old: Old, new: NewApp, kind: str, heard: bool
) -> None:
    name = kind.removeprefix("shared ")
    deaths = 0
    async with new.app.worker() as worker:
        for at in range(1, 100):
            new.ran.clear()
            old.redis.flushall()
            fill(old, kind)
            dying = Mortal(old.url, name, at, heard=heard)
            try:
                await move(new.app, source_of(dying, kind))
            except Killed:
                deaths += 1
                await worker.drain()
            await move(new.app, source_of(SourceServer(old.url, name), kind))
            await worker.drain()
            assert sorted(new.ran) == [1, 2, 2, 4]
            if kind != "list":
                assert pending(old) == 0
            if dying.left > 0:
                break

    assert deaths >= 8


PROGRAM = """
import qbull

app = qbull.App(prefix="test")
jobs = app.queue("jobs", partitions=2, keep=qbull.Keep(completed=0), concurrency=1)


@jobs.task
def note(n: int):
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
"""


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_a_drain_that_is_killed_while_workers_run_moves_each_once(
    shell: Shell, old: Old, store: Any, kind: str
) -> None:
    (shell.directory / "shop.py").write_text(PROGRAM)
    for n in range(900):
        if kind == "list":
            old.redis.lpush("jobs", json.dumps({"n": n // 3}))
        else:
            old.redis.xadd("jobs", {"n": n // 3})
    command = ["drain", kind, "jobs", "--task", "note", "--from", old.url, "--app", "shop:app"]
    length = old.redis.llen if kind == "list" else old.redis.xlen
    if kind == "stream":
        old.redis.xgroup_create("jobs", "workers", "0")
        old.redis.xreadgroup("workers", "one", {"jobs": ">"}, count=100)
        command += ["--group", "workers", "--min-idle", "0"]
    shell.start("worker", "shop:app")
    kills = 0
    while (before := length("jobs")) > 400:
        dying = shell.start(*command)
        while dying.poll() is None and length("jobs") == before:
            time.sleep(0.001)
        os.killpg(dying.pid, signal.SIGKILL)
        dying.wait()
        kills += 1

    report = shell.json(*command)
    ran = Path(shell.directory / "ran")
    seen(lambda: ran.exists() and len(ran.read_text().splitlines()) >= 900, within=60)

    assert kills >= 1
    assert sorted(map(int, ran.read_text().splitlines())) == [n // 3 for n in range(900)]
    assert report["left"] == []
    assert length("jobs") == 0
