"""From a canvas to jobs: a chain or a chord becomes a flow, and a group becomes jobs on their own.

Callbacks and errbacks are jobs of the same flow. They wait for the job that they belong to, and no other job
waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from qbull.compat.celery.call_options import CALLBACK_OPTIONS
from qbull.compat.celery.canvas import chain, chord, group, xmap, xstarmap
from qbull.compat.celery.canvas_options import members_of, unrolled, with_errbacks, with_options
from qbull.compat.celery.eager import apply_canvas
from qbull.compat.celery.group_result import GroupResult
from qbull.compat.celery.own_apply_async import as_its_task_calls_it
from qbull.compat.celery.publishing import announce, announce_sent
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.signature import Signature, listed, signature
from qbull.compat.exact_arguments import ArgumentSource, ExactSignature, PartialCall
from qbull.core.flow import DependencyFailureMode
from qbull.core.options import EncodedArguments
from qbull.errors import ArgumentsError
from qbull.flows import FlowNodes, Step, enqueue_nodes
from qbull.job import Job
from qbull.produce.flow_plan import FlowExit, StepNode

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery
    from qbull.compat.celery.task import CeleryTask


@dataclass(frozen=True)
class CanvasEnd:
    """The end of a part of a canvas.

    Args:
        exits: The jobs that the next part waits for.
        passes: How their results are passed on.
        node: The job, or None for a group.
        members: The ends of the members of a group.
        parent: The part before, for `result.parent`.
    """

    exits: list[FlowExit]
    passes: ArgumentSource = "result"
    node: StepNode | None = None
    members: tuple[CanvasEnd, ...] = ()
    parent: CanvasEnd | None = None

    @property
    def result_shape(self) -> list[Any] | None:
        """How the results are nested: None for each job, a list for a group at the end of a member."""
        if not any(member.members for member in self.members):
            return None
        return [member.nesting for member in self.members]

    @property
    def nesting(self) -> list[Any] | None:
        return [member.nesting for member in self.members] if self.members else None


def enqueue_canvas(
    app: Celery,
    given: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """Enqueue a signature with further arguments and options. Returns None for an empty chain."""
    whole = with_options(given, args, kwargs, options)
    if isinstance(whole, chain) and len(whole.tasks) == 1:
        whole = unrolled(with_errbacks(whole.tasks[0], listed(whole.options.get("link_error"))))
    if isinstance(whole, chain) and not whole.tasks:
        return None
    if app.conf.task_always_eager:
        return apply_canvas(whole)
    if isinstance(whole, group):
        flows = [CanvasFlow(app, member) for member in members_of(whole)]
        results = app.run_sync(_send_all(flows))
        if len(results) == 1 and isinstance(results[0], GroupResult):
            return results[0]  # A group of one chain has the results of the group that the chain ends with.
        return GroupResult(whole.options.get("task_id") or str(uuid4()), results, app=app)
    return app.run_sync(CanvasFlow(app, whole).send())


async def _send_all(flows: Sequence[CanvasFlow]) -> list[Any]:
    return list(await asyncio.gather(*(flow.send() for flow in flows)))


Errback = tuple[Any, ArgumentSource]
"""An errback, and whether it runs only for an error of the task itself."""


class CanvasFlow(FlowNodes):
    """The jobs of one chain, chord or task with callbacks.

    Args:
        app: The app.
        given: The canvas.
    """

    def __init__(self, app: Celery, given: Signature) -> None:
        super().__init__()
        self._celery = app
        self._callbacks: dict[StepNode, list[CanvasEnd]] = {}
        self._calls: dict[StepNode, tuple[CeleryTask, Signature]] = {}
        self._results: dict[int, Any] = {}
        self._end = self._lay(given, CanvasEnd([]), ())

    async def send(self) -> Any:
        """Enqueue the jobs. Returns the result of the canvas."""
        if len(self.nodes) == 1:
            jobs = {self.nodes[0]: await _send_alone(self.nodes[0])}
        else:
            self._close()
            flow = await enqueue_nodes(self)
            jobs = dict(zip(self.nodes, flow.jobs, strict=True))
        self.announce_sent({node: job.id for node, job in jobs.items()})
        return self._result(self._end, jobs)

    def announce_sent(self, ids: Mapping[StepNode, str]) -> None:
        """Send after_task_publish for each job."""
        for node, (task, given) in self._calls.items():
            announce_sent(task, node.step.call, ids[node], given.args, given.kwargs)

    def with_one_end(self, task: CeleryTask, queue: str) -> StepNode:
        """Return the job that the flow ends with, when all of its jobs are known.

        If it ends with a group, a job of the task is added that gathers the results.

        Args:
            task: The task that the flow replaces.
            queue: The queue of that job.
        """
        end = self._end.node
        if end is None:
            end = self._add(Signature(task, queue=queue), self._end, "gather", "stop")
        self._close()
        return end

    def _close(self) -> None:
        first = self._first_job()
        self._name_first_job(first)
        self.close(first)

    def _lay(
        self, given: Any, before: CanvasEnd, errbacks: Sequence[Errback], *, is_body: bool = False
    ) -> CanvasEnd:
        """Add the jobs of a part that runs after another one."""
        part = with_options(signature(given, app=self._celery), (), {}, {})
        if isinstance(part, chain):
            return self._lay_chain(part, before, errbacks, is_body=is_body)
        if isinstance(part, group):
            members = [self._lay(each, before, errbacks, is_body=is_body) for each in members_of(part)]
            exits = [out for member in members for out in member.exits]
            return CanvasEnd(exits, "results", members=tuple(members), parent=_if_any(before))
        if isinstance(part, chord):
            header = self._lay(part.header, before, errbacks)
            if not header.members:
                return self._lay(part.body.clone(([],)), before, errbacks)
            return self._lay(part.body, header, errbacks, is_body=True)
        return self._lay_task(part, before, errbacks, is_body=is_body)

    def _lay_chain(
        self, given: chain, before: CanvasEnd, errbacks: Sequence[Errback], *, is_body: bool
    ) -> CanvasEnd:
        own = listed(given.options.get("link_error"))
        parts = [unrolled(each) for each in given.tasks]
        for each in (each for each in parts if not isinstance(each, group) or each.tasks):
            added: list[Errback] = [(errback, "error" if is_body else "own error") for errback in own]
            before = self._lay(each, before, [*errbacks, *added], is_body=is_body)
            is_body = False
        return before

    def _lay_task(
        self, given: Signature, before: CanvasEnd, errbacks: Sequence[Errback], *, is_body: bool
    ) -> CanvasEnd:
        given = as_its_task_calls_it(given)
        source = before.passes if before.exits and not given.immutable else None
        node = self._add(given, before, source, "stop")
        end = CanvasEnd([[(node, "")]], node=node, parent=_if_any(before))
        callbacks = [self._lay(callback, end, ()) for callback in listed(given.options.get("link"))]
        self._callbacks[node] = callbacks
        # The body of a chord hears of errors in its header too.
        own: ArgumentSource = "error" if is_body else "own error"
        for errback, hears in [*((each, own) for each in listed(given.options.get("link_error"))), *errbacks]:
            self._lay_errback(errback, end, hears)
        return end

    def _lay_errback(self, given: Any, end: CanvasEnd, source: ArgumentSource) -> None:
        errback = signature(given, app=self._celery)
        if isinstance(errback, chain | group | chord):
            raise ArgumentsError(f"link_error: {errback!r:.80}: give a task, which may enqueue others")
        self._add(as_its_task_calls_it(errback), end, source, "rescue")

    def _add(
        self,
        given: Signature,
        before: CanvasEnd,
        source: ArgumentSource | None,
        mode: DependencyFailureMode,
    ) -> StepNode:
        task = given.type
        options = {n: v for n, v in given.options.items() if n not in CALLBACK_OPTIONS}
        call = task.call_with(announce(task, options, given.args, given.kwargs))
        encoder, limit = task.spec.signature, task.app.payload_limit
        assert isinstance(encoder, ExactSignature)
        if isinstance(given, xmap | xstarmap):
            each: ArgumentSource = "items" if isinstance(given, xmap) else "argument lists"
            payload = encoder.encode_each(given.kwargs["it"], each, limit)
        elif source is None:
            payload = call.check(*given.args, **given.kwargs).payload
        else:
            partial = PartialCall(
                source, tuple(given.args), given.kwargs, given.immutable, shape=before.result_shape
            )
            payload = encoder.encode_partial(partial, _missing(given, encoder, source), limit)
        arguments = EncodedArguments(payload, None, call._options.id)
        node = StepNode(Step(call, call._queue, arguments, call._options), before.exits, mode)
        self.nodes.append(node)
        self._calls[node] = task, given
        return node

    def _first_job(self) -> StepNode:
        """The job that is enqueued first: no other job waits for it."""
        awaited = {id(node) for each in self.nodes for sources in each.awaits for node, _ in sources}
        return next(node for node in reversed(self.nodes) if id(node) not in awaited)

    def _name_first_job(self, first: StepNode) -> None:
        """Give the job that is enqueued first an id that follows from the id that the caller gave.

        Its id decides whether the canvas is new.
        """
        given = next((node.step.arguments.id for node in self.nodes if node.step.arguments.id), None)
        if given is not None and first.step.arguments.id is None:
            arguments = first.step.arguments
            first.step.arguments = EncodedArguments(arguments.payload, arguments.key, f"{given}.callback")

    def _result(self, end: CanvasEnd, jobs: Mapping[StepNode, Job[Any]]) -> Any:
        if id(end) in self._results:
            return self._results[id(end)]
        parent = None if end.parent is None else self._result(end.parent, jobs)
        if end.node is not None:
            job = jobs[end.node]
            made: Any = AsyncResult(job.id, self._celery, job=job, parent=parent)
            self._results[id(end)] = made
            made.children = [self._result(each, jobs) for each in self._callbacks.get(end.node, ())]
            return made
        members = [self._result(each, jobs) for each in end.members]
        made = self._results[id(end)] = GroupResult(str(uuid4()), members, app=self._celery, parent=parent)
        return made


async def _send_alone(node: StepNode) -> Job[Any]:
    """Enqueue a task that is not part of a flow."""
    step = node.step
    request = step.call._request([step.arguments])
    return (await step.queue._producer.enqueue(request))[0]


def _if_any(before: CanvasEnd) -> CanvasEnd | None:
    return before if before.exits else None


def _missing(given: Signature, signature: ExactSignature, source: ArgumentSource) -> int:
    """How many arguments the jobs before give. An errback takes the id, or request, exception, traceback."""
    if source not in ("error", "own error"):
        return 1
    if given.immutable:
        return 0
    return signature.errback_arguments(given.args, given.kwargs, is_bound=given.type.traits.bind)
