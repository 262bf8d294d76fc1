"""Watch: what is wrong is seen and said once, whoever looks and whoever dies."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
import pytest

import qbull
from conftest import eventually
from qbull.alerts import detect as module
from qbull.alerts.detect import ProblemWatcher
from qbull.core.alerts import Alert, Alerts
from qbull.core.health import DEFAULT_HEALTH_LIMITS, HealthLimits
from qbull.core.problems import AlertNotification
from qbull.core.record import Ending, ExtendedBody, append_ending, body_of, pack
from qbull.store.read import inspect
from qbull.store.read.inspect import server_time
from qbull.store.read.pages import page
from qbull.store.store import Store
from qbull.store.verbs import alerts as board
from qbull.store.verbs.alerts import ALERT_QUEUE
from qbull.store.verbs.outcomes import JobPosition, PartitionOutcomes
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.workers import RegisteredWorker, ServedQueue

TO = Alerts(slack="https://hooks.slack.com/services/x", urls=("https://example.com/hook",))
EMAIL = qbull.config.QueueSettings("email", alert=Alert(stale_after=1, repeated=3))


def watcher(store: Store, who: str = "w1", limits: HealthLimits = DEFAULT_HEALTH_LIMITS) -> ProblemWatcher:
    return ProblemWatcher(store, TO, who, limits)


async def messages(store: Store, to: str = "slack") -> list[AlertNotification]:
    """What waits to be sent to one kind of place, the oldest first."""
    found = await page([store.partition(ALERT_QUEUE, 0)], "waiting", 0, 1000)
    payloads = [msgspec.json.decode(body_of(job.record).payload) for job in found]
    wanted = [payload["message"] for payload in payloads if payload["to"].startswith(to)]
    return sorted(
        (msgspec.convert(each, AlertNotification) for each in wanted), key=lambda message: message.at_ms
    )


async def kinds(store: Store) -> list[tuple[str, str, int]]:
    return [
        (said.status, said.problem.kind, said.problem.count)
        for message in await messages(store)
        for said in message.said
    ]


async def fail(store: Store, many: int = 1) -> None:
    """So many jobs fail for good."""
    partition = store.partition(EMAIL, 0)
    streams = await store.streams([partition])
    await store.ensure_groups(streams)
    for start in range(0, many, 500):
        jobs = [
            NewJob(secrets.token_hex(8), 0, pack(ExtendedBody("verify", b"{}"), priority=5, lane=b""))
            for _ in range(min(500, many - start))
        ]
        await partition.enqueue(jobs)
        outcomes = PartitionOutcomes()
        for each in await store.fetch(streams, "w", 500, None):
            ending = append_ending(Ending(1, 0.0, "w", error="ValueError: no"))
            outcomes.dead(
                JobPosition(each.position, b"", 0, True), each.job(0).id, each.job(0).record, ending
            )
        await partition.settle(outcomes)


@pytest.fixture
async def email(store: Store) -> None:
    await store.register(EMAIL, ["verify"])
    await store.register(ALERT_QUEUE, ["send"])
    await watcher(store).look()


async def test_what_failed_before_anybody_ever_looked_is_said_if_it_is_new(store: Store) -> None:
    await store.register(EMAIL, ["verify"])
    await fail(store, 3)

    await watcher(store).look()

    assert await kinds(store) == [("firing", "failed", 3)]


async def test_ten_watchers_at_once_say_a_thing_once(store: Store, email: None) -> None:
    await store.server.call("HDEL", "{test:qbull.alerts:0}:alerts", "until")
    await fail(store, 10)

    async def look(who: str) -> None:
        seen = await board.take_turn(store, "w1", 10)  # they all believe that it is their turn
        assert seen is not None
        watch = watcher(store, who)
        watch._queues = [EMAIL]
        readings = [reading async for reading in watch._readings(seen)]
        state, message = module.evaluate_problems(seen.state, readings, seen.now_ms, watch._policy)
        assert message is not None or seen.rev != "1"
        await board.write(store, seen, state, watch._jobs(message, seen.rev) if message else [])

    await asyncio.gather(*(look(f"w{n}") for n in range(10)))

    assert await kinds(store) == [("firing", "failed", 10)]
    assert len(await messages(store, "webhook")) == 1


async def test_only_one_looks_at_a_time_and_another_takes_over(store: Store, email: None) -> None:
    assert await watcher(store, "w2").look() is False
    assert await watcher(store, "w1").look() is True

    await store.server.call("HSET", "{test:qbull.alerts:0}:alerts", "until", 1)  # w1 has fallen silent

    assert await watcher(store, "w2").look() is True
    assert await watcher(store, "w1").look() is False


async def test_what_happened_while_nobody_looked_is_said_later(store: Store, email: None) -> None:
    await fail(store, 4)

    await watcher(store).look()  # another process, which knows nothing of the first

    assert await kinds(store) == [("firing", "failed", 4)]


async def test_thousands_of_dead_letters_cost_one_field(store: Store, email: None) -> None:
    await fail(store, 1)
    await watcher(store).look()
    await fail(store, 3_000)
    await watcher(store).look()

    assert await kinds(store) == [("firing", "failed", 1)]
    state = await board.read_known_problems(store)
    assert state.open["failed email"].problem.count == 3_001
    assert len(msgspec.json.encode(state)) < 1_000


async def test_an_alert_of_the_queue_of_alerts_is_never_raised(store: Store, email: None) -> None:
    await fail(store, 1)
    watch = watcher(store)
    await watch.look()
    before = len(await messages(store))

    partition = store.partition(ALERT_QUEUE, 0)
    streams = await store.streams([partition])
    await store.ensure_groups(streams)
    outcomes = PartitionOutcomes()
    for each in await store.fetch(streams, "w", 10, None):
        outcomes.dead(
            JobPosition(each.position, b"", 0, True),
            each.job(0).id,
            each.job(0).record,
            append_ending(Ending(3, 0.0, "w")),
        )
    await partition.settle(outcomes)
    await watch.look()

    assert before == 1 and await messages(store) == []


async def test_a_lost_worker_is_said_but_not_one_that_only_sends_alerts(store: Store, email: None) -> None:
    await store.register_worker("lost", RegisteredWorker("h", 1, "p", {"email": ServedQueue(1)}), 0.001)
    await store.register_worker(
        "other", RegisteredWorker("h", 1, "p", {"qbull.alerts": ServedQueue(1, since={0: 1})}), 0.001
    )
    await store.register_worker("ended", RegisteredWorker("h", 1, "p", {"email": ServedQueue(1)}), 10)

    await store.forget_worker("lost", certain=True, lost=True)
    await store.forget_worker("lost", certain=True, lost=True)  # sent again
    await store.forget_worker("other", certain=True, lost=True)
    await store.forget_worker("ended", certain=True)
    await watcher(store).look()

    assert await kinds(store) == [("firing", "lost", 1)]
    assert (await messages(store))[0].said[0].problem.reason == "lost"


async def test_a_stale_queue_is_said_unless_it_is_paused(app: qbull.App, store: Store, email: None) -> None:
    partition = store.partition(EMAIL, 0)
    await partition.enqueue([NewJob("j", 0, pack(ExtendedBody("verify", b"{}"), priority=5, lane=b""))])
    queue = app.queue("email", alert=EMAIL.alert)  # type: ignore[arg-type]
    await queue.pause()

    async def old() -> bool:
        await watcher(store).look()
        oldest = (await inspect.count(partition)).oldest_waiting_ms
        return oldest is not None and await server_time(store) * 1000 - oldest > 1000

    await eventually(old)
    await watcher(store).look()
    quiet = await kinds(store)
    await queue.resume()
    await watcher(store).look()

    assert quiet == []
    assert [(status, kind) for status, kind, _ in await kinds(store)] == [("firing", "stale")]


async def test_failed_attempts_of_one_task_are_said_with_the_newest(store: Store, email: None) -> None:
    await board.add_failures(
        store, "email", {"verify": board.TaskFailures(2, "j1", "a"), "other": board.TaskFailures(1, "j", "b")}
    )
    await watcher(store).look()
    quiet = await kinds(store)
    await board.add_failures(store, "email", {"verify": board.TaskFailures(1, "j2", "c\nd")})
    await watcher(store).look()

    assert quiet == []
    (said,) = (await messages(store))[0].said
    assert (said.problem.task, said.problem.count, said.problem.job, said.problem.reason) == (
        "verify",
        3,
        "j2",
        "c\nd",
    )


@pytest.mark.parametrize(
    ("state", "said"),
    [("delayed", ["firing"]), ("failed", ["firing", "firing"]), ("gone", ["firing", "resolved"])],
)
async def test_repeated_failures_are_resolved_only_if_the_newest_job_is_through(
    store: Store, email: None, state: str, said: list[str]
) -> None:
    partition = store.partition(EMAIL, 0)
    if state == "failed":
        await fail(store)
        [job] = [found.id for found in await page([partition], "failed", 0, 10)]
    else:
        job = "j1"
        record = pack(ExtendedBody("verify", b"{}"), priority=5, lane=b"")
        await partition.enqueue([NewJob(job, 600_000, record)])
    await board.add_failures(store, "email", {"verify": board.TaskFailures(3, job, "no")})
    await watcher(store).look()
    await store.server.call("DEL", store.names.queue("email") + "failing")  # five minutes pass
    if state == "gone":
        await partition.remove(secrets.token_hex(8), [(job, b"")])

    await watcher(store).look()

    assert [status for status, _, _ in await kinds(store)] == said


async def test_a_schedule_that_nobody_fires_is_said(app: qbull.App, store: Store) -> None:
    queue = app.queue("email", alert=True)

    @queue.cron(every=0.1, name="tick", catch_up="skip")
    async def tick() -> None: ...

    async with app.worker():
        await eventually(lambda: _fired(app))

    async def overdue() -> bool:
        await watcher(store, limits=HealthLimits(overdue_after=0.2)).look()
        return ("firing", "overdue") in [(status, kind) for status, kind, _ in await kinds(store)]

    await eventually(overdue)


async def test_missed_ticks_are_said_with_their_schedule(app: qbull.App, store: Store, email: None) -> None:
    @app.queue("email", alert=EMAIL.alert).cron(every=60, name="sync", catch_up="skip")  # type: ignore[arg-type]
    async def sync() -> None: ...

    async with app.worker():
        pass
    await _set_back(store, "sync", 600)
    async with app.worker():
        await eventually(lambda: _missed(app, "sync"))

    await watcher(store).look()

    ((status, kind, count),) = await kinds(store)
    assert (status, kind) == ("firing", "missed") and count >= 9
    assert (await messages(store))[0].said[0].problem.schedule == "sync"


async def _set_back(store: Store, name: str, seconds: int) -> None:
    """Its next tick was so long ago, as if nobody had run since."""
    base = "{test:email:0}:"
    planned = int(await store.server.call("HGET", f"{base}schedule:{name}", "next")) - seconds * 1000
    await store.server.call("HSET", f"{base}schedule:{name}", "next", planned)
    await store.server.call("ZADD", f"{base}schedules", planned, name)


async def _missed(app: qbull.App, name: str) -> bool:
    return (await app.schedules.get(name)).missed > 0


async def _fired(app: qbull.App) -> bool:
    return (await app.schedules.get("tick")).fired > 0


async def test_the_queue_of_alerts_cannot_be_repartitioned(app: qbull.App, store: Store, email: None) -> None:
    with pytest.raises(qbull.ConfigError, match="it is qbull's own"):
        await app.queue("qbull.alerts").repartition(2)
