"""Stacks: ask the worker that runs a job where its task is at the moment.

The question waits on the server for some seconds, and the bell tells the workers. Who asks does so again and
again until the answer is there, so neither a lost message nor two questions at once do harm.
"""

from __future__ import annotations

import msgspec

from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

STACK_TTL_SECONDS = 30
"""How long a question and its answer stay."""


class StackReport(msgspec.Struct, frozen=True):
    """Where the task of a running job is.

    Attributes:
        worker: The worker that runs it.
        kind: How it runs: "coroutine", "thread" or "process".
        stack: The frames of the task, the most recent call last.
    """

    worker: str
    kind: str
    stack: str


@idempotent
async def ask(partition: Partition, id: str, token: str) -> StackReport | None:
    """Ask for the stack of a job. Returns the answer to this token once it is there."""
    answer = await partition.server.script("stack_ask", partition.base, id, token, STACK_TTL_SECONDS)
    return msgspec.json.decode(answer, type=StackReport) if answer else None


@idempotent
async def questions(partition: Partition) -> dict[bytes, bytes]:
    """The jobs of a partition for whose stack somebody waits, with the token of the question."""
    flat = await partition.server.call("HGETALL", partition.base + "stacks")
    return dict(zip(flat[::2], flat[1::2], strict=True))


@idempotent
async def answer(partition: Partition, id: bytes, token: bytes, report: StackReport) -> None:
    await partition.server.script(
        "stack_answer", partition.base, id, token, STACK_TTL_SECONDS, msgspec.json.encode(report)
    )
