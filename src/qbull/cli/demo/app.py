"""The app of `qbull demo`: the four queues of a small shop. Its tasks only take some time.

The arguments of a job alone decide its outcome, so `qbull demo --once` knows all outcomes beforehand.
"""

from __future__ import annotations

import asyncio
import os
import time

import qbull

DEMO_APP_PATH = "qbull.cli.demo.app:app"
DEMO_RETENTION = qbull.Keep(completed=2_000, failed=500)

app = qbull.App(prefix="demo")

email = app.queue(
    "email", partitions=2, concurrency=20, retry=qbull.Retry(delays=(0.2, 0.5)), keep=DEMO_RETENTION
)
payments = app.queue(
    "payments",
    partitions=4,
    order="key",
    concurrency=10,
    retry=qbull.Retry(delays=(0.1, 0.3)),
    keep=DEMO_RETENTION,
)
reports = app.queue(
    "reports",
    partitions=1,
    concurrency=4,
    retry=qbull.Retry(attempts=3, backoff="fixed", delay=0.2),
    keep=DEMO_RETENTION,
)
reminders = app.queue("reminders", partitions=1, concurrency=5, keep=DEMO_RETENTION)


@email.task
async def welcome(user: str, refusals: int = 0) -> str:
    """Send a mail. The mail server refuses the first attempts, so they are retried."""
    await asyncio.sleep(0.02)
    if qbull.current_job().attempt <= refusals:
        raise ConnectionError("421 the mail server is busy")
    return f"sent to {user}"


@email.task
async def newsletter(user: str, address: str) -> str:
    """Send a mail. An invalid address is not retried: the job becomes a dead letter at once."""
    await asyncio.sleep(0.01)
    if "@" not in address:
        raise qbull.Fail(f"{address!r} is not an address")
    return f"sent to {user}"


@payments.task(key="{account}")
async def charge(account: str, step: int, refusals: int = 0, ledger: str | None = None) -> int:
    """Charge an account. Its payments run one at a time, in order; a retry keeps the later ones waiting."""
    attempt = qbull.current_job().attempt
    _write(ledger, f"{account} {step} {attempt} starts")
    await asyncio.sleep(0.005)
    _write(ledger, f"{account} {step} {attempt} ends")
    if attempt <= refusals:
        raise TimeoutError("the bank did not answer")
    return step


@reports.task
def render(month: int) -> str:
    """Render a report. A plain function runs in a thread."""
    time.sleep(0.02)
    return f"report-{month:02d}.pdf"


@reports.task(cpu=True)
def forecast(months: int) -> int:
    """Compute a forecast. A function with cpu=True runs in a process of its own."""
    return sum(n * n for n in range(months * 10_000)) % 1000


@reports.task
def archive(month: int) -> None:
    """Fail at every attempt; then the job is a dead letter."""
    raise OSError(f"no space left for the archive of month {month}")


@reminders.task
async def remind(user: str, about: str) -> str:
    await asyncio.sleep(0.01)
    return f"reminded {user} of {about}"


def _write(ledger: str | None, line: str) -> None:
    """Append one line in one write, so that lines of several processes do not mix."""
    if ledger is None:
        return
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
