"""Tick: start the due runs of a partition's schedules.

The atomic change itself is in lua/tick.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from qbull.codecs.schedules import ScheduleCodec
from qbull.config import QueueSettings
from qbull.core.record import DEFAULT_PRIORITY, ExtendedBody, pack
from qbull.core.route import digest
from qbull.core.schedule import MISSED_AFTER_MS, OVERLAP_RECHECK_MS, Schedule, propose_ticks
from qbull.core.schedule_state import SchedulePlan
from qbull.core.task import TaskSpec
from qbull.errors import PayloadError
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.fan_out import run_commands
from qbull.store.retry import StoreVerbs, idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import PartitionPlans


class TickResult(NamedTuple):
    """The result of a proposal. All numbers are 0 if another worker was faster, or the plan has changed."""

    schedule: Schedule
    fired: int
    skipped: int
    missed: int


class ScheduleTicks(StoreVerbs):
    """The runs of schedules.

    Args:
        store: The store of the app.
        codec: Opens schedules, and protects the payloads of their runs.
        tasks: The tasks that this process knows, by name. A run must start within the `expires` of its task.
    """

    def __init__(
        self, store: Store, codec: ScheduleCodec | None = None, tasks: Mapping[str, TaskSpec] = {}
    ) -> None:
        super().__init__(store)
        self._codec = codec or ScheduleCodec()
        self._tasks = tasks

    async def fire_due(self, partition: Partition, look: PartitionPlans) -> list[TickResult]:
        """Propose the due runs of these plans. The script decides, by the server's clock, which start.

        A schedule that this app must not run joins the unreadable ones of `look`.
        """
        flat: list[str | bytes | int] = []
        proposed: list[Schedule] = []
        for plan in look.plans.values():
            if plan.schedule is None or plan.next_ms is None:
                continue
            try:
                flat += self._proposal(partition, plan.schedule, plan, look.now_ms)
            except PayloadError as error:
                look.unreadable[plan.schedule.name] = plan.rev, str(error)
            else:
                proposed.append(plan.schedule)
        if not proposed:
            return []
        answers = await self._store.server.script(
            "tick", partition.base, partition.settings.lane_limit, MISSED_AFTER_MS, OVERLAP_RECHECK_MS, *flat
        )
        counts = zip(answers[::3], answers[1::3], answers[2::3], strict=True)
        return [
            TickResult(schedule, fired, skipped, missed)
            for schedule, (fired, skipped, missed) in zip(proposed, counts, strict=True)
        ]

    def _proposal(
        self, partition: Partition, stored: Schedule, plan: SchedulePlan, now_ms: int
    ) -> list[str | bytes | int]:
        """The arguments of the script for one schedule. Raises PayloadError if this app must not run it."""
        schedule = self._codec.open(stored)
        assert plan.next_ms is not None
        proposal = propose_ticks(schedule, plan.next_ms, now_ms)
        follows = proposal.following
        flat: list[str | bytes | int] = []
        before = b""
        for planned in proposal.instants:
            id = schedule.tick_id(planned)
            run = self._run(partition.settings, stored, schedule, id)
            flat += (planned, schedule.due(planned), id, b"" if run.record == before else run.record)
            before = run.record
        flat += ("", "") if follows is None else (follows, schedule.due(follows))
        return [
            schedule.name, plan.rev, schedule.catch_up, schedule.overlap, proposal.missed,
            _when(schedule, self._tasks), len(proposal.instants), *flat,
        ]  # fmt: skip

    def _run(self, settings: QueueSettings, stored: Schedule, opened: Schedule, id: str) -> ScheduledRun:
        return scheduled_run(
            settings, opened, lambda body: self._codec.run_payload(stored, opened, id, body), self._tasks
        )

    @idempotent
    async def fire_now(
        self, partition: Partition, schedule: Schedule, id: str, confirmed: ConfirmedServer | None = None
    ) -> bool:
        """Run a schedule now, outside its plan. Returns whether the job was new.

        Raises PayloadError if this app must not run it.
        """
        run = self._run(partition.settings, schedule, self._codec.open(schedule), id)
        args = (partition.settings.lane_limit, schedule.name, id, *run)
        return bool(await (confirmed or self._store.server).script("schedule_run", partition.base, *args))


async def first_due_ms(partitions: Sequence[Partition]) -> list[float | None]:
    """The time at which the first schedule of each partition is due, in ms; None if it has none."""
    asked = [("ZRANGE", partition.base + "schedules", 0, 0, "WITHSCORES") for partition in partitions]
    heads = await run_commands(partitions[0].server, asked) if asked else []
    return [float(head[1]) if head else None for head in heads]


class ScheduledRun(NamedTuple):
    """A run of a schedule: when it may start and by when it must (lua/lib/new_job.lua), and its record."""

    when: str
    record: bytes


def scheduled_run(
    settings: QueueSettings,
    schedule: Schedule,
    payload: Callable[[ExtendedBody], bytes],
    tasks: Mapping[str, TaskSpec] = {},
) -> ScheduledRun:
    """The next run of a schedule. It expires like any job of its task.

    Args:
        settings: The queue.
        schedule: The schedule.
        payload: Makes the stored payload of a body with the arguments.
        tasks: The tasks that this process knows, by name.
    """
    key_digest = digest(schedule.key) if schedule.key is not None else None
    expires_ms = _expires_ms(schedule, tasks)
    body = ExtendedBody(
        schedule.task, bytes(schedule.args), schedule.key, schedule=schedule.name, expires=expires_ms
    )
    body.payload = payload(body)
    lane = settings.lane_of(key_digest)
    record = pack(body, priority=DEFAULT_PRIORITY, lane=lane, reports=settings.reports)
    return ScheduledRun(_when(schedule, tasks), record)


def _when(schedule: Schedule, tasks: Mapping[str, TaskSpec]) -> str:
    expires_ms = _expires_ms(schedule, tasks)
    return "0" if expires_ms is None else f"0 {expires_ms}"


def _expires_ms(schedule: Schedule, tasks: Mapping[str, TaskSpec]) -> int | None:
    spec = tasks.get(schedule.task)
    return None if spec is None else spec.defaults.end_ms
