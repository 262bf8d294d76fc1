"""Forgeries: somebody can write to the server and has no key. An app that signs runs and believes nothing of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import qbull
from conftest import eventually
from qbull.core.flow import Dependency, encode
from qbull.core.ids import new_id, new_token
from qbull.core.record import ExtendedBody, body_of, repack
from qbull.core.signals import NewSignal
from qbull.store.store import Store
from qbull.store.verbs.history import read_job_data
from qbull.store.verbs.partition import NewJob, Partition
from qbull.store.verbs.signals import send_signal

KEY = qbull.Signed.new_key()
ONCE = qbull.Retry(attempts=1)
MILLION = 1_000_000


class Bank:
    """An app with two queues. It remembers what was transferred, and what a report was told."""

    def __init__(self, app: qbull.App) -> None:
        self.app = app
        self.transferred: list[int] = []
        self.believed: list[Any] = []
        self.transfers = app.queue("transfers", retry=ONCE)
        self.reports = app.queue("reports", retry=ONCE)

        @self.transfers.task(name="transfer")
        async def transfer(amount: int, to: str = "ada") -> int:
            self.transferred.append(amount)
            return amount

        @self.reports.task(name="report")
        async def report() -> None:
            self.believed.append(list(qbull.current_job().results))

        self.transfer, self.report = transfer, report

    async def stored(self, job: qbull.Job[Any]) -> tuple[Partition, bytes]:
        """The partition and the record of a job."""
        queue = self.app.queues[job.queue]
        there = await self.app._client().find(queue.settings, job.id)
        assert there is not None
        return there[0], there[1].record


@pytest.fixture(name="bank", params=[qbull.Signed, qbull.Encrypted], ids=["signed", "encrypted"])
async def open_bank(server_url: str, store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Bank]:
    codec = request.param([KEY], require=True)
    async with qbull.App(server_url, prefix="test", middleware=[codec]) as app:
        yield Bank(app)


@pytest.fixture(name="thief")
async def open_thief(server_url: str, store: Store) -> AsyncIterator[Bank]:
    """The same code with the same server, and without a key."""
    async with qbull.App(server_url, prefix="test") as app:
        yield Bank(app)


async def work_off(app: qbull.App, *queues: str) -> None:
    async with app.worker(list(queues) or None) as worker:
        await worker.drain()


async def planted(partition: Partition, record: bytes) -> str:
    """Put a record under a new id."""
    id = new_id(partition.number)
    await partition.enqueue([NewJob(id, 0, record)])
    return id


async def replace_message(bank: Bank, store: Store, flow: qbull.Flow[Any], told: Dependency) -> None:
    """Put another message in the place of the one that the last job of a chain has received."""
    partition, _ = await bank.stored(flow.last)
    name = f"{partition.base}job:{flow.last.id}"
    source, _ = await bank.stored(flow.jobs[0])

    async def has_arrived() -> bool:
        await bank.app._client().flows.dispatch(source)
        stored: bytes = await store.server.call("HGET", name, "child:0")
        return stored.startswith(b"c")

    await eventually(has_arrived)
    await store.server.call("HSET", name, "child:0", b"c" + encode(told))


async def test_a_planted_schedule_is_not_run(
    bank: Bank, thief: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    await thief.app.schedules.upsert("bonus", thief.transfer, every=1, args={"amount": MILLION})

    async def refused() -> bool:
        return any('schedule "bonus": it is not' in record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.ERROR, "qbull.worker"):
        async with bank.app.worker() as worker:
            await eventually(refused)
            await worker.drain()

    assert bank.transferred == []
    assert await bank.transfers.jobs("failed") == []


async def test_a_planted_schedule_is_not_run_by_a_call_either(bank: Bank, thief: Bank) -> None:
    await thief.app.schedules.upsert("bonus", thief.transfer, every=3600, args={"amount": MILLION})

    with pytest.raises(qbull.PayloadError, match=r'schedule "bonus": it is not (signed|encrypted)'):
        await bank.app.schedules.run("bonus")
    await work_off(bank.app)

    assert bank.transferred == []


@pytest.mark.parametrize(
    "change",
    [
        {"every_ms": 1000},
        {"key": "eve"},
        {"task": "refund"},
        {"catch_up": "all"},
        {"args": {"amount": MILLION}},
    ],
    ids=["timing", "key", "task", "catch_up", "args"],
)
async def test_a_changed_schedule_is_not_run(change: dict[str, Any], bank: Bank, store: Store) -> None:
    await bank.app.schedules.upsert("daily", bank.transfer, every=3600, args={"amount": 5})
    name = store.names.partition("transfers", 0) + "schedule:daily"
    definition = msgspec.json.decode(await store.server.call("HGET", name, "own"))
    await store.server.call("HSET", name, "own", msgspec.json.encode(definition | change))

    with pytest.raises(qbull.PayloadError, match='schedule "daily"'):
        await bank.app.schedules.run("daily")

    await store.server.call("HSET", name, "own", msgspec.json.encode(definition))
    await bank.app.schedules.run("daily")
    await work_off(bank.app)
    assert bank.transferred == [5]


async def test_a_schedule_of_another_name_is_not_run(bank: Bank, store: Store) -> None:
    await bank.app.schedules.upsert("daily", bank.transfer, every=3600, args={"amount": 5})
    await bank.app.schedules.upsert("other", bank.transfer, every=3600, args={"amount": 6})
    base = store.names.partition("transfers", 0) + "schedule:"
    other = await store.server.call("HGET", base + "other", "own")
    await store.server.call("HSET", base + "daily", "own", other)

    with pytest.raises((qbull.PayloadError, qbull.QbullError)):
        await bank.app.schedules.run("daily")
    await store.server.call("HSET", base + "daily", "own", other.replace(b'"other"', b'"daily"', 1))
    with pytest.raises(qbull.PayloadError, match="somebody has changed"):
        await bank.app.schedules.run("daily")


async def test_a_result_without_a_signature_is_not_believed(bank: Bank, thief: Bank) -> None:
    job = await bank.transfer.enqueue(amount=5)
    partition, record = await bank.stored(job)
    body = body_of(record)
    body.payload = b'{"amount": 1000000}'
    forged = await planted(partition, repack(record, body))
    await job.cancel()

    await work_off(thief.app, "transfers")

    assert thief.transferred == [MILLION]
    with pytest.raises(
        qbull.PayloadError, match=r"its result is not (signed|encrypted), and this app requires"
    ):
        await bank.app.job("transfers", forged).result(timeout=10)


async def test_a_flow_believes_no_result_without_a_signature(bank: Bank, store: Store) -> None:
    flow = await qbull.chain(bank.transfer.step(amount=5), bank.report.step()).enqueue()
    await work_off(bank.app, "transfers")
    told = Dependency("transfers", flow.jobs[0].id, "transfer", str(MILLION).encode())

    await replace_message(bank, store, flow, told)
    await work_off(bank.app, "reports")

    assert bank.believed == []
    with pytest.raises(qbull.JobFailed, match=r"its result is not (signed|encrypted)"):
        await flow.result(timeout=10)


async def test_a_flow_believes_no_signed_result_of_another_job(bank: Bank, store: Store) -> None:
    other = await bank.transfer.enqueue(amount=MILLION)
    flow = await qbull.chain(bank.transfer.step(amount=5), bank.report.step()).enqueue()
    await work_off(bank.app, "transfers")
    found = await bank.app._client().find(bank.transfers.settings, other.id)
    assert found is not None and found[1].ending is not None
    told = Dependency("transfers", other.id, "transfer", found[1].ending.result)

    await replace_message(bank, store, flow, told)
    await work_off(bank.app, "reports")

    assert bank.believed == []
    with pytest.raises(qbull.JobFailed, match="are not those of its flow"):
        await flow.result(timeout=10)


async def test_signed_arguments_do_not_run_under_another_id(bank: Bank) -> None:
    job = await bank.transfer.enqueue(amount=5)
    partition, record = await bank.stored(job)

    again = await planted(partition, record)
    await work_off(bank.app)

    assert bank.transferred == [5]
    with pytest.raises(qbull.JobFailed, match="somebody has changed or moved it"):
        await bank.app.job("transfers", again).result(timeout=10)


@pytest.mark.parametrize(
    "change",
    [{"key": "eve"}, {"headers": {"user": "eve"}}, {"bound_to": "eve"}],
    ids=["key", "headers", "name"],
)
async def test_a_changed_record_does_not_run(change: dict[str, Any], bank: Bank) -> None:
    job = await bank.transfer.enqueue(amount=5)
    partition, record = await bank.stored(job)
    body = msgspec.structs.replace(body_of(record), **change)
    await job.cancel()
    await job.remove()

    await partition.enqueue([NewJob(job.id, 0, repack(record, body))])
    await work_off(bank.app)

    assert bank.transferred == []
    with pytest.raises(qbull.JobFailed, match="somebody has changed or moved it"):
        await job.result(timeout=10)


async def test_a_record_is_checked_after_it_was_moved_to_another_partition(bank: Bank) -> None:
    jobs = [await bank.transfer.enqueue(amount=n) for n in range(20)]
    partition, record = await bank.stored(jobs[0])
    unsigned = ExtendedBody("transfer", b'{"amount": 1000000}')
    forged = await planted(partition, repack(record, unsigned))

    await bank.transfers.repartition(3)
    await work_off(bank.app)

    assert sorted(bank.transferred) == list(range(20))
    assert [await job.result(timeout=10) for job in jobs] == list(range(20))
    with pytest.raises(qbull.JobFailed, match=r"its payload is not (signed|encrypted)"):
        await bank.app.job("transfers", forged).result(timeout=10)


async def test_a_worker_signs_nothing_that_it_read_unsigned(server_url: str, thief: Bank) -> None:
    lenient = [qbull.Signed([KEY], require=False)]
    async with qbull.App(server_url, prefix="test", middleware=lenient) as app:
        bank = Bank(app)
        await thief.app.schedules.upsert("bonus", thief.transfer, every=3600, args={"amount": MILLION})

        job = await app.schedules.run("bonus")
        _, record = await bank.stored(job)

    assert body_of(record).payload == b'{"amount":1000000}'


async def test_a_row_that_somebody_else_wrote_is_not_signed(
    server_url: str, store: Store, database: str
) -> None:
    import psycopg

    middleware = [qbull.Signed([KEY])]
    async with (
        qbull.App(server_url, prefix="test", middleware=middleware, database=database) as app,
        qbull.App(server_url, prefix="test", database=database) as elsewhere,
    ):
        bank, thief = Bank(app), Bank(elsewhere)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            job = await thief.transfer.options(transaction=connection).enqueue(amount=MILLION)
        async with app.worker():
            with pytest.raises(qbull.JobFailed, match="its payload is not signed"):
                await job.result(timeout=20)

    assert bank.transferred == []


async def test_a_replay_runs_an_earlier_call_of_a_unique_job_under_other_ids(bank: Bank) -> None:
    unique = qbull.Unique(window=60, by=("to",), mode="last")
    job = await bank.transfer.options(unique=unique, delay=60).enqueue(amount=5, to="bob")
    partition, record = await bank.stored(job)
    await bank.transfer.options(unique=unique).enqueue(amount=6, to="bob")
    await job.promote()
    await work_off(bank.app)
    assert bank.transferred == [6]

    for _ in range(2):
        await planted(partition, record)
    await work_off(bank.app)

    assert bank.transferred == [6, 5, 5]


async def test_a_replay_delivers_a_signal_again_to_a_later_wait(bank: Bank) -> None:
    @bank.transfers.task(durable=True)
    async def pay() -> list[int]:
        job = qbull.current_job()
        return [await job.wait_for("amount", type=int), await job.wait_for("amount", type=int)]

    job = await pay.enqueue()
    await job.signal("amount", 5)
    partition, _ = await bank.stored(job)
    seen = (await read_job_data(partition, job.id))[b"signal:1"]

    await send_signal(partition, None, new_token(), job.id, NewSignal("amount", "0" * 16, seen))
    async with bank.app.worker():
        assert await job.result(timeout=20) == [5, 5]


async def test_a_replay_puts_back_the_step_of_an_earlier_turn(bank: Bank, store: Store) -> None:
    amounts = iter((10, 20))

    async def ask() -> int:
        return next(amounts)

    @bank.transfers.task(durable=True)
    async def pay(turn: int) -> int:
        job = qbull.current_job()
        amount = await job.step(ask)
        await job.wait_for("go")
        if turn == 1:
            job.continue_as(2)
        return amount

    async def waits_in(turn: int) -> bool:
        info = await job.info()
        return info is not None and info.suspended == "waiting" and info.continued == turn - 1

    job = await pay.enqueue(1)
    async with bank.app.worker():
        await eventually(lambda: waits_in(1))
        partition, _ = await bank.stored(job)
        seen = (await read_job_data(partition, job.id))[b"step:1"]
        await job.signal("go")
        await eventually(lambda: waits_in(2))

        await store.server.call("HSET", f"{partition.base}job:{job.id}", "step:1", seen)
        await job.signal("go")
        assert await job.result(timeout=20) == 10
