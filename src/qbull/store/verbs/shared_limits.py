"""Shared limits on the server: workers ask for starts and slots, operators read and change them.

All names of a limit share one slot, which is not the slot of a partition. So a worker gets its starts first,
and takes the jobs afterwards. The verbs are lua/shared_limit_*.lua.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import msgspec

from qbull.core.limit_status import LimitKeyStatus, LimitStatus
from qbull.core.limits import (
    LIMIT_SETTINGS,
    Limit,
    limit_in_need,
    limit_need,
)
from qbull.core.rate import Rate
from qbull.errors import NotFound
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.live_settings import MAX_SETTING_CHANGES, RESET_SETTING
from qbull.store.verbs.partition import Partition

NEVER_ANSWER_MS = -2
"""Instead of milliseconds: the weight is more than the limit ever allows."""


class LimitRequest(NamedTuple):
    """A job that asks for its start."""

    key: str
    weight: int
    level: str
    """Its priority level: more urgent jobs come first."""
    within_ms: int = -1
    """How many milliseconds ahead its start may be; -1: as far as the rate allows."""


class LimitGrant(NamedTuple):
    """A granted start, with a slot: not before `after` and not after `latest`, on this machine's clock."""

    limit: str
    key: str
    weight: int
    after: float
    latest: float
    noted_ms: int
    """How the server has noted the start; 0 without a rate."""
    day: int
    """The day whose budget it is taken from."""


class LimitRefusal(NamedTuple):
    """No start now."""

    wait: float
    """Seconds after which to ask again."""
    never: bool = False
    """Its weight is more than the limit ever allows."""


class WeightCorrection(NamedTuple):
    """A start turned out to weigh more or less than it was granted."""

    grant: LimitGrant
    change: int


class LimitCall(msgspec.Struct, frozen=True):
    """One call of a worker. It may be sent twice: the server answers the second one like the first."""

    token: str
    worker: str
    slots: Mapping[str, int]
    """The slots that the worker uses, by key."""
    requests: Sequence[LimitRequest] = ()
    corrections: Sequence[WeightCorrection] = ()
    asked_at: float = msgspec.field(default_factory=time.monotonic)
    """When it was first sent. Granted starts count from this time, however late the answer comes."""

    def arguments(self) -> list[str | int]:
        """The arguments of lua/shared_limit_acquire.lua."""
        found: list[str | int] = [self.token, self.worker, len(self.slots), len(self.requests)]
        for pair in self.slots.items():
            found += pair
        for request in self.requests:
            found += request
        for grant, change in self.corrections:
            found += (grant.key, grant.noted_ms, grant.day, change)
        return found


async def acquire(store: Store, limit: str, call: LimitCall) -> list[LimitGrant | LimitRefusal]:
    """Ask for starts and slots; returns an answer for each request."""
    text = await store.server.script("shared_limit_acquire", store.names.limit(limit), *call.arguments())
    received = time.monotonic()
    slack_ms, *numbers = (int(word) for word in text.split())
    slack = slack_ms / 1000 if slack_ms else inf
    answers: list[LimitGrant | LimitRefusal] = []
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    for request, (in_ms, second, day) in zip(call.requests, triples, strict=True):
        if in_ms < 0:
            answers.append(LimitRefusal(second / 1000, in_ms == NEVER_ANSWER_MS))
        else:
            wait = in_ms / 1000
            answers.append(
                LimitGrant(
                    limit,
                    request.key,
                    request.weight,
                    received + wait,
                    call.asked_at + wait + slack,
                    second,
                    day,
                )
            )
    return answers


@idempotent
async def declare(store: Store, limit: Limit) -> None:
    """Store the values of a limit as the code declares them, and add it to those of the app."""
    values = [(name, _packed(getattr(limit, name))) for name in LIMIT_SETTINGS]
    flat = [part for pair in values for part in pair]
    await store.server.script("shared_limit_declare", store.names.limit(limit.name), *flat)
    await store.server.script("queue_register", store.names.limits, limit.name)


@idempotent
async def free_slots(store: Store, limit: str, workers: Sequence[str]) -> None:
    """Free the slots of workers that are gone."""
    if workers:
        await store.server.script("shared_limit_free", store.names.limit(limit), *workers)


