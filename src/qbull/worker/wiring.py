"""Wiring: the services that all queue runners of a worker share."""

from __future__ import annotations

import msgspec

from qbull.core.sharing import Sharing
from qbull.store.store import Store
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.host_tokens import HostTokens
from qbull.worker.isolation import Isolation
from qbull.worker.outage import Outage
from qbull.worker.process.crash_board import CrashBoard
from qbull.worker.shared_call import SharedCall
from qbull.worker.shared_limits import SharedLimits
from qbull.worker.supervisor_link import SupervisorLink


class LoopFence(msgspec.Struct):
    """The deliveries that must not start here: the event loop stood still, and others got them meanwhile."""

    revoked_at: float = 0.0
    """Deliveries that were requested before this time of the monotonic clock and have not started."""


class WorkerWiring(msgspec.Struct, frozen=True):
    """One value for each worker. Its queue runners and their parts take from it what they need."""

    store: Store
    worker: str
    """The id of the worker."""
    sharing: Sharing
    """How workers share the partitions of a queue."""
    min_idle: float
    """Seconds without a heartbeat after which a worker counts as dead."""
    outage: Outage
    isolation: Isolation
    crash_board: CrashBoard | None
    """The memory in which the supervisor sees the running jobs; None without a supervisor."""
    loop_fence: LoopFence
    link: SupervisorLink | None
    """The control channel to the supervisor; None without one."""
    register: SharedCall[None]
    """Writes to the registry which partitions the worker reads: `Worker._register`."""
    members: SharedCall[dict[str, RegisteredWorker]]
    """Reads the live workers from the registry."""
    limits: SharedLimits
    """The limits that queues share."""
    tokens: HostTokens
    """The resources that all workers on the host share."""
