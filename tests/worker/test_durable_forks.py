"""Forks: a new job continues a copied history from a chosen step, and runs no copied step again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull import testing
from qbull.store.store import Store
from qbull.store.verbs import audit_log


class OutOfStock(Exception):
    pass


class Shop:
    """A durable task with three steps, of which the last may fail."""

    def __init__(self, app: qbull.App, **settings: Any) -> None:
        self.app = app
        self.calls: Counter[str] = Counter()
        self.broken = True
        self.orders = orders = app.queue("orders", retry=qbull.Retry(attempts=1), **settings)

        async def charge(order: int) -> str:
            self.calls["charge"] += 1
            return f"payment-{order}"

        async def reserve(order: int, payment: str) -> str:
            self.calls["reserve"] += 1
            return f"{payment} reserved"

        async def ship(order: int, reserved: str) -> str:
            self.calls["ship"] += 1
            if self.broken:
                raise ConnectionError("no lorry")
            return f"{order}: {reserved}"

        @orders.task(durable=True, key="{customer}")
        async def fulfil(order: int, customer: str = "ada") -> str:
            job = qbull.current_job()
            payment = await job.step(charge, order)
            reserved = await job.step(reserve, order, payment)
            return await job.step(ship, order, reserved)

        self.fulfil = fulfil

    async def ended(self, job: qbull.Job[str]) -> str:
        async with self.app.worker(["orders"]):
            return await job.result(timeout=20)

    async def failed(self) -> qbull.Job[str]:
        job = await self.fulfil.enqueue(7)
        with pytest.raises(qbull.JobFailed):
            await self.ended(job)
        self.broken = False
        self.calls.clear()
        return job


@pytest.mark.parametrize("order", ["key", "none"])
async def test_a_forked_job_runs_no_copied_step_again(app: qbull.App, order: Any) -> None:
    shop = Shop(app, partitions=3, **({"order": "key"} if order == "key" else {}))
    old = await shop.failed()

    new = await old.fork()

    assert new.created and new.id != old.id
    assert await shop.ended(new) == "7: payment-7 reserved"
    assert shop.calls == {"ship": 1}
    info, before = await new.info(), await old.info()
    assert info is not None and before is not None
    assert (info.forked_from, info.key, info.payload, info.attempt) == (old.id, "ada", {"order": 7}, 1)
    assert (before.state, before.forked_from) == ("failed", None)
    steps = [(step.number, step.name, step.state) for step in await new.steps()]
    assert steps == [(1, "charge", "completed"), (2, "reserve", "completed"), (3, "ship", "completed")]


@pytest.mark.parametrize(
    ("step", "runs"),
    [
        (1, {"charge": 1, "reserve": 1, "ship": 1}),
        (2, {"reserve": 1, "ship": 1}),
        ("reserve", {"reserve": 1, "ship": 1}),
        ("ship", {"ship": 1}),
    ],
)
async def test_it_runs_from_the_chosen_step_on(app: qbull.App, step: int | str, runs: dict[str, int]) -> None:
    shop = Shop(app)
    old = await shop.failed()

    assert await shop.ended(await old.fork(step)) == "7: payment-7 reserved"
    assert shop.calls == runs


async def test_other_arguments_and_results_do_not_run_copied_steps_again(app: qbull.App) -> None:
    shop = Shop(app)
    old = await shop.failed()

    moved = await old.fork(3, arguments={"order": 8})
    assert await shop.ended(moved) == "8: payment-7 reserved"
    patched = await old.fork(3, results={"charge": "cash"})
    assert await shop.ended(patched) == "7: payment-7 reserved"
    again = await old.fork("reserve", results={1: "cash"})
    assert await shop.ended(again) == "7: cash reserved"
    assert shop.calls == {"ship": 3, "reserve": 1}


async def test_parallel_steps_keep_their_places_with_other_arguments(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    gates = {item: asyncio.Event() for item in "abc"}

    async def pack(item: str, box: str) -> str:
        calls[item] += 1
        await gates[item].wait()
        return f"{item} in {box}"

    async def send(boxes: list[str]) -> str:
        gates["c"].set()
        return ", ".join(boxes)

    @app.queue("orders").task(durable=True)
    async def pack_all(box: str) -> str:
        job = qbull.current_job()
        return await job.step(send, await asyncio.gather(*(job.step(pack, item, box) for item in "abc")))

    old = await pack_all.enqueue("paper")
    async with app.worker(["orders"]):
        for item in "cab":  # They end in another order than they were asked for.
            await eventually(lambda item=item: _is_true(calls[item]))
            gates[item].set()
            await eventually(lambda item=item: has_step(old, f"{item} in paper"))
        assert await old.result(timeout=20) == "a in paper, b in paper, c in paper"
        new = await old.fork("send", arguments={"box": "wood"})
        assert await new.result(timeout=20) == "a in paper, b in paper, c in paper"
    assert calls == {"a": 1, "b": 1, "c": 1}


async def test_sleeps_signals_calls_and_caught_errors_count_as_recorded(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    orders, printing = app.queue("orders", retry=qbull.Retry(attempts=1)), app.queue("printing")

    @printing.task
    async def label(parcel: str) -> str:
        calls["label"] += 1
        return f"label of {parcel}"

    async def reserve() -> None:
        calls["reserve"] += 1
        raise OutOfStock("no tea")

    async def ship() -> str:
        calls["ship"] += 1
        return "shipped"

    @orders.task(durable=True)
    async def fulfil() -> list[Any]:
        job = qbull.current_job()
        row = await job.checkpoint(1)
        await job.sleep(0.01)
        approval = await job.wait_for("approval")
        printed = await job.call(label.step("tea"))
        try:
            await job.step(reserve)
        except OutOfStock as error:
            await job.step(ship)
            return [row, approval, printed, str(error)]
        return []

    old = await fulfil.enqueue()
    await old.signal("approval", "ada")
    async with app.worker():
        assert await old.result(timeout=20) == [1, "ada", "label of tea", "no tea"]
        assert await (await old.fork("ship")).result(timeout=20) == [1, "ada", "label of tea", "no tea"]
        patched = await old.fork("ship", results={"wait_for approval": "bob", "call label": "stamp"})
        assert await patched.result(timeout=20) == [1, "bob", "stamp", "no tea"]
        again = await old.fork("call label")
        assert await again.result(timeout=20) == [1, "ada", "label of tea", "no tea"]
    assert calls == {"label": 2, "reserve": 2, "ship": 4}


async def test_values_published_before_the_step_are_copied(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def fulfil() -> None:
        job = qbull.current_job()
        await job.publish("customer", "ada")
        await job.publish("stage", "charged")
        await job.step(take_card, "4111")
        await job.publish("stage", "shipped")
        await job.wait_for("approval")

    old = await fulfil.enqueue()
    async with app.worker():
        await old.signal("approval")
        await old.result(timeout=20)
        new = await old.fork("take_card")
        assert await new.published("customer") == "ada"
        await eventually(lambda: has_state(new, "waiting"))
        assert await new.published("stage") == "shipped"
        assert [step.name for step in await new.steps()] == [step.name for step in await old.steps()]
        await new.cancel()


async def test_a_step_that_was_under_way_runs_in_the_fork(app: qbull.App) -> None:
    async def ship() -> str:
        return "shipped"

    @app.queue("orders").task(durable=True)
    async def fulfil() -> tuple[str, str]:
        job = qbull.current_job()
        return await asyncio.gather(job.wait_for("approval", type=str), job.step(ship))

    old = await fulfil.enqueue()
    async with app.worker():
        await eventually(lambda: has_step(old, "shipped"))
        await old.cancel()
        new = await old.fork()
        await new.signal("approval", "ada")
        assert await new.result(timeout=20) == ("ada", "shipped")


async def test_a_fork_that_is_sent_twice_is_one_job(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(app)
    old = await shop.failed()
    server = (await shop.orders._partitions())[0].server
    real, sent = type(server).script, []

    async def lose_the_reply(self: Any, name: str, *arguments: Any) -> Any:
        answer = await real(self, name, *arguments)
        if name == "fork":
            sent.append(answer)
            if len(sent) == 1:
                raise qbull.ServerAway("the reply was lost")
        return answer

    monkeypatch.setattr(type(server), "script", lose_the_reply)
    new = await old.fork(id="again")
    twice = await old.fork(id="again")

    assert sent[0] == b"added" and len(sent) >= 2
    assert (new.created, twice.created, new.id, twice.id) == (True, False, "again", "again")
    assert (await shop.orders.stats()).waiting == 1
    assert await shop.ended(new) == "7: payment-7 reserved"
    assert shop.calls == {"ship": 1}


async def test_a_fork_goes_to_the_new_partitions_of_its_queue(app: qbull.App) -> None:
    shop = Shop(app, partitions=2)
    old = await shop.failed()
    await app._client().router.layout(shop.orders.settings)
    async with qbull.App(app.url, prefix="test") as other:
        await other.queue("orders", partitions=2, retry=qbull.Retry(attempts=1)).repartition(5)

    assert await shop.ended(await old.fork()) == "7: payment-7 reserved"
    assert shop.calls == {"ship": 1}


async def test_histories_are_bound_to_the_new_job(server_url: str, store: Store) -> None:
    secret = "4111-1111"
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:
        shop = Shop(app)

        @shop.orders.task(durable=True)
        async def pay(card: str) -> str:
            job = qbull.current_job()
            paid = await job.step(take_card, card)
            if shop.broken:
                raise ConnectionError
            return paid

        old = await pay.enqueue(secret)
        with pytest.raises(qbull.JobFailed):
            await shop.ended(old)
        shop.broken = False
        async with qbull.App(server_url, prefix="test") as without:
            with pytest.raises(qbull.Conflict, match="no key"):
                await without.queue("orders").job(old.id).fork()
        new = await old.fork(results={1: f"{secret} again"})
        stored = await store.server.call("HGETALL", f"{{test:orders:0}}:job:{new.id}")
        assert await shop.ended(new) == f"{secret} again"
        assert await shop.ended(await new.fork()) == f"{secret} again"
    assert stored and not any(secret.encode() in part for part in stored)


async def take_card(card: str) -> str:
    return f"charged {card}"


async def test_forks_that_make_no_sense_are_refused(app: qbull.App) -> None:
    shop = Shop(app)

    @shop.orders.task
    async def plain() -> None: ...

    waiting, simple = await shop.fulfil.enqueue(1), await plain.enqueue()
    with pytest.raises(qbull.Conflict, match="is waiting and will run"):
        await waiting.fork()
    await waiting.cancel()
    await shop.ended(simple)
    with pytest.raises(qbull.Conflict, match="no recorded steps"):
        await simple.fork()
    with pytest.raises(qbull.NotFound):
        await shop.orders.job("nothing").fork()
    old = await shop.failed()
    for request, why in (
        ({"step": 9}, "has the steps 1 to 3"),
        ({"step": "pack"}, 'no such step "pack"; the steps are: charge, reserve, ship'),
        ({"step": 2, "results": {"reserve": 1}}, 'no such step "reserve"; the steps are: charge'),
        ({"step": 2, "results": {2: 1}}, "step 2 is not copied"),
        ({"results": {1: 1, "charge": 2}}, "step 1 has two results"),
        ({"arguments": {"number": 1}}, "number"),
        ({"arguments": {"order": 7, "customer": "bob"}}, "key"),
    ):
        with pytest.raises(qbull.ArgumentsError, match=why):
            await old.fork(**request)  # type: ignore[arg-type]
    with pytest.raises(qbull.PayloadError):
        await old.fork(results={1: object()})


async def test_the_name_of_several_steps_is_refused(app: qbull.App) -> None:
    async def pack(item: str) -> str:
        return item

    @app.queue("orders").task(durable=True)
    async def pack_two() -> None:
        await qbull.current_job().step(pack, "a")
        await qbull.current_job().step(pack, "b")

    old = await pack_two.enqueue()
    async with app.worker():
        await old.result(timeout=20)
    with pytest.raises(qbull.ArgumentsError, match='steps 1, 2 have the name "pack"; give the number'):
        await old.fork("pack")


async def test_a_fork_is_in_the_audit_log(app: qbull.App, store: Store) -> None:
    shop = Shop(app)
    old = await shop.failed()

    new = await old.fork(2, results={"charge": "a secret"})

    entry = (await audit_log.read(store, 1))[0].entry
    assert entry.action == "fork job"
    assert entry.target == f"orders/{old.id}"
    assert new.id in str(entry.detail) and "a secret" not in str(entry)


def test_forks_work_inline_and_from_synchronous_code() -> None:
    app = qbull.App("redis://127.0.0.1:1/0")
    shop = Shop(app)
    with testing.inline(app, propagate=False):
        old = shop.fulfil.enqueue_sync(7)
        shop.broken = False
        shop.calls.clear()
        new = app.run_sync(old.fork())
        assert app.run_sync(new.result()) == "7: payment-7 reserved"
    assert shop.calls == {"ship": 1}


async def has_step(job: qbull.Job[Any], result: str) -> bool:
    return any(step.result == result for step in await job.steps())


async def has_state(job: qbull.Job[Any], state: str) -> bool:
    return any(step.state == state for step in await job.steps())


async def _is_true(value: object) -> bool:
    return bool(value)
