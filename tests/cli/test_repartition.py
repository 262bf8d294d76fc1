"""`qbull repartition`: another number of partitions, and how far that is."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures

from qbull.store.store import Store
from qbull.store.verbs.layout import change_layout


async def ship(sample: SampleApp, *customers: str) -> None:
    for customer in customers:
        await sample.ship.enqueue(customer=customer)


async def test_the_number_is_changed_and_nothing_is_left(shell: Shell, sample: SampleApp) -> None:
    await ship(sample, "a", "b")
    async with sample.orders.app.worker() as worker:
        await worker.drain()

        shown = await asyncio.to_thread(shell.ok, "repartition", "orders", "6")

    assert shown.splitlines()[0] == 'queue "orders": 2 → 6 partitions, effective now'
    assert shown.splitlines()[-1] == 'queue "orders": 6 partitions; the old ones are empty'
    assert shell.json("partitions", "orders")["partitions"][5]["partition"] == 5
    assert len(shell.json("partitions", "orders")["partitions"]) == 6


async def test_what_is_left_is_shown_until_workers_have_done_it(shell: Shell, sample: SampleApp) -> None:
    await ship(sample, "a", "b", "c")
    command = shell.start("repartition", "orders", "6")
    await asyncio.to_thread(seen, lambda: "no worker serves it" in shell.err)

    async with sample.orders.app.worker() as worker:
        await worker.drain()
        code = await asyncio.to_thread(command.wait, 30)

    assert code == 0
    assert 'queue "orders": 3 jobs and 3 keys are left in the old 2 partitions\n' in shell.out
    assert shell.err == 'queue "orders": no worker serves it; run "qbull worker MODULE:APP --queues orders"\n'
    assert shell.out.endswith('queue "orders": 6 partitions; the old ones are empty\n')


async def test_it_need_not_be_waited_for_and_goes_on_when_called_again(
    shell: Shell, sample: SampleApp
) -> None:
    await ship(sample, "a", "b", "c")

    first = shell.ok("repartition", "orders", "6", "--no-wait")
    second = shell.ok("repartition", "orders", "6", "--no-wait")
    third = shell.ok("repartition", "orders", "4", "--no-wait")

    left = 'queue "orders": 3 jobs and 3 keys are left in the old 2 partitions; the workers continue\n'
    assert first == 'queue "orders": 2 → 6 partitions, effective now\n' + left
    assert second == left
    assert third.splitlines()[0] == 'queue "orders": 6 → 4 partitions, effective now'
    async with sample.orders.app.worker() as worker:
        await worker.drain()
        assert await asyncio.to_thread(shell.ok, "repartition", "orders", "4")
    assert (await sample.orders.stats()).completed == 3


async def test_a_command_that_is_killed_leaves_nothing_to_clean_up(shell: Shell, sample: SampleApp) -> None:
    await ship(sample, "a", "b", "c")
    command = shell.start("repartition", "orders", "6")
    await asyncio.to_thread(seen, lambda: "are left" in shell.out)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()

    async with sample.orders.app.worker() as worker:
        await worker.drain()
        await ship(sample, "a")
        await worker.drain()

    assert (await sample.orders.stats()).completed == 4


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("orders", "0"), 2, "0 is not in the range 1<=x<=1024"),
        (("orders", "5000"), 2, "5000 is not in the range"),
        (("orders", "many"), 2, "is not a valid integer"),
        (("nowhere", "4"), 1, 'queue "nowhere": not on this server; it has: orders'),
    ],
)
async def test_what_cannot_be_is_refused(
    shell: Shell, sample: SampleApp, arguments: tuple[str, str], code: int, line: str
) -> None:
    await ship(sample, "a")

    assert line in await asyncio.to_thread(shell.refused, "repartition", *arguments, code=code)


async def test_doctor_says_what_is_left(shell: Shell, sample: SampleApp) -> None:
    await ship(sample, "a", "b")
    await sample.orders.repartition(6)

    said = shell.run("doctor").out

    assert (
        'note     queue "orders": 2 jobs and 2 keys are left in the old 2 partitions; the workers run them; '
        '"qbull repartition orders 6" shows the progress\n'
    ) in said


async def test_doctor_sees_a_change_that_nobody_ended(shell: Shell, sample: SampleApp, store: Store) -> None:
    await ship(sample, "a")
    layout = await store.layout(sample.orders.settings)
    await change_layout(store, sample.orders.settings, layout, layout.begins(6))

    done = shell.run("doctor")

    assert (
        'problem  queue "orders": a change from 2 to 6 partitions was started but not finished; run "qbull repartition orders 6"\n'
    ) in done.out
    assert done.code == 1
    shell.ok("repartition", "orders", "6", "--no-wait")
    assert "was begun" not in shell.run("doctor").out
