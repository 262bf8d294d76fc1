"""Flows: `qbull.chain` and `qbull.group` of steps, and the handle of one that was enqueued.

A flow becomes jobs that wait for other jobs, all laid out before anything is sent. A job that waits is
enqueued before the jobs that it waits for (store/verbs/flows.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from qbull.core.flow import (
    MAX_FLOW_STEPS,
    NOT_COMPLETED_LETTERS,
    NOT_NEEDED_LETTER,
    DependencyFailureMode,
    Dependent,
    FlowPlan,
)
from qbull.core.layout import Layout
from qbull.errors import (
    ArgumentsError,
    NotConfirmed,
)
from qbull.job import Job
from qbull.manage.flow import Flow
from qbull.produce.chain import Request
from qbull.produce.flow_plan import (
    FlowExit,
    StepNode,
    check_plan_size,
    plan_call,
    plan_called_flow,
    plan_flow,
)
from qbull.produce.offload import offload_plan

if TYPE_CHECKING:
    from qbull.app import App
    from qbull.core.options import EncodedArguments, Options
    from qbull.queue import Queue
    from qbull.task import Call

R = TypeVar("R")
FlowOnFailed: TypeAlias = Literal["stop", "continue"]


class Step(Generic[R]):
    """One job of a flow, as `task.step(…)` returns it.

    Args:
        call: the task, or the task with options.
        queue: the queue of the task.
        arguments: the encoded arguments.
        options: the options of the job.
    """

    def __init__(
        self, call: Call[Any, R], queue: Queue, arguments: EncodedArguments, options: Options
    ) -> None:
        self.call = call
        self.queue = queue
        self.task = call.spec.name
        self.arguments = arguments
        self.options: Options = options

    def __repr__(self) -> str:
        return f"<Step {self.queue.name}.{self.task}>"

    async def plan_call(self, caller: Dependent) -> FlowPlan:
        """The job with which a durable task calls this one, within the app's tracing and middleware.

        Args:
            caller: the job that calls.
        """
        app, node, plans = self.queue.app, StepNode(self, [], "stop"), []
        request = _request([node])

        async def send() -> list[list[Job[Any]]]:
            node.options = request.carried(node.options)
            router = app._client().router
            layout = await router.register(self.queue.settings, self.queue.tasks, app.durability)
            plans.append(await offload_plan(app, plan_call(node, layout, caller)))
            return [[_handle(node, True)]]

        if app._chain is None:
            await send()
        else:
            await app._chain.run([request], send, request)
        return plans[0]


FlowPart: TypeAlias = "Step[Any] | Chain[Any] | Group[Any]"


class _Composite(Generic[R]):
    """A chain or a group. `parts` are as given; `last` is the job that it ends with, if there is one."""

    parts: tuple[FlowPart, ...]
    on_failed: FlowOnFailed
    fallback: FlowPart | None

    async def enqueue(self) -> Flow[R]:
        """Enqueue the flow in one step. Returns its handle as soon as the server has it."""
        return await enqueue_nodes(_FlowBuilder(self))

    def enqueue_sync(self) -> Flow[R]:
        """`enqueue` from synchronous code."""
        builder = _FlowBuilder(self)
        return builder.app.run_sync(enqueue_nodes(builder))


class Chain(_Composite[R]):
    """Parts that run one after the other; `qbull.chain(parts, on_failed, fallback)` makes it."""

    def __init__(
        self, parts: tuple[FlowPart, ...], on_failed: FlowOnFailed, fallback: FlowPart | None
    ) -> None:
        self.parts, self.on_failed, self.fallback = _checked_parts("chain", parts, on_failed, fallback)


class Group(_Composite[R]):
    """Parts that run at the same time; `qbull.group(parts, then, on_failed, fallback)` makes it."""

    def __init__(
        self,
        parts: tuple[FlowPart, ...],
        then: FlowPart | None,
        on_failed: FlowOnFailed,
        fallback: FlowPart | None,
    ) -> None:
        self.parts, self.on_failed, self.fallback = _checked_parts("group", parts, on_failed, fallback)
        self.then = _checked_parts("group", (then,), on_failed, None)[0][0] if then is not None else None


def chain(*parts: FlowPart, on_failed: FlowOnFailed = "stop", fallback: FlowPart | None = None) -> Chain[Any]:
    """Run steps one after the other: `await qbull.chain(a.step(1), b.step(2)).enqueue()`.

    Args:
        parts: steps, chains and groups.
        on_failed: whether the next part runs after one has failed permanently: "stop" or "continue".
        fallback: runs if the chain did not reach its end.
    """
    return Chain(parts, on_failed, fallback)


def group(
    *parts: FlowPart,
    then: FlowPart | None = None,
    on_failed: FlowOnFailed = "stop",
    fallback: FlowPart | None = None,
) -> Group[Any]:
    """Run steps at the same time. In a chain, the next part waits for all of them.

    Args:
        parts: steps, chains and groups.
        then: runs when all parts have ended.
        on_failed: whether `then` runs after a part has failed permanently: "stop" or "continue".
        fallback: runs if the group did not reach its end.
    """
    return Group(parts, then, on_failed, fallback)


class FlowNodes:
    """All jobs of a flow. A job comes after the jobs that it waits for.

    `last` is the job that the flow ends with. It is enqueued first, so no job waits for it but the fallbacks.
    """

    last: StepNode
    app: App

    def __init__(self) -> None:
        self.nodes: list[StepNode] = []
        self.fallbacks: list[StepNode] = []

    def close(self, last: StepNode) -> None:
        """Name the last job, when all are there. Refuses jobs that do not fit together."""
        self.last = last
        self.app = last.step.queue.app
        if len(self.nodes) > MAX_FLOW_STEPS:
            raise ArgumentsError(
                f"a flow has at most {MAX_FLOW_STEPS:,} jobs; let a task enqueue the next part"
            )
        if any(node.step.queue.app is not self.app for node in self.nodes):
            raise ArgumentsError("a flow belongs to one app; its steps are of several apps")
        given = Counter((node.step.queue.name, node.step.arguments.id) for node in self.nodes)
        for (queue, id), many in given.items():
            if id is not None and many > 1:
                raise ArgumentsError(
                    f'queue "{queue}": {many} steps of a flow have the id {id!r}; each needs its own'
                )


class _FlowBuilder(FlowNodes):
    """The jobs of a chain or a group."""

    def __init__(self, written: _Composite[Any]) -> None:
        super().__init__()
        exits = self._lay(written, [], "stop")
        if len(exits) != 1:
            raise ArgumentsError(
                f"a flow ends with one job, this one with {len(exits)}; "
                "give its last group a then=…, or use enqueue_many"
            )
        self.fallbacks = [node for node, _ in exits[0][1:]]
        self.close(exits[0][0][0])
        if self.fallbacks and not self.last.awaits and self.last.step.arguments.id is not None:
            raise ArgumentsError("id and fallback: a flow of one job has one of them")

    def _lay(
        self, part: FlowPart | _Composite[Any], after: list[FlowExit], mode: DependencyFailureMode
    ) -> list[FlowExit]:
        if isinstance(part, Step):
            self.nodes.append(StepNode(part, after, mode))
            if len(self.nodes) > MAX_FLOW_STEPS:
                raise ArgumentsError(
                    f"a flow has at most {MAX_FLOW_STEPS:,} jobs; let a task enqueue the next part"
                )
            return [[(self.nodes[-1], "")]]
        if isinstance(part, Group):
            exits = [out for inner in part.parts for out in self._lay(inner, after, mode)]
            if part.then is not None:
                exits = self._lay(part.then, exits, part.on_failed)
        else:
            exits = after
            for n, inner in enumerate(part.parts):
                exits = self._lay(inner, exits, part.on_failed if n else mode)
        if part.fallback is None:
            return exits
        if len(exits) != 1:
            raise ArgumentsError("fallback: it stands in for one job; give the group a then=…")
        instead = self._lay(part.fallback, exits, "rescue")
        if len(instead) != 1:
            raise ArgumentsError("fallback: it ends with one job; give its group a then=…")
        ended = [(node, NOT_COMPLETED_LETTERS) for node, _ in exits[0]]
        return [[*ended, *((node, unless + NOT_NEEDED_LETTER) for node, unless in instead[0])]]


async def enqueue_nodes(builder: FlowNodes) -> Flow[Any]:
    """Send a flow within the app's tracing and middleware."""
    sent: list[Flow[Any]] = []

    async def send() -> None:
        sent.append(await _send(builder))

    await _within_chain(builder, send)
    return sent[0]


