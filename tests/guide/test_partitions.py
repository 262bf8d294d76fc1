"""Partitions: one queue over many workers. Jobs of one key stay together, others run in parallel."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

import qbull


async def test_jobs_of_one_key_share_a_partition(app: qbull.App) -> None:
    messages = app.queue("messages", partitions=8, order="key")

    @messages.task(key="{phone}")
    async def send(phone: str, text: str) -> None: ...

    jobs = [await send.enqueue(phone="+543515551234", text=f"{n}") for n in range(5)]

    assert len({info.partition for job in jobs if (info := await job.info()) is not None}) == 1


async def test_jobs_without_a_key_are_spread_evenly(app: qbull.App) -> None:
    mail = app.queue("mail", partitions=4)

    @mail.task
    async def send(to: str) -> None: ...

    jobs = await send.enqueue_many([{"to": f"{n}"} for n in range(40)])

    partitions = [info.partition for job in jobs if (info := await job.info()) is not None]
    assert [partitions.count(p) for p in range(4)] == [10, 10, 10, 10]


async def test_many_keys_run_in_order_over_several_workers(app: qbull.App) -> None:
    ran: dict[str, list[int]] = defaultdict(list)

    @app.queue("messages", partitions=8, order="key").task(key="{phone}")
    async def send(phone: str, n: int) -> None:
        await asyncio.sleep(0)
        ran[phone].append(n)

    await send.enqueue_many([{"phone": f"+{k}", "n": n} for n in range(20) for k in range(25)])
    async with app.worker() as worker, app.worker():
        await worker.drain()

    assert all(numbers == list(range(20)) for numbers in ran.values())
    assert len(ran) == 25


async def test_the_number_of_partitions_is_the_servers(app: qbull.App, server_url: str) -> None:
    @app.queue("messages", partitions=8).task
    async def send() -> None: ...

    await send.enqueue()
    other = qbull.App(server_url, prefix="test")

    @other.queue("messages", partitions=4).task(name="send")
    async def send_again() -> None: ...

    with pytest.raises(
        qbull.ConfigError,
        match='queue "messages": partitions=4 but the server has 8; run "qbull repartition messages 4" or set partitions=8',
    ):
        await send_again.enqueue()
    await other.close()


async def test_the_environment_changes_the_default(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOTAL_PARTITIONS", "16")

    queue = qbull.App(app.url).queue("messages")

    assert queue.settings.partitions == 16


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"INSTANCE_ID": "8", "INSTANCE_COUNT": "8"},
            "INSTANCE_ID=8 with INSTANCE_COUNT=8: ids go from 0 to 7",
        ),
        ({"INSTANCE_ID": "worker", "INSTANCE_COUNT": "8"}, 'INSTANCE_ID="worker": give a number'),
        ({"INSTANCE_ID": "3"}, "needs INSTANCE_COUNT"),
        ({"INSTANCE_COUNT": "8"}, "INSTANCE_COUNT=8 needs INSTANCE_ID"),
        ({"PARTITIONS_PER_POD": "0"}, "PARTITIONS_PER_POD='0': give a whole number from 1"),
        ({"INSTANCE_ID": "0", "INSTANCE_COUNT": "2", "PARTITIONS_PER_POD": "2"}, "choose one"),
        ({"QBULL_SHARING": "evenly"}, 'QBULL_SHARING="evenly"'),
        ({"QBULL_TAKE_OVER": "60"}, '--take-over (QBULL_TAKE_OVER) is for sharing "static"'),
    ],
)
def test_wrong_settings_are_said_in_one_line(
    environment: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    app = qbull.App("redis://127.0.0.1:1/0")
    app.queue("work")

    with pytest.raises(qbull.ConfigError) as error:
        app.worker()

    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pods_name_serves_as_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTANCE_ID", "worker-3")
    monkeypatch.setenv("INSTANCE_COUNT", "8")
    monkeypatch.setenv("QBULL_TAKE_OVER", "60")

    sharing = qbull.App("redis://127.0.0.1:1/0").environment.sharing

    assert (sharing.mode, sharing.instance, sharing.take_over) == ("static", 3, 60)
