"""What `qbull doctor` asks of each queue: is every job in its place, and does somebody run them?"""

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
"""Seconds of waiting after which a job is worth a note although workers live."""
MAX_CHECKED_JOBS = 20_000
MAX_SHOWN_FAULTS = 20


async def check_workers(store: Store) -> AsyncIterator[Finding]:
    try:
        living = await store.workers()
    except ServerError as error:
        yield problem("workers", str(error), "see what the server's checks say above")
        return
    if living:
        yield ok("workers", f"{len(living)} alive")
    for worker in await inspect.silent_workers(store):
        yield note(
            "workers",
            f"{worker} has fallen silent",
            "the next beat of another worker takes its jobs back"
            if living
            else "start a worker: it takes its jobs back",
        )


async def check_queue(store: Store, name: str, say: Callable[[str], None]) -> AsyncIterator[Finding]:
    """`say` is told how far a long look has come."""
    subject = f'queue "{name}"'
    try:
        settings = await store.settings(name)
    except ServerError as error:
        yield problem(subject, str(error), "a newer qbull may have written them; upgrade this one")
        return
    counts, faults = Counts(), 0
    for partition in await store.partitions(settings):
        wrong = await wrong_types(partition)
        for where, fact in wrong:
            faults += 1
            next_step = "another program has written it; find out which, then RENAME it out of the way"
            yield problem(f'{subject}: the name "{where}"', fact, next_step)
        if wrong:
            continue  # nothing else can be read then
        counted = await inspect.count(partition)
        counts += counted
        if counted.total > MAX_CHECKED_JOBS:
            say(f"{subject}: looking at the {counted.total:,} jobs of partition {partition.shown} …")
        async for finding in _audit(partition):
            faults += 1
            yield finding
    if not faults:
        yield ok(
            subject,
            f"each of its {counts.total:,} jobs is in its place, in {_partitions(settings.partitions)}",
        )
    async for finding in _sharing(store, settings):
        yield finding
    async for finding in _repartitioning(store, settings):
        yield finding
    async for finding in _progress(store, name, counts):
        yield finding
    async for finding in _standing(store, settings, counts):
        yield finding


async def _audit(partition: Partition) -> AsyncIterator[Finding]:
    faults = await check_integrity(partition)
    for fault in faults[:MAX_SHOWN_FAULTS]:
        subject, _, fact = fault.partition(": ")
        yield problem(subject, fact, "keep a copy of the server's data and report this")
    if len(faults) > MAX_SHOWN_FAULTS:
        yield problem(
            f'queue "{partition.settings.name}"',
            f"{len(faults) - MAX_SHOWN_FAULTS} more of these",
            "see above",
        )


async def _sharing(store: Store, settings: QueueSettings) -> AsyncIterator[Finding]:
    """Do the settings of its workers fit together, so that each partition is read?"""
    try:
        there = worker_declarations(
            await store.workers(), settings.name, (await store.layout(settings)).current
        )
    except ServerError:
        return  # said of the workers already
    for misfit in config_warnings(settings.partitions, settings_digest(settings), there):
        judge = problem if misfit.serious else note
        yield judge(f'queue "{settings.name}"', misfit.fact, misfit.next_step)


async def _repartitioning(store: Store, settings: QueueSettings) -> AsyncIterator[Finding]:
    """Was the number of its partitions changed, and is something left to do?"""
    subject, command = f'queue "{settings.name}"', f"qbull repartition {settings.name}"
    layout = await store.layout(settings)
    if layout.coming is not None:
        fact = f"a change from {layout.partitions} to {layout.coming} partitions was begun and not ended"
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
            next_step = f'the workers work them off; "{command} {left.partitions}" shows how far that is'
        yield note(subject, fact, next_step)


async def _progress(store: Store, name: str, counts: Counts) -> AsyncIterator[Finding]:
    subject = f'queue "{name}"'
    try:
        served = any(name in who.queues for who in (await store.workers()).values())
    except ServerError:
        return  # said of the workers already
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
            subject, f"{counts.failed} jobs failed for good", f'see "qbull jobs {name} --state failed"'
        )


async def _standing(store: Store, settings: QueueSettings, counts: Counts) -> AsyncIterator[Finding]:
    """Does something wait for a person? In the words of the API's health."""
    name = settings.name
    still = await halted_summary(store, settings)
    if still is not None:
        ill = health.halted(name, still.keys, still.waiting)
        step = f'see "qbull partitions {name}", then retry or remove the dead letter'
        yield note(f'queue "{name}"', ill.fact, step)
    if counts.waiting and await is_paused(store, name):
        ill = health.paused(name, counts.waiting)
        yield note(f'queue "{name}"', ill.fact, f'run "qbull resume {name}"')


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
