"""Move queues to another server, with everything that is in them, while producers and workers run.

docs/operate/move.md has the steps for people, store/verbs/hand_over.py those for one queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from qbull.core.ids import new_token
from qbull.errors import Conflict, NotFound, ServerAway
from qbull.manage.live_settings import PAUSE_NOTICE_SECONDS
from qbull.store.connection.address import Address
from qbull.store.read.inspect import Counts
from qbull.store.store import Store
from qbull.store.verbs.alerts import ALERT_QUEUE
from qbull.store.verbs.hand_over import QueueHandOver, QueueMove, copy_limits, only_mover

if TYPE_CHECKING:
    from qbull.app import App

A = TypeVar("A")

SAME_SERVER_PROBE_MS = 60_000
MOVE_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class MovableQueue:
    """A queue that can move, or that has moved.

    Args:
        queue: The name of the queue.
        jobs: The number of its jobs at the source, finished ones included.
        running: How many of them run now.
        done: Whether it has moved already.
    """

    queue: str
    jobs: int
    running: int
    done: bool


class ServerMove:
    """Moves queues from the server of one app to that of another.

    Args:
        source: The app that has the jobs.
        target: An app at the other server, with the same prefix.
        queues: The names of the queues; all queues of the prefix if empty.
    """

    def __init__(self, source: App, target: App, queues: Sequence[str] = ()) -> None:
        self._source_app = source
        self._source: Store = source._client().store
        self._target: Store = target._client().store
        self._chosen = list(dict.fromkeys(queues))
        self._address = Address.parse(target.url).shown
        self._durability = target.durability

    async def check(self) -> list[MovableQueue]:
        """The queues that can move. Raises Conflict or NotFound if they cannot, and says why."""
        await self._source.open()
        await self._target.open()
        await self._refuse_same_server()
        names = await self._names()
        await self._refuse_workers(names)
        found = []
        for name in names:
            started = await self._hand_over(name).started()
            if started is not None and not started.done and started.to != self._address:
                raise Conflict(
                    f'queue "{name}": it moves to {started.to} already. Give that address.', state="moving"
                )
            counts = await self._counts(name)
            found.append(MovableQueue(name, counts.total, counts.active, bool(started and started.done)))
        if self._chosen:
            await self._refuse_tied_jobs(names)
        return found

    async def run(self, wait: float, on_step: Callable[[str], object]) -> list[str]:
        """Move the queues. Returns those that stay, because jobs still run after `wait` seconds.

        If nothing has moved by then, the queues go on at the source.

        Args:
            wait: Seconds that running jobs have to end.
            on_step: Called with a line about each step.
        """
        await self._source.open()
        async with only_mover(self._source):
            return await self._run(wait, on_step)

    async def _run(self, wait: float, on_step: Callable[[str], object]) -> list[str]:
        names = [one.queue for one in await self.check() if not one.done]
        moves = await self._begin(names, wait)
        on_step(f"paused {_listed(names)}; waiting for running jobs")
        busy = await self._until_idle(names, wait)
        if busy:
            await self._give_up(moves)
            return names
        left = [name for name in names if not await self._move(name, moves[name], wait, on_step)]
        if not self._chosen and not left:
            await _when_up(partial(copy_limits, self._source, self._target), wait)
        return left

    async def _begin(self, names: Sequence[str], wait: float) -> dict[str, QueueMove]:
        """Pause the queues. If one of them cannot move, none does."""
        moves: dict[str, QueueMove] = {}
        try:
            for name in names:
                moves[name] = await _when_up(self._hand_over(name).begin, wait)
        except Conflict:
            await self._give_up(moves)
            raise
        return moves

    async def _give_up(self, moves: Mapping[str, QueueMove]) -> None:
        for name, move in moves.items():
            await self._hand_over(name).give_up(move)

    async def _move(self, name: str, move: QueueMove, wait: float, on_step: Callable[[str], object]) -> bool:
        hand_over = self._hand_over(name)
        until = asyncio.get_running_loop().time() + wait
        while not await _when_up(partial(hand_over.move_partitions, move), wait):
            if asyncio.get_running_loop().time() > until:
                await hand_over.give_up(move)
                return False
            await asyncio.sleep(MOVE_POLL_SECONDS)
        await _when_up(partial(hand_over.finish, move), wait)
        on_step(f'queue "{name}" is at {self._address}')
        return True

    async def _until_idle(self, names: Sequence[str], wait: float) -> list[str]:
        """Wait until no job runs and no message of a flow is on its way. Returns the queues that are busy.

        Workers learn of a pause within PAUSE_NOTICE_SECONDS, so that they may start a job until then.
        """
        loop = asyncio.get_running_loop()
        paused_at = loop.time()
        while True:
            busy = [
                name
                for name in names
                if (await self._counts(name)).active
                or await _when_up(self._hand_over(name).has_messages, wait)
            ]
            passed = loop.time() - paused_at
            if not busy and passed >= PAUSE_NOTICE_SECONDS:
                return []
            if busy and passed >= max(wait, PAUSE_NOTICE_SECONDS):
                return busy
            await asyncio.sleep(MOVE_POLL_SECONDS)

    def _hand_over(self, name: str) -> QueueHandOver:
        return QueueHandOver(self._source, self._target, name, self._address, self._durability)

    async def _counts(self, name: str) -> Counts:
        return await (await self._source_app._find_queue(name)).stats()

    async def _names(self) -> list[str]:
        known = [name for name in await self._source.queues() if name != ALERT_QUEUE.name]
        for name in self._chosen:
            if name not in known:
                raise NotFound(f'queue "{name}": not on this server; it has: {_listed(known) or "none yet"}')
        return self._chosen or known

    async def _refuse_same_server(self) -> None:
        probe = f"{self._source.names.app}once:{new_token()}"
        await self._source.server.call("SET", probe, "1", "PX", SAME_SERVER_PROBE_MS)
        if await self._target.server.call("EXISTS", probe):
            raise Conflict(f"{self._address} is the server that has the queues. Give another address.")

    async def _refuse_workers(self, names: Sequence[str]) -> None:
        for id, worker in (await self._target.workers()).items():
            served = sorted(set(worker.queues) & set(names))
            if served:
                raise Conflict(
                    f"worker {id} serves {_listed(served)} at {self._address} already. "
                    "Stop it, and start it when the queues have moved."
                )

    async def _refuse_tied_jobs(self, names: Sequence[str]) -> None:
        """Flows and calls cross queues. Only together can they move."""
        others = [name for name in await self._source.queues() if name != ALERT_QUEUE.name]
        if set(names) >= set(others):
            return
        for name in others:
            id = await self._hand_over(name).tied_job()
            if id is not None:
                raise Conflict(
                    f'queue "{name}": job {id} belongs to a flow or has called another job, which may be in '
                    "another queue. Move all queues together, without --queue, or wait until it has ended."
                )


async def _when_up(step: Callable[[], Awaitable[A]], wait: float) -> A:
    """Take a step of the move. It is taken again for `wait` seconds while a server is unavailable.

    In a cluster that is a failover, or a slot that moves to another node. Every step can be repeated.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    while True:
        try:
            return await step()
        except ServerAway:
            if loop.time() > until:
                raise
        await asyncio.sleep(MOVE_POLL_SECONDS)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
