"""Schedules on the server: where each one is, what is planned of it, and the verbs that change that.

A schedule's plan lies in the partition that its ticks go to, so that "this tick has not fired yet" and "enqueue it"
are one script. The app's registry says which partition that is. The two are on different slots, so they are written
one after the other, and each step may be done again: the plan is the truth, the registry only finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from qbull.config import QueueSettings
from qbull.core.job import DEFAULT_PRIORITY, RareBody, pack
from qbull.core.layout import Layout, generation_of
from qbull.core.plan import Change, Origin, Plan, fields_of, plan_of, said
from qbull.core.route import digest
from qbull.core.schedule import GRACE_MS, HOLD_MS, Schedule, propose
from qbull.errors import NotFound, ServerError
from qbull.store import inspect
from qbull.store.confirm import Confirmed
from qbull.store.partition import Partition
from qbull.store.store import Store

AT_ONCE = 50
"""Schedules in one call at most."""
TRIES = 100
DROP = Change(None, drop=True)


class Place(NamedTuple):
    queue: str
    partition: int


class Ticked(NamedTuple):
    """What became of a proposal. All 0 where another worker was quicker, or the plan has changed."""

    schedule: Schedule
    fired: int
    skipped: int
    missed: int


class Look(NamedTuple):
    """What is due in a partition, by the server's clock, and the seconds until something is again."""

    now_ms: int
    wait: float | None
    plans: dict[str, Plan]
    unreadable: dict[str, tuple[int, str]]
    """Revision and fault."""


