"""The check before a start: its answer counts for the moment at which the server gave it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.store.verbs.partition import Partition


@pytest.mark.parametrize("is_plain", [False, True], ids=["coroutine", "plain function"])
async def test_a_job_that_expires_while_the_answer_is_on_its_way_does_not_start(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    queue = app.queue("offers")
    ran: list[int] = []

    if is_plain:

        @queue.task
        def offer(n: int) -> None:
            ran.append(n)
    else:

        @queue.task
        async def offer(n: int) -> None:
            ran.append(n)

    start = Partition.start
    answers: list[tuple[int, int, int] | None] = []

    async def answer_late(self: Partition, *args: Any) -> tuple[int, int, int] | None:
        answer = await start(self, *args)
        answers.append(answer)
        if len(answers) == 1:
            while await start(self, *args) is not None:
                await asyncio.sleep(0.01)
        return answer

    monkeypatch.setattr(Partition, "start", answer_late)
    async with app.worker():
        job = await offer.options(expires=0.5).enqueue(1)

        async def is_over() -> bool:
            return await job.state() in ("cancelled", "completed", "failed")

        await eventually(is_over, within=30)

    assert ran == []
    assert answers[0] is not None and answers[1] is None
    assert await job.state() == "cancelled"