async def plan_nodes(builder: FlowNodes, called: StepNode, caller: Dependent) -> FlowPlan:
    """The flow that a durable job calls, within the app's tracing and middleware.

    Args:
        builder: the jobs of the flow.
        called: the job whose outcome the caller gets.
        caller: the job that calls.
    """
    app, plans = builder.app, []

    async def send() -> None:
        layouts = await _layouts(builder)
        plan = plan_called_flow(builder.nodes, builder.last, layouts, called, caller)
        plans.append(await offload_plan(app, plan))
        check_plan_size(plans[-1])

    await _within_chain(builder, send)
    return plans[0]


async def _within_chain(builder: FlowNodes, send: Callable[[], Awaitable[None]]) -> None:
    """Send a flow within the app's tracing and middleware, with one request for each of its tasks."""
    chain = builder.app._chain
    if chain is None:
        await send()
        return
    nodes: dict[tuple[str, str], list[StepNode]] = {}
    for node in builder.nodes:
        nodes.setdefault((node.step.queue.name, node.step.task), []).append(node)
    groups = list(nodes.values())
    requests = [_request(group) for group in groups]
    last = next(request for request, group in zip(requests, groups, strict=True) if builder.last in group)

    async def send_carried() -> list[list[Job[Any]]]:
        for request, group in zip(requests, groups, strict=True):
            for node in group:
                node.options = request.carried(node.options)
        await send()
        return [[_handle(node, True) for node in group] for group in groups]

    await chain.run(requests, send_carried, last)


