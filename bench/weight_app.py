"""The app of an idle worker: one queue with one task."""

from __future__ import annotations

import os

import qbull

app = qbull.App(os.environ["BENCH_URL"], prefix="bench")


@app.queue("mail").task
async def send(address: str) -> None: ...
