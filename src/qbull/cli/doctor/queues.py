"""Queue checks of `qbull doctor`: is the data of each queue consistent, and do its workers agree?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.config import QueueSettings
from qbull.core.config_warnings import config_warnings
from qbull.errors import ServerError
from qbull.store.read import inspect
from qbull.store.read.drain_status import repartitioning_status
from qbull.store.read.inspect import Counts
from qbull.store.read.integrity import check_integrity, wrong_types
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import settings_digest, worker_declarations

MAX_CHECKED_JOBS = 20_000
MAX_SHOWN_FAULTS = 20


async def check_workers(store: Store) -> AsyncIterator[Finding]:
    """Count the live workers, and name those whose heartbeats have stopped."""
    try:
        alive = await store.workers()
    except ServerError as error:
        yield problem("workers", str(error), "see the checks of the server above")
        return
    if alive:
        yield ok("workers", f"{len(alive)} alive")
    for worker in await inspect.silent_workers(store):
        yield note(
            "workers",
            f"{worker} sends no heartbeats any more",
            "another worker will reclaim its jobs" if alive else "start a worker to reclaim its jobs",
        )


async def check_queue(store: Store, name: str, on_progress: Callable[[str], None]) -> AsyncIterator[Finding]:
    """Check one queue. `on_progress` gets a line before a check that takes long."""
    subject = f'queue "{name}"'
    try:
        settings = await store.settings(name)
    except ServerError as error:
        yield problem(subject, str(error), "a newer qbull may have written them; upgrade this one")
        return
    counts, faults = Counts(), 0
    for partition in await store.partitions(settings):
        wrong = await wrong_types(partition)
        for key, fact in wrong:
            faults += 1
            next_step = "another program has written it; find out which, then RENAME it out of the way"
            yield problem(f'{subject}: the key "{key}"', fact, next_step)
        if wrong:
            # Nothing else of this partition can be read.
            continue
        counted = await inspect.count(partition)
        counts += counted
        jobs = counted.total + counted.cancelled
        if jobs > MAX_CHECKED_JOBS:
            on_progress(f"{subject}: checking the {jobs:,} jobs of partition {partition.shown} …")
        async for finding in _check_integrity(partition):
            faults += 1
            yield finding
    if not faults:
        jobs = counts.total + counts.cancelled
        yield ok(
            subject,
            f"the data of its {jobs:,} jobs in {_partitions(settings.partitions)} is consistent",
        )
    async for finding in _check_sharing(store, settings):
        yield finding
    async for finding in _check_repartitioning(store, settings):
        yield finding
    if counts.failed:
        step = f'see "qbull jobs {name} --state failed"'
        yield note(subject, f"{counts.failed} jobs failed permanently", step)


async def _check_integrity(partition: Partition) -> AsyncIterator[Finding]:
    faults = await check_integrity(partition)
    for fault in faults[:MAX_SHOWN_FAULTS]:
        subject, _, fact = fault.partition(": ")
        yield problem(subject, fact, "keep a copy of the server's data and report this")
    if len(faults) > MAX_SHOWN_FAULTS:
        yield problem(
            f'queue "{partition.settings.name}"',
            f"{len(faults) - MAX_SHOWN_FAULTS} more faults of this kind",
            "see above",
        )


async def _check_sharing(store: Store, settings: QueueSettings) -> AsyncIterator[Finding]:
    """Check that the settings of its workers agree, so that each partition has a reader."""
    try:
        declarations = worker_declarations(
            await store.workers(), settings.name, (await store.layout(settings)).current
        )
    except ServerError:
        # The check of the workers has reported it.
        return
    for warning in config_warnings(settings.partitions, settings_digest(settings), declarations):
        judge = problem if warning.serious else note
        yield judge(f'queue "{settings.name}"', warning.fact, warning.next_step)


async def _check_repartitioning(store: Store, settings: QueueSettings) -> AsyncIterator[Finding]:
    """Check whether a change of the number of partitions is unfinished."""
    subject, command = f'queue "{settings.name}"', f"qbull repartition {settings.name}"
    layout = await store.layout(settings)
    if layout.coming is not None:
        fact = f"a change from {layout.partitions} to {layout.coming} partitions was started but not finished"
        yield problem(subject, fact, f'run "{command} {layout.coming}"')
        return
    left = await repartitioning_status(store, settings)
    if left is not None:
        old = " and ".join(str(count) for count in left.before)
        if left.halted and not left.jobs:
            fact = f"{left.halted} keys of the old {old} partitions are halted by a dead letter"
            next_step = f'see "qbull partitions {settings.name}", then retry or remove it'
        else:
            fact = f"{left.jobs:,} jobs and {left.keys:,} keys are left in the old {old} partitions"
            next_step = f'the workers run them; "{command} {left.partitions}" shows the progress'
        yield note(subject, fact, next_step)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