def _request(nodes: Sequence[StepNode]) -> Request:
    step = nodes[0].step
    return Request(step.queue, step.task, [node.step.arguments for node in nodes], step.options)


async def _send(builder: FlowNodes) -> Flow[Any]:
    app, last = builder.app, builder.last
    client = app._client()
    plan = await offload_plan(app, plan_flow(builder.nodes, builder.last, await _layouts(builder)))
    check_plan_size(plan)
    confirmed = client.store.confirmed(app.durability) if app.durability is not None else None
    try:
        created = await client.flows.start(plan, confirmed)
    except NotConfirmed as error:
        raise error.of(last.step.queue.name, last.job.job.id) from None
    jobs = {node: _handle(node, created) for node in builder.nodes}
    fallbacks = [jobs[node] for node in builder.fallbacks]
    return Flow(app, plan.flow, list(jobs.values()), jobs[last], fallbacks, created)


async def _layouts(builder: FlowNodes) -> dict[str, Layout]:
    """The layouts of the queues of a flow, by name."""
    app, layouts = builder.app, {}
    for queue in {node.step.queue for node in builder.nodes}:
        router = app._client().router
        layouts[queue.name] = await router.register(queue.settings, queue.tasks, app.durability)
    return layouts


def _handle(node: StepNode, created: bool) -> Job[Any]:
    decode = node.step.call.spec.signature.decode_result
    return Job(node.job.job.id, created, node.step.queue, decode, created)


def _checked_parts(
    what: str, parts: tuple[Any, ...], on_failed: FlowOnFailed, fallback: Any
) -> tuple[tuple[FlowPart, ...], FlowOnFailed, FlowPart | None]:
    if not parts:
        raise ArgumentsError(f"{what}(): give it at least one step")
    for part in (*parts, *(() if fallback is None else (fallback,))):
        if not isinstance(part, Step | Chain | Group):
            raise ArgumentsError(f"{what}: {part!r} is no step; give task.step(…), a chain or a group")
    if on_failed not in ("stop", "continue"):
        raise ArgumentsError(f'{what}: on_failed={on_failed!r}: use "stop" or "continue"')
    return parts, on_failed, fallback
