"""Flow plans: the steps of a flow as jobs with ids, partitions, dependencies and an order of enqueueing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from qbull.core.flow import (
    FLOW_LIMIT_BYTES,
    HAS_DEPENDENCIES_FLAG,
    HAS_DEPENDENTS_FLAG,
    Dependency,
    DependencyFailureMode,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    encode,
    job_digest,
    with_flow_flags,
)
from qbull.core.ids import new_token
from qbull.core.layout import Layout
from qbull.core.record import body_of, repack
from qbull.errors import TooLarge
from qbull.produce.router import PlacedJob

if TYPE_CHECKING:
    from qbull.flows import Step


class StepNode:
    """A step that becomes a job: the jobs that it waits for, and the jobs that wait for it."""

    def __init__(self, step: Step[Any], awaits: list[FlowExit], mode: DependencyFailureMode) -> None:
        self.step = step
        self.options = step.options
        self.awaits = awaits
        self.mode: DependencyFailureMode = mode
        self.links: list[Dependent] = []
        self.placed: PlacedJob | None = None

    @property
    def job(self) -> PlacedJob:
        assert self.placed is not None
        return self.placed


FlowExit: TypeAlias = "list[tuple[StepNode, str]]"
"""The end of a part: a job, or a job and its fallback.

Each comes with the letters of the ends that the next job does not hear of.
"""


def plan_flow(
    nodes: Sequence[StepNode], last: StepNode, layouts: Mapping[str, Layout], flow: str = ""
) -> FlowPlan:
    """All jobs of a flow, ready before anything is sent, in the order of enqueueing."""
    flow = flow or new_token()
    for node in nodes:
        step = node.step
        producer = step.queue._producer
        layout = layouts[step.queue.name]
        # The payload is protected with the flow's jobs that it waits for, which have no ids yet.
        node.placed = producer.place(layout, step.task, step.arguments, node.options, is_protected=True)
    for node in nodes:
        for position, sources in enumerate(node.awaits):
            for source, unless in sources:
                job = node.job
                source.links.append(
                    Dependent(
                        node.step.queue.name,
                        job.job.id,
                        job.affinity,
                        position,
                        unless,
                        node.mode == "rescue",
                    )
                )
    seeds = [_flow_job_seed(flow, node) for node in _enqueue_order(nodes, last)]
    return FlowPlan(flow, seeds)


def check_plan_size(plan: FlowPlan) -> None:
    """Refuse a flow whose arguments are too large together."""
    if len(encode(plan)) > FLOW_LIMIT_BYTES:
        raise TooLarge(
            f"a flow's arguments take at most {FLOW_LIMIT_BYTES:,} bytes together; "
            "store the data elsewhere and pass references"
        )


def plan_call(node: StepNode, layout: Layout, caller: Dependent) -> FlowPlan:
    """The job that a durable job calls, as a flow of one job. The name of the flow is that of the call."""
    step = node.step
    producer = step.queue._producer
    node.placed = producer.place(layout, step.task, step.arguments, node.options, is_protected=True)
    node.links.append(caller)
    return FlowPlan(caller.call, [_flow_job_seed("", node)])


def plan_called_flow(
    nodes: Sequence[StepNode],
    last: StepNode,
    layouts: Mapping[str, Layout],
    called: StepNode,
    caller: Dependent,
) -> FlowPlan:
    """The flow that a durable job calls. `called` is the job whose outcome it gets.

    The name of the flow is that of the call. A plan may be made again if the server was unavailable.
    """
    for node in nodes:
        node.links = []
    called.links.append(caller)
    return plan_flow(nodes, last, layouts, caller.call)


def _enqueue_order(nodes: Sequence[StepNode], last: StepNode) -> list[StepNode]:
    """The jobs in the order of enqueueing: a job comes before the jobs that it waits for.

    The last job comes first, because its id decides whether the flow is new. The jobs of a partition come
    together otherwise: one step enqueues them, and each step stores the rest of the plan.
    """
    depth = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for source in (source for sources in node.awaits for source, _ in sources):
            depth[source] = max(depth[source], depth[node] + 1)
    first = last if last.awaits else None

    def order_of(node: StepNode) -> tuple[bool, int, str, int]:
        return node is not first, depth[node], node.step.queue.name, node.job.number

    return sorted(nodes, key=order_of)


def _flow_job_seed(flow: str, node: StepNode) -> FlowJobSeed:
    job = node.job
    body = body_of(job.job.record)
    body.flow, body.tells = flow, node.links
    if node.step.queue.app._codecs.used:
        body.awaits = [b"".join(_digest(source) for source, _ in sources) for sources in node.awaits]
        body.payload = node.step.queue._producer.protect(job.job.id, body)
    flags = (HAS_DEPENDENTS_FLAG if node.links else 0) | (HAS_DEPENDENCIES_FLAG if node.awaits else 0)
    record = with_flow_flags(repack(job.job.record, body), flags)
    awaits = [_dependency(sources[0][0]) for sources in node.awaits]
    return FlowJobSeed(
        node.step.queue.name,
        job.job.id,
        job.affinity,
        job.has_custom_id,
        job.job.when,
        record,
        node.mode,
        awaits,
    )


def _digest(node: StepNode) -> bytes:
    return job_digest(node.step.queue.name, node.step.task, node.job.job.id)


def _dependency(node: StepNode) -> Dependency:
    return Dependency(node.step.queue.name, node.job.job.id, node.step.task, together=node.job.affinity)
