"""`self.replace(…)`: other tasks do the work of a running one, and their outcome is its outcome.

The running job enqueues the replacement as a flow and leaves its worker, as a durable job does that calls
another one. When the flow has ended, the job runs once more, without its function, and takes over the
outcome. So everything that waits for the job waits for its replacement: callers of `get`, the next task of a
chain, the body of a chord, callbacks and errbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from qbull.compat.celery.canvas import chain
from qbull.compat.celery.exceptions import ImproperlyConfigured
from qbull.compat.celery.run_events import Replaced, current_run
from qbull.compat.exact_arguments import result_of
from qbull.core.cascades import first_failed_job, root_cause
from qbull.core.flow import Dependency, Dependent, FlowJobSeed, FlowPlan
from qbull.errors import ArgumentsError, JobCancelled, JobFailed, QbullError
from qbull.flows import plan_nodes
from qbull.produce.flow_plan import StepNode
from qbull.worker.cpu_pool import RemoteFail
from qbull.worker.current import running
from qbull.worker.step_calls import StepRunner
from qbull.worker.task_calls import TaskCall

if TYPE_CHECKING:
    from qbull.compat.celery.canvas_flow import CanvasFlow
    from qbull.compat.celery.task import CeleryTask


class ReplacementCall(TaskCall, frozen=True):
    """The call of a replacement: a flow, and the job in it whose outcome counts."""

    flow: CanvasFlow
    node: StepNode

    async def plan(self, caller: Dependent) -> FlowPlan:
        plan = await plan_nodes(self.flow, self.node, caller)
        self.flow.announce_sent({node: node.job.job.id for node in self.flow.nodes})
        return plan

    def called_in(self, plan: FlowPlan) -> FlowJobSeed:
        called = self.node.step.queue.name, self.node.job.job.id
        return next(seed for seed in plan.seeds if (seed.queue, seed.id) == called)


def replace_running(task: CeleryTask, given: Any) -> NoReturn:
    """End the run of a task: a signature does its work. Raises Replaced."""
    from qbull.compat.celery.canvas_flow import CanvasFlow

    if isinstance(given, chain) and not given.tasks:
        raise ImproperlyConfigured("replace: the chain is empty; give it at least one task")
    run, job = current_run.get(), running.get()
    if run is None or run.task is not task or task.request.called_directly:
        raise ArgumentsError(
            f'task "{task.name}": replace: the task was called directly, so there is no job to replace; '
            "use delay(), or apply() to run it here"
        )
    if run.eager_id is not None:
        raise Replaced(given, None)
    if run.is_item:
        raise ArgumentsError(
            f'task "{task.name}": replace: the job calls the task for each item of a list; '
            "use a group instead of map, starmap or chunks"
        )
    if job is None or job.durable is None:
        raise ArgumentsError(f'task "{task.name}": replace: declare the task with bind=True')
    flow = CanvasFlow(task.app, given)
    node = flow.with_one_end(task, job.queue)
    raise Replaced(given, ReplacementCall(node.step, True, flow, node))


def is_replaced(task: CeleryTask) -> bool:
    """Whether an earlier run of the running job has left its work to a replacement."""
    job = running.get()
    return (
        job is not None and job.durable is not None and job.body.task == task.name and job.durable.is_replaced
    )


async def replaced(task: CeleryTask, call: TaskCall | None = None) -> Any:
    """Leave the worker until the replacement has ended. Returns its result, or raises its error."""
    try:
        told = await _runner().replace(call)
    except (JobFailed, JobCancelled) as failure:
        raise await _own_failure(task, failure) from None
    return _value_of(task, told)


def replaced_sync(task: CeleryTask, call: TaskCall | None = None) -> Any:
    """`replaced` in the thread of a plain function."""
    try:
        told = _runner().replace_sync(call)
    except (JobFailed, JobCancelled) as failure:
        raise task.app.run_sync(_own_failure(task, failure)) from None
    return _value_of(task, told)


def _runner() -> StepRunner:
    job = running.get()
    assert job is not None
    assert job.durable is not None
    return job.durable


def _value_of(task: CeleryTask, told: Dependency) -> Any:
    last = task.app.tasks.get(told.task)
    return result_of(last.spec.signature if last is not None else None, told.result or b"null")


async def _own_failure(task: CeleryTask, failure: JobFailed | JobCancelled) -> RemoteFail:
    """The error of the replacement as that of the job: the error of the task that failed first."""
    if isinstance(failure, JobCancelled):
        return RemoteFail(str(failure), "")
    cause = root_cause(failure.error)
    if cause is None:
        return RemoteFail(failure.error, failure.stacktrace or "")
    queue, id = first_failed_job(failure.error) or ("", "")
    try:
        await task.app.queues[queue].job(id).result(timeout=0)
    except JobFailed as first:
        return RemoteFail(first.error, first.stacktrace or "")
    except (KeyError, QbullError):
        pass  # it is not kept, or belongs to another service
    return RemoteFail(cause, "")
