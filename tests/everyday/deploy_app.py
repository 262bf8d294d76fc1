"""One app in two versions, as a rolling deploy has them: DEPLOY_VERSION says which one a program runs.

Version 2 adds the tasks `refund`, `render`, `count` and `thank`, and gives `pay` a currency.
"""

from __future__ import annotations

import os
import time

from everyday_app import record

import qbull

VERSION = int(os.environ.get("DEPLOY_VERSION", "2"))

app = qbull.App(os.environ.get("EVERYDAY_URL") or "redis://127.0.0.1:1/0", prefix="test")
shop = app.queue("shop", order="key", partitions=4)
few = app.queue("few", partitions=4, max_active=2)
bulk = app.queue("bulk", partitions=4, concurrency=20)


@few.task
async def known_few() -> None:
    """Both versions know it."""


@bulk.task
async def known_bulk() -> None:
    """Both versions know it."""


if VERSION == 1:

    @shop.task(key="{key}")
    def pay(key: str, number: int) -> None:
        record("start", key, number)

else:

    @shop.task(name="pay", key="{key}")
    def pay_in(key: str, number: int, currency: str = "EUR") -> None:
        record("start", key, number)

    @shop.task(key="{key}")
    async def refund(key: str, number: int) -> None:
        record("start", key, number)

    @shop.task(key="{key}", cpu=True)
    def render(key: str, number: int) -> int:
        """In a process of its own."""
        record("start", key, number)
        return os.getppid()

    @bulk.task(chunk=10, wait=0.2)
    async def count(numbers: list[int]) -> list[int]:
        return [number + 1 for number in numbers]

    @bulk.task
    async def thank() -> int:
        """The last job of a flow."""
        return sum(qbull.current_job().results)

    @few.task
    def slow(number: int) -> None:
        record("start", "slow", number)
        time.sleep(0.05)
        record("end", "slow", number)
