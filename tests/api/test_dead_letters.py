"""Dead letters by kind, kept up to date: always the same as reading all of them."""

from __future__ import annotations

import qbull
from conftest import eventually
from qbull.manage.dead_letters import DeadLetterReader


def _counts(groups: list[qbull.FailureGroup]) -> dict[str, int]:
    return {group.fingerprint: group.count for group in groups}


async def test_the_tally_follows_failures_retries_and_removals(app: qbull.App) -> None:
    mail = app.queue("mail", partitions=3, retry=qbull.Retry(attempts=1), keep=qbull.Keep(failed=100))
    reader = DeadLetterReader(mail, frozenset())

    @mail.task
    async def send(kind: int) -> None:
        raise (ValueError, KeyError, OSError)[kind](f"kind {kind}")

    async def is_exact() -> bool:
        tally = await reader.get()
        return _counts(tally.sorted_groups) == _counts(await mail.failures())

    async with app.worker() as worker:
        for kinds in ([0] * 20, [0, 1] * 15, [1, 2] * 9):
            await send.enqueue_many([{"kind": kind} for kind in kinds])
            await worker.drain()
            assert await is_exact(), "new ones were counted once each"
        reads = (await reader.get()).read
        assert reads == 68
        await mail.redrive(limit=10)
        await worker.drain()
        await eventually(is_exact, within=20)
        await mail.clean("failed", older_than=0, limit=30)
        await eventually(is_exact, within=20)


async def test_jobs_of_a_flow_that_failed_with_another_are_cascades(app: qbull.App) -> None:
    orders = app.queue("orders", retry=qbull.Retry(attempts=1))
    reader = DeadLetterReader(orders, frozenset())

    @orders.task
    async def reserve() -> None:
        raise LookupError("sold out")

    @orders.task
    async def ship() -> None: ...

    flows = [await qbull.chain(reserve.step(), ship.step(), ship.step()).enqueue() for _ in range(3)]

    async def have_failed() -> bool:
        infos = [await flow.last.info() for flow in flows]
        return all(info is not None and info.state == "failed" for info in infos)

    async with app.worker():
        await eventually(have_failed)
    tally = await reader.get()

    assert (tally.read, tally.cascades) == (9, 6)
    assert sum(group.count for group in tally.cascades_since(0)) == 6
    assert tally.cascades_since(1 << 40) == []
