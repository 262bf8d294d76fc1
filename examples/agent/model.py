"""The language model: a small deterministic one, so that the example runs without a network and without a key.

Replace `complete` by a call of your provider's streaming API. It gets the conversation so far, and yields the
tokens of its answer as they come, and at most one call of a tool.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

SECONDS_PER_TOKEN = float(os.environ.get("SECONDS_PER_TOKEN") or "0.05")


@dataclass
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass
class Message:
    role: Literal["user", "assistant", "tool"]
    text: str
    tool: ToolCall | None = None


@dataclass
class Reply:
    """An answer of the model: its text, and the tool that it wants to use."""

    text: str
    tool: ToolCall | None = None


async def complete(messages: list[Message]) -> AsyncIterator[str | ToolCall]:
    """Continue a conversation."""
    reply = think(messages)
    for token in re.findall(r"\S+\s*", reply.text):
        await asyncio.sleep(SECONDS_PER_TOKEN)
        yield token
    if reply.tool is not None:
        yield reply.tool


def think(messages: list[Message]) -> Reply:
    """The whole answer: a lookup first, then a refund if the customer wants one."""
    question = messages[0].text
    results = [message.text for message in messages if message.role == "tool"]
    number = re.search(r"\d+", question)
    if number is None:
        return Reply("I can look up orders and refund them. Which order is it about?")
    order = int(number.group())
    if not results:
        return Reply(f"Let me look at order {order}. ", ToolCall("find_order", {"order": order}))
    total = re.search(r"(\d+)\.(\d\d) EUR", results[0])
    if "refund" not in question.lower() or total is None:
        return Reply(results[-1])
    if len(results) == 1:
        cents = int(total.group(1)) * 100 + int(total.group(2))
        return Reply("I ask a colleague. ", ToolCall("refund", {"order": order, "cents": cents}))
    return Reply(f"{results[-1]} Is there anything else?")
