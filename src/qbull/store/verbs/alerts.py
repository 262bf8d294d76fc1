"""Alerts on the server: whose turn it is to look for problems, the known problems, and the state of queues.

The state is in the partition of qbull's own queue for alert messages, so that "this was reported" and "report
it" are one script (lua/alert_raise.lua).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from qbull.config import Keep, QueueSettings
from qbull.core.digits import whole_number
from qbull.core.problems import MAX_REASON_CHARS, AlertState
from qbull.core.record import State
from qbull.core.retry import Retry
from qbull.store.read import inspect
from qbull.store.read.finished import TimeSpan, merged
from qbull.store.read.inspect import StoredJob
from qbull.store.read.minutes import last_minutes
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import NewJob

ALERT_QUEUE = QueueSettings(
    "qbull.alerts",
    concurrency=2,
    retry=Retry(attempts=3, backoff="fixed", delay=2),
    timeout=30,
    keep=Keep(completed=200, completed_for=7 * 86_400, failed=200, failed_for=30 * 86_400),
)
"""The queue through which alert messages are sent. It raises no alerts itself."""
FAILURE_WINDOW_MINUTES = 5
"""Minutes over which failed attempts are counted, and which the first look covers."""
_DECODE_STATE = msgspec.json.Decoder(AlertState).decode


class AlertSnapshot(NamedTuple):
    """The known problems at the time of reading, on the server's clock."""

    now_ms: int
    rev: str
    state: AlertState


class TaskFailures(NamedTuple):
    """Failed attempts of a task, with the newest one."""

    many: int
    job: str
    reason: str


async def take_turn(store: Store, who: str, ttl: float) -> AlertSnapshot | None:
    """The known problems, if it is this watcher's turn to look; None if it is another one's."""
    found = await store.server.script("alert_watch", _base(store), who, int(ttl * 1000))
    return AlertSnapshot(found[0], found[1].decode(), _state(found[2])) if found else None


async def write(store: Store, seen: AlertSnapshot, state: AlertState, messages: Sequence[NewJob]) -> bool:
    """Store the known problems and enqueue the messages about them; False if another watcher was faster."""
    flat = [part for job in messages for part in (job.id, job.when, job.record)]
    packed = msgspec.json.encode(state)
    return bool(
        await store.server.script(
            "alert_raise", _base(store), ALERT_QUEUE.lane_limit, seen.rev, packed, *flat
        )
    )


@idempotent
async def read_known_problems(store: Store) -> AlertState:
    """The known problems, for readers that do not take a turn."""
    return _state(await store.server.call("HGET", _base(store) + "alerts", "state") or b"")


async def add_failures(store: Store, queue: str, counted: Mapping[str, TaskFailures]) -> None:
    flat: list[str | int] = []
    for task, some in counted.items():
        flat += (task, some.many, f"{some.job}\n{some.reason[:MAX_REASON_CHARS]}")
    await store.server.script("failure_counts", store.names.queue(queue), *flat)


async def failures(store: Store, queue: str, now_ms: int) -> dict[str, TaskFailures]:
    """Failed attempts within the window, by task."""
    flat = await store.server.call("HGETALL", store.names.queue(queue) + "failing")
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    first, counts = now_ms // 60_000 - FAILURE_WINDOW_MINUTES + 1, dict[str, int]()
    for field, number in fields.items():
        text, there, task = field.decode("utf-8", "replace").partition(" ")
        minute, count = whole_number(text), whole_number(number)
        if there and minute is not None and count is not None and minute >= first:
            counts[task] = counts.get(task, 0) + count
    found: dict[str, TaskFailures] = {}
    for task, count in counts.items():
        job, _, reason = fields.get(task.encode(), b"").decode("utf-8", "replace").partition("\n")
        found[task] = TaskFailures(count, job, reason)
    return found


async def recently_failed(store: Store, settings: QueueSettings) -> int:
    """Jobs that failed permanently within the window."""
    found = await last_minutes(await store.partitions(settings), FAILURE_WINDOW_MINUTES)
    return sum(minute.failed for minute in found)


async def newest_failed(store: Store, settings: QueueSettings) -> StoredJob | None:
    """The newest dead letter."""
    async with aclosing(merged(await store.partitions(settings), "failed", TimeSpan())) as jobs:
        async for _, job in jobs:
            return job
    return None


async def state_of(store: Store, settings: QueueSettings, id: str) -> State | None:
    """The state of a job; None if it is gone."""
    for partition in await store.partitions(settings):
        found = await inspect.find(partition, id)
        if found is not None:
            return found.state
    return None


async def lost_workers(store: Store) -> tuple[int, str]:
    """The number of lost workers, and the last one."""
    total, worker = await store.server.call("HMGET", store.names.losses, "total", "worker")
    return int(total or 0), (worker or b"").decode("utf-8", "replace")


def _base(store: Store) -> str:
    return store.names.partition(ALERT_QUEUE.name, 0)


def _state(packed: bytes) -> AlertState:
    try:
        return _DECODE_STATE(packed) if packed else AlertState()
    except msgspec.MsgspecError:  # another version wrote it
        return AlertState()
