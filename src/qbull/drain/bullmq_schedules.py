"""BullMQ's job schedulers, and the repeatable jobs of Bull and of older versions of BullMQ.

All are members of one sorted set, with the time of their next run. A job scheduler has a hash with its rule
and its job. Of a repeatable job the member itself has the rule, and the job is that of its next run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from qbull.core.schedule_rule import ScheduleOptions
from qbull.drain.bullmq_options import as_arguments, json_of
from qbull.drain.message import CannotMove, ForeignSchedule, SourceMessage
from qbull.drain.source import SourceServer

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class BullScheduleRecord(msgspec.Struct):
    """A schedule while it is set aside, with the job that is its next run."""

    key: str
    queue: str
    next_ms: float
    schedule: dict[str, bytes]
    next_job: dict[str, bytes]


def schedule_name(queue: str, key: str) -> str:
    """The name of a schedule while it is set aside."""
    return f"{queue}:schedule {key}"


async def schedule_messages(
    old: SourceServer, base: str, queue: str, values: list[tuple[bytes, float]]
) -> list[SourceMessage]:
    """The schedules of a queue. Each is set aside together with its next run, if that still waits."""
    found = []
    for value, score in values:
        key, next_ms = value.decode(), f"{score:.0f}"
        schedule = await _hash(old, f"{base}repeat:{key}")
        next_id = await _next_id(old, base, key, next_ms)
        record = BullScheduleRecord(key, queue, score, schedule, await _hash(old, base + next_id))
        stored = msgspec.msgpack.encode(("schedule", record))
        # The script compares the time of the next run, and deletes the run's key only if it removes the run.
        keys = [next_ms, next_id, base + next_id, f"{base}repeat:{key}"]
        found.append(SourceMessage(schedule_name(queue, key), value, stored, keys))
    return found


async def _hash(old: SourceServer, name: str) -> dict[str, bytes]:
    flat = await old.call("HGETALL", name)
    return {field.decode(): value for field, value in zip(flat[::2], flat[1::2], strict=True)}


async def _next_id(old: SourceServer, base: str, key: str, next_ms: str) -> str:
    """The id of the next run. Bull and older versions of BullMQ use digests of the member."""
    name, id, *_ = [*key.split(":"), ""]
    inner = hashlib.md5(key.encode()).hexdigest()  # noqa: S324 - theirs, and not for security
    digests = [
        hashlib.md5(text.encode()).hexdigest()  # noqa: S324
        for text in (f"{name}{id}:{inner}", f"{name}{id}{inner}")
    ]
    candidates = [f"repeat:{one}:{next_ms}" for one in (key, *digests)]
    for candidate in candidates:
        if await old.call("EXISTS", base + candidate):
            return candidate
    return candidates[0]


def read_schedule(record: BullScheduleRecord, *, zone: str, snake_case: bool) -> ForeignSchedule:
    """The schedule in qbull's terms. Raises CannotMove with the reason."""
    job, rule = record.next_job, _rule(record)
    limit = rule.get("limit")
    if limit:
        raise CannotMove(f"it ends after {limit} runs; declare a schedule with end=, and remove it there")
    fields = job if record.schedule.get("data") is None else record.schedule
    if not job and not record.schedule:
        raise CannotMove("its next run is gone, and with it its arguments; remove it there")
    args, kwargs = as_arguments(json_of(fields.get("data")), snake_case=snake_case)
    if args:
        raise CannotMove("its data is no object, so its arguments have no names; declare it in the code")
    task = (record.schedule.get("name") or job.get("name") or record.key.split(":")[0].encode()).decode()
    every = float(rule["every"]) if rule.get("every") else None
    cron = rule.get("pattern") or rule.get("cron")
    if every is None and not cron:
        raise CannotMove("it has neither a pattern nor an interval")
    options = ScheduleOptions(catch_up="one", overlap="allow", end=_moment(rule.get("endDate")))
    if every is not None:
        options["every"] = every / 1000
        options["start"] = _moment(record.next_ms)
    else:
        options["tz"] = str(rule.get("tz") or zone)
        options["start"] = _moment(rule.get("startDate"))
    name = _name(record, rule, task)
    return ForeignSchedule(
        name, record.queue, task, kwargs, options, None if every is not None else str(cron)
    )


def _rule(record: BullScheduleRecord) -> Mapping[str, Any]:
    """The rule: in the schedule's hash, in the options of its next run, or in the member itself."""
    if record.schedule:
        return {name: value.decode() for name, value in record.schedule.items()}
    options = json_of(record.next_job.get("opts")) or {}
    return options.get("repeat") or _rule_in_key(record.key)


def _rule_in_key(key: str) -> Mapping[str, Any]:
    """`name:id:endDate:tz:pattern`, or `name:id:endDate:every`."""
    parts = key.split(":", 4)
    if len(parts) == 5:
        return {"endDate": parts[2], "tz": parts[3], "pattern": parts[4], "jobId": parts[1]}
    if len(parts) == 4:
        return {"endDate": parts[2], "every": parts[3], "jobId": parts[1]}
    raise CannotMove("its rule cannot be read")


def _name(record: BullScheduleRecord, rule: Mapping[str, Any], task: str) -> str:
    """The id of a job scheduler; for a repeatable job its id, or its task and a digest of its rule."""
    is_scheduler = "ic" in record.schedule
    id = record.key if is_scheduler else str(rule.get("jobId") or rule.get("id") or "")
    if not id:
        id = f"{task}-{hashlib.sha256(record.key.encode()).hexdigest()[:8]}"
    return _NOT_IN_NAMES.sub("-", id)[:100]


def _moment(value: Any) -> datetime | None:
    if not value:
        return None
    try:
        return datetime.fromtimestamp(float(value) / 1000, UTC)
    except (ValueError, TypeError):
        return datetime.fromisoformat(str(value).replace("Z", "+00:00"))
