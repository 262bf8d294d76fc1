"""A support agent: it answers questions about orders, uses tools, and asks a person before it refunds money.

The conversation is a durable task. If its worker dies, another one continues it: answers of the model and
results of tools are recorded, so no token is paid twice and no refund happens twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import model
import shop
from msgspec import Meta

import qbull

MAX_TURNS = 10
"""Answers of the model in one conversation."""
APPROVAL_TIMEOUT_SECONDS = 7 * 86_400

Question = Annotated[str, Meta(min_length=1, max_length=4000)]
"""A longer question is refused when it is enqueued: every token of it is paid for."""

# Connects to the server in QBULL_URL. Without it, qbull starts an embedded Valkey with its data in ./.qbull.
app = qbull.App()
support = app.queue("support", retry=qbull.Retry(attempts=5, backoff="exponential", delay=1))


@dataclass
class Approval:
    """The answer of a person to a refund."""

    approved: bool
    by: str


@support.task(durable=True)
async def answer(question: Question) -> str:
    """Answer a question of a customer. Tokens and events stream to its readers."""
    messages = [model.Message("user", question)]
    for turn in range(MAX_TURNS):
        # The step has its own retries: a model that is busy does not repeat the steps before.
        patient = qbull.current_job().options(
            retry=qbull.Retry(attempts=4, backoff="exponential", delay=1), timeout=60
        )
        reply = await patient.step(ask_model, messages)
        if reply.tool is None:
            return reply.text
        messages = [
            *messages,
            model.Message("assistant", reply.text, reply.tool),
            model.Message("tool", await use_tool(reply.tool, turn)),
        ]
    raise qbull.Fail(f"the model found no answer in {MAX_TURNS} turns")


async def ask_model(messages: list[model.Message]) -> model.Reply:
    """Let the model continue the conversation. Each token goes to the readers at once."""
    job, words, tool = qbull.current_job(), list[str](), None
    async for piece in model.complete(messages):
        if isinstance(piece, model.ToolCall):
            tool = piece
        else:
            words.append(piece)
            await job.emit({"token": piece})
    return model.Reply("".join(words), tool)


async def use_tool(tool: model.ToolCall, turn: int) -> str:
    """Run a tool as a step. A refund needs the approval of a person first."""
    job = qbull.current_job()
    await job.emit({"tool": tool.name, "arguments": tool.arguments})
    match tool.name:
        case "find_order":
            return await job.step(shop.find_order, int(tool.arguments["order"]))
        case "refund":
            return await refund_if_approved(tool.arguments, turn)
        case unknown:
            return f"There is no tool {unknown!r}."


async def refund_if_approved(arguments: dict[str, Any], turn: int) -> str:
    """Wait for a person, for days if need be. Meanwhile the job holds no worker and no connection."""
    job = qbull.current_job()
    order, cents = int(arguments["order"]), int(arguments["cents"])
    await job.emit({"approve": {"order": order, "cents": cents}})
    try:
        approval = await job.wait_for("approval", type=Approval, timeout=APPROVAL_TIMEOUT_SECONDS)
    except TimeoutError:
        return "Nobody has approved the refund."
    if not approval.approved:
        return f"{approval.by} has declined the refund."
    # The key is the same if the step runs again, so the shop refunds once.
    return await job.step(shop.refund, order, cents, f"{job.id}/{turn}", approval.by)
