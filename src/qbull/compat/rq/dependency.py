"""depends_on: a call that runs after other jobs, on qbull's flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from qbull.app import App
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.job import Job, find_job
from qbull.core.flow import DependencyFailureMode
from qbull.errors import ArgumentsError, NotFound
from qbull.job import Job as Handle
from qbull.produce.after import JobToFollow, enqueue_after
from qbull.produce.enqueue import Calling
from qbull.queue import Queue

if TYPE_CHECKING:
    from qbull.compat.rq.enqueue_options import RqEnqueueOptions

JobOrId: TypeAlias = "Job | CreatedJob | str"


class Dependency:
    """`Dependency(jobs=[a, b], allow_failure=True)`: the jobs that a call waits for.

    Args:
        jobs: A job, an id, or a list of these.
        allow_failure: Run the call also if a job does not complete.
        enqueue_at_front: Run the call before others, as with `at_front=True`.
    """

    def __init__(
        self,
        jobs: JobOrId | Sequence[JobOrId],
        allow_failure: bool = False,
        enqueue_at_front: bool = False,
    ) -> None:
        self.dependencies = _listed(jobs)
        if not self.dependencies:
            raise ValueError("Dependency(jobs=[]): give at least one job")
        for job in self.dependencies:
            if isinstance(job, CreatedJob) and job.sent is None:
                raise ValueError(
                    f"Dependency: job {job.id} is not enqueued yet; call queue.enqueue_job(job) first"
                )
            if not isinstance(job, Job | CreatedJob | str):
                raise ValueError(f"Dependency: {job!r} is neither a job nor the id of one")
        self.allow_failure = allow_failure
        self.enqueue_at_front = enqueue_at_front


DependsOn: TypeAlias = "Dependency | JobOrId | Sequence[Dependency | JobOrId] | None"


def dependencies_in(given: DependsOn) -> list[Dependency]:
    """The value of `depends_on` as a list."""
    return [
        each if isinstance(each, Dependency) else Dependency(cast(JobOrId, each)) for each in _listed(given)
    ]


async def send_call(
    queue: Queue,
    call: Calling[..., Any],
    options: RqEnqueueOptions,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Handle[Any]:
    """Enqueue one call with its headers, after the jobs that it depends on."""
    request = call._request([call.check(*args, **kwargs)])
    request.headers = options.headers(queue, call.spec.name) or None
    dependencies = options.dependencies
    if not dependencies:
        return (await queue._producer.enqueue(request))[0]
    jobs: list[JobToFollow] = []
    for dependency in dependencies:
        for job in dependency.dependencies:
            found = await _find(queue.app, job)
            if found not in jobs:
                jobs.append(found)
    allows = any(each.allow_failure for each in dependencies)
    mode: DependencyFailureMode = "continue" if allows else "stop"
    return await enqueue_after(request, jobs, mode)


async def _find(app: App, job: JobOrId) -> JobToFollow:
    if not isinstance(job, str) and job.origin in app.queues:
        return app.queues[job.origin], job.id
    id = job if isinstance(job, str) else job.id
    try:
        handle = await find_job(app, list(app.queues.values()), id)
    except NotFound as error:
        raise ArgumentsError(f"depends_on: {error}") from None
    return app.queues[handle.queue], id


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, Iterable) and not isinstance(given, str):
        return list(given)
    return [given]
