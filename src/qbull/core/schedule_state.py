"""A plan: the state of a schedule on the server, and its changes. Pure; the server's time is given.

To change a plan, a caller reads it, computes the change here, and writes it if nobody has changed it
meanwhile (store/lua/schedule_write.lua).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from qbull.core.schedule import Schedule

PlanOrigin = Literal["code", "own"]
"""The origin of a definition: the workers' code, or a call at run time. The one from run time wins."""


class SchedulePlan(msgspec.Struct, frozen=True):
    """A schedule's state.

    `rev` rises with every change; it is 0 if the server has no schedule of this name.
    """

    rev: int = 0
    code: Schedule | None = None
    own: Schedule | None = None
    next_ms: int | None = None
    paused_ms: int | None = None
    last_ms: int | None = None
    fired_at_ms: int | None = None
    job: str | None = None
    manual: str | None = None
    manual_at_ms: int | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    moving: str | None = None
    """The partition that the schedule is moving to."""
    runs: str | None = None
    """Its newest runs (core/schedule_runs.py)."""

    @property
    def schedule(self) -> Schedule | None:
        """The definition in force."""
        return self.own or self.code


class PlanChange(msgspec.Struct, frozen=True):
    """A write: fields with their values ("" deletes one), and when the plan is due next (None: never)."""

    due_ms: int | None
    fields: Mapping[str, str | bytes | int] = msgspec.field(default_factory=dict)
    drop: bool = False


_PLAN_FIELDS = {
    "next_ms": "next",
    "paused_ms": "paused",
    "last_ms": "last",
    "fired_at_ms": "fired_at",
    "manual_at_ms": "manual_at",
    "fired": "fired",
    "skipped": "skipped",
    "missed": "missed",
}


def plan_of(name: str, fields: Mapping[bytes, bytes]) -> SchedulePlan:
    """The plan of a schedule from its hash. Raises ValueError if it cannot be read."""
    numbers = {
        ours: int(fields[name.encode()]) for ours, name in _PLAN_FIELDS.items() if fields.get(name.encode())
    }
    try:
        schedules = {
            origin: _decode(fields[origin.encode()])
            for origin in get_args(PlanOrigin)
            if fields.get(origin.encode())
        }
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be read: {error}; a newer qbull may have written it") from None
    for definition in schedules.values():
        if definition.name != name:
            raise ValueError(f'its definition is that of schedule "{definition.name}"; remove it')
    texts = {
        text: fields[text.encode()].decode()
        for text in ("job", "manual", "moving", "runs")
        if fields.get(text.encode())
    }
    return SchedulePlan(int(fields.get(b"rev", 0)), **schedules, **numbers, **texts)  # type: ignore[arg-type]


def fields_of(plan: SchedulePlan) -> dict[str, str | bytes | int]:
    """The plan as a hash, to write it to another partition."""
    fields: dict[str, str | bytes | int] = {
        origin: pack_schedule(said)
        for origin, said in (("code", plan.code), ("own", plan.own))
        if said is not None
    }
    fields |= {
        name: value for ours, name in _PLAN_FIELDS.items() if (value := getattr(plan, ours)) is not None
    }
    fields |= {
        name: value
        for name, value in (("job", plan.job), ("manual", plan.manual), ("runs", plan.runs))
        if value is not None
    }
    return fields


_decode = lru_cache(maxsize=1000)(msgspec.json.Decoder(Schedule).decode)


def pack_schedule(schedule: Schedule) -> bytes:
    return msgspec.json.encode(schedule)


def declare_schedule(
    plan: SchedulePlan,
    origin: PlanOrigin,
    schedule: Schedule | None,
    now_ms: int,
    protect: Callable[[Schedule], Schedule] = lambda schedule: schedule,
) -> PlanChange | None:
    """Set or remove (None) the definition of a schedule. Returns None if that changes nothing.

    A schedule whose timing stays the same keeps its plan, so a deploy loses no tick. Otherwise its plan
    starts again from now. `protect` makes the definition that is stored.
    """
    code, own = (schedule, plan.own) if origin == "code" else (plan.code, schedule)
    if (code, own) == (plan.code, plan.own):
        return None
    force = own or code
    if force is None:
        return PlanChange(None, drop=True)
    before = plan.schedule
    same = before is not None and before.timing == force.timing
    next_ms = plan.next_ms if same else force.after(now_ms)
    return PlanChange(
        _due(force, next_ms, plan.paused_ms),
        {origin: b"" if schedule is None else pack_schedule(protect(schedule)), "next": _or_empty(next_ms)},
    )


def pause_plan(plan: SchedulePlan, now_ms: int) -> PlanChange | None:
    return None if plan.paused_ms is not None else PlanChange(None, {"paused": now_ms})


def resume_plan(plan: SchedulePlan, now_ms: int) -> PlanChange | None:
    """Resume with the next tick. Ticks within the pause do not count as missed."""
    force = plan.schedule
    if plan.paused_ms is None or force is None:
        return None
    next_ms = force.after(now_ms)
    return PlanChange(_due(force, next_ms, None), {"paused": "", "next": _or_empty(next_ms)})


def _due(schedule: Schedule, next_ms: int | None, paused_ms: int | None) -> int | None:
    return None if next_ms is None or paused_ms is not None else schedule.due(next_ms)


def _or_empty(ms: int | None) -> int | str:
    return "" if ms is None else ms
