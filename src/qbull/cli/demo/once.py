"""`qbull demo --once`: a fixed workload, run to its end, and a check that its outcome is what it must be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from qbull.cli.demo.app import archive, charge, forecast, newsletter, remind, render, welcome
from qbull.cli.terminal import print_table
from qbull.core.job_info import JobInfo
from qbull.core.record import State
from qbull.errors import JobFailed
from qbull.job import Job
from qbull.task import Task

ACCOUNT_COUNT, PAYMENT_COUNT = 12, 15
DEMO_JOB_TIMEOUT_SECONDS = 60.0
"""Seconds that a job may take, all before it included."""
CLOCK_TOLERANCE_SECONDS = 0.02
"""Seconds by which a start may seem too early: clocks are read in milliseconds."""


@dataclass
class DemoBatch:
    """Jobs of one task; `ends` says how each of them must end: its state, and after how many attempts."""

    task: Task[..., Any]
    calls: list[dict[str, Any]]
    ends: list[tuple[State, int]]
    delay: float = 0.0
    jobs: list[Job[Any]] = field(default_factory=list)
    infos: list[JobInfo] = field(default_factory=list)

    async def enqueue(self) -> None:
        self.jobs = await self.task.options(delay=self.delay).enqueue_many(self.calls)

    async def follow(self) -> None:
        for job in self.jobs:
            with suppress(JobFailed):  # some must
                await job.result(DEMO_JOB_TIMEOUT_SECONDS)
            info = await job.info()
            assert info is not None  # the demo keeps more than it runs
            self.infos.append(info)

    def faults(self) -> Iterator[str]:
        for info, (state, attempts) in zip(self.infos, self.ends, strict=True):
            if (info.state, info.attempt) != (state, attempts):
                yield f"{info.task} {info.id} is {info.state} after {info.attempt} attempts, not {state} after {attempts}"
            if (
                info.started_at
                and (info.started_at - info.created_at).total_seconds() < self.delay - CLOCK_TOLERANCE_SECONDS
            ):
                yield f"{info.task} {info.id} ran before its delay of {self.delay:g} s was over"


async def run_once(directory: Path) -> bool:
    """Whether all went as it must."""
    began = time.monotonic()
    ledger = directory / "ledger"
    ledger.unlink(missing_ok=True)
    batches = workload(str(ledger))
    for batch in batches:
        await batch.enqueue()
    enqueued = time.monotonic()
    for batch in batches:
        await batch.follow()
    ended = time.monotonic()
    out_of_order = check_ledger(ledger.read_text())
    wrong = [*(fault for batch in batches for fault in batch.faults()), *out_of_order]

    print_table(("queue", ">enqueued", ">completed", ">retried", ">failed"), _summary(batches))
    click.echo(
        f"order: {'NOT ' if out_of_order else ''}kept for each of {ACCOUNT_COUNT} accounts, {PAYMENT_COUNT} payments each"
    )
    click.echo(f"time: {ended - began:.2f} s, of which {enqueued - began:.2f} s to enqueue")
    for fault in wrong[:20]:
        click.echo(f"wrong: {fault}", err=True)
    return not wrong


def workload(ledger: str) -> list[DemoBatch]:
    users = [f"user-{n}" for n in range(120)]
    refusals = [2 if n % 40 == 5 else 1 if n % 10 == 5 else 0 for n in range(len(users))]
    payments = [
        {"account": f"account-{n}", "step": step, "refusals": int((step + n) % 5 == 0), "ledger": ledger}
        for step in range(1, PAYMENT_COUNT + 1)
        for n in range(ACCOUNT_COUNT)
    ]
    return [
        DemoBatch(
            welcome,
            [{"user": user, "refusals": n} for user, n in zip(users, refusals, strict=True)],
            [("completed", n + 1) for n in refusals],
        ),
        DemoBatch(
            newsletter,
            [{"user": u, "address": f"{u}@example.com"} for u in users[:20]],
            [("completed", 1)] * 20,
        ),
        DemoBatch(newsletter, [{"user": u, "address": "nowhere"} for u in users[:8]], [("failed", 1)] * 8),
        DemoBatch(charge, payments, [("completed", int(str(p["refusals"])) + 1) for p in payments]),
        DemoBatch(render, [{"month": n} for n in range(1, 25)], [("completed", 1)] * 24),
        DemoBatch(forecast, [{"months": n} for n in range(1, 7)], [("completed", 1)] * 6),
        DemoBatch(archive, [{"month": n} for n in range(1, 5)], [("failed", 3)] * 4),
        DemoBatch(
            remind, [{"user": u, "about": "the cart"} for u in users[:15]], [("completed", 1)] * 15, delay=1.0
        ),
        DemoBatch(
            remind,
            [{"user": u, "about": "the trial"} for u in users[:15]],
            [("completed", 1)] * 15,
            delay=0.5,
        ),
    ]


def check_ledger(text: str) -> list[str]:
    """What the payments themselves have written: in order, one at a time, none begun before a retry has ended."""
    last: dict[str, tuple[int, int, str]] = {}
    faults = []
    for line in text.splitlines():
        account, step, attempt, word = line.split()
        before = last.get(account, (0, 1, "ends"))
        now = last[account] = (int(step), int(attempt), word)
        follows = (
            now == (before[0], before[1], "ends")
            if before[2] == "begins"
            else now in ((before[0] + 1, 1, "begins"), (before[0], before[1] + 1, "begins"))
        )
        if not follows:
            faults.append(f"{account}: {_words(now)} after {_words(before)}")
    finished = [
        account for account, (step, _, word) in last.items() if (step, word) == (PAYMENT_COUNT, "ends")
    ]
    if len(finished) != ACCOUNT_COUNT:
        faults.append(f"only {len(finished)} of {ACCOUNT_COUNT} accounts came to their last payment")
    return faults


def _words(entry: tuple[int, int, str]) -> str:
    step, attempt, word = entry
    return f"payment {step} {word} its attempt {attempt}"


def _summary(batches: list[DemoBatch]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name in [*dict.fromkeys(batch.task.queue.name for batch in batches), "all"]:
        infos = [info for batch in batches for info in batch.infos if name in (info.queue, "all")]
        completed = sum(info.state == "completed" for info in infos)
        failed = sum(info.state == "failed" for info in infos)
        rows.append([name, len(infos), completed, sum(info.attempt - 1 for info in infos), failed])
    return rows
