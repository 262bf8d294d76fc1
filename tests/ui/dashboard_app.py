"""The app that the dashboard's tests look at: a shop with mail, payments in order, reports and maintenance. Arguments decide what becomes of a job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

import qbull

app = qbull.App()

email = app.queue(
    "email",
    partitions=4,
    concurrency=20,
    retry=qbull.Retry(delays=(0.2, 0.5)),
    keep=qbull.Keep(completed=5_000, failed=5_000),
    alert=True,
)
payments = app.queue(
    "payments",
    partitions=8,
    order="key",
    on_failed="halt",
    concurrency=10,
    retry=qbull.Retry(delays=(0.1,)),
    keep=qbull.Keep(completed=5_000, failed=5_000),
)
reports = app.queue(
    "reports", partitions=1, concurrency=4, retry=qbull.Retry(attempts=1), keep=qbull.Keep(completed=1_000)
)
slack = app.queue(
    "slack", partitions=1, concurrency=10, retry=qbull.Retry(attempts=3, backoff="fixed", delay=2)
)
orders = app.queue("orders", partitions=2, concurrency=10, retry=qbull.Retry(attempts=1))
maintenance = app.queue("maintenance", partitions=1, concurrency=1)


@email.task(name="verify")
async def verify(user_id: str, address: str, first_name: str = "", fail: str | None = None) -> dict[str, str]:
    await asyncio.sleep(0.03)
    if fail is not None:
        raise ConnectionError(fail)
    return {"sent_to": address, "message_id": f"<{user_id}@mail.example.com>"}


@email.task(name="welcome")
async def welcome(user_id: str, address: str, refusals: int = 0) -> dict[str, str]:
    await asyncio.sleep(0.02)
    if qbull.current_job().attempt <= refusals:
        raise ConnectionError("421 4.3.2 the mail server is busy, try again later")
    return {"sent_to": address}


@email.task(name="import")
async def import_row(kind: str) -> None:
    """Fails in another place with each attempt, and logs at each level."""
    job = qbull.current_job()
    for level in ("debug", "info", "warning", "error"):
        await job.log(f"{level} of attempt {job.attempt}", level=level)  # type: ignore[arg-type]
    if job.attempt == 1:
        raise KeyError("customer")
    if job.attempt == 2:
        raise ValueError("no such currency")


@email.task(name="newsletter")
async def newsletter(user_id: str, address: str, issue: int) -> str:
    if "@" not in address:
        raise qbull.Fail(f"550 {address!r} is not an address")
    await asyncio.sleep(0.01)
    return "sent"


@payments.task(name="charge", key="{account}")
async def charge(
    account: str, amount: float, currency: str = "EUR", refused: bool = False, seconds: float = 0.02
) -> str:
    await asyncio.sleep(seconds)
    if refused:
        raise TimeoutError("the bank did not answer within 10 s")
    return f"{amount:.2f} {currency} charged to {account}"


@reports.task(name="monthly-statement")
async def monthly_statement(
    customer: str,
    month: str,
    rows: int = 100,
    seconds: float = 1.0,
    paper: Literal["a4", "letter"] = "a4",
) -> dict[str, object]:
    """Reports its progress and logs."""
    job = qbull.current_job()
    await job.log(f"collecting the bookings of {customer} for {month}")
    for part in range(1, 11):
        await asyncio.sleep(seconds / 10)
        await job.progress(part * 10)
        if part % 3 == 0:
            await job.log(f"{rows * part // 10} of {rows} rows rendered")
    await job.log("uploaded to the archive")
    return {"file": f"{customer}-{month}.pdf", "pages": rows // 40 + 1, "bytes": rows * 731}


@reports.task(name="export")
async def export(customer: str, format: str = "csv") -> None:
    await asyncio.sleep(0.05)
    raise OSError(28, "No space left on device", f"/var/exports/{customer}.{format}")


@slack.task(name="alert")
async def alert(channel: str, text: str) -> str:
    await asyncio.sleep(0.05)
    return "ok"


@slack.task(name="digest", limit=qbull.Limit("slack-api", rate=qbull.Rate(2, per=600)).use(key="{channel}"))
async def digest(channel: str) -> None: ...


@maintenance.task(name="place")
async def place(order: str, labels: int = 2) -> str:
    """Begins a flow; gives the id of the job that it ends with."""
    sent = qbull.group(*(label.step(order) for _ in range(labels)))
    flow = await qbull.chain(
        reserve.step(order), sent, ship.step(order), fallback=refund.step(order)
    ).enqueue()
    return flow.last.id


@maintenance.task(name="weave")
async def weave(order: str, levels: int = 12) -> str:
    """Begins a flow with three jobs on each of many levels; gives the id of the job that it ends with."""
    parts = [qbull.group(*(label.step(order) for _ in range(3))) for _ in range(levels)]
    flow = await qbull.chain(reserve.step(order), *parts, ship.step(order)).enqueue()
    return flow.last.id


@orders.task(name="reserve")
async def reserve(order: str) -> str:
    if order == "sold out":
        raise LookupError(order)
    return order


@orders.task(name="label")
async def label(order: str) -> str:
    return order


@orders.task(name="ship")
async def ship(order: str) -> str:
    return order


@orders.task(name="refund")
async def refund(order: str) -> str:
    return order


@maintenance.cron("0 * * * *", tz="America/Argentina/Cordoba", name="clean-verification-tokens")
async def clean_verification_tokens() -> int:
    await asyncio.sleep(0.2)
    return 37


@maintenance.cron("0 9 * * 1-5", tz="America/Argentina/Cordoba", name="daily-report")
async def daily_report() -> str:
    await asyncio.sleep(0.3)
    return "sent to 12 people"


@maintenance.cron(every=60, name="sync-exchange-rates")
async def sync_exchange_rates() -> dict[str, float]:
    await asyncio.sleep(0.15)
    return {"EUR/USD": 1.0842, "EUR/ARS": 1412.5}


@dataclass
class Approval:
    by: str
    amount: int
    how: Literal["transfer", "cash"]
    urgent: bool = False


async def take_payment(order: str) -> str:
    return f"payment of {order}"


async def send_parcel(order: str, payment: str) -> str:
    if order == "lost":
        raise ConnectionError("no lorry")
    return f"{order} for {payment}"


@orders.task(name="fulfil", durable=True)
async def fulfil(order: str, words: int = 3) -> str:
    """Has steps, waits for an approval, and emits words."""
    job = qbull.current_job()
    payment = await job.step(take_payment, order)
    approval = await job.wait_for("approval", type=Approval, timeout=86_400)
    for word in range(words):
        await job.emit({"word": word, "by": approval.by})
    return await job.step(send_parcel, order, payment)
