"""Patching: retry finished jobs with changed arguments, given as one JSON merge patch for all of them.

The new arguments are checked like a call of the task: by its code if it is here, else by the descriptions
that workers have published. A job whose new arguments do not fit, or whose arguments this app cannot read,
stays as it is. New arguments are signed and encrypted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from qbull.core.ids import new_token
from qbull.core.job_filter import JobFilter
from qbull.core.merge_patch import check_patch, merge_patch
from qbull.core.record import State, UnreadableRecord, body_of
from qbull.errors import ArgumentsError, NotFound, PayloadError
from qbull.manage.bulk import BulkOperation, BulkStep, run_bulk
from qbull.produce import by_name
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs.partition import JobToRetry, Partition

if TYPE_CHECKING:
    from qbull.produce.client import Client
    from qbull.queue import Queue

PATCH_PREVIEW_JOBS = 5
MAX_PREVIEW_SCANNED_JOBS = 10_000
"""Jobs read to find those of a preview."""


class PatchedJob(msgspec.Struct, frozen=True):
    """A job with its arguments before and after the patch. `refusal` says why it cannot be retried so."""

    job: StoredJob
    before: Any
    after: Any
    refusal: str | None
    payload: bytes = b""


class ArgumentPatch:
    """The patch of one bulk operation. It counts the jobs that it does not fit."""

    def __init__(self, queue: Queue, patch: Mapping[str, Any]) -> None:
        self._queue = queue
        self.patch = check_patch(patch)
        self.refused = 0
        self.refusal: str | None = None
        """Why the first job was refused."""

    async def apply(self, job: StoredJob) -> PatchedJob:
        """The new arguments of a job, checked and encoded."""
        queue, before, after = self._queue, None, None
        try:
            body = body_of(job.record)
            before = msgspec.json.decode(await queue._payloads.load(job.id, body))
            after = merge_patch(before, self.patch)
            if body.task not in queue.tasks:
                await by_name.check_change(queue, body.task, before, after, body.key)
            return PatchedJob(job, before, after, None, queue._payloads.edited(job.id, body, after))
        except (ArgumentsError, PayloadError, NotFound, UnreadableRecord, msgspec.DecodeError) as error:
            return PatchedJob(job, before, after, str(error))

    async def retry(self, client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
        """The bulk action: run jobs again with their new arguments."""
        some = []
        for job in jobs:
            patched = await self.apply(job)
            if patched.refusal is None:
                some.append(JobToRetry(job.id, job.position, job.again(patched.payload)))
            else:
                self.refused += 1
                self.refusal = self.refusal or f"job {job.id}: {patched.refusal}"
        if not some:
            return 0
        return (await partition.retry(new_token(), some)).count("retried")


async def preview_patch(
    queue: Queue, patch: Mapping[str, Any], state: State, job_filter: JobFilter
) -> list[PatchedJob]:
    """The first jobs that a retry with this patch would change, before and after."""
    changes, shown = ArgumentPatch(queue, patch), []

    async def show(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
        shown.extend([await changes.apply(job) for job in jobs])
        return len(jobs)

    def step(now: BulkStep) -> None:
        if now.looked_at >= MAX_PREVIEW_SCANNED_JOBS:
            raise _PreviewComplete

    wanted = BulkOperation(show, state, job_filter, limit=PATCH_PREVIEW_JOBS)
    with suppress(_PreviewComplete):
        await run_bulk(queue.app._client(), await queue._partitions(), wanted, step)
    return shown


class _PreviewComplete(Exception):
    """Enough jobs were read."""
