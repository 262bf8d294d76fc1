"""Draining BullMQ and Bull: jobs that the npm packages themselves have written, moved each once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from node_producers import BullQueue, needs_node
from producers import Killed, Mortal, Old, move, open_old, open_old_server  # noqa: F401 - two are fixtures
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.drain.bullmq import BullmqOptions, BullmqSource
from qbull.drain.move import DrainReport
from qbull.drain.source import SourceServer

pytestmark = needs_node
Library = Literal["bullmq", "bull"]
BOTH = pytest.mark.parametrize("library", ["bullmq", "bull"])


class NewApp:
    def __init__(self, url: str) -> None:
        self.app = qbull.App(url, prefix="test")
        self.ran: list[Any] = []
        self.headers: dict[str, Any] = {}
        self.email = self.app.queue("email", keep=qbull.Keep(completed=0, failed=100))

        @self.email.task
        async def welcome(to: str, fail: str = "") -> None:
            self.ran.append(to)
            self.headers[to] = dict(qbull.current_job().headers)
            if fail:
                raise ValueError(fail)

        @self.email.task
        async def clean(days: int = 1) -> None:
            self.ran.append(days)

    async def move(self, old: Old, options: Any = None, *, dry: bool = False, **more: Any) -> DrainReport:
        source = BullmqSource(SourceServer(old.url, "bullmq"), options)
        return await move(self.app, source, dry=dry, **more)

    async def work(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()

    async def info(self, id: str) -> qbull.JobInfo:
        info = await self.app.job("email", id).info()
        assert info is not None
        return info


@pytest.fixture
async def new(server_url: str, store: Any) -> AsyncIterator[NewApp]:
    new = NewApp(server_url)
    yield new
    await new.app.close()


def left_jobs(old: Old) -> set[str]:
    """The names on the old server that have something to do with jobs."""
    ignored = ("id", "meta", "events", "marker", "pc", "stalled-check", "limiter")
    names = {name.removeprefix("bull:email:") for name in old.left()}
    return {name for name in names if name not in ignored}


@BOTH
async def test_waiting_jobs_run_here_in_their_order(old: Old, new: NewApp, library: Library) -> None:
    queue = BullQueue(old, library)
    ids = queue.run(*(["add", "welcome", {"to": str(n)}] for n in range(30)))

    report = await new.move(old)
    moved = [(await new.info(id)).payload for id in ids]
    await new.work()

    assert report.moved["email"] == 30
    assert moved == [{"to": str(n)} for n in range(30)]
    assert sorted(new.ran, key=int) == [str(n) for n in range(30)]
    assert left_jobs(old) == set()
    assert queue.counts() == {}


@BOTH
async def test_a_job_keeps_its_id_priority_time_attempts_and_backoff(
    old: Old, new: NewApp, library: Library
) -> None:
    queue = BullQueue(old, library)
    backoff = {"type": "exponential", "delay": 5000}
    before = datetime.now(UTC)
    queue.run(
        ["add", "welcome", {"to": "a"}, {"jobId": "a", "delay": 3_600_000, "priority": 2}],
        ["add", "welcome", {"to": "b"}, {"jobId": "b", "priority": 900}],
        [
            "add",
            "welcome",
            {"to": "c"},
            {"jobId": "c", "attempts": 4, "backoff": backoff, "delay": 3_600_000},
        ],
        ["add", "welcome", {"to": "d"}, {"jobId": "d", "attempts": 1000, "backoff": 250}],
    )

    await new.move(old)
    a, b = [await new.info(id) for id in "ab"]
    for id in "ac":
        await new.app.job("email", id).promote()
    await new.work()

    assert (a.state, a.priority, b.state, b.priority) == ("delayed", 7, "waiting", 10)
    assert a.due_at is not None
    assert 3599 < (a.due_at - before).total_seconds() < 3660
    waits = "5,15,35" if library == "bull" else "5,10,20"
    assert new.headers["c"] == {"qbull.retry": f"4 {waits}"}
    assert new.headers["d"] == {"qbull.retry": "1000 0.25"}
    assert left_jobs(old) == set()


async def test_a_moved_job_is_retried_by_its_own_policy_unless_one_asks_for_the_tasks(
    old: Old, new: NewApp
) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(["add", "welcome", {"to": "x", "fail": "broken"}, {"attempts": 3, "jobId": "mine"}])
    await new.move(old)
    await new.work()
    mine = await new.info("mine")
    queue.run(["add", "welcome", {"to": "y"}, {"backoff": {"type": "ours"}, "attempts": 2, "jobId": "other"}])
    refused = await new.move(old)
    taken = await new.move(old, BullmqOptions(retry="task"))
    await new.work()

    assert new.ran == ["x", "x", "x", "y"]
    assert (mine.state, mine.attempt, mine.error) == ("failed", 3, "ValueError: broken")
    assert 'its backoff "ours" is a function of its workers' in next(iter(refused.left))[2]
    assert (taken.moved["email"], new.headers["y"]) == (1, {})


@BOTH
async def test_a_failed_job_becomes_a_dead_letter_that_can_be_retried(
    old: Old, new: NewApp, library: Library
) -> None:
    queue = BullQueue(old, library)
    queue.run(
        ["add", "welcome", {"to": "ann", "fail": "no such address"}, {"attempts": 2, "jobId": "dead"}],
        ["work", 1],
    )

    kept = await new.move(old, BullmqOptions(failed=False))
    report = await new.move(old)
    dead = await new.info("dead")
    counts = await new.email.stats()
    await new.app.job("email", "dead").retry()
    await new.work()

    assert (kept.moved.total(), report.moved["email"]) == (0, 1)
    assert (dead.state, dead.attempt, dead.error) == ("failed", 2, "no such address")
    assert dead.stacktrace is not None
    assert "produce.cjs" in dead.stacktrace
    assert (counts.failed, counts.waiting) == (1, 0)
    assert new.ran == ["ann", "ann"]
    assert left_jobs(old) == set()


@BOTH
async def test_a_repeatable_job_becomes_a_schedule(old: Old, new: NewApp, library: Library) -> None:
    queue = BullQueue(old, library)
    rule = {"pattern" if library == "bullmq" else "cron": "0 3 * * *", "tz": "America/Argentina/Cordoba"}
    if library == "bullmq":
        queue.run(
            ["schedule", "nightly", rule, {"name": "clean", "data": {"days": 3}}],
            ["schedule", "often", {"every": 3_600_000, "startDate": 4_000_000_000_000}, {"name": "clean"}],
        )
    else:
        queue.run(
            ["add", "clean", {"days": 3}, {"repeat": rule, "jobId": "nightly"}],
            ["add", "clean", {}, {"repeat": {"every": 3_600_000}, "jobId": "often"}],
        )

    dry = await new.move(old, dry=True)
    report = await new.move(old)
    nightly, often = await new.app.schedules.get("nightly"), await new.app.schedules.get("often")
    again = await new.move(old)

    assert (nightly.cron, nightly.tz, nightly.args) == ("0 3 * * *", "America/Argentina/Cordoba", {"days": 3})
    assert often.every == 3600
    assert (dry.moved, dry.left) == (report.moved, report.left)
    assert (report.moved["email"], report.left.total(), again.moved.total()) == (2, 0, 0)
    assert left_jobs(old) == set()


async def test_a_due_run_of_a_schedule_moves_once_and_the_schedule_goes_on_in_its_rhythm(
    old: Old, new: NewApp
) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(["schedule", "often", {"every": 3_600_000}, {"name": "clean"}])
    [(_, next_ms)] = old.redis.zrange("bull:email:repeat", 0, -1, withscores=True)

    report = await new.move(old)
    await new.work()
    first, second = await new.app.schedules.preview("often", 2)

    assert new.ran == [1]
    assert report.moved["email"] == 2
    assert first.timestamp() * 1000 == next_ms + 3_600_000
    assert (second - first).total_seconds() == 3600
    assert left_jobs(old) == set()


async def test_a_schedule_that_stays_keeps_its_next_run(old: Old, new: NewApp) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(
        ["schedule", "few", {"every": 3_600_000, "limit": 5}, {"name": "clean"}],
        ["schedule", "unknown", {"pattern": "0 3 * * *"}, {"name": "gone"}],
    )
    before = queue.counts()

    dry = await new.move(old, dry=True)
    report = await new.move(old)

    reasons = " | ".join(why for _, _, why in report.left)
    assert "it ends after 5 runs" in reasons
    assert 'no task "gone" is declared' in reasons
    assert 'schedule "few" stays, and needs this run to plan the next one' in reasons
    assert (dry.moved, dry.left) == (report.moved, report.left)
    assert queue.counts() == before


async def test_jobs_that_cannot_be_moved_stay_and_are_named(old: Old, new: NewApp) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(
        ["add", "welcome", {"toWhom": "ann"}],
        ["add", "unheard", {"x": 1}],
        ["add", "welcome", "only a text"],
        ["add", "welcome", [1, 2], {"priority": 3}],
        ["flow", {"name": "welcome", "queueName": "email", "data": {"to": "parent"},
                  "children": [{"name": "welcome", "queueName": "email", "data": {"to": "child"}}]}],
    )  # fmt: skip
    before = queue.counts()

    dry = await new.move(old, dry=True)
    assert queue.counts() == before
    report = await new.move(old)
    renamed = await new.move(old, BullmqOptions(snake_case=True), names={"unheard": "clean"})
    await new.work()

    reasons = " | ".join(why for _, _, why in report.left)
    assert (dry.moved, dry.left) == (report.moved, report.left)
    assert new.ran == ["only a text"]
    assert "unexpected keyword argument 'toWhom'" in reasons
    assert (
        'no task "unheard" is declared in the app; name the one that is meant: --map unheard=NAME' in reasons
    )
    assert [why for _, _, why in report.left].count("it is part of a flow; let BullMQ run it") == 1
    assert sum(n for (_, _, why), n in report.left.items() if "part of a flow" in why) == 2
    assert "unexpected keyword argument 'to_whom'" in " ".join(why for _, _, why in renamed.left)
    assert queue.counts() == {"waiting": 3, "prioritized": 1, "waiting-children": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"opts": "[1]"},
        {"opts": '{"repeat": "x"}'},
        {"opts": '{"repeat": [1]}'},
        {"deid": b"\xff"},
        {b"\xff": "x"},
        {"name": b"\xff"},
        {"timestamp": "inf"},
        {"priority": "nan"},
    ],
    ids=str,
)
async def test_a_record_that_is_wrong_does_not_stop_the_others(
    wrong: dict[Any, Any], old: Old, new: NewApp
) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(["add", "welcome", {"to": "ann"}])
    fields = {"name": "welcome", "data": '{"to": "eve"}', "opts": "{}", "timestamp": "1700000000000"}
    old.redis.hset("bull:email:wrong", mapping=fields | wrong)
    old.redis.rpush("bull:email:wait", "wrong")

    await new.move(old)
    await new.work()

    assert "ann" in new.ran


async def test_a_paused_queue_and_a_name_in_camel_case_are_moved(old: Old, new: NewApp) -> None:
    queue = BullQueue(old, "bullmq")

    @new.email.task
    async def verify(user_id: int) -> None:
        new.ran.append(user_id)

    queue.run(["pause"], ["add", "verify", {"userId": 7}], ["add", "__default__", {"to": "ann"}])

    await new.move(old, BullmqOptions(snake_case=True), names={"__default__": "welcome"})
    await new.work()

    assert sorted(map(str, new.ran)) == ["7", "ann"]
    assert left_jobs(old) == set()


async def test_jobs_that_workers_have_are_moved_only_if_one_asks_and_no_lock_is_held(
    old: Old, new: NewApp
) -> None:
    queue = BullQueue(old, "bullmq")
    one, two = queue.run(["add", "welcome", {"to": "a"}], ["add", "welcome", {"to": "b"}])
    for _ in (one, two):
        old.redis.lmove("bull:email:wait", "bull:email:active", "RIGHT", "LEFT")
    old.redis.set(f"bull:email:{two}:lock", "token")

    left = await new.move(old)
    taken = await new.move(old, BullmqOptions(active=True))
    await new.work()

    assert (left.moved.total(), left.held) == (0, 2)
    assert taken.moved["email"] == 1
    assert "a worker is running it" in next(iter(taken.left))[2]
    assert new.ran == ["a"]


@pytest.mark.parametrize("heard", [False, True], ids=["before it is sent", "before it is answered"])
async def test_a_drain_that_dies_at_any_command_goes_on_and_each_runs_once(
    old: Old, new: NewApp, heard: bool
) -> None:
    queue = BullQueue(old, "bullmq")
    queue.run(
        ["add", "welcome", {"to": "dead", "fail": "broken"}, {"jobId": "dead"}],
        ["work", 1],
        ["add", "welcome", {"to": "wait"}],
        ["add", "welcome", {"to": "first"}, {"priority": 1}],
        ["add", "welcome", {"to": "later"}, {"delay": 1}],
        ["schedule", "nightly", {"pattern": "0 3 * * *"}, {"name": "clean", "data": {"days": 3}}],
    )
    filled = {name: old.redis.dump(name) for name in old.redis.scan_iter()}
    deaths = 0
    async with new.app.worker() as worker:
        for at in range(1, 200):
            new.ran.clear()
            old.redis.flushall()
            for name, value in filled.items():
                old.redis.restore(name, 0, value)
            for id in (key for key in old.redis.scan_iter("bull:email:*") if old.redis.type(key) == b"hash"):
                if old.redis.hexists(id, "timestamp"):
                    old.redis.hset(id, "timestamp", 1_700_000_000_000 + at)  # another job of the same id
            dying = Mortal(old.url, "bullmq", at, heard=heard)
            try:
                await move(new.app, BullmqSource(dying))
            except Killed:
                deaths += 1
                await worker.drain()
            await new.move(old)
            await worker.drain()
            assert sorted(new.ran) == ["first", "later", "wait"]
            assert (await new.info("dead")).state == "failed"
            assert left_jobs(old) == set()
            await new.app.job("email", "dead").remove()
            await new.app.schedules.remove("nightly")
            if dying.left > 0:
                break

    assert deaths >= 20


PROGRAM = """
import qbull