@idempotent
async def slot_holders(store: Store, limit: str) -> list[str]:
    """The workers that use slots of a limit."""
    return [name.decode() for name in await store.server.call("HKEYS", store.names.limit(limit) + "holders")]


@idempotent
async def names(store: Store) -> list[str]:
    """The names of all limits of the app."""
    return sorted(name.decode() for name in await store.server.call("SMEMBERS", store.names.limits))


class LimitUsage(msgspec.Struct, frozen=True):
    """A limit, and its use by one key."""

    status: LimitStatus
    of_key: LimitStatus
    """Running jobs, window and spent weight of the key alone."""
    waiting_workers: int
    """Workers that wait for this key."""
    now_ms: int


@idempotent
async def usage(
    store: Store, limit: str, key: str = "", *, also: Sequence[str] = (), most: int = 0
) -> LimitUsage:
    """The use of a limit. Raises NotFound if no worker has declared it.

    Args:
        store: The server.
        limit: The name of the limit.
        key: The key that `of_key` is about.
        also: Further keys that the status shows.
        most: How many more keys it shows: those with the most use.
    """
    declared, live, running, spent, granted, returned, now_ms, flat = await store.server.script(
        "shared_limit_usage", store.names.limit(limit), most, key, *also
    )
    if not declared:
        raise NotFound(f'limit "{limit}": no worker has declared it')
    values = {name.decode(): value for name, value in zip(declared[::2], declared[1::2], strict=True)}
    changed = {
        name.decode(): value.split(b"\n", 2)[2] for name, value in zip(live[::2], live[1::2], strict=True)
    }
    now = {name: _unpacked(name, (values | changed).get(name, b"null")) for name in LIMIT_SETTINGS}
    rows = list(zip(*(flat[at::5] for at in range(5)), strict=True))
    shown = [LimitKeyStatus(row[0].decode(), *row[1:4]) for row in rows]
    asked = shown[0]
    status = LimitStatus(
        limit,
        **now,
        running=running,
        used=asked.used,
        spent=spent,
        changed=tuple(name for name in LIMIT_SETTINGS if name in changed),
        keys=tuple(one for one in shown if one.key),
        granted=granted,
        returned=returned,
    )
    of_key = replace(status, running=asked.running, spent=asked.spent)
    return LimitUsage(status, of_key, rows[0][4], now_ms)


@idempotent
async def change(store: Store, limit: str, values: Mapping[str, Any], by: str) -> int:
    """Change or reset settings of a limit; returns how many have changed."""
    flat = [
        part
        for name, value in values.items()
        for part in (name, b"" if value is RESET_SETTING else _packed(value))
    ]
    count: int = await store.server.script(
        "configure", store.names.limit(limit), by, MAX_SETTING_CHANGES, *flat
    )
    return count


class LimitedHead(NamedTuple):
    """A job that waits for a limit."""

    place: float
    """Its place in the order of the jobs that wait."""
    partition: Partition
    id: bytes
    record: bytes


async def limited_keys(partition: Partition) -> list[tuple[str, str]]:
    """The limits that jobs of a partition wait for, each with its key."""
    needs = await partition.server.call("SMEMBERS", partition.base + "limited")
    return [limited for need in needs if (limited := limit_in_need(need.decode())) is not None]


async def limited_heads(
    partitions: Sequence[Partition], limit: str, key: str, count: int
) -> list[LimitedHead]:
    """The next jobs that wait for a key of a limit in these partitions, in order."""
    if not partitions:
        return []
    need = limit_need(limit, key)
    calls = [(partition.base, count, need) for partition in partitions]
    heads: list[LimitedHead] = []
    for partition, (flat,) in zip(
        partitions, await run_scripts(partitions[0].server, "limited_heads", calls), strict=True
    ):
        for place, id, record in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            heads.append(LimitedHead(float(place), partition, id, record))
    return sorted(heads, key=lambda head: head.place)[:count]


def _packed(value: Any) -> bytes:
    """A setting as JSON. A rate has the windows that the server counts over."""
    if isinstance(value, Rate):
        value = {
            "count": value.count,
            "per": value.per,
            "window_ms": value.window_ms,
            "slack_ms": int(value.slack * 1000),
            "ahead_ms": value.ahead_ms,
        }
    return msgspec.json.encode(value)


def _unpacked(name: str, value: bytes) -> Any:
    return msgspec.json.decode(value, type=Rate | None if name == "rate" else int | None)
