"""Messages between the partitions of a flow, and what its jobs know about each other.

A message is an entry of a partition's `outgoing` stream: the rest of a flow that is still to be enqueued, or
the ending of a job for the jobs that depend on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from qbull.core.flow import (
    WAITING_LETTER,
    Dependency,
    DependencyFailureMode,
    Dependent,
    FlowPlan,
    Follower,
    decode_dependency,
    decode_flow_plan,
    decode_follower,
    encode,
)
from qbull.core.record import Ending, ExtendedBody, append_ending, body_of, split_ending
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import run_scripts
from qbull.store.connection.server import Server
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

FLOW_MESSAGE_BATCH_SIZE = 100
"""Messages read in one call."""
DISPATCHER_LEASE_MS = 1000
"""How long one dispatcher has the messages of a partition to itself."""
FOLLOWER_LETTER = "a"
"""The first letter of a message for one follower (lua/lib/flow.lua)."""
FOLLOWER_SIZE_BYTES = 8
ENDING_TEXTS = {
    "f": "failed",
    "x": "was cancelled",
    "-": "was removed",
    "t": "has not started: its id is taken by another job",
    "u": "was not needed",
}


class DependencyEnding(NamedTuple):
    """The ending of a job, for one job that depends on it. `entry` is the message that it came with."""

    entry: bytes
    dependent: Dependent
    flow: str
    ending_letter: str
    dependency: bytes
    ending: bytes


class FlowPlace(NamedTuple):
    """The place of a job in its flow.

    Attributes:
        mode: its reaction if a dependency does not complete (core/flow.py).
        when: when it may run after all of them have ended: "0", a wait or a time (lua/lib/new_job.lua).
        dependencies: in their order, each with the letter of its state.
        flow: the name of its flow.
    """

    mode: DependencyFailureMode
    when: str
    dependencies: list[tuple[str, Dependency]]
    flow: str


class FlowMessage(NamedTuple):
    """A message by its position: an entry of a partition's `outgoing` stream."""

    partition: Partition
    entry: bytes


async def remaining_messages(partition: Partition, flow: str) -> AsyncIterator[tuple[bytes, FlowPlan]]:
    """The messages of a partition that hold the rest of a flow."""
    start = b"-"
    while entries := await read_messages(partition, start):
        for entry, fields in entries:
            if fields[0] == b"n" + flow.encode():
                yield entry, decode_flow_plan(fields[1])
        start = b"(" + entries[-1][0]


async def read_messages(partition: Partition, start: bytes, dispatcher: str = "") -> Any:
    """Read a batch of messages from an entry on. Returns b"busy" if another `dispatcher` has the lease."""
    if dispatcher:
        return await partition.server.script(
            "flow_outbox", partition.base, dispatcher, DISPATCHER_LEASE_MS, FLOW_MESSAGE_BATCH_SIZE, start
        )
    return await partition.server.call(
        "XRANGE", partition.base + "outgoing", start, "+", "COUNT", FLOW_MESSAGE_BATCH_SIZE
    )


async def drop_messages(partition: Partition, entries: Sequence[bytes]) -> None:
    """Delete messages that were dispatched."""
    if entries:
        await partition.server.call("XDEL", partition.base + "outgoing", *entries)


async def deliver_endings(
    partition: Partition, ends: Sequence[DependencyEnding], server: Server | ConfirmedServer | None = None
) -> list[str]:
    """Deliver endings to the jobs of a partition; each is "joined", "known", "unknown" or "again"."""
    server = server or partition.server
    calls = [end for end in ends if end.dependent.call]
    answers = iter(await _answer_calls(partition, calls, server) if calls else ())
    others = [end for end in ends if not end.dependent.call]
    words = iter(await _deliver_to_flows(partition, others, server) if others else ())
    return [next(answers) if end.dependent.call else next(words) for end in ends]


async def _answer_calls(
    partition: Partition, ends: Sequence[DependencyEnding], server: Server | ConfirmedServer
) -> list[str]:
    flat = [part for end in ends for part in (end.dependent.id, end.flow, end.ending_letter, end.dependency)]
    answer: bytes = await server.script("call_answer", partition.base, partition.settings.lane_limit, *flat)
    return answer.decode().split()


async def _deliver_to_flows(
    partition: Partition, ends: Sequence[DependencyEnding], server: Server | ConfirmedServer
) -> list[str]:
    failed, failed_ms = partition.failed_retention
    flat: list[str | bytes | int] = []
    for end in ends:
        flat += (
            end.dependent.id,
            end.flow,
            end.dependent.position,
            end.ending_letter,
            end.dependency,
            end.ending,
        )
    answer: bytes = await server.script(
        "flow_deliver", partition.base, partition.settings.lane_limit, failed, failed_ms, *flat
    )
    return answer.decode().split()


async def dependencies_of(partition: Partition, id: bytes | str) -> list[tuple[str, Dependency]]:
    """The dependencies of a job in their order, each with the letter of its state."""
    return (await flow_place(partition, id)).dependencies


