"""The app of the incident test: mail that fails in three ways, and a schedule."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

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


def _note(kind: str) -> None:
    """Leave a byte for each failure, beside all that qbull counts: the truth that the dashboard is compared with."""
    with (Path(os.environ["INCIDENT_DIRECTORY"]) / kind).open("ab") as file:
        file.write(b".")


@mail.task(name="send")
async def send(kind: str) -> None:
    await asyncio.sleep(0)
    _note(kind)
    match kind:
        case "template":
            raise KeyError("first_name")
        case "refused":
            raise ConnectionError("smtp.example.com refused the connection")
        case "busy":
            raise TimeoutError("421 the mail server is busy")


@chores.cron(every=1, name="every-second")
async def every_second() -> None: ...
