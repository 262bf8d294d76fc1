"""The runbook: its commands, typed as they stand there while the symptom is there, show and mend what the page says."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from pages import DOCS, ROOT, blocks_of

import qbull
from qbull.cli.main import qbull as command_line
from qbull.core.why import ReasonCode

PAGE = DOCS / "operate" / "runbook.md"
IDS = re.compile(r"\b(?:0199c2f0a1b27000b4a1f3c2d5e6f708|01a1e03dc4d2700092993aa0fe6ee34b|ID)\b")


class Operator:
    """Somebody who types commands of the page, with the id of the job in question."""

    def __init__(self, url: str) -> None:
        self.env = {"QBULL_URL": url, "QBULL_PREFIX": "test"}
        self.commands = {
            line.strip()
            for block in blocks_of(PAGE)
            if block.language == "sh"
            for line in block.text.splitlines()
        } | set(re.findall(r"`(qbull [^`]+)`", PAGE.read_text()))

    async def types(self, line: str, id: str = "") -> str:
        assert line in self.commands, f"the runbook does not have: {line}"
        words = shlex.split(IDS.sub(id, line))[1:]
        done = await asyncio.to_thread(CliRunner().invoke, command_line, words, env=self.env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.output


@pytest.fixture
def operator(server_url: str) -> Operator:
    return Operator(server_url)


def declare(app: qbull.App, **settings: Any) -> tuple[qbull.Queue, qbull.Task[..., Any]]:
    once = qbull.Retry(attempts=1, backoff="fixed", delay=1)
    orders = app.queue("orders", order="key", retry=once, **settings)

    @orders.task(key="{customer}")
    async def charge(customer: str, cents: int) -> int:
        if cents < 0:
            raise ValueError("the card was refused")
        return cents

    return orders, charge


WHY = "qbull job why orders 0199c2f0a1b27000b4a1f3c2d5e6f708"


async def test_jobs_wait_and_nothing_runs(app: qbull.App, operator: Operator) -> None:
    orders, charge = declare(app)
    job = await charge.enqueue(customer="ada", cents=1)

    nobody, doctor = await operator.types(WHY, job.id), await operator.types("qbull doctor")
    await orders.pause()
    paused = await operator.types(WHY, job.id)
    await operator.types("qbull resume orders")
    async with app.worker():
        result = await job.result(timeout=20)

    assert "no-worker" in nobody
    assert 'queue "orders": 1 waiting and no worker; run "qbull worker MODULE:APP --queues orders"' in doctor
    assert "paused" in paused
    assert result == 1


@pytest.mark.parametrize("way", ["retry", "remove"])
async def test_one_key_is_stuck(app: qbull.App, operator: Operator, way: str) -> None:
    _, charge = declare(app, on_failed="halt")
    dead = await charge.enqueue(customer="ada", cents=-1)
    behind = await charge.enqueue(customer="ada", cents=2)
    async with app.worker():
        with pytest.raises(qbull.JobFailed):
            await dead.result(timeout=20)
        seen, why = await operator.types("qbull partitions orders"), await operator.types(WHY, behind.id)
        await operator.types(f"qbull {way} orders 01a1e03dc4d2700092993aa0fe6ee34b", dead.id)
        if way == "retry":  # it fails again, and is let go
            with pytest.raises(qbull.JobFailed):
                await dead.result(timeout=20)
            await dead.remove()
        result = await behind.result(timeout=20)

    assert re.search(rf"^halted lanes: key.*\n\s*ada .*{dead.id}", seen, re.MULTILINE)
    assert "halted" in why and dead.id in why
    assert result == 2


async def test_dead_letters_pile_up(app: qbull.App, operator: Operator) -> None:
    orders, charge = declare(app)
    jobs = await charge.enqueue_many([{"customer": f"c{n}", "cents": -1} for n in range(3)])
    async with app.worker() as worker:
        await worker.drain()
        grouped = await operator.types("qbull failures orders")
        found = await operator.types("qbull jobs orders --state failed --task charge --error-contains card")
        await operator.types("qbull retry orders 0199c2f0a1b27000b4a1f3c2d5e6f708", jobs[0].id)
        await worker.drain()
        await operator.types("qbull redrive orders --task charge --error-contains card --rate 50")
        await worker.drain()
    await operator.types("qbull clean orders --state failed --older-than 604800")
    stats = await orders.stats()

    assert re.search(r"^\s*3 .*charge.*ValueError: the card was refused", grouped, re.MULTILINE)
    assert all(job.id in found for job in jobs)
    assert (stats.failed, stats.totals["redriven"]) == (3, 4)


async def test_memory_grows(app: qbull.App, operator: Operator) -> None:
    orders, charge = declare(app)
    await charge.enqueue_many([{"customer": f"c{n}", "cents": 1} for n in range(20)])
    async with app.worker() as worker:
        await worker.drain()

    await operator.types("qbull clean orders --state completed --older-than 0")

    assert (await orders.stats()).completed == 0


def test_every_reason_for_which_a_job_does_not_run_has_its_line() -> None:
    page = PAGE.read_text()
    of_itself = {
        "finished",
        "running",
        "stopping",
        "next",
        "line",
        "due",
        "retry",
        "put-off",
        "called",
        "sleeping",
        "flow",
    }
    """These go by, or say it all."""

    assert {code for code in get_args(ReasonCode) if f"`{code}`" not in page} <= of_itself


def test_what_the_server_and_the_log_say_is_quoted_as_it_is() -> None:
    page, code = PAGE.read_text(), "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))

    for words in (
        "the server is out of memory; raise its maxmemory or clean finished jobs",
        "did not stop in time and is killed",
        "deliveries were reclaimed",
        "worker processes die before they run a job; starting the next one in",
    ):
        assert words in page and words in code, words
