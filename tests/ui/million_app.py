"""The app of million.py: parcels in the order of their customers, letters that mostly do not matter, visits for later, and what cannot be delivered."""

from __future__ import annotations

import qbull

SLOWLY = qbull.Rate(20, per=1.0)
"""So that a worker is busy while somebody looks, and does not work off everything."""

app = qbull.App()
keep = qbull.Keep(completed=1_000_000, failed=1_000_000)
parcels = app.queue("parcels", partitions=8, order="key", concurrency=20, rate=SLOWLY, keep=keep)
letters = app.queue("letters", partitions=4, concurrency=20, rate=SLOWLY, keep=keep)
returns = app.queue(
    "returns", partitions=4, concurrency=50, retry=qbull.Retry(attempts=1), keep=keep, alert=False
)


@parcels.task(key="{customer}")
async def deliver(customer: str, parcel: int) -> None: ...


@letters.task
async def print_letter(customer: str, page: int) -> int:
    return page


async def subscribe(customer: str) -> str:
    """Enqueue a flow of two letters; gives the id of the last."""
    flow = await qbull.chain(print_letter.step(customer, 1), print_letter.step(customer, 2)).enqueue()
    return flow.last.id


@returns.task
async def take_back(customer: str, parcel: int) -> int:
    if parcel % 5:
        raise ConnectionError(f"depot {parcel % 5} does not answer")
    return parcel


@letters.cron("*/5 * * * *", name="stamps")
async def buy_stamps() -> None: ...
