"""The recipes of durable tasks do what their pages say: each is run from its page, with a clock that moves."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from pages import DOCS, blocks_of

from qbull import testing


def recipe(name: str) -> Any:
    """The names that the first block of a page declares. Its app has a server that no test can reach."""
    block = next(block for block in blocks_of(DOCS / "howto" / f"{name}.md") if block.language == "python")
    module = ModuleType(f"recipe_{name}")
    # The error of a step keeps its class if its module is loaded.
    sys.modules[module.__name__] = module
    exec(compile(block.text, f"{name}.md", "exec", dont_inherit=True), module.__dict__)
    return module


async def test_an_approval_is_waited_for_and_people_are_reminded() -> None:
    page = recipe("approval")
    with (
        testing.inline(page.app) as jobs,
        testing.replace_step(page.remind_manager).returns(None) as reminded,
    ):
        answered, forgotten = await page.reimburse.enqueue(1), await page.reimburse.enqueue(2)
        await jobs.advance(2 * 86_400)
        await answered.signal("decision", page.Decision(True, "ada"))
        await jobs.advance(7 * 86_400)

        assert await answered.result() == "expense 1 was paid"
        assert await forgotten.result() == "nobody answered"
    assert [call["expense"] for call in reminded.calls].count(2) == 7


async def test_a_saga_undoes_what_was_done_in_the_opposite_order() -> None:
    page = recipe("saga")
    with testing.inline(page.app), testing.replace_step(page.cancel_booking).returns(None) as cancelled:
        handle = await page.book.enqueue(7)
        assert await handle.result() == "cancelled: no car is left"
    assert [call["booking"] for call in cancelled.calls] == ["hotel-7", "flight-7"]


async def test_an_agent_streams_and_uses_its_tools() -> None:
    page = recipe("agent")

    def think(messages: list[str]) -> Any:
        return page.Reply("look it up", "search", "tea") if len(messages) == 1 else page.Reply(messages[-1])

    with testing.inline(page.app):
        plain = await page.answer.enqueue("What is it?")
        assert await plain.result() == "The answer is 42."
        assert "".join([value["token"] async for value in plain.stream()]) == "The answer is 42."
        with testing.replace_step(page.ask_model).runs(think):
            assert await (await page.answer.enqueue("tea?")).result() == "three pages about tea"


async def test_an_external_job_is_asked_for_less_and_less_often() -> None:
    page = recipe("poll_external_job")
    asked: list[datetime] = []

    with testing.inline(page.app) as jobs:

        def look(transcription: str) -> str:
            asked.append(jobs.now())
            return "running" if len(asked) < 10 else "done"

        with testing.replace_step(page.look).runs(look):
            handle = await page.transcribe.enqueue("a.mp3")
            await jobs.advance(3600)
            assert await handle.result() == "text of the transcription of a.mp3"
            steps = await handle.steps()
    pauses = [(after - before).seconds for before, after in pairwise(asked)]
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert len(steps) <= 5, "the checkpoint forgets the looks before it"


async def test_a_subscription_is_charged_once_a_month_until_it_ends() -> None:
    page = recipe("monthly_billing")
    started = datetime.now(UTC).replace(microsecond=0)

    with (
        testing.inline(page.app) as jobs,
        testing.replace_step(page.charge).returns(None) as charged,
        testing.replace_step(page.is_active).runs(lambda customer: len(charged.calls) < 14),
    ):
        handle = await page.subscription.enqueue("ada", started)
        again = await page.subscription.enqueue("ada", started)
        await jobs.advance(500 * 86_400)
        assert await handle.result() == "ended after 14 months"
    assert again.created is False
    assert [call["month"] for call in charged.calls] == list(range(1, 15))


@pytest.mark.parametrize(
    ("started", "month", "due"),
    [
        (datetime(2026, 11, 17, tzinfo=UTC), 1, datetime(2026, 12, 17, tzinfo=UTC)),
        (datetime(2026, 11, 30, tzinfo=UTC), 3, datetime(2027, 2, 28, tzinfo=UTC)),
        (datetime(2026, 12, 1, tzinfo=UTC), 12, datetime(2027, 12, 1, tzinfo=UTC)),
    ],
)
def test_every_month_has_its_day(started: datetime, month: int, due: datetime) -> None:
    assert recipe("monthly_billing").due(started, month) == due