class Schedules:
    def __init__(self, store: Store) -> None:
        self._store = store

    # Where they are.

    async def where(self, name: str) -> Place | None:
        found = await self._store.server.call("HGET", self._store.names.schedules, name)
        return _place(found) if found is not None else None

    async def unknown(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """Those of these that the server does not have as the code says them."""
        wanted = {schedule.name: schedule for schedule in schedules}
        places: dict[Place, list[str]] = {}
        for names in in_batches(list(wanted)):
            values = await self._store.server.call("HMGET", self._store.names.schedules, *names)
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    places.setdefault(_place(value), []).append(name)
        for place, there in places.items():
            for names in in_batches(there):
                for name, plan in (await self.read(place, names)).plans.items():
                    if plan.code == wanted[name] and place.queue == wanted[name].queue:
                        del wanted[name]
        return list(wanted.values())

    async def everywhere(self) -> dict[str, Place]:
        """All there are, by name."""
        found: dict[str, Place] = {}
        cursor = b"0"
        while True:
            cursor, flat = await self._store.server.call(
                "HSCAN", self._store.names.schedules, cursor, "COUNT", 500
            )
            found |= {name.decode(): _place(place) for name, place in zip(flat[::2], flat[1::2], strict=True)}
            if cursor == b"0":
                return dict(sorted(found.items()))

    async def read(self, place: Place, names: Sequence[str]) -> Look:
        return await self._look(self._base(place), 0, names)

    # What is said of them.

    async def put(self, schedule: Schedule, origin: Origin, settings: QueueSettings) -> None:
        """This is what the code, or somebody at run time, says of a schedule from now on."""
        name, layout = schedule.name, await self._store.layout(settings)
        place = await self.where(name)
        if place is not None and place.queue != settings.name:
            await self._change(name, place, lambda plan, _: DROP if plan.rev else None)
            place = None
        place = place or Place(settings.name, home_of(settings, layout, schedule))
        await self._register(name, place)
        await self._change(name, place, lambda plan, now_ms: said(plan, origin, schedule, now_ms))
        await self._register(name, place)  # somebody may have dropped it in between
        await self.bring_home(place, [name], settings, layout)

    async def take_away(self, name: str, place: Place, origin: Origin) -> None:
        """The code, or somebody at run time, says nothing of it any more. Without either it is gone."""
        if await self._change(name, place, lambda plan, now_ms: said(plan, origin, None, now_ms)):
            await self._unregister(name, place)

    async def remove(self, name: str, place: Place) -> None:
        """Take away what was said at run time; where nothing was, or nobody can read it, all of it."""
        look = await self.read(place, [name])
        plan = look.plans.get(name)
        if plan is not None and plan.own is not None:
            await self.take_away(name, place, "own")
        else:
            rev = plan.rev if plan is not None else look.unreadable.get(name, (0, ""))[0]
            await self._write(self._base(place), name, rev, DROP)
            await self._unregister(name, place)

    async def change(self, name: str, how: Callable[[Plan, int], Change | None]) -> None:
        """Change what is planned of it. Raises NotFound where there is none of this name."""
        for _ in range(TRIES):
            place = await self.where(name)
            look = await self.read(place, [name]) if place is not None else None
            if place is None or look is None or not (look.plans or look.unreadable):
                break
            plan = look.plans.get(name)
            if plan is None or plan.moving is None:
                await self._change(name, place, how)
                return
            await self.move(name, place, _place(plan.moving.encode()))  # whoever began it has not ended it
        raise NotFound(f'schedule "{name}": not on this server')

    async def bring_home(
        self, place: Place, names: Sequence[str], settings: QueueSettings, layout: Layout
    ) -> bool:
        """Move those of these whose partition is another one now; answers whether all are at home.

        In a partition that takes nothing in any more, a schedule may stay until the run before has ended: that is known
        only there, and the jobs of its ticks are brought to where they belong.
        """
        at_home = True
        for name, plan in (await self.read(place, names)).plans.items():
            if plan.schedule is None:
                continue
            home = Place(place.queue, home_of(settings, layout, plan.schedule))
            if home == place:
                continue
            closed = generation_of(place.partition) != layout.generation
            if closed and plan.schedule.overlap == "skip" and await self._runs(place, plan, settings):
                at_home = False
            else:
                await self.move(name, place, home)
        return at_home

    async def move(self, name: str, place: Place, home: Place) -> None:
        """Its partition is another one now. It rests while it is on the way, so that no tick can be fired in both."""
        mark = {"moving": f"{home.queue}/{home.partition}"}
        await self._change(name, place, lambda plan, _: Change(None, mark) if plan.rev else None)
        look = await self.read(place, [name])
        plan = look.plans.get(name)
        if plan is not None:
            schedule = plan.schedule
            rests = schedule is None or plan.next_ms is None or plan.paused_ms is not None
            due_ms = None if rests else schedule.due(plan.next_ms)  # type: ignore[union-attr, arg-type]
            await self._write(self._base(home), name, 0, Change(due_ms, fields_of(plan)))
        await self._register(name, home)
        if plan is not None:
            await self._write(self._base(place), name, plan.rev, DROP)

    # What they do.

    async def due(self, partition: Partition) -> Look:
        return await self._look(partition.base, AT_ONCE, ())

    async def tick(self, partition: Partition, look: Look) -> list[Ticked]:
        """Propose what the plans of a look have due. The script decides, by its clock, what is fired."""
        flat: list[str | bytes | int] = []
        proposed: list[Schedule] = []
        for plan in look.plans.values():
            schedule = plan.schedule
            if schedule is None or plan.next_ms is None:
                continue
            proposal = propose(schedule, plan.next_ms, look.now_ms)
            follows = proposal.following
            flat += (
                schedule.name, plan.rev, schedule.catch_up, schedule.overlap, proposal.missed,
                record_of(partition.settings, schedule), len(proposal.instants),
            )  # fmt: skip
            for planned in proposal.instants:
                flat += (planned, schedule.due(planned), schedule.tick_id(planned))
            flat += ("", "") if follows is None else (follows, schedule.due(follows))
            proposed.append(schedule)
        if not proposed:
            return []
        answers = await self._store.server.script(
            "tick", partition.base, partition.settings.lane_limit, GRACE_MS, HOLD_MS, *flat
        )
        counts = zip(answers[::3], answers[1::3], answers[2::3], strict=True)
        return [
            Ticked(schedule, max(fired, 0), skipped, missed)
            for schedule, (fired, skipped, missed) in zip(proposed, counts, strict=True)
        ]

    async def fire(
        self, partition: Partition, schedule: Schedule, id: str, confirmed: Confirmed | None = None
    ) -> bool:
        """Run it now, beside its plan; answers whether the job was new, as safe as `confirmed` asks."""
        record = record_of(partition.settings, schedule)
        args = (partition.settings.lane_limit, schedule.name, id, record)
        return bool(await (confirmed or self._store.server).script("fire", partition.base, *args))

    async def postpone(self, partition: Partition, name: str, rev: int, until_ms: int) -> None:
        """Look at it later: now it cannot be read."""
        await self._write(partition.base, name, rev, Change(until_ms))

    # What the code of workers says.

    async def newest(self, queue: str, versions: Sequence[str]) -> str:
        """Which of these versions of a queue's schedules decides: the one that came last."""
        newest: bytes = await self._store.server.script("declare", self._store.names.queue(queue), *versions)
        return newest.decode()

    async def declared(self, queue: str) -> set[str]:
        """The schedules that the code has declared so far."""
        found = await self._store.server.call("HGET", self._store.names.settings(queue), "schedules")
        try:
            return set(msgspec.json.decode(found or b"[]", type=list[str]))
        except msgspec.MsgspecError:
            return set()

    async def remember_declared(self, queue: str, names: set[str]) -> None:
        packed = msgspec.json.encode(sorted(names))
        await self._store.server.call("HSET", self._store.names.settings(queue), "schedules", packed)

    # How it is written.

    async def _change(self, name: str, place: Place, how: Callable[[Plan, int], Change | None]) -> bool:
        """Read, compute, write if nobody else has meanwhile. Answers whether the schedule is gone."""
        base = self._base(place)
        for _ in range(TRIES):
            look = await self._look(base, 0, [name])
            if name in look.unreadable:
                raise ServerError(f'schedule "{name}": {look.unreadable[name][1]}')
            change = how(look.plans.get(name, Plan()), look.now_ms)
            if change is None:
                return False
            if await self._write(base, name, look.plans.get(name, Plan()).rev, change):
                return change.drop
        raise ServerError(f'schedule "{name}": it changes too fast to be changed; try again')

    async def _write(self, base: str, name: str, rev: int, change: Change) -> bool:
        due = "" if change.due_ms is None else change.due_ms
        flat = [part for field in change.fields.items() for part in field]
        word = "drop" if change.drop else "put"
        return bool(await self._store.server.script("plan", base, name, rev, due, word, *flat))

    async def _look(self, base: str, most: int, names: Sequence[str]) -> Look:
        now_ms, wait_ms, *flat = await self._store.server.script("plans", base, most, *names)
        look = Look(now_ms, None if wait_ms < 0 else wait_ms / 1000, {}, {})
        for name, fields in zip(flat[::2], flat[1::2], strict=True):
            if fields:
                found = dict(zip(fields[::2], fields[1::2], strict=True))
                try:
                    look.plans[name.decode()] = plan_of(found)
                except ValueError as error:
                    look.unreadable[name.decode()] = int(found.get(b"rev", 0)), str(error)
        return look

    async def _runs(self, place: Place, plan: Plan, settings: QueueSettings) -> bool:
        """Has the run before not ended yet?"""
        partition = self._store.partition(settings, place.partition)
        found = [await inspect.find(partition, id) for id in (plan.job, plan.manual) if id is not None]
        return any(job is not None and job.state in ("waiting", "delayed", "active") for job in found)

    async def _exists(self, name: str, place: Place) -> bool:
        look = await self.read(place, [name])
        return name in look.plans or name in look.unreadable

    async def _register(self, name: str, place: Place) -> None:
        value = f"{place.queue}/{place.partition}"
        await self._store.server.call("HSET", self._store.names.schedules, name, value)

    async def _unregister(self, name: str, place: Place) -> None:
        await self._store.server.call("HDEL", self._store.names.schedules, name)
        if await self._exists(name, place):  # somebody has made it again meanwhile
            await self._register(name, place)

    def _base(self, place: Place) -> str:
        return self._store.names.partition(*place)


def in_batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE))


def home_of(settings: QueueSettings, layout: Layout, schedule: Schedule) -> int:
    """The partition that its ticks go to now: its key's where the key has an order or a limit, else its name's."""
    keyed = schedule.key is not None and settings.lane_limit and settings.order != "partition"
    text = schedule.key if keyed and schedule.key is not None else schedule.name
    return layout.home(digest(text))


def record_of(settings: QueueSettings, schedule: Schedule) -> bytes:
    key_digest = digest(schedule.key) if schedule.key is not None else None
    body = RareBody(schedule.task, bytes(schedule.args), schedule.key, schedule=schedule.name)
    lane = settings.lane_of(key_digest)
    return pack(body, priority=DEFAULT_PRIORITY, lane=lane, reports=settings.reports)


def _place(value: bytes) -> Place:
    queue, _, number = value.decode().rpartition("/")
    return Place(queue, int(number))
