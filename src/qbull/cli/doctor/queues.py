"""Queue checks of `qbull doctor`: is the data of each queue consistent, and does a worker run its jobs?"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from qbull.cli.doctor.finding import Finding, note, ok, problem
from qbull.cli.terminal import span
from qbull.config import QueueSettings
from qbull.core import health
from qbull.core.config_warnings import config_warnings
from qbull.errors import ServerError
from qbull.store.read import inspect
from qbull.store.read.drain_status import repartitioning_status
from qbull.store.read.inspect import Counts
from qbull.store.read.integrity import check_integrity, wrong_types
from qbull.store.read.partition_report import halted_summary
from qbull.store.store import Store
from qbull.store.verbs.live_settings import is_paused
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import settings_digest, worker_declarations

OLD_JOB_SECONDS = 300.0
"""A job that waits longer than this is worth a note, although workers are alive."""
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
        if counted.total > MAX_CHECKED_JOBS:
            on_progress(f"{subject}: checking the {counted.total:,} jobs of partition {partition.shown} …")
        async for finding in _check_integrity(partition):
            faults += 1
            yield finding
    if not faults:
        yield ok(
            subject,
            f"the data of its {counts.total:,} jobs in {_partitions(settings.partitions)} is consistent",
        )
    async for finding in _check_sharing(store, settings):
        yield finding
    async for finding in _check_repartitioning(store, settings):
        yield finding
    async for finding in _check_progress(store, name, counts):
        yield finding
    async for finding in _check_halted(store, settings, counts):
        yield finding


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


async def _check_progress(store: Store, name: str, counts: Counts) -> AsyncIterator[Finding]:
    subject = f'queue "{name}"'
    try:
        served = any(name in who.queues for who in (await store.workers()).values())
    except ServerError:
        # The check of the workers has reported it.
        return
    if counts.unfinished and not served:
        jobs = ", ".join(
            f"{n} {state}"
            for state, n in (
                ("waiting", counts.waiting),
                ("active", counts.active),
                ("delayed", counts.delayed),
            )
            if n
        )
        yield problem(subject, f"{jobs} and no worker", f'run "qbull worker MODULE:APP --queues {name}"')
    elif counts.oldest_waiting_ms is not None and not await is_paused(store, name):
        age = time.time() - counts.oldest_waiting_ms / 1000
        if age > OLD_JOB_SECONDS:
            yield note(
                subject, f"a job has been waiting for {span(age)}", "add worker processes or concurrency"
            )
    if counts.failed:
        yield note(
            subject, f"{counts.failed} jobs failed permanently", f'see "qbull jobs {name} --state failed"'
        )


async def _check_halted(store: Store, settings: QueueSettings, counts: Counts) -> AsyncIterator[Finding]:
    """Check whether jobs wait for a person: in halted lanes or a paused queue.

    The API's health check says the same.
    """
    name = settings.name
    halted = await halted_summary(store, settings)
    if halted is not None:
        fact = health.halted(name, halted.keys, halted.waiting).fact
        step = f'see "qbull partitions {name}", then retry or remove the dead letter'
        yield note(f'queue "{name}"', fact, step)
    if counts.waiting and await is_paused(store, name):
        fact = health.paused(name, counts.waiting).fact
        yield note(f'queue "{name}"', fact, f'run "qbull resume {name}"')


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
