"""Moving queues to another server, as docs/operate/move.md describes it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from moving import PREFIX, MoveUnderLoad, Shop, silent
from shell import Shell

import qbull
from conftest import eventually, every_fault, strays
from qbull.manage.server_move import ServerMove
from qbull.store.rights import PASSWORD_PLACEHOLDER, AclScope, acl
from qbull.store.store import Store
from qbull.store.verbs.hand_over import QueueHandOver


@pytest.fixture
async def shops(server_url: str, store: Store) -> AsyncIterator[tuple[Shop, Shop]]:
    """The shop at the old server and at the new one, which is another database of the same program."""
    new_url = server_url.replace("db=0", "db=1")
    old, new = Shop(server_url), Shop(new_url)
    yield old, new
    there = Store(new_url, PREFIX)
    await there.open()
    faults, stray = await every_fault(there), await strays(there)
    await there.close()
    await old.app.close()
    await new.app.close()
    assert (faults, stray) == ([], [])


async def register(shop: Shop) -> None:
    async with shop.app.worker():
        pass


async def test_everything_of_a_prefix_moves_and_goes_on_at_the_new_server(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    async with old.app.worker():
        done = await old.send.enqueue(1)
        dead = await old.send.enqueue(-1)
        asking = await old.approve.enqueue(5)
        assert await done.result(timeout=20) == 1
        with pytest.raises(qbull.JobFailed):
            await dead.result(timeout=20)
        await eventually(lambda: _waits_for_signal(asking))
    ordered = [await old.place.enqueue(who, n) for n in range(20) for who in ("ada", "bob")]
    delayed = await old.send.options(delay=3600).enqueue(2)
    urgent = await old.send.options(priority=1, id="mine").enqueue(3)
    once = await old.send.options(unique=qbull.Unique(3600)).enqueue(4)
    flow = await qbull.group(old.send.step(6), old.send.step(7), then=old.collect.step()).enqueue()
    await old.app.schedules.upsert("nightly", old.send, cron="0 3 * * *", args={"n": 8})

    moving = ServerMove(old.app, new.app)
    assert [(one.queue, one.done) for one in await moving.check()] == [("mail", False), ("orders", False)]
    assert await moving.run(20, silent) == []

    assert (await old.orders.stats()).total == (await old.mail.stats()).total == 0
    assert {plan.name for plan in await new.app.schedules.list()} == {"nightly"}
    assert await old.app.schedules.list() == []
    assert await new.app.job("mail", done.id).result(timeout=1) == 1
    assert (await new.app.job("mail", dead.id).info()).state == "failed"
    assert (await new.app.job("mail", delayed.id).info()).state == "delayed"
    assert (await new.send.options(id="mine").enqueue(3)).created is False
    assert (await new.send.options(unique=qbull.Unique(3600)).enqueue(4)).id == once.id
    async with new.app.worker():
        for job in (*ordered, urgent, once):
            await new.app.job(job._queue.name, job.id).result(timeout=20)
        assert await new.app.job("mail", flow.last.id).result(timeout=20) == [6, 7]
        await new.app.job("mail", asking.id).signal("answer", "yes")
        assert await new.app.job("mail", asking.id).result(timeout=20) == "yes"
        await new.app.job("mail", delayed.id).promote()
        await new.app.job("mail", delayed.id).result(timeout=20)
        assert await new.mail.redrive() == 1

    for who in ("ada", "bob"):
        assert [n for _, name, n in new.ran if name == who] == list(range(20))
    # The recorded step did not run again.
    assert ("add", "", 5) in old.ran
    assert ("approve", "yes", 6) in new.ran
    assert ("add", "", 5) not in new.ran


async def test_a_producer_at_the_old_address_reads_the_new_one_in_the_error(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    await old.place.enqueue("ada", 0)
    await ServerMove(old.app, new.app).run(20, silent)

    with pytest.raises(qbull.ServerError, match=r"was moved to .*Set QBULL_URL"):
        await old.place.enqueue("ada", 1)
    with pytest.raises(qbull.ServerError, match="was moved to"):
        await old.place.options(unique=qbull.Unique(60)).enqueue("ada", 1)
    await new.place.enqueue("ada", 1)
    async with new.app.worker() as worker:
        await worker.drain()
    assert new.ran == [("place", "ada", 0), ("place", "ada", 1)]


async def test_a_queue_goes_on_at_the_old_server_if_a_job_does_not_end_in_time(
    shops: tuple[Shop, Shop],
) -> None:
    old, new = shops
    async with old.app.worker():
        slow = await old.wait.enqueue()
        await eventually(lambda: _runs(slow))
        assert await ServerMove(old.app, new.app).run(0.1, silent) == ["mail", "orders"]
        assert await (await old.place.enqueue("ada", 1)).result(timeout=20) == 1
        old.go.set()
        await slow.result(timeout=20)
    assert await ServerMove(old.app, new.app).run(20, silent) == []
    assert (await new.orders.stats()).completed == 1


async def test_the_pause_of_a_queue_moves_with_it(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    await register(old)
    await old.mail.pause()
    await ServerMove(old.app, new.app).run(20, silent)
    assert (await new.mail.stats()).paused is True
    assert (await new.orders.stats()).paused is False


async def test_a_target_that_is_in_use_is_refused_and_nothing_changes(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    await old.send.enqueue(1)
    await new.send.enqueue(2)
    with pytest.raises(qbull.Conflict, match="has jobs or schedules of this queue"):
        await ServerMove(old.app, new.app).run(20, silent)
    async with new.app.worker() as worker:
        await worker.drain()
        with pytest.raises(qbull.Conflict, match="Stop it, and start it when the queues have moved"):
            await ServerMove(old.app, new.app).check()
    with pytest.raises(qbull.Conflict, match="Give another address"):
        await ServerMove(old.app, old.app).check()
    async with old.app.worker() as worker:
        await worker.drain()
    assert (old.ran, new.ran) == ([("send", "", 1)], [("send", "", 2)])


async def test_one_queue_moves_alone_unless_flows_tie_it_to_others(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    await old.place.enqueue("ada", 1)
    flow = await qbull.group(old.send.step(6), old.place.step("bob", 7), then=old.collect.step()).enqueue()
    with pytest.raises(qbull.Conflict, match="belongs to a flow"):
        await ServerMove(old.app, new.app, ["orders"]).check()
    async with old.app.worker():
        await flow.last.result(timeout=20)
    await old.place.enqueue("ada", 2)
    assert await ServerMove(old.app, new.app, ["orders"]).run(20, silent) == []
    await old.send.enqueue(3)
    async with new.app.worker(["orders"]) as worker:
        await worker.drain()
    async with old.app.worker(["mail"]) as worker:
        await worker.drain()
    assert new.ran == [("place", "ada", 2)]
    assert ("send", "", 3) in old.ran
    with pytest.raises(qbull.NotFound, match="not on this server"):
        await ServerMove(old.app, new.app, ["nothing"]).check()


async def test_a_partition_with_a_running_job_stays_even_if_a_worker_missed_the_pause(
    shops: tuple[Shop, Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = shops

    async def is_idle(self: Any, names: Any, wait: float) -> list[str]:
        return []

    monkeypatch.setattr(ServerMove, "_until_idle", is_idle)
    async with old.app.worker():
        slow = await old.wait.enqueue()
        await eventually(lambda: _runs(slow))
        assert await ServerMove(old.app, new.app, ["mail"]).run(0.2, silent) == ["mail"]
        old.go.set()
        await slow.result(timeout=20)
        assert await (await old.send.enqueue(1)).result(timeout=20) == 1
    assert (await new.mail.stats()).total == 0


async def test_the_command_tells_what_it_would_move_and_what_it_has_moved(
    shops: tuple[Shop, Shop], tmp_path: Path
) -> None:
    old, new = shops
    for n in range(3):
        await old.place.enqueue("ada", n)
    shell = Shell(old.app.url, tmp_path)
    command = ("move", "--to", new.app.url, "--prefix", PREFIX)

    planned = await asyncio.to_thread(shell.ok, *command, "--dry-run")
    assert re.search(r"orders +3 +0 +can move", planned)
    moved = json.loads(await asyncio.to_thread(shell.ok, *command, "--json"))
    assert moved["queues"] == [{"queue": "orders", "jobs": 3, "running": 0, "done": False}]
    assert moved["left"] == []
    again = await asyncio.to_thread(shell.ok, *command)
    assert re.search(r"orders +0 +0 +moved before", again)
    assert (await new.orders.stats()).waiting == 3


async def test_two_movers_at_once_lose_and_double_nothing(shops: tuple[Shop, Shop]) -> None:
    old, new = shops
    await register(old)
    for n in range(200):
        await old.place.enqueue(f"k{n % 7}", n)
    moves = [ServerMove(old.app, new.app) for _ in range(3)]
    await asyncio.gather(*(move.run(20, silent) for move in moves))
    async with new.app.worker() as worker:
        await worker.drain()
    assert sorted(n for _, _, n in new.ran) == list(range(200))
    for key in range(7):
        numbers = [n for _, name, n in new.ran if name == f"k{key}"]
        assert numbers == sorted(numbers)


async def test_a_change_during_the_copy_starts_the_copy_again(
    shops: tuple[Shop, Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = shops
    await old.place.enqueue("ada", 0)
    copy, late = QueueHandOver._copy_partition, list[Any]()

    async def slow(self: Any, base: str, source: Any, target: Any) -> str:
        real = target.call

        async def call(*command: Any) -> Any:
            if command[0] == "SET" and len(late) < 3:
                late.append(await old.place.enqueue("ada", len(late) + 1))
            return await real(*command)

        target.call = call
        return await copy(self, base, source, target)

    monkeypatch.setattr(QueueHandOver, "_copy_partition", slow)
    await ServerMove(old.app, new.app).run(20, silent)
    async with new.app.worker() as worker:
        await worker.drain()
    assert new.ran == [("place", "ada", n) for n in range(4)]


async def test_each_job_runs_once_and_in_order_although_the_command_is_killed_under_load(
    shops: tuple[Shop, Shop],
) -> None:
    old, new = shops
    argv = ["--queue", "orders"]

    await MoveUnderLoad(old, new).run(argv, kills=[True, True, True, True, False])


async def _runs(job: qbull.Job[Any]) -> bool:
    return (await job.info()).state == "active"


async def _waits_for_signal(job: qbull.Job[Any]) -> bool:
    return [reason.code for reason in (await job.why()).reasons] == ["signal"]


async def test_a_mover_with_the_rights_of_its_role_moves_everything(
    shops: tuple[Shop, Shop], store: Store
) -> None:
    old, new = shops
    for n in range(5):
        await old.place.enqueue("ada", n)
    await old.send.options(delay=3600).enqueue(1)
    line = acl(["mover"], AclScope(PREFIX), "mover").replace(PASSWORD_PLACEHOLDER, "word")
    await store.server.call(*line.replace(">word", ">word +select").split())
    try:
        urls = [re.sub(r"unix://:[^@]*@", "unix://mover:word@", shop.app.url) for shop in shops]
        movers = [qbull.App(url, prefix=PREFIX) for url in urls]
        assert await ServerMove(*movers).run(20, silent) == []
        for mover in movers:
            await mover.close()
    finally:
        await store.server.call("ACL", "DELUSER", "mover")
    assert (await new.orders.stats()).waiting == 5
