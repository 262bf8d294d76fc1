"""An assignment: a queue that a worker is to serve, and the tasks it can run for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from qbull.codecs.arguments import ArgumentStore
from qbull.codecs.chain import CodecChain
from qbull.codecs.offload import ResultStore
from qbull.config import QueueSettings
from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.demand import WorkerOffer
from qbull.core.durability import Durability, profile_of
from qbull.core.limits import TaskLimit
from qbull.core.schedule import Schedule
from qbull.core.sharing import Sharing
from qbull.core.task import TaskSpec
from qbull.errors import ConfigError
from qbull.middleware import MiddlewareChain
from qbull.observe.trace import Tracing
from qbull.worker.lifespan import Lifespans

if TYPE_CHECKING:
    from qbull.app import App


@dataclass(frozen=True)
class Assignment:
    settings: QueueSettings
    tasks: Mapping[str, TaskSpec]
    """All tasks that the code has for the queue."""
    schedules: tuple[Schedule, ...] = ()
    """Those that the code declares."""
    results: ResultStore | None = None
    """Where results go that are too large for the server."""
    tracing: Tracing | None = None
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    codecs: CodecChain = field(default_factory=CodecChain)
    durability: Durability | None = None
    """The durability of writes to other partitions."""
    payload_limit: int = PAYLOAD_LIMIT_BYTES
    """The maximum size of a result in bytes."""
    lifespans: Lifespans | None = None
    arguments: ArgumentStore | None = None
    """Has the arguments that were too large for the server."""
    debug: bool = False
    """A person debugs the tasks: all of them run in this process, and without timeouts."""
    offer: WorkerOffer = field(default_factory=WorkerOffer)
    """The labels and resources of the worker."""

    @cached_property
    def runnable(self) -> Mapping[str, TaskSpec]:
        """The tasks whose labels and resources this worker has."""
        if not any(task.demand for task in self.tasks.values()):
            return self.tasks
        return {name: task for name, task in self.tasks.items() if task.demand.is_met_by(self.offer)}

    @property
    def demands(self) -> dict[str, str]:
        """The demands of its tasks, for people."""
        return {name: str(task.demand) for name, task in self.tasks.items() if task.demand}

    @property
    def limits(self) -> list[TaskLimit]:
        """The shared limits that its tasks use."""
        return [limit for task in self.tasks.values() for limit in task.limits]

    @property
    def confirmed_order(self) -> Durability | None:
        """The durability with which the order of the queue is confirmed; None if it is not."""
        if self.durability is None or not profile_of(self.durability).confirms_order:
            return None
        return self.durability if self.settings.order is not None and self.settings.confirm_order else None


def assign_queues(app: App, queues: Sequence[str] | None, concurrency: int | None) -> list[Assignment]:
    """The queues that a worker of this app serves, with their tasks."""
    if isinstance(queues, str):
        raise ConfigError(f'queues="{queues}": give a list of names, for example queues=["{queues}"]')
    served = [app._known(name) for name in queues] if queues else list(app.queues.values())
    if not served:
        raise ConfigError("this app has no queues; declare one with app.queue(…)")
    return [
        Assignment(
            msgspec.structs.replace(queue.settings, concurrency=concurrency or queue.settings.concurrency),
            queue.tasks,
            tuple(schedule for schedule in app.declared.values() if schedule.queue == queue.name),
            app.results,
            app.tracing,
            app.middleware,
            app._codecs,
            app.durability,
            app.payload_limit,
            app.lifespan,
            app.arguments,
            offer=app.environment.offer,
        )
        for queue in served
    ]


def with_offer(assignments: Sequence[Assignment], offer: WorkerOffer | None) -> list[Assignment]:
    """The assignments of a worker with these labels and resources; those of the environment if None."""
    return [each if offer is None else replace(each, offer=offer) for each in assignments]


def check_static_sharing(assignments: Sequence[Assignment], sharing: Sharing) -> None:
    """Refuse a worker that would keep jobs which it cannot run in partitions that only it reads."""
    if sharing.mode == "auto":
        return
    for each in assignments:
        for task in each.tasks.values():
            if task.name not in each.runnable:
                raise ConfigError(
                    f'queue "{each.settings.name}": task "{task.name}" asks for {task.demand}, which this '
                    f'worker lacks, and with sharing="{sharing.mode}" nobody else takes jobs from its '
                    'partitions. Use sharing="auto", or give all its workers the same labels and resources.'
                )
