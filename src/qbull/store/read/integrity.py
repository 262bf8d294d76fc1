"""Integrity check: each job is in exactly one place, and each lane's count is right. `qbull doctor` runs it,
and so does every test.

It reads a partition in bounded, atomic steps, so it can run beside live work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from qbull.core.parking import UNPARKED_LEVEL
from qbull.store.names import KEY_TYPES, ready_stream
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import ScheduleLocation, ScheduleStore, in_batches

INTEGRITY_BATCH_SIZE = 200
MAX_SMALL_PARTITION_JOBS = 20_000


async def check_integrity(partition: Partition) -> list[str]:
    """One line for each fault; empty if there are none."""
    faults: list[str] = []
    total = 0
    async for ids in _every_id(partition):
        total += len(ids)
        faults += [
            line.decode("utf-8", "replace")
            for line in await partition.server.script("integrity", partition.base, *ids)
        ]
    if total <= MAX_SMALL_PARTITION_JOBS:
        faults += [
            line.decode("utf-8", "replace")
            for line in await partition.server.script("integrity_counts", partition.base)
        ]
    return [
        f'queue "{partition.settings.name}" partition {partition.shown}: {fault}'
        for fault in dict.fromkeys(faults)
    ]


async def wrong_types(partition: Partition) -> list[tuple[str, str]]:
    """The names of the partition whose type is not the one that qbull uses, each with the fact."""
    found = []
    for kind, names in KEY_TYPES.items():
        for name in names:
            there = (await partition.server.call("TYPE", partition.base + name)).decode()
            if there not in (kind, "none"):
                found.append((partition.base + name, f"is a {there}, and must be a {kind}"))
    return found


async def check_schedules_integrity(store: Store) -> list[str]:
    """One line for each schedule for which the registry and the partitions disagree."""
    schedules = ScheduleStore(store)
    locations = await schedules.locations()
    planned: dict[str, ScheduleLocation] = {}
    faults = []
    for queue in await store.queues():
        for partition in await store.partitions(await store.settings(queue)):
            names = await partition.server.call("ZRANGE", partition.base + "schedules", 0, -1)
            location = ScheduleLocation(queue, partition.number)
            for some in in_batches([name.decode() for name in names]):
                look = await schedules.read(location, some)
                planned |= {name: location for name, plan in look.plans.items() if plan.moving is None}
                lost = set(some) - look.plans.keys()
                faults += [
                    f'schedule "{name}": what is planned of it is gone, or cannot be read' for name in lost
                ]
    for name in sorted(locations.keys() | planned.keys()):
        said, there = locations.get(name), planned.get(name)
        if said is None or there is None or said != there:
            faults.append(
                f'schedule "{name}": the registry says {_shown(said)}, its plan is in {_shown(there)}'
            )
    return faults


def _shown(location: ScheduleLocation | None) -> str:
    return "no queue" if location is None else f'queue "{location.queue}" partition {location.partition}'


async def _every_id(partition: Partition) -> AsyncIterator[list[bytes]]:
    """The ids in the index, among delayed jobs, in `extras` and in the streams, in bounded lists."""
    for scan, name in (
        ("HSCAN", "index"),
        ("ZSCAN", "delayed"),
        ("SSCAN", "extras"),
        ("SSCAN", "followed"),
        ("HSCAN", "cancelling"),
    ):
        cursor = b"0"
        while True:
            cursor, flat = await partition.server.call(
                scan, partition.base + name, cursor, "COUNT", INTEGRITY_BATCH_SIZE
            )
            if flat:
                yield flat if scan == "SSCAN" else flat[::2]
            if cursor == b"0":
                break
    for level in (*await partition.priority_levels(), UNPARKED_LEVEL):
        after = b"-"
        while True:
            rows = await partition.server.call(
                "XRANGE", ready_stream(partition.base, level), after, "+", "COUNT", INTEGRITY_BATCH_SIZE
            )
            if not rows:
                break
            yield [id for _, fields in rows for id in fields[::2] if id]
            after = b"(" + rows[-1][0]
