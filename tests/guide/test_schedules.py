"""Schedules: a task by the clock, each tick one job, however many workers there are."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import qbull
from conftest import eventually


async def test_a_task_runs_by_its_schedule(app: qbull.App) -> None:
    ran: list[qbull.CurrentJob] = []

    @app.queue("maintenance").cron("* * * * * *", name="each-second")
    async def tick() -> None:
        ran.append(qbull.current_job())

    async with app.worker():
        await eventually(lambda: _has(ran, 2))

    first, second = ran[:2]
    assert (first.task, first.schedule) == ("each-second", "each-second")
    assert first.planned_at is not None and second.planned_at is not None
    assert second.planned_at - first.planned_at == timedelta(seconds=1)
    assert first.id == f"each-second@{first.planned_at:%Y-%m-%dT%H:%M:%SZ}"
    assert first.enqueued_at >= first.planned_at


async def test_every_so_many_seconds(app: qbull.App) -> None:
    ran: list[datetime | None] = []

    @app.queue("maintenance").cron(every=0.2)
    async def poll() -> None:
        ran.append(qbull.current_job().planned_at)

    async with app.worker():
        await eventually(lambda: _has(ran, 3))

    assert [at.timestamp() * 1000 % 200 for at in ran if at is not None] == [0.0] * len(ran)


async def test_each_tick_is_one_job_however_many_workers_there_are(app: qbull.App) -> None:
    ran: Counter[str] = Counter()
    queue = app.queue("maintenance", partitions=2)

    for name in ("a", "b", "c"):

        @queue.cron(every=0.2, name=name, catch_up="all")
        async def tick() -> None:
            ran[qbull.current_job().id] += 1

    async with app.worker(), app.worker(), app.worker():
        await eventually(lambda: _has(ran, 15))

    assert set(ran.values()) == {1}
    assert len({id.partition("@")[0] for id in ran}) == 3


async def test_a_task_can_have_several_schedules_with_arguments(app: qbull.App) -> None:
    ran: set[tuple[str, str | None]] = set()
    queue = app.queue("maintenance")

    @queue.cron(every=0.2, name="report-eu", args={"region": "eu"})
    @queue.cron(every=0.2, name="report-us", args={"region": "us"})
    @queue.task
    async def report(region: str) -> None:
        ran.add((region, qbull.current_job().schedule))

    async with app.worker():
        await eventually(lambda: _has(ran, 2))

    assert ran == {("eu", "report-eu"), ("us", "report-us")}


@pytest.mark.parametrize(
    ("declare", "reason"),
    [
        (
            lambda queue: queue.cron("61 * * * *"),
            'schedule "report": cron="61 \\* \\* \\* \\*": its minute "61"',
        ),
        (
            lambda queue: queue.cron("0 9 * * *", tz="Mars/Phobos"),
            'tz="Mars/Phobos": there is no such time zone',
        ),
        (lambda queue: queue.cron(), "give either a cron expression"),
        (lambda queue: queue.cron("@daily", every=5), "give either a cron expression"),
        (lambda queue: queue.cron(every=5, catch_up="maybe"), "catch_up='maybe'"),
        (
            lambda queue: queue.cron("@daily", name="no spaces"),
            "schedule name 'no spaces'|task name 'no spaces'",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_is_declared(declare: Callable[[Any], Any], reason: str) -> None:
    queue = qbull.App("redis://127.0.0.1:1/0").queue("maintenance")

    async def report() -> None: ...

    with pytest.raises(qbull.ConfigError, match=reason):
        declare(queue)(report)


@pytest.mark.parametrize("args", [{}, {"region": 5}, {"region": "eu", "more": 1}])
def test_arguments_are_checked_where_the_schedule_is_declared(args: dict[str, Any]) -> None:
    queue = qbull.App("redis://127.0.0.1:1/0").queue("maintenance")

    @queue.task
    async def report(region: str) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match='schedule "nightly": task "report"'):
        queue.cron("@daily", name="nightly", args=args)(report)


def test_two_schedules_of_one_name_are_refused() -> None:
    queue = qbull.App("redis://127.0.0.1:1/0").queue("maintenance")

    @queue.cron("@daily", name="nightly")
    async def one() -> None: ...

    @queue.task
    async def two() -> None: ...

    with pytest.raises(qbull.DeclarationError, match='schedule "nightly": declared twice'):
        queue.cron("@hourly", name="nightly")(two)


async def test_the_zone_is_the_environments_unless_it_is_said(
    server_url: str, app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/Argentina/Cordoba")
    other = qbull.App(server_url, prefix="test")
    queue = other.queue("maintenance")

    @queue.cron("0 9 * * *")
    async def by_environment() -> None: ...

    @queue.cron("0 9 * * *", tz="Europe/Berlin")
    async def by_itself() -> None: ...

    local, berlin = await other.schedules.list()
    assert (local.tz, local.next[0].astimezone(UTC).hour) == ("America/Argentina/Cordoba", 12)
    assert (berlin.tz, berlin.next[0].hour) == ("Europe/Berlin", 9)
    await other.close()


def test_a_wrong_zone_in_the_environment_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Mars/Phobos")

    with pytest.raises(qbull.ConfigError, match='TZ="Mars/Phobos": there is no such time zone'):
        qbull.App("redis://127.0.0.1:1/0")


# When a tick was missed, when the run before goes on.


@pytest.mark.parametrize(("catch_up", "least", "most"), [("skip", 0, 1), ("one", 1, 1), ("all", 10, 99)])
async def test_ticks_that_were_missed(app: qbull.App, catch_up: Any, least: int, most: int) -> None:
    ran: list[datetime] = []
    queue = app.queue("maintenance", concurrency=1)

    @queue.task
    async def tick() -> None:
        ran.append(qbull.current_job().planned_at or datetime.max)

    await app.schedules.upsert("s", tick, every=0.1, catch_up=catch_up, overlap="allow")
    began = datetime.now(UTC)
    await eventually(lambda: _passed(began + timedelta(seconds=1.2)))
    async with app.worker():
        await eventually(lambda: _has(ran, most if catch_up != "all" else least + 3))

    back = began + timedelta(seconds=1.2)
    missed = [at for at in ran if at < back - timedelta(seconds=0.1)]
    assert len(missed) in range(least if catch_up == "all" else 0, most + 1)
    assert ran == sorted(set(ran))
    info = await app.schedules.get("s")
    assert info.missed == 0 if catch_up == "all" else info.missed >= 9


async def test_while_the_run_before_goes_on_a_tick_is_skipped(app: qbull.App) -> None:
    begun: list[str] = []
    go_on = asyncio.Event()

    @app.queue("maintenance").cron(every=0.1, name="slow")
    async def slow() -> None:
        begun.append(qbull.current_job().id)
        await go_on.wait()

    async def skipped() -> bool:
        return (await app.schedules.get("slow")).skipped >= 3

    async with app.worker():
        await eventually(skipped)
        assert len(begun) == 1
        go_on.set()
        await eventually(lambda: _has(begun, 2))


async def test_where_ticks_may_overlap_both_run(app: qbull.App) -> None:
    begun: list[str] = []
    go_on = asyncio.Event()

    @app.queue("maintenance").cron(every=0.1, name="slow", overlap="allow")
    async def slow() -> None:
        begun.append(qbull.current_job().id)
        await go_on.wait()

    async with app.worker():
        await eventually(lambda: _has(begun, 3))
        go_on.set()


async def test_every_tick_but_one_at_a_time(app: qbull.App) -> None:
    running = 0
    ran: list[datetime] = []

    @app.queue("maintenance").cron(every=0.1, name="strict", catch_up="all", overlap="skip")
    async def strict() -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.15)  # longer than the time between two ticks
        ran.append(qbull.current_job().planned_at or datetime.max)
        running -= 1

    async with app.worker():
        await eventually(lambda: _has(ran, 6))

    gaps = {later - earlier for earlier, later in itertools.pairwise(ran)}
    assert gaps == {timedelta(seconds=0.1)}


async def test_jitter_delays_a_tick_and_changes_nothing_else(app: qbull.App) -> None:
    ran: list[qbull.CurrentJob] = []

    @app.queue("maintenance").cron(every=0.5, jitter=0.4, name="spread")
    async def spread() -> None:
        ran.append(qbull.current_job())

    async with app.worker():
        await eventually(lambda: _has(ran, 3))

    planned = [job.planned_at for job in ran if job.planned_at is not None]
    assert [at.timestamp() * 1000 % 500 for at in planned] == [0.0] * len(ran)
    late = {job.enqueued_at - at for job, at in zip(ran, planned, strict=True)}
    assert len(late) == len(ran)


async def test_no_tick_before_its_start_and_none_after_its_end(app: qbull.App) -> None:
    ran: list[datetime] = []
    queue = app.queue("maintenance")

    @queue.task
    async def tick() -> None:
        ran.append(qbull.current_job().planned_at or datetime.max)

    start = datetime.now(UTC) + timedelta(seconds=0.3)
    async with app.worker():
        await app.schedules.upsert(
            "s", tick, every=0.1, catch_up="all", start=start, end=start + timedelta(seconds=0.2)
        )
        await eventually(lambda: _has(ran, 3))
        await eventually(lambda: _ended(app, "s"))

    milliseconds = timedelta(milliseconds=1)
    assert [(at - start) // milliseconds for at in ran] in ([0, 100, 200], [-1, 99, 199])


# At run time.


async def test_a_schedule_made_at_run_time(app: qbull.App) -> None:
    ran: list[int] = []
    queue = app.queue("maintenance")

    @queue.task
    async def clean(older_than: int) -> None:
        ran.append(older_than)

    async with app.worker():
        info = await app.schedules.upsert("nightly", clean, every=0.1, args={"older_than": 5})
        await eventually(lambda: _has(ran, 1))
        await app.schedules.upsert("nightly", "maintenance/clean", every=0.1, args={"older_than": 7})
        await eventually(lambda: _is_last(ran, 7))
        await app.schedules.remove("nightly")

    assert (info.source, info.args, info.every) == ("run time", {"older_than": 5}, 0.1)
    assert await app.schedules.list() == []
    with pytest.raises(qbull.NotFound, match='schedule "nightly": there is none of this name'):
        await app.schedules.get("nightly")


async def test_arguments_are_checked_when_it_is_made(app: qbull.App) -> None:
    queue = app.queue("maintenance")

    @queue.task
    async def clean(older_than: int) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match="older_than: expected int, got str"):
        await app.schedules.upsert("nightly", clean, cron="@daily", args={"older_than": "x"})
    with pytest.raises(qbull.DeclarationError, match='its minute "61"'):
        await app.schedules.upsert("nightly", clean, cron="61 * * * *", args={"older_than": 1})
    with pytest.raises(qbull.NotFound, match='"elsewhere": not on this server'):
        await app.schedules.upsert("nightly", "elsewhere/clean", cron="@daily")


async def test_the_next_runs_can_be_seen(app: qbull.App) -> None:
    @app.queue("maintenance").cron("0 9 * * *", tz="Europe/Berlin", name="daily")
    async def daily() -> None: ...

    preview = await app.schedules.preview("daily", 3)
    async with app.worker():
        info = await app.schedules.get("daily")

    assert [(at.hour, at.minute, str(at.tzinfo)) for at in preview] == [(9, 0, "Europe/Berlin")] * 3
    assert info.next[:3] == tuple(preview)
    assert len(info.next) == 5
    assert preview[0] > datetime.now(UTC)


async def test_a_schedule_is_run_now(app: qbull.App) -> None:
    @app.queue("maintenance").cron("0 0 1 1 *", name="yearly")
    async def yearly() -> str:
        job = qbull.current_job()
        return f"{job.schedule} {job.planned_at}"

    waiting = await app.schedules.run("yearly")
    async with app.worker():
        assert await waiting.result(timeout=10) == "yearly None"
        job = await app.schedules.run("yearly")
        assert await job.result(timeout=10) == "yearly None"

    info = await app.schedules.get("yearly")
    assert info.last is not None
    assert (info.last.job_id, info.last.state) == (job.id, "completed")
    found = await job.info()
    assert found is not None and found.schedule == "yearly"


async def test_the_last_run_and_its_outcome_are_known(app: qbull.App) -> None:
    @app.queue("maintenance", retry=qbull.Retry(attempts=1)).cron(every=0.2, name="broken")
    async def broken() -> None:
        raise ValueError("no database")

    async def failed() -> Any:
        last = (await app.schedules.get("broken")).last
        return last if last is not None and last.state == "failed" else None

    async with app.worker():
        last = await eventually(failed)

    assert last.error == "ValueError: no database"
    assert last.planned_at <= last.fired_at


async def test_a_paused_schedule_fires_nothing_until_it_goes_on(app: qbull.App) -> None:
    ran: list[datetime] = []

    @app.queue("maintenance").cron(every=0.1, name="s", catch_up="all")
    async def tick() -> None:
        ran.append(qbull.current_job().planned_at or datetime.max)

    await app.schedules.pause("s")
    async with app.worker():
        began = datetime.now(UTC)
        await eventually(lambda: _passed(began + timedelta(seconds=0.5)))
        assert (await app.schedules.get("s")).paused
        assert (await app.schedules.get("s")).next == ()
        resumed = datetime.now(UTC)
        await app.schedules.resume("s")
        await eventually(lambda: _has(ran, 2))

    assert min(ran) > resumed


async def test_while_its_queue_is_paused_nothing_is_fired(app: qbull.App) -> None:
    ran: list[datetime] = []
    queue = app.queue("maintenance")

    @queue.cron(every=0.1, name="s", catch_up="all", overlap="allow")
    async def tick() -> None:
        ran.append(qbull.current_job().planned_at or datetime.max)

    async with app.worker():
        await eventually(lambda: _has(ran, 2))
        await queue.pause()
        await eventually(lambda: _is_still(app))
        before = len(ran)
        now = datetime.now(UTC)
        await eventually(lambda: _passed(now + timedelta(seconds=0.5)))
        assert len(ran) == before
        await queue.resume()
        await eventually(lambda: _has(ran, before + 6))

    assert {later - earlier for earlier, later in itertools.pairwise(sorted(ran))} == {timedelta(seconds=0.1)}


async def test_a_tick_takes_its_turn_among_the_jobs_of_its_key(app: qbull.App) -> None:
    queue = app.queue("orders", order="key", partitions=4)
    running: set[str] = set()
    ran: list[str] = []

    @queue.task(key="{customer}")
    async def settle(customer: str) -> None:
        assert customer not in running
        running.add(customer)
        await asyncio.sleep(0.01)
        running.discard(customer)
        ran.append(qbull.current_job().schedule or "by hand")

    await app.schedules.upsert("settle-ada", settle, every=0.1, args={"customer": "ada"}, overlap="allow")
    async with app.worker(), app.worker():
        for _ in range(30):
            await settle.enqueue(customer="ada")
        await eventually(lambda: _has([by for by in ran if by == "settle-ada"], 3))
        await eventually(lambda: _has([by for by in ran if by == "by hand"], 30))

    info = await app.schedules.get("settle-ada")
    assert info.key == "ada"


async def test_a_schedule_whose_task_no_worker_knows_is_said(
    server_url: str, app: qbull.App, caplog: pytest.LogCaptureFixture
) -> None:
    old = qbull.App(server_url, prefix="test")

    @old.queue("maintenance").task
    async def gone() -> None: ...

    await old.schedules.upsert("nightly", gone, every=0.1)
    await old.close()

    @app.queue("maintenance").task
    async def other() -> None: ...

    async def waits() -> bool:
        last = (await app.schedules.get("nightly")).last
        return last is not None and last.state == "waiting" and "no-task" in await codes(last.job_id)

    async def codes(id: str) -> list[str]:
        return [reason.code for reason in (await app.job("maintenance", id).why()).reasons]

    async with app.worker():
        await eventually(waits)

    assert 'schedule "nightly": this worker has no task "gone"' in caplog.text


async def test_what_is_not_there_is_said(app: qbull.App) -> None:
    @app.queue("maintenance").cron("@daily", name="nightly")
    async def nightly() -> None: ...

    for call in (app.schedules.run, app.schedules.pause, app.schedules.resume, app.schedules.remove):
        with pytest.raises(qbull.NotFound, match="there is: nightly"):
            await call("nigthly")


# Deploys.


def deployed(url: str, **rule: Any) -> qbull.App:
    """The app as one version of the code declares it; without a rule it has no schedule."""
    app = qbull.App(url, prefix="test")
    queue = app.queue("maintenance")

    @queue.task
    async def tick() -> None: ...

    if rule:
        queue.cron(**{"name": "s", **rule})(tick)
    return app


async def test_a_schedule_that_was_changed_in_the_code_is_changed_at_the_deploy(
    server_url: str, app: qbull.App
) -> None:
    old, new = deployed(server_url, every=3600), deployed(server_url, every=1800)

    async with old.worker():
        assert (await app.schedules.get("s")).every == 3600
        async with new.worker():
            assert (await app.schedules.get("s")).every == 1800
            async with deployed(server_url, every=3600).worker():  # an old one was started again
                assert (await app.schedules.get("s")).every == 1800


async def test_after_a_roll_back_the_old_one_counts_again(server_url: str, app: qbull.App) -> None:
    old, new = deployed(server_url, every=3600), deployed(server_url, every=1800)

    async with old.worker():
        async with new.worker():
            assert (await app.schedules.get("s")).every == 1800
        await eventually(lambda: _every(app, 3600))


async def test_a_schedule_that_is_not_in_the_code_any_more_is_removed(
    server_url: str, app: qbull.App
) -> None:
    with_it, without = deployed(server_url, every=3600), deployed(server_url)
    async with with_it.worker():
        assert [info.name for info in await app.schedules.list()] == ["s"]
    await without.schedules.upsert("made", "maintenance/tick", every=3600)

    async with without.worker():
        assert [info.name for info in await app.schedules.list()] == ["made"]
    await without.close()


async def test_what_was_said_at_run_time_wins_over_the_code(server_url: str, app: qbull.App) -> None:
    code = deployed(server_url, every=3600)
    async with code.worker():
        await code.schedules.upsert("s", "maintenance/tick", every=60)
        async with deployed(server_url, every=1800).worker():
            assert (await app.schedules.get("s")).every == 60
            await app.schedules.remove("s")
            info = await app.schedules.get("s")
            assert (info.every, info.source) == (1800, "code")
            with pytest.raises(qbull.ConfigError, match='the code of queue "maintenance" declares it'):
                await app.schedules.remove("s")
    await code.close()


async def test_a_schedule_without_a_worker_says_so(server_url: str, app: qbull.App) -> None:
    code = deployed(server_url, every=3600)

    (before,) = await code.schedules.list()
    async with code.worker():
        (during,) = await code.schedules.list()
    (after,) = await code.schedules.list()

    assert before.problem == "no worker has written it to the server yet"
    assert during.problem is None
    assert after.problem == 'no worker serves queue "maintenance"'
    await code.close()


async def test_the_recipe_of_two_syncs(app: qbull.App) -> None:
    serpram = app.queue(
        "serpram-sync",
        retry=qbull.Retry(attempts=3, backoff="exponential", delay=5),
        keep=qbull.Keep(completed=50, failed=100),
    )
    ayt = app.queue(
        "ayt-sync",
        retry=qbull.Retry(attempts=3, backoff="exponential", delay=3),
        keep=qbull.Keep(completed=100, failed=200),
    )

    @serpram.cron("*/5 * * * *", name="serpram")
    async def sync_serpram() -> str:
        return "synced"

    @ayt.cron("* * * * *", name="ayt")
    async def sync_ayt() -> None:
        raise ConnectionError("AYT is away")

    assert [serpram.settings.retry.wait_before(n) for n in (2, 3, 4)] == [5, 10, 20]
    assert [ayt.settings.retry.wait_before(n) for n in (2, 3, 4)] == [3, 6, 12]
    minutes = await app.schedules.preview("serpram", 3)
    assert {at.minute % 5 for at in minutes} == {0}

    async with app.worker():
        assert await (await app.schedules.run("serpram")).result(timeout=10) == "synced"
        failing = await app.schedules.run("ayt")
        await eventually(lambda: _state(failing, "delayed"))
        info = await failing.info()
        assert info is not None
        assert (info.attempt, info.max_attempts, info.error) == (2, 3, "ConnectionError: AYT is away")


async def _is_still(app: qbull.App) -> bool:
    """All workers have heard of the pause: what has begun has ended, and the next tick has passed."""
    before = (await app.schedules.get("s")).fired
    await asyncio.sleep(0.3)
    return (await app.schedules.get("s")).fired == before


async def _has(things: Any, count: int) -> bool:
    return len(things) >= count


async def _is_last(things: list[int], value: int) -> bool:
    return things[-1] == value


async def _every(app: qbull.App, seconds: float) -> bool:
    return (await app.schedules.get("s")).every == seconds


async def _ended(app: qbull.App, name: str) -> bool:
    return (await app.schedules.get(name)).next == ()


async def _state(job: qbull.Job[Any], state: str) -> bool:
    return await job.state() == state


async def _passed(at: datetime) -> bool:
    return datetime.now(UTC) >= at


async def test_runs_are_remembered_when_their_jobs_are_gone(app: qbull.App) -> None:
    queue = app.queue("maintenance", retry=qbull.Retry(attempts=1))

    @queue.cron("0 3 1 1 *", name="yearly")
    async def yearly() -> None:
        raise OSError("no space left")

    async with app.worker():
        job = await app.schedules.run("yearly")
        with pytest.raises(qbull.JobFailed):
            await job.result(10)
        (seen,) = await app.schedules.runs("yearly")
        assert (seen.job_id, seen.outcome) == (job.id, "failed")

    await job.remove()

    (run,) = await app.schedules.runs("yearly")
    assert (run.job_id, run.outcome) == (job.id, "failed")
    assert run.duration_ms is not None and run.duration_ms >= 0
