"""A shop as the pictures of the dashboard show it: mail, payments in order, orders as flows, reports, schedules. Its neighbours fail as neighbours do."""

import asyncio
import random
import zlib
from pathlib import Path

import qbull

app = qbull.App(prefix="shop")
MAIL_IS_DOWN = Path(__file__).with_name("mail-is-down")

KEEP = qbull.Keep(completed=20_000, failed=5_000)
email = app.queue(
    "email", partitions=4, concurrency=20, retry=qbull.Retry(delays=(1, 3)), keep=KEEP, alert=True
)
payments = app.queue(
    "payments",
    partitions=8,
    order="key",
    on_failed="halt",
    concurrency=10,
    retry=qbull.Retry(delays=(0.5,)),
    keep=KEEP,
)
orders = app.queue(
    "orders", partitions=2, concurrency=10, retry=qbull.Retry(attempts=2, delay=0.5), keep=KEEP
)
reports = app.queue("reports", concurrency=4, retry=qbull.Retry(attempts=1), keep=KEEP, alert=True)
slack = app.queue("slack", concurrency=10, rate=qbull.Rate(50, per=60), keep=KEEP)
maintenance = app.queue("maintenance", concurrency=2)


class SMTPError(Exception):
    pass


async def _send(address: str) -> str:
    await asyncio.sleep(random.uniform(0.01, 0.05))
    if MAIL_IS_DOWN.exists() and random.random() < 0.7:
        raise ConnectionError("connection to smtp.example.com:587 refused")
    if zlib.crc32(address.encode()) % 400 == 0:
        raise SMTPError("421 4.3.2 too many connections, try again later")
    return f"<{zlib.crc32(address.encode()):08x}@mail.example.com>"


@email.task
async def verify(user_id: str, address: str, first_name: str) -> dict[str, str]:
    return {"sent_to": address, "message_id": await _send(address)}


@email.task
async def welcome(user_id: str, address: str) -> dict[str, str]:
    return {"sent_to": address, "message_id": await _send(address)}


@email.task
async def newsletter(user_id: str, address: str, issue: int) -> str:
    if "@" not in address:
        raise qbull.Fail(f"550 {address!r} is not an address")
    await asyncio.sleep(0.01)
    return "sent"


@payments.task(key="{account}")
async def charge(account: str, amount: float, currency: str = "EUR") -> str:
    await asyncio.sleep(random.uniform(0.02, 0.08))
    if account == "ACC-7731":
        raise TimeoutError("the bank did not answer within 10 s")
    return f"{amount:.2f} {currency} charged"


@orders.task
async def reserve(order: int, items: list[str]) -> dict[str, int]:
    await asyncio.sleep(0.2)
    if "sold-out" in items:
        raise LookupError("sold-out: 0 left in the warehouse")
    return dict.fromkeys(items, 1)


@orders.task
async def invoice(order: int) -> str:
    await asyncio.sleep(0.6)
    return f"invoices/{order}.pdf"


carrier_api = qbull.Limit("carrier-api", rate=qbull.Rate(8, per=60), concurrency=2)


@orders.task(limit=carrier_api)
async def label(order: int, carrier: str) -> str:
    await asyncio.sleep(1.2)
    return f"labels/{order}-{carrier}.zpl"


@orders.task
async def pick(order: int) -> str:
    await asyncio.sleep(4)
    return "aisle 14"


@orders.task
async def ship(order: int) -> str:
    await asyncio.sleep(0.3)
    return f"1Z{order:010d}"


@orders.task
async def refund(order: int) -> str:
    await asyncio.sleep(0.1)
    return "refunded"


@reports.task(name="monthly-statement")
async def monthly_statement(customer: str, month: str, rows: int) -> dict[str, object]:
    job = qbull.current_job()
    await job.log(f"collecting the bookings of {customer} for {month}")
    for part in range(1, 21):
        await asyncio.sleep(rows / 4000)
        await job.progress(part * 5)
        if part % 5 == 0:
            await job.log(f"{rows * part // 20:,} of {rows:,} rows rendered")
    await job.log("uploaded to the archive")
    return {"file": f"{customer}-{month}.pdf", "pages": rows // 40 + 1, "bytes": rows * 731}


@reports.task
async def export(customer: str, format: str = "csv") -> None:
    await asyncio.sleep(0.1)
    raise OSError(28, "No space left on device", f"/var/exports/{customer}.{format}")


@slack.task
async def notify(channel: str, text: str) -> str:
    await asyncio.sleep(0.1)
    return "ok"


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
