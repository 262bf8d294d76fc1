"""`qbull demo --once`: run a fixed workload and check its outcome."""

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
"""Seconds to wait for the result of a job, including the time of all jobs before it."""
CLOCK_TOLERANCE_SECONDS = 0.02
"""Seconds by which a job may seem to start too early: clocks are read in milliseconds."""


@dataclass
class DemoBatch:
    """Jobs of one task. `expected` has the final state and the number of attempts of each."""

    task: Task[..., Any]
    calls: list[dict[str, Any]]
    expected: list[tuple[State, int]]
    delay: float = 0.0
    jobs: list[Job[Any]] = field(default_factory=list)
    infos: list[JobInfo] = field(default_factory=list)

    async def enqueue(self) -> None:
        self.jobs = await self.task.options(delay=self.delay).enqueue_many(self.calls)

    async def wait(self) -> None:
        """Wait until all jobs have finished. Some of them must fail."""
        for job in self.jobs:
            with suppress(JobFailed):
                await job.result(DEMO_JOB_TIMEOUT_SECONDS)
            info = await job.info()
            # The demo keeps more finished jobs than it runs.
            assert info is not None
            self.infos.append(info)

    def faults(self) -> Iterator[str]:
        """Compare the outcome of each job with the expected one."""
        for info, (state, attempts) in zip(self.infos, self.expected, strict=True):
            if (info.state, info.attempt) != (state, attempts):
                outcome = f"{info.state} after {info.attempt} attempts"
                yield f"{info.task} {info.id} is {outcome}, not {state} after {attempts}"
            if (
                info.started_at
                and (info.started_at - info.created_at).total_seconds() < self.delay - CLOCK_TOLERANCE_SECONDS
            ):
                yield f"{info.task} {info.id} ran before its delay of {self.delay:g} s was over"


async def run_once(directory: Path) -> bool:
    """Run the workload and print a summary. Returns whether every outcome was as expected."""
    started = time.monotonic()
    ledger = directory / "ledger"
    ledger.unlink(missing_ok=True)
    batches = workload(str(ledger))
    for batch in batches:
        await batch.enqueue()
    enqueued = time.monotonic()
    for batch in batches:
        await batch.wait()
    finished = time.monotonic()
    out_of_order = check_ledger(ledger.read_text())
    faults = [*(fault for batch in batches for fault in batch.faults()), *out_of_order]

    print_table(("queue", ">enqueued", ">completed", ">retried", ">failed"), _summary(batches))
    kept = "NOT kept" if out_of_order else "kept"
    click.echo(f"order: {kept} for each of {ACCOUNT_COUNT} accounts, {PAYMENT_COUNT} payments each")
    click.echo(f"time: {finished - started:.2f} s, of which {enqueued - started:.2f} s to enqueue")
    for fault in faults[:20]:
        click.echo(f"wrong: {fault}", err=True)
    return not faults


def workload(ledger: str) -> list[DemoBatch]:
    """Return the jobs to run. Payments write to the file `ledger`."""
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
    """Check the lines that the payments wrote: in order, one at a time, none started before a retry has
    finished.
    """
    last: dict[str, tuple[int, int, str]] = {}
    faults = []
    for line in text.splitlines():
        account, step, attempt, event = line.split()
        before = last.get(account, (0, 1, "ends"))
        now = last[account] = (int(step), int(attempt), event)
        follows = (
            now == (before[0], before[1], "ends")
            if before[2] == "starts"
            else now in ((before[0] + 1, 1, "starts"), (before[0], before[1] + 1, "starts"))
        )
        if not follows:
            faults.append(f"{account}: {_text(now)} after {_text(before)}")
    finished = [
        account for account, (step, _, event) in last.items() if (step, event) == (PAYMENT_COUNT, "ends")
    ]
    if len(finished) != ACCOUNT_COUNT:
        faults.append(f"only {len(finished)} of {ACCOUNT_COUNT} accounts reached their last payment")
    return faults


def _text(entry: tuple[int, int, str]) -> str:
    step, attempt, event = entry
    return f"payment {step} {event} attempt {attempt}"


def _summary(batches: list[DemoBatch]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name in [*dict.fromkeys(batch.task.queue.name for batch in batches), "all"]:
        infos = [info for batch in batches for info in batch.infos if name in (info.queue, "all")]
        completed = sum(info.state == "completed" for info in infos)
        failed = sum(info.state == "failed" for info in infos)
        rows.append([name, len(infos), completed, sum(info.attempt - 1 for info in infos), failed])
    return rows
