"""Workers share the partitions of a queue out among themselves, and lose and reorder nothing while they do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from partitioned_queue import PartitionedQueue, make_partitioned_queue  # noqa: F401 - a fixture

import qbull
from conftest import eventually
from qbull.core.sharing import Sharing
from qbull.store.connection.scripts import script
from qbull.store.store import Store
from qbull.worker.config_warnings import ConfigWarningLogger
from qbull.worker.worker import Worker


async def test_more_workers_than_partitions_are_all_used(app: qbull.App, store: Store) -> None:
    shared = PartitionedQueue(app, store, partitions=2)
    async with shared.worker(), shared.worker(), shared.worker(), shared.worker():

        async def all_read() -> bool:
            return [len(share) for share in await shared.shares()] == [1, 1, 1, 1]

        await eventually(all_read)


async def test_a_worker_takes_its_place_among_the_others_last(app: qbull.App, store: Store) -> None:
    """From then on they leave its share to it: whatever else it has to do at its start comes before."""
    queue = app.queue("work")

    @queue.cron(every=3600, name="hourly")
    async def hourly() -> None: ...

    await store.server.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    await store.server.call("SLOWLOG", "RESET")
    async with app.worker():
        calls = [entry[3] for entry in reversed(await store.server.call("SLOWLOG", "GET", -1))]
    await store.server.call("CONFIG", "RESETSTAT")
    await store.server.call("CONFIG", "SET", "slowlog-log-slower-than", 10_000)

    scripts = [call[1].decode() for call in calls if call[0] in (b"EVALSHA", b"EVAL") and len(call[1]) == 40]
    assert scripts.index(script("worker_register").digest) > max(
        n for n, digest in enumerate(scripts) if digest == script("schedule_write").digest
    )


async def test_a_start_costs_the_other_workers_no_look_for_each_queue(app: qbull.App, store: Store) -> None:
    """Each registration wakes up all queues of all workers, and each of them wants to see the registry."""
    for number in range(20):
        app.queue(f"queue{number}").task(name="task")(lambda: None)
    call = store.server.call
    async with app.worker():
        await call("CONFIG", "SET", "slowlog-max-len", 100_000, "slowlog-log-slower-than", 0)
        await call("SLOWLOG", "RESET")
        async with app.worker():
            pass
        calls = [entry[3] for entry in await call("SLOWLOG", "GET", -1)]
    await call("CONFIG", "SET", "slowlog-max-len", 128, "slowlog-log-slower-than", 10_000)

    digests = [call[1].decode() for call in calls if call[0] == b"EVALSHA"]
    assert 0 < digests.count(script("worker_register").digest) <= 10
    assert 0 < digests.count(script("workers").digest) <= 80, (
        "normally about 40; if each queue looks for itself, 140"
    )


async def test_static_workers_read_what_the_formula_says(shared: PartitionedQueue) -> None:
    async with (
        shared.worker(Sharing("static", instance=0, instances=2)),
        shared.worker(Sharing("static", instance=1, instances=2)),
    ):
        assert await shared.shared_out(8, 8) == [list(range(0, 16, 2)), list(range(1, 16, 2))]


async def test_static_workers_cover_an_instance_that_is_gone_until_it_is_back(
    shared: PartitionedQueue,
) -> None:
    def instance(number: int) -> Sharing:
        return Sharing("static", instance=number, instances=3, take_over=0.2)

    async with shared.worker(instance(0)), shared.worker(instance(1)):
        first, second = await shared.shared_out(*await covering_sizes(shared))
        assert set(range(0, 16, 3)) <= set(first) or set(range(0, 16, 3)) <= set(second)
        jobs = await shared.step.enqueue_many([{"key": f"k{k}", "n": 0} for k in range(40)])
        for job in jobs:
            await job.result(timeout=10)
        async with shared.worker(instance(2)):
            assert await shared.shared_out(6, 5, 5) == [
                list(range(0, 16, 3)),
                list(range(1, 16, 3)),
                list(range(2, 16, 3)),
            ]


async def covering_sizes(shared: PartitionedQueue) -> list[int]:
    """The sizes of the shares, as soon as all partitions have a reader."""

    async def all_read() -> list[int] | None:
        shares = await shared.shares()
        return [len(share) for share in shares] if sum(map(len, shares)) == 16 else None

    found: list[int] = await eventually(all_read)
    return found


async def test_static_workers_that_do_not_take_over_leave_a_missing_instance_alone(
    shared: PartitionedQueue,
) -> None:
    async with (
        shared.worker(Sharing("static", instance=0, instances=3, take_over=0.05)),
        shared.worker(Sharing("static", instance=1, instances=3)),
    ):
        await eventually(lambda: has_shares(shared, 5, 11))
        assert list(range(1, 16, 3)) in await shared.shares(), "it covers nothing"


async def has_shares(shared: PartitionedQueue, *sizes: int) -> bool:
    return [len(share) for share in sorted(await shared.shares(), key=len)] == list(sizes)


async def test_leased_partitions_are_taken_up_to_the_number_and_kept(shared: PartitionedQueue) -> None:
    some = Sharing("leased", most=6)
    async with shared.worker(some):
        async with shared.worker(some), shared.worker(some):
            await shared.shared_out(4, 6, 6)

        async def six() -> bool:
            return [len(share) for share in await shared.shares()] == [6]

        await eventually(six)


@pytest.mark.parametrize("sharing", [Sharing("auto"), Sharing("leased")], ids=lambda s: s.mode)
async def test_a_clean_stop_hands_over_at_once_although_a_job_still_runs(
    shared: PartitionedQueue, sharing: Sharing
) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @shared.queue.task
    async def linger() -> None:
        began.set()
        await may_end.wait()

    stopping = Worker(shared.app._make_store, shared.app._assignments(), sharing=sharing)
    await stopping.start()
    long = await linger.enqueue()
    await began.wait()
    async with shared.worker(sharing):
        stop = asyncio.create_task(stopping.stop(grace=60))
        others = await shared.step.enqueue_many([{"key": f"k{k}", "n": 0} for k in range(40)])
        for job in others:
            await job.result(timeout=10)

        assert not stop.done()
        assert await shared.shares() == [[], list(range(16))]
        may_end.set()
        await stop
        assert await long.state() == "completed"


@pytest.mark.timeout(120)
async def test_order_and_every_job_survive_workers_that_come_and_go(shared: PartitionedQueue) -> None:
    keys, each = 40, 30
    stack = AsyncExitStack()
    async with stack:
        await stack.enter_async_context(shared.worker())
        sending = asyncio.create_task(
            shared.step.enqueue_many([{"key": f"k{k}", "n": n} for n in range(each) for k in range(keys)])
        )
        for _ in range(6):
            async with shared.worker():
                await asyncio.sleep(0.1)
        await sending

        async def empty() -> bool:
            return (await shared.queue.stats()).unfinished == 0

        await eventually(empty, within=60)

    assert len(shared.ran) == keys
    assert all(ran == list(range(each)) for ran in shared.ran.values())


async def test_a_worker_says_at_its_start_that_its_id_is_taken(
    shared: PartitionedQueue, caplog: pytest.LogCaptureFixture
) -> None:
    same = Sharing("static", instance=1, instances=2)
    async with shared.worker(same) as first, shared.worker(same) as second:
        said = caplog.messages

    [line] = said
    ids = ", ".join(sorted((first.id, second.id)))
    assert line.startswith(f'queue "work": INSTANCE_ID=1 of 2 is used by 2 workers: {ids}; give each its own')


@pytest.mark.parametrize(
    ("one", "other", "fact"),
    [
        (Sharing("static", instance=0, instances=2), Sharing("static", instance=1, instances=3), "INSTANCE_COUNT is not the same everywhere"),
        (Sharing("auto"), Sharing("leased"), "workers share its partitions in different ways"),
        (Sharing("auto"), Sharing("auto", most=0), "may read nothing: PARTITIONS_PER_POD"),
        (Sharing("static", instance=0, instances=17), Sharing("static", instance=16, instances=17), "INSTANCE_ID 16 of 17 has nothing to read"),
    ],
)  # fmt: skip
async def test_a_worker_says_at_its_start_what_does_not_fit_with_the_others(
    shared: PartitionedQueue, caplog: pytest.LogCaptureFixture, one: Sharing, other: Sharing, fact: str
) -> None:
    async with shared.worker(one):
        assert caplog.messages == []
        async with shared.worker(other):
            said = caplog.messages

    assert [line for line in said if fact in line and line.startswith('queue "work": ')] == said
    assert len(said) == 1


async def test_workers_started_with_other_settings_are_named_to_who_comes_later(
    app: qbull.App, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with qbull.App(server_url, prefix="test") as newer:
        old, new = app.queue("work", timeout=30), newer.queue("work", timeout=60)
        for queue in (old, new):

            @queue.task(name="step")
            async def step() -> None: ...

        async with app.worker() as first, newer.worker(), newer.worker(concurrency=7):
            said = caplog.messages

    line = f'queue "work": {first.id} was started with other settings than the queue has now; restart it'
    assert [text.startswith(line) for text in said] == [True, True]


async def test_a_partition_that_stays_unread_is_said_once_while_it_lasts(
    shared: PartitionedQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.worker.config_warnings.CONFIG_WARNING_DELAY_SECONDS", 0.05)
    monkeypatch.setattr("qbull.worker.lease.LEASE_POLL_SECONDS", 0.01)

    async def unread(times: int) -> bool:
        lines = [line for line in caplog.messages if "no worker reads partitions" in line]
        assert len(lines) <= times
        return len(lines) == times

    look, conflicts = ConfigWarningLogger.look, dict[str, set[str]]()

    def noted(self: ConfigWarningLogger, *seen: Any) -> None:
        look(self, *seen)
        conflicts[self._worker] = set(self._since)

    monkeypatch.setattr(ConfigWarningLogger, "look", noted)

    async with shared.worker(Sharing("static", instance=0, instances=2)) as first:
        await eventually(lambda: unread(1))

        async def is_over() -> bool:
            return "unread" not in conflicts[first.id]

        async with shared.worker(Sharing("static", instance=1, instances=2)):
            await eventually(is_over)
        await eventually(lambda: unread(2))


async def test_only_one_process_of_a_pod_complains(
    shared: PartitionedQueue, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Sharing("static", instance=1, instances=2)
    async with (
        shared.worker(pod),
        shared.worker(pod.of_process(0, 2, "pod")),
        shared.worker(pod.of_process(1, 2, "pod")),
    ):
        said = caplog.messages

    assert len(said) == 1