async def awaited_by(partition: Partition, id: bytes) -> list[tuple[Follower, Dependency]]:
    """The jobs that a job waits for, because of its flow or because it has called them."""
    name = partition.base.encode() + b"job:" + id
    fields = [
        field
        for field in await partition.server.call("HKEYS", name)
        if field.startswith((b"child:", b"call:"))
    ]
    if not fields:
        return []
    flow, *found = await partition.server.call("HMGET", name, "flow", *fields)
    waiting: list[tuple[Follower, Dependency]] = []
    for field, told in zip(fields, found, strict=True):
        if told is None or told[:1] != WAITING_LETTER.encode():
            continue
        kind, _, rest = field.decode().partition(":")
        queue, shown = partition.settings.name, id.decode("utf-8", "surrogateescape")
        if kind == "call":
            follower = Follower(Dependent(queue, shown, None, 0, call=rest), rest)
        else:
            follower = Follower(Dependent(queue, shown, None, int(rest)), (flow or b"").decode())
        waiting.append((follower, decode_dependency(told[1:])))
    return waiting


async def cancel_called(partition: Partition, id: str, server: Server | ConfirmedServer) -> str:
    """Cancel a job whose caller was cancelled; the word of lua/cancel.lua."""
    ending = append_ending(Ending(0, 0.0, "", error="the job that called it was cancelled"))
    limits = (partition.settings.lane_limit, *partition.failed_retention)
    answer: bytes = await server.script("cancel", partition.base, *limits, ending, id)
    return answer.decode()


async def flow_place(partition: Partition, id: bytes | str) -> FlowPlace:
    """The place of a job in its flow."""
    name = partition.base.encode() + b"job:" + (id if isinstance(id, bytes) else id.encode())
    flat = await partition.server.call("HGETALL", name)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    dependencies = {
        int(field[len(b"child:") :]): (chr(value[0]), decode_dependency(value[1:]))
        for field, value in fields.items()
        if field.startswith(b"child:")
    }
    mode = fields.get(b"mode", b"stop").decode()
    return FlowPlace(
        cast(DependencyFailureMode, mode),
        fields.get(b"when", b"0").decode().partition(" ")[0],
        [dependencies[position] for position in sorted(dependencies)],
        fields.get(b"flow", b"").decode(),
    )


@idempotent
async def sample_flow_jobs(partitions: Sequence[Partition], limit: int) -> list[str]:
    """Sample about `limit` jobs of flows over all partitions: some that wait, and some that ended lately."""
    each = max(1, limit // len(partitions))
    calls = [(partition.base, each, max(1, each // 4)) for partition in partitions]
    dependencies = await run_scripts(partitions[0].server, "flow_jobs", calls)
    return [id.decode("utf-8", "replace") for ids in dependencies for id in ids]


@idempotent
async def follow(
    partition: Partition, id: str, follower: Follower, server: Server | ConfirmedServer | None = None
) -> str:
    """Let a job wait for one of this partition: "following", "ended", "moving" or "unknown"."""
    answer: bytes = await (server or partition.server).script(
        "flow_follow", partition.base, id, follower.name, encode(follower)
    )
    return answer.decode()


async def followers_of(partition: Partition, id: str) -> list[Follower]:
    """The jobs that have followed a job."""
    flat = await partition.server.call("HGETALL", f"{partition.base}job:{id}")
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return [
        decode_follower(value) for field, value in sorted(fields.items()) if field.startswith(b"follower:")
    ]


def flows_of(body: ExtendedBody) -> set[str]:
    """The flow that a job belongs to, and the call that has enqueued it."""
    return {body.flow, *(dependent.call for dependent in body.tells)} - {""}


def endings_in(entry: bytes, queue: str, name: str, value: bytes) -> list[DependencyEnding]:
    """The endings in a message, one for each job that depends on the ended one."""
    if name[0] == FOLLOWER_LETTER:
        size = FOLLOWER_SIZE_BYTES + int(value[:FOLLOWER_SIZE_BYTES])
        follower = decode_follower(value[FOLLOWER_SIZE_BYTES:size])
        return [ending_for(follower, entry, queue, name[1:], value[size:])]
    body, dependency, end = _ending(queue, name, value)
    return [
        DependencyEnding(entry, dependent, dependent.call or body.flow, name[0], dependency, end)
        for dependent in body.tells
        if name[0] not in dependent.unless
    ]


def ending_for(follower: Follower, entry: bytes, queue: str, name: str, value: bytes) -> DependencyEnding:
    """The ending of a job, for one that has followed it."""
    _, dependency, end = _ending(queue, name, value)
    return DependencyEnding(entry, follower.dependent, follower.flow, name[0], dependency, end)


def removed_ending(follower: Follower, dependency: Dependency) -> DependencyEnding:
    """The ending of a job that no longer exists."""
    told = encode(msgspec.structs.replace(dependency, error=ENDING_TEXTS["-"]))
    text = f'job {dependency.id} ({dependency.task}) of queue "{dependency.queue}" {ENDING_TEXTS["-"]}'
    end = append_ending(Ending(0, 0.0, "", error=text))
    return DependencyEnding(b"", follower.dependent, follower.flow, "-", told, end)


def _ending(queue: str, name: str, value: bytes) -> tuple[ExtendedBody, bytes, bytes]:
    """The body of an ended job, what its dependents are told, and the ending of those that end with it."""
    letter, id = name[0], name[1:]
    record, ending = split_ending(value) if letter in "cfx" else (value, Ending(0, 0.0, ""))
    body = body_of(record)
    error = None if letter == "c" else ending.error or ENDING_TEXTS[letter]
    dependency = encode(
        Dependency(queue, id, body.task, ending.result, error, ending.stacktrace, ending.stored)
    )
    because = f": {ending.error}" if ending.error else ""
    end = append_ending(
        Ending(
            0,
            0.0,
            "",
            error=f'job {id} ({body.task}) of queue "{queue}" {ENDING_TEXTS.get(letter, "")}{because}',
        )
    )
    return body, dependency, end
