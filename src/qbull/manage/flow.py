"""Flow: the handle of a flow that was enqueued, to wait for it and to act on it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qbull.core.flow import MAX_FLOW_STEPS
from qbull.errors import ArgumentsError, Conflict, JobCancelled, JobFailed, NotFound, job_not_found
from qbull.job import Job
from qbull.manage.flow_rerun import plan_rerun
from qbull.manage.flow_walk import FlowJobState, flow_exits, flow_levels, walk_flow
from qbull.produce.offload import offload_plan
from qbull.store.audit import audited, note, of_flow, within_entry

if TYPE_CHECKING:
    from qbull.app import App

R = TypeVar("R")

STATES_BATCH_SIZE = 100
"""Jobs of a flow whose states are read concurrently."""


class Flow(Generic[R]):
    """A flow that was enqueued.

    Args:
        app: its app.
        id: its id.
        jobs: the handles of all its jobs, in the order of its parts. `app.flow(…)` finds those that are
            still kept, in the order in which they can run.
        last: the job that it ends with.
        fallbacks: the jobs that stand in for `last`.
        created: False if the id of `last` was taken and nothing was added.
    """

    def __init__(
        self,
        app: App,
        id: str,
        jobs: Sequence[Job[Any]],
        last: Job[R],
        fallbacks: Sequence[Job[R]],
        created: bool,
    ) -> None:
        self._app = app
        self.id = id
        self.jobs = tuple(jobs)
        self.last = last
        self.created = created
        self._fallbacks = tuple(fallbacks)

    def __repr__(self) -> str:
        return f"<Flow {self.id} of {len(self.jobs)} jobs>"

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end of the flow. Returns the result of the last job, or of its fallback.

        Args:
            timeout: maximum number of seconds to wait.
        """
        job, began = self.last, time.monotonic()
        left = timeout
        for instead in self._fallbacks:
            try:
                return await job.result(left)
            except (JobFailed, JobCancelled):
                job = instead
            if timeout is not None:
                left = max(timeout - (time.monotonic() - began), 0)
        return await job.result(left)

    @audited("cancel flow", of_flow)
    async def cancel(self, reason: str = "cancelled") -> None:
        """Cancel all jobs of the flow that have not ended, fallbacks too. Running jobs are asked to stop.

        If an outage interrupted the enqueue, the missing jobs are enqueued first and then cancelled.

        Args:
            reason: the error of the cancelled jobs.
        """
        client = self._app._client()
        left = [*self._fallbacks, self.last, *self.jobs]
        queues = {job.queue for job in left}
        note(queues=sorted(queues))
        while unknown := [job for job in left if not await _cancel(job, reason)]:
            planted = await client.flows.finish(self.id, queues)
            if not planted and len(unknown) == len(left):
                return  # They are no longer kept.
            left = unknown  # Not there yet: an outage interrupted the enqueue, or a worker continues it.

    @audited("retry flow", of_flow)
    async def retry(self) -> int:
        """Run the failed and cancelled jobs of the flow again. Returns their number.

        A job waits again for those that it depends on. Completed jobs do not run again.
        """
        note(queues=sorted({job.queue for job in self.jobs}))
        retried = 0
        # The last first: a job must wait again before its dependencies run, or it would miss their end.
        for job in reversed(self.jobs):
            with suppress(Conflict, NotFound), within_entry({}):  # One entry tells about the whole flow.
                if await job.state() in ("failed", "cancelled"):
                    await job.retry()
                    retried += 1
        note(after={"jobs": retried})
        return retried

    async def counts(self) -> dict[FlowJobState, int]:
        """The number of its jobs in each state. Jobs that are no longer kept count as "removed"."""
        found: Counter[FlowJobState] = Counter()
        for start in range(0, len(self.jobs), STATES_BATCH_SIZE):
            some = self.jobs[start : start + STATES_BATCH_SIZE]
            found.update(state or "removed" for state in await asyncio.gather(*(job.state() for job in some)))
        return dict(found)

    @audited("rerun flow", of_flow)
    async def rerun(self, job: Job[Any]) -> Flow[R]:
        """Run an ended job and all jobs that wait for it again, as a new flow. Returns its handle.

        The jobs before it do not run again: the new jobs get their results. This flow stays as it is. A
        fallback that was not needed is not a part of the new flow.

        Args:
            job: a job of this flow that has ended. All jobs that wait for it must have ended, too.
        """
        client, start = self._app._client(), (job.queue, job.id)
        walked = await walk_flow(client, self._app._find_queue, start, MAX_FLOW_STEPS)
        if walked is None:
            raise job_not_found(*start)
        if walked.seen[start].fallback:
            raise ArgumentsError(f"job {job.id} is a fallback; rerun the job that it stands in for")
        again = await plan_rerun(client, self._app._find_queue, walked, start)
        durability = self._app.durability
        confirmed = client.store.confirmed(durability) if durability is not None else None
        await client.flows.start(await offload_plan(self._app, again.plan), confirmed)
        note(job=f"{job.queue}/{job.id}", after={"job": again.id})
        return await find_flow(self._app, self._app.job(await self._app._find_queue(job.queue), again.id))


async def find_flow(app: App, job: Job[R]) -> Flow[R]:
    """The flow of a job, as the server has it. Raises NotFound for a job without one."""
    walked = await walk_flow(app._client(), app._find_queue, (job.queue, job.id), MAX_FLOW_STEPS)
    if walked is None:
        raise job_not_found(job.queue, job.id)
    if not walked.flow:
        raise NotFound(f'queue "{job.queue}": job {job.id} belongs to no flow')
    levels = flow_levels(walked.seen)
    addresses = sorted(walked.seen, key=lambda address: (levels[address], address[1]))
    kept = [address for address in addresses if walked.seen[address].info is not None]
    jobs = {(name, id): (await app._find_queue(name)).job(id) for name, id in kept}
    exits = [jobs[address] for address in flow_exits(walked.seen)]
    if not exits:
        raise NotFound(f'queue "{job.queue}": the last job of the flow of job {job.id} is no longer kept')
    return Flow(app, walked.flow, list(jobs.values()), exits[0], exits[1:], created=False)


async def _cancel(job: Job[Any], reason: str) -> bool:
    """False if the job is unknown."""
    try:
        with within_entry({}):  # One entry tells about the whole flow.
            await job.cancel(reason)
    except Conflict:  # It has ended.
        pass
    except NotFound:
        return False
    return True
