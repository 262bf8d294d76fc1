"""The app of the incident test: mail that fails in three ways, and a schedule."""

from __future__ import annotations

import asyncio

import qbull

app = qbull.App()

mail = app.queue(
    "mail",
    partitions=4,
    concurrency=50,
    retry=qbull.Retry(attempts=1),
    keep=qbull.Keep(completed=1_000, failed=10_000),
    alert=True,
)
chores = app.queue("chores", partitions=1, concurrency=2)


@mail.task(name="send")
async def send(kind: str) -> None:
    await asyncio.sleep(0)
    match kind:
        case "template":
            raise KeyError("first_name")
        case "refused":
            raise ConnectionError("smtp.example.com refused the connection")
        case "busy":
            raise TimeoutError("421 the mail server is busy")


@chores.cron(every=1, name="every-second")
async def every_second() -> None: ...
