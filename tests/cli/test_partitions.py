"""partitions: who reads what, what waits there, which keys are long or halted, and which settings do not fit."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures

import qbull
from qbull.core.sharing import Sharing
from qbull.store.store import Store
from qbull.worker.worker import Worker

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def look(shell: Shell, queue: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(shell.json, "partitions", queue)
    return found


async def test_the_shape_is_stable(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    found = await look(shell, "email")
    async with sample.email.app.worker() as worker:
        await worker.drain()
        read = await look(shell, "email")

    [partition] = found["partitions"]
    assert MOMENT.fullmatch(partition.pop("oldestWaitingAt"))
    assert partition == {
        "partition": 0, "draining": False, "readers": [], "lease": None, "waiting": 1, "inLanes": 0, "active": 0, "delayed": 0, "failed": 0
    }  # fmt: skip
    assert {name: found[name] for name in found if name != "partitions"} == {
        "queue": "email",
        "longLanes": [],
        "haltedLanes": [],
        "warnings": [],
    }
    [[reader]] = [partition["readers"] for partition in read["partitions"]]
    assert MOMENT.fullmatch(reader.pop("since"))
    assert reader.pop("host")
    assert reader == {"worker": worker.id, "sharing": "auto"}


async def test_a_queue_without_workers_is_said_with_the_way_to_start_one(
    shell: Shell, sample: SampleApp
) -> None:
    await sample.send.enqueue(to="a")

    shown = shell.run("partitions", "email")

    assert shown.code == 0
    assert 'no worker serves it; run "qbull worker MODULE:APP --queues email"' in shown.err


async def test_leases_have_an_owner_an_epoch_and_an_age(
    shell: Shell, app: qbull.App, sample: SampleApp
) -> None:
    leased = Sharing("leased", most=1)
    async with Worker(app._make_store, app._assignments(["orders"]), sharing=leased):
        pass
    async with Worker(app._make_store, app._assignments(["orders"]), sharing=leased) as owner:
        found = await look(shell)
        shown = await asyncio.to_thread(shell.run, "partitions", "orders")

    first, second = (partition["lease"] for partition in found["partitions"])
    assert MOMENT.fullmatch(first.pop("since"))
    assert first == {"owner": owner.id, "epoch": 2}
    assert second is None
    assert f"{owner.id} (lease 2)" in shown.out
    assert "no worker reads partition 1: 1 pod takes up to 1 of 2 (PARTITIONS_PER_POD)" in shown.err


async def test_the_longest_lanes_are_shown_with_their_keys(shell: Shell, sample: SampleApp) -> None:
    for customer, many in (("quiet", 1), ("busy", 30), ("some", 5)):
        await sample.ship.enqueue_many([{"customer": customer}] * many)

    found = await look(shell)
    shown = shell.ok("partitions", "orders")

    assert [(lane["key"], lane["waiting"]) for lane in found["longLanes"]] == [("busy", 29), ("some", 4)]
    assert all(MOMENT.fullmatch(lane["oldestWaitingAt"]) for lane in found["longLanes"])
    assert re.search(r"^busy +[01] +29 ", shown, re.MULTILINE)


async def test_a_key_with_most_of_the_jobs_is_found_among_very_many(shell: Shell, sample: SampleApp) -> None:
    await sample.ship.enqueue_many([{"customer": f"c{n // 2}"} for n in range(4000)])
    await sample.ship.enqueue_many([{"customer": "hot"}] * 1000)

    [hottest, *_] = (await look(shell))["longLanes"]

    assert (hottest["key"], hottest["waiting"]) == ("hot", 999)


async def test_halted_lanes_are_shown_with_their_dead_letter(shell: Shell, app: qbull.App) -> None:
    ledger = app.queue("ledger", order="key", on_failed="halt", partitions=2)

    @ledger.task(key="{account}")
    async def post(account: str) -> None:
        raise qbull.Fail("does not balance")

    job, *_ = await post.enqueue_many([{"account": "a"}] * 3)
    async with app.worker(["ledger"]):
        with pytest.raises(qbull.JobFailed):
            await job.result(timeout=10)
        found = await look(shell, "ledger")
        shown = await asyncio.to_thread(shell.ok, "partitions", "ledger")

    [halted] = found["haltedLanes"]
    assert MOMENT.fullmatch(halted.pop("since"))
    info = await job.info()
    assert info is not None
    assert halted == {"partition": info.partition, "key": "a", "waiting": 2, "jobId": job.id}
    assert job.id in shown


async def test_the_one_lane_of_a_partition_has_no_key(shell: Shell, app: qbull.App) -> None:
    @app.queue("import", order="partition").task(key="{tenant}")
    async def load(tenant: str) -> None: ...

    await load.enqueue_many([{"tenant": "a"}, {"tenant": "b"}])

    [lane] = (await look(shell, "import"))["longLanes"]

    assert (lane["key"], lane["waiting"]) == (None, 1)


async def test_the_cost_is_the_same_for_many_jobs(store: Store, shell: Shell, sample: SampleApp) -> None:
    await sample.ship.enqueue_many([{"customer": f"c{n % 300}"} for n in range(900)])
    few = await commands_of(store, shell)

    await sample.ship.enqueue_many([{"customer": f"c{n % 3000}"} for n in range(9000)])
    many = await commands_of(store, shell)

    assert many < few * 1.5, "a look must not read more where there is more"


async def commands_of(store: Store, shell: Shell) -> int:
    """How many commands a look makes the server run, those of its scripts included."""
    await store.server.call("CONFIG", "RESETSTAT")
    await look(shell)
    stats = (await store.server.call("INFO", "commandstats")).decode()
    return sum(int(calls) for calls in re.findall(r"calls=(\d+)", stats))


@pytest.mark.parametrize(
    ("one", "other", "fact"),
    [
        (("--instance-id", "0", "--instance-count", "2"), ("--instance-id", "1", "--instance-count", "3"), "INSTANCE_COUNT is not the same everywhere"),
        ((), ("--sharing", "leased"), "workers share its partitions in different ways"),
    ],
)  # fmt: skip
async def test_real_workers_that_do_not_fit_together_are_noted(
    shell: Shell, sample: SampleApp, one: tuple[str, ...], other: tuple[str, ...], fact: str
) -> None:
    shell.start("worker", "sample_app", "--queues", "orders", *one)
    seen(lambda: shell.json("workers") and shell.json("partitions", "orders")["partitions"][0]["readers"])
    shell.start("worker", "sample_app", "--queues", "orders", *other)

    seen(lambda: f'queue "orders": {fact}' in shell.err)
    shown = await asyncio.to_thread(shell.run, "partitions", "orders")
    doctor = json.loads((await asyncio.to_thread(shell.run, "doctor", "--json")).out)

    assert fact in shown.err
    [noted] = [finding for finding in doctor["findings"] if fact in finding["fact"]]
    assert (noted["level"], noted["subject"]) == ("note", 'queue "orders"')
    assert noted["next"]


async def test_two_real_workers_with_one_id_are_said_everywhere(shell: Shell, sample: SampleApp) -> None:
    same = ("--instance-id", "worker-0", "--instance-count", "2")
    shell.start("worker", "sample_app", "--queues", "orders", *same)
    seen(lambda: len(shell.json("workers")) == 1)
    shell.start("worker", "sample_app", "--queues", "orders", *same)
    seen(lambda: len(shell.json("workers")) == 2)

    seen(lambda: 'queue "orders": INSTANCE_ID=0 of 2 is used by 2 workers: ' in shell.err)
    found = await look(shell)
    shown = await asyncio.to_thread(shell.run, "partitions", "orders")
    doctor = json.loads((await asyncio.to_thread(shell.run, "doctor", "--json")).out)

    unread, same_id = found["warnings"]
    assert (unread["kind"], unread["partitions"]) == ("unread", [1])
    assert unread["next"] == "start it, or lower the count everywhere"
    assert (same_id["kind"], same_id["partitions"], len(same_id["workers"])) == ("same-id", [0], 2)
    assert "INSTANCE_ID 1 is not running; start it" in shown.err
    problems = [f"{f['subject']}: {f['fact']}" for f in doctor["findings"] if f["level"] == "problem"]
    assert any(text.startswith('queue "orders": no worker reads partition 1') for text in problems)
    assert any(text.startswith('queue "orders": INSTANCE_ID=0 of 2 is used') for text in problems)
