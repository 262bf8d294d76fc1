"""Tests of the agent, without a server and without waiting: `python -m pytest`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import agent
import model
import pytest
import shop

import qbull
from qbull import testing


@pytest.fixture(autouse=True)
def own_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    monkeypatch.setattr(model, "SECONDS_PER_TOKEN", 0)


@pytest.fixture
def jobs() -> Iterator[testing.inline]:
    with testing.inline(agent.app) as jobs:
        yield jobs


def refunds() -> list[tuple[int, int, str]]:
    with shop.database() as connection:
        return connection.execute("SELECT order_id, cents, approved_by FROM refunds").fetchall()


async def test_it_looks_orders_up_and_streams_its_answer(jobs: testing.inline) -> None:
    handle = await agent.answer.enqueue("Where is order 7?")

    assert await handle.result() == "Order 7 is a teapot for 34.50 EUR. It is on its way."
    events = [event async for event in handle.stream()]
    assert {"tool": "find_order", "arguments": {"order": 7}} in events
    assert "".join(event.get("token", "") for event in events).endswith("It is on its way.")


async def test_it_refunds_money_only_with_an_approval(jobs: testing.inline) -> None:
    handle = await agent.answer.enqueue("Please refund order 8")
    info = await handle.info()
    assert info is not None and info.waits_for == ("approval",)
    assert refunds() == []

    await handle.signal("approval", agent.Approval(True, "ada"))

    assert await handle.result() == "12.00 EUR for order 8 were refunded. Is there anything else?"
    assert refunds() == [(8, 1200, "ada")]


async def test_a_declined_refund_is_not_made(jobs: testing.inline) -> None:
    handle = await agent.answer.enqueue("Please refund order 8")
    await handle.signal("approval", agent.Approval(False, "ada"))

    assert (await handle.result()).startswith("ada has declined the refund.")
    assert refunds() == []


async def test_after_a_week_without_an_answer_it_goes_on(jobs: testing.inline) -> None:
    handle = await agent.answer.enqueue("Please refund order 8")
    await jobs.advance(agent.APPROVAL_TIMEOUT_SECONDS)

    assert (await handle.result()).startswith("Nobody has approved the refund.")


async def test_another_run_repeats_neither_the_model_nor_the_refund() -> None:
    asked = 0

    async def ask_and_break(messages: list[model.Message]) -> model.Reply:
        nonlocal asked
        asked += 1
        if asked == 3:
            # The whole job runs again after a while.
            raise qbull.RetryAfter(30)
        return model.think(messages)

    with (
        testing.inline(agent.app, propagate=False) as jobs,
        testing.replace_step(agent.ask_model).runs(ask_and_break) as answers,
    ):
        handle = await agent.answer.enqueue("Please refund order 8")
        await handle.signal("approval", agent.Approval(True, "ada"))
        await jobs.advance(60)

        assert "refunded" in await handle.result()
    assert [len(call["messages"]) for call in answers.calls] == [1, 3, 5, 5]
    assert refunds() == [(8, 1200, "ada")]


async def test_a_question_without_an_order_gets_an_answer(jobs: testing.inline) -> None:
    handle = await agent.answer.enqueue("Hello!")

    assert "Which order" in await handle.result()


@pytest.mark.parametrize("question", ["", "x" * 4001])
async def test_a_question_that_is_no_question_is_refused(jobs: testing.inline, question: str) -> None:
    with pytest.raises(qbull.QbullError):
        await agent.answer.enqueue(question)
