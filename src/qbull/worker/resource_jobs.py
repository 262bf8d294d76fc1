"""Resource jobs: jobs of one queue whose tasks hold tokens of the host while they run.

A job takes its tokens right before it runs. If they are not free, the job is parked: it leaves its slot, and
any worker with free tokens takes it (unpark.py). All jobs of one chunk share the tokens of one lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from qbull.core.task import TaskSpec
from qbull.store.delivery import DeliveredJob, Delivery
from qbull.worker.actor import BackgroundTasks
from qbull.worker.assignment import Assignment
from qbull.worker.chunk import ChunkCaller
from qbull.worker.current import RunningJob
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.host_tokens import HeldTokens, HostTokens
from qbull.worker.prefetch import delivery_key
from qbull.worker.wiring import WorkerWiring

TOKEN_POLL_SECONDS = 0.05
"""Seconds between two looks whether tokens are free that other processes of the host hold."""


class ResourcesBusy(Exception):
    """The tokens of a job are not free on this host."""


class TokenLease:
    """Tokens for one run, or for the jobs of one chunk."""

    def __init__(self, task: TaskTokens, held: HeldTokens, room: int) -> None:
        self.task = task
        self.held = held
        self.room = room
        """How many more jobs may share it."""
        self.jobs = 0
        self.is_called = False
        """A call of a chunk uses its tokens."""

    def leave(self) -> None:
        """A job of it has ended, or does not start."""
        self.jobs -= 1
        self.task.settle()


class TaskTokens:
    """The leases of one task in this process."""

    def __init__(self, tokens: HostTokens, task: TaskSpec) -> None:
        self._tokens = tokens
        self._wanted = dict(task.demand.resources)
        self._most = task.function.most if isinstance(task.function, ChunkCaller) else 1
        self._leases: list[TokenLease] = []
        self._changed = asyncio.Event()

    def join(self) -> TokenLease | None:
        """A lease for one job; None if the tokens are not free."""
        lease = next((lease for lease in self._leases if lease.room), None)
        if lease is None:
            held = self._tokens.acquire(self._wanted)
            if held is None:
                return None
            lease = TokenLease(self, held, self._most)
            self._leases.append(lease)
        lease.room -= 1
        lease.jobs += 1
        return lease

    def can_join(self) -> bool:
        """Whether a job could have had a lease a moment ago."""
        return any(lease.room for lease in self._leases) or self._tokens.are_free(self._wanted)

    def settle(self) -> None:
        """Release the tokens that nothing uses."""
        unused = [lease for lease in self._leases if not lease.jobs and not lease.is_called]
        for lease in unused:
            self._leases.remove(lease)
            lease.held.release()
        self._changed.set()

    @asynccontextmanager
    async def call(self, jobs: Iterable[RunningJob]) -> AsyncIterator[None]:
        """One call for the jobs of a chunk: it has the tokens of one lease for itself."""
        while (lease := next((lease for lease in self._leases if not lease.is_called), None)) is None:
            self._changed.clear()
            await self._changed.wait()
        lease.is_called = True
        for job in jobs:
            job.resources = lease.held.numbers
        try:
            yield
        finally:
            lease.is_called = False
            self.settle()


class ResourceJobs:
    """For one queue: takes the tokens of its jobs, and knows which tasks wait for tokens."""

    def __init__(self, wiring: WorkerWiring, assignment: Assignment, deliveries: HeldDeliveries) -> None:
        self._tasks = {
            name: TaskTokens(wiring.tokens, task)
            for name, task in assignment.runnable.items()
            if task.demand.resources
        }
        self._buffer = deliveries.buffer
        # The ordinary processes would hand a job that the quarantine process parks over to it again.
        self._may_park = wiring.link is None or wiring.link.quarantine is None
        self.waiting: set[str] = set()
        """The tasks that have parked jobs, as far as this worker knows. New jobs wait behind them."""
        self._reserved: dict[tuple[int, bytes], TokenLease] = {}
        self._background = BackgroundTasks()

    def uses(self, task: str) -> bool:
        """Whether the jobs of this task hold tokens."""
        return task in self._tasks

    async def take(self, delivered: DeliveredJob, job: RunningJob, task: TaskSpec) -> TokenLease:
        """Take the tokens of a job. Raises ResourcesBusy if it has to wait."""
        lease = self._reserved.pop(delivery_key(delivered.delivery), None)
        while lease is None:
            if task.name not in self.waiting or not self._may_park:
                lease = self._tasks[task.name].join()
            if lease is None:
                if self._may_park:
                    self.waiting.add(task.name)
                    raise ResourcesBusy
                await asyncio.sleep(TOKEN_POLL_SECONDS)
        job.lease, job.resources = lease, lease.held.numbers
        return lease

    def end(self, job: RunningJob) -> None:
        """Release the tokens of a job: now, or when a function that outlived its timeout is over."""
        if job.in_thread:
            self._background.start(self._end_later(job))
        elif job.lease is not None:
            job.lease.leave()
            job.lease = None

    async def _end_later(self, job: RunningJob) -> None:
        await asyncio.sleep(TOKEN_POLL_SECONDS)
        self.end(job)

    def can_start(self, task: str) -> bool:
        """Whether a job of this task could have had its tokens a moment ago."""
        return self._tasks[task].can_join()

    def reserve(self, task: str, count: int) -> list[TokenLease]:
        """Take the tokens for up to `count` parked jobs, before the jobs themselves."""
        leases: list[TokenLease] = []
        while len(leases) < count and (lease := self._tasks[task].join()) is not None:
            leases.append(lease)
        return leases

    def attach(self, taken: Iterable[Delivery], leases: list[TokenLease]) -> None:
        """These parked jobs were taken with these tokens. Releases the tokens that are left."""
        for delivery in taken:
            self._reserved[delivery_key(delivery)] = leases.pop()
        while leases:
            leases.pop().leave()

    @property
    def has_reserved(self) -> bool:
        """Whether jobs that have not started hold tokens."""
        return bool(self._reserved)

    def drop_lost(self) -> None:
        """Release the tokens of deliveries that have left this worker without a run."""
        for key in [key for key in self._reserved if not self._buffer.holds(key)]:
            self._reserved.pop(key).leave()

    def close(self) -> None:
        """Release the tokens of jobs that have not started. A function that still runs keeps its own."""
        for key in list(self._reserved):
            self._reserved.pop(key).leave()
