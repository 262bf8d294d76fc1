"""Tick: what is due in a partition, and the call that fires it. The atomic change itself is in lua/tick.lua."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from qbull.config import QueueSettings
from qbull.core.record import DEFAULT_PRIORITY, ExtendedBody, pack
from qbull.core.route import digest
from qbull.core.schedule import MISSED_AFTER_MS, OVERLAP_RECHECK_MS, Schedule, propose_ticks
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import run_commands
from qbull.store.retry import StoreVerbs, idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import PartitionPlans


class TickResult(NamedTuple):
    """What became of a proposal. All 0 where another worker was quicker, or the plan has changed."""

    schedule: Schedule
    fired: int
    skipped: int
    missed: int


class ScheduleTicks(StoreVerbs):
    """`seal` makes of a task and its arguments what lies on the server."""

    def __init__(self, store: Store, seal: Callable[[str, bytes], bytes] = lambda task, args: args) -> None:
        super().__init__(store)
        self._seal = seal

    async def fire_due(self, partition: Partition, look: PartitionPlans) -> list[TickResult]:
        """Propose what the plans of a look have due. The script decides, by its clock, what is fired."""
        flat: list[str | bytes | int] = []
        proposed: list[Schedule] = []
        for plan in look.plans.values():
            schedule = plan.schedule
            if schedule is None or plan.next_ms is None:
                continue
            proposal = propose_ticks(schedule, plan.next_ms, look.now_ms)
            follows = proposal.following
            flat += (
                schedule.name, plan.rev, schedule.catch_up, schedule.overlap, proposal.missed,
                tick_record(partition.settings, schedule, self._seal), len(proposal.instants),
            )  # fmt: skip
            for planned in proposal.instants:
                flat += (planned, schedule.due(planned), schedule.tick_id(planned))
            flat += ("", "") if follows is None else (follows, schedule.due(follows))
            proposed.append(schedule)
        if not proposed:
            return []
        answers = await self._store.server.script(
            "tick", partition.base, partition.settings.lane_limit, MISSED_AFTER_MS, OVERLAP_RECHECK_MS, *flat
        )
        counts = zip(answers[::3], answers[1::3], answers[2::3], strict=True)
        return [
            TickResult(schedule, max(fired, 0), skipped, missed)
            for schedule, (fired, skipped, missed) in zip(proposed, counts, strict=True)
        ]

    @idempotent
    async def fire_now(
        self, partition: Partition, schedule: Schedule, id: str, confirmed: ConfirmedServer | None = None
    ) -> bool:
        """Run it now, beside its plan; answers whether the job was new, as safe as `confirmed` asks."""
        record = tick_record(partition.settings, schedule, self._seal)
        args = (partition.settings.lane_limit, schedule.name, id, record)
        return bool(await (confirmed or self._store.server).script("schedule_run", partition.base, *args))


async def first_due_ms(partitions: Sequence[Partition]) -> list[float | None]:
    """When the first schedule of each partition is to be looked at next, in ms; None where it has none."""
    asked = [("ZRANGE", partition.base + "schedules", 0, 0, "WITHSCORES") for partition in partitions]
    heads = await run_commands(partitions[0].server, asked) if asked else []
    return [float(head[1]) if head else None for head in heads]


def tick_record(
    settings: QueueSettings, schedule: Schedule, seal: Callable[[str, bytes], bytes] = lambda task, args: args
) -> bytes:
    key_digest = digest(schedule.key) if schedule.key is not None else None
    args = seal(schedule.task, bytes(schedule.args))
    body = ExtendedBody(schedule.task, args, schedule.key, schedule=schedule.name)
    lane = settings.lane_of(key_digest)
    return pack(body, priority=DEFAULT_PRIORITY, lane=lane, reports=settings.reports)
