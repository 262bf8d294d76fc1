"""Task calls: the methods with which a durable task calls other tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from qbull.core.calls import CALL_PREFIX
from qbull.core.durable import digest_arguments
from qbull.core.flow import Dependent, FlowJobSeed, FlowPlan
from qbull.core.ids import new_token
from qbull.core.record import lane_of
from qbull.core.route import digest
from qbull.core.values import ValueHooks
from qbull.errors import ArgumentsError
from qbull.worker.step_calls import StepCalls, refuse_loop

if TYPE_CHECKING:
    from qbull.config import QueueSettings
    from qbull.flows import Step
    from qbull.worker.current import RunningJob

R = TypeVar("R")


class TaskCall(msgspec.Struct, frozen=True):
    """One call of a task. `hold_lane`: jobs of the caller's key wait with it."""

    step: Step[Any]
    hold_lane: bool

    @property
    def name(self) -> str:
        """The name of the call in the history."""
        return CALL_PREFIX + self.step.task

    @property
    def digest(self) -> bytes:
        """Recognises the call in a replay."""
        arguments = self.step.arguments
        return digest_arguments((self.step.queue.name, arguments.payload, arguments.key, arguments.id), {})

    async def plan(self, caller: Dependent) -> FlowPlan:
        """The job that the call enqueues."""
        return await self.step.plan_call(caller)

    def called_in(self, plan: FlowPlan) -> FlowJobSeed:
        """The job whose outcome is that of the call."""
        return plan.seeds[0]

    def decode(self, content: bytes, hooks: ValueHooks) -> Any:
        """The result of the called job."""
        return self.step.call.spec.signature.decode_result(content)


class TaskCalls(StepCalls):
    """The calls of other tasks that `current_job()` has."""

    __slots__ = ()

    async def call(self, step: Step[R], /, *, hold_lane: bool = True) -> R:
        """Run another task as a job of its own and return its result: `await job.call(task.step(…))`.

        Meanwhile this job leaves its worker. If the called job fails permanently, JobFailed is raised here;
        if it is cancelled, JobCancelled. Cancelling this job cancels the called one.

        Args:
            step: the task with its arguments, from any queue of the app.
            hold_lane: in an ordered lane, the jobs behind this one wait. If False, they pass, and the job
                joins the end of its lane when the called job has ended.
        """
        result: R = await self._steps.call(_task_call(step, hold_lane))
        return result

    def call_sync(self, step: Step[R], /, *, hold_lane: bool = True) -> R:
        """`call` for plain tasks.

        Args:
            step: the task with its arguments, from any queue of the app.
            hold_lane: in an ordered lane, the jobs behind this one wait.
        """
        refuse_loop("call")
        result: R = self._steps.call_sync(_task_call(step, hold_lane))
        return result


def _task_call(step: Any, hold_lane: bool) -> TaskCall:
    if not hasattr(step, "plan_call"):
        raise ArgumentsError(f"call({step!r:.80}): give a task with its arguments, call(task.step(…))")
    return TaskCall(step, hold_lane)


def caller_of(job: RunningJob, settings: QueueSettings) -> Dependent:
    """The caller, as the record of the called job names it."""
    together = None
    if job.body.key is not None and settings.lane_limit:
        together = digest(job.body.key)
    elif job.body.unique:
        together = bytes.fromhex(job.body.unique)[:8]
    return Dependent(job.queue, job.id.decode("utf-8", "surrogateescape"), together, 0, call=new_token())


def refuse_own_lane(call: TaskCall, job: RunningJob, called: FlowJobSeed) -> None:
    """Refuse a called job that waits in its lane for its caller, which waits for it."""
    lane = lane_of(job.record)
    if call.hold_lane and lane and called.queue == job.queue and lane_of(called.record) == lane:
        which = f'the key "{job.body.key}"' if job.body.key is not None else "the lane"
        raise ArgumentsError(
            f"call({call.step}): it has {which} of its caller, so each would wait for the other; "
            "give it another key, or let it pass with hold_lane=False"
        )
