"""An assignment: a queue that a worker is to serve, and the tasks it can run for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbull.codecs.chain import CodecChain
from qbull.codecs.offload import ResultStore
from qbull.config import QueueSettings
from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.durability import Durability, profile_of
from qbull.core.schedule import Schedule
from qbull.core.task import TaskSpec
from qbull.middleware import MiddlewareChain
from qbull.observe.trace import Tracing
from qbull.worker.lifespan import Lifespans


@dataclass(frozen=True)
class Assignment:
    settings: QueueSettings
    tasks: Mapping[str, TaskSpec]
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
    debug: bool = False
    """A person debugs the tasks: all of them run in this process, and without timeouts."""

    @property
    def confirmed_order(self) -> Durability | None:
        """The durability with which the order of the queue is confirmed; None if it is not."""
        if self.durability is None or not profile_of(self.durability).waits_for_replicas:
            return None
        return self.durability if self.settings.order is not None and self.settings.confirm_order else None
