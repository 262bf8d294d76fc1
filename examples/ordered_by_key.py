"""Payments of one account run one after the other, in the order they were enqueued; accounts do not wait for each other.

    python examples/ordered_by_key.py

A payment that fails is tried again before the next one of its account begins.
"""

import asyncio
from collections import defaultdict

import qbull

app = qbull.App()
payments = app.queue("payments", order="key", partitions=2, retry=qbull.Retry(delays=(0.05,)))
done: dict[str, list[int]] = defaultdict(list)


@payments.task(key="{account}")
async def charge(account: str, number: int) -> None:
    if number == 2 and qbull.current_job().attempt == 1:
        raise TimeoutError("the bank did not answer")
    done[account].append(number)


async def main() -> None:
    async with app, app.worker() as worker:
        for number in range(1, 6):
            await charge.enqueue_many([{"account": account, "number": number} for account in ("ana", "bob")])
        await worker.drain()
    for account, numbers in sorted(done.items()):
        print(account, numbers)


if __name__ == "__main__":
    asyncio.run(main())