app = qbull.App(prefix="test")
email = app.queue("email", partitions=2, keep=qbull.Keep(completed=0), concurrency=1)


@email.task
def note(n: int):
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
"""


def test_a_drain_that_is_killed_while_workers_run_moves_each_once(shell: Shell, old: Old, store: Any) -> None:
    (shell.directory / "shop.py").write_text(PROGRAM)
    BullQueue(old, "bullmq").run(*(["add", "note", {"n": n}] for n in range(900)))
    shell.start("worker", "shop:app")
    kills = 0
    while old.redis.llen("bull:email:wait") > 400:
        before = old.redis.llen("bull:email:wait")
        dying = shell.start("drain", "bullmq", "--from", old.url, "--app", "shop:app")
        while dying.poll() is None and old.redis.llen("bull:email:wait") == before:
            time.sleep(0.001)
        os.killpg(dying.pid, signal.SIGKILL)
        dying.wait()
        kills += 1

    report = shell.json("drain", "bullmq", "--from", old.url, "--app", "shop:app")
    ran = Path(shell.directory / "ran")
    seen(lambda: ran.exists() and len(ran.read_text().splitlines()) >= 900, within=60)

    assert kills >= 1
    assert sorted(map(int, ran.read_text().splitlines())) == list(range(900))
    assert (report["left"], left_jobs(old)) == ([], set())
