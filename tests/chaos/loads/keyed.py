"""Keyed: a small load of ordered sequences. Each key has jobs 0, 1, 2 …, and the same judge as for "work" looks at them."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from circumstances import Circumstances
from history import BEGUN, DEAD, DONE, FAILED, LEFT
from key_order import Judge

import qbull
from loads.oracle import check_created, check_never_twice, runs_of
from loads.record import LIFE, Event, Report, ask, wait_for_room

KINDS = {"began": BEGUN, "done": DONE, "failed": FAILED, "dead": DEAD, "left": LEFT}


def lot(key: str, n: int) -> int:
    """A number that both the task and its oracle know."""
    return zlib.crc32(f"{key}:{n}".encode())


async def produce_keyed(
    load: str, queue: qbull.Queue, enqueue: Callable[[str, int], Awaitable[Any]], *, keys: int, pause: float
) -> None:
    """The next job of some key, again and again; one key waits for its enqueue, so its order is known."""
    numbers = [0] * keys
    busy = [False] * keys
    luck = random.Random()
    asking: set[asyncio.Task[None]] = set()

    async def send(k: int) -> None:
        busy[k] = True
        key, n = f"{LIFE}-{k}", numbers[k]
        await ask(load, f"{load}:{key}:{n}", lambda: enqueue(key, n), key=key, n=n)
        numbers[k] += 1
        busy[k] = False

    while True:
        await wait_for_room(queue)
        k = luck.randrange(keys)
        if not busy[k]:
            asking.add(task := asyncio.create_task(send(k)))
            task.add_done_callback(asking.discard)
        await asyncio.sleep(pause * 2 * luck.random())


def check_keyed(
    load: str, events: list[Event], circumstances: Circumstances, *, halts: bool = False
) -> Report:
    report = Report(load)
    judge = Judge(
        circumstances,
        crashed={_place(load, job) for job in circumstances.crashed if job.startswith(f"{load}:")},
        halts=halts,
    )
    asked: dict[str, set[int]] = defaultdict(set)
    told: dict[str, set[int]] = defaultdict(set)
    history: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for event in events:
        match event.what:
            case "asked":
                asked[event.key].add(event.n)
            case "told":
                told[event.key].add(event.n)
            case what if what in KINDS:
                history[event.key].append((event.at, event.process, KINDS[what], event.n))
    for key in sorted(asked.keys() | history.keys()):
        stays = judge.look_at(key, history[key])
        done = {stay.number for stay in stays if stay.how == DONE}
        report.faults += [f"{load}:{key}:{n} is lost" for n in sorted(told[key] - done)]
        ran = {stay.number for stay in stays}
        report.faults += [f"{load}:{key}:{n} ran, but nobody asked for it" for n in sorted(ran - asked[key])]
    report.faults += judge.faults
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    report.counts["jobs"] = sum(len(some) for some in told.values())
    report.counts["runs"] = sum(event.what == "began" for event in events)
    report.excused = dict(judge.excused)
    return report


def _place(load: str, job: str) -> tuple[str, int]:
    key, _, n = job.removeprefix(f"{load}:").rpartition(":")
    return key, int(n)
