"""Hand-over: bring a queue to another server. At every moment each of its jobs counts on one of the two.

A partition moves in four steps. A process may die at any point, and another one takes the next step:

1. The partition at the target accepts no jobs (move_arrive).
2. All its names are copied under names of this copy, while the source watches them.
3. One transaction at the source deletes them and names the copy that counts (move_away). It fails if anything
   has changed since the copy started; then another copy is made, and producers have to wait for it
   (move_leave). From here on the target has the jobs.
4. The copy at the target takes its place, and the partition is opened (move_open).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

from qbull.core.durability import Durability
from qbull.errors import Conflict, ServerError
from qbull.store.confirm import ConfirmedServer
from qbull.store.connection.scripts import script
from qbull.store.connection.server import Conversation
from qbull.store.copy_names import NameCopier, names_under
from qbull.store.names import KEY_TYPES
from qbull.store.store import Store
from qbull.store.verbs.closed_partition import LEAVING_MARK, MOVED_MARK
from qbull.store.verbs.live_settings import PAUSED_SETTING, RESET_SETTING, change, is_paused

A = TypeVar("A")

STAYING_NAMES = (b"once:", b"mark", b"courier", b"waiters", b"lease", b"arriving", b"copy-")
"""The starts of names that belong to a server: answers to calls, and locks."""
STAYING_QUEUE_NAMES = (b"once:", b"mark", b"places", b"moving")
FLOW_FIELDS = (b"child:", b"follower:", b"call:")
"""The starts of the fields by which a job is tied to jobs of other queues (lua/lib/flow.lua)."""
MOVER_LOCK = "once:mover"
MOVER_LOCK_MS = 5000
COPY_MARK = "copy-"
"""The start of the name of a copy."""
WATCH_BATCH_COUNT = 1000
MOVE_AUTHOR = "qbull move"


class QueueMove(NamedTuple):
    """A move that was started. `token` names it, `paused` says whether the queue was paused before."""

    token: str
    to: str
    paused: bool
    done: bool


class QueueHandOver:
    """Moves one queue.

    Args:
        source: The server that has the queue.
        target: The server that gets it, with the same prefix.
        queue: The name of the queue.
        address: The address of the target as producers read it.
        durability: How safe the jobs must be at the target before the source deletes them.
    """

    def __init__(
        self, source: Store, target: Store, queue: str, address: str, durability: Durability | None = None
    ) -> None:
        self._source = source
        self._target = target
        self._queue = queue
        self._address = address
        self._confirmed = ConfirmedServer(target.server, durability) if durability is not None else None
        self._moving = source.names.queue(queue) + "moving"

    async def begin(self) -> QueueMove:
        """Start the move, or continue one: pause the queue, and tell the target about it.

        Raises Conflict if the queue moves somewhere else, or if the target has jobs of it.
        """
        server = self._source.server
        paused = "1" if await is_paused(self._source, self._queue) else "0"
        for field, value in (("token", secrets.token_hex(8)), ("to", self._address), ("paused", paused)):
            await server.call("HSETNX", self._moving, field, value)
        move = await self.started()
        assert move is not None
        if move.to != self._address:
            raise Conflict(
                f'queue "{self._queue}": it moves to {move.to} already. Give that address.', state="moving"
            )
        if not move.done:
            await self._close_target(move)
            await change(self._source, self._queue, {PAUSED_SETTING: True}, MOVE_AUTHOR)
            base = self._source.names.queue(self._queue)
            await self._converse(base, partial(self._copy_queue, base))
            await self._target.server.call("SADD", self._target.names.queues, self._queue)
        return move

    async def started(self) -> QueueMove | None:
        """The move of this queue, if there is one."""
        names = ("token", "to", "paused", "done")
        token, to, paused, done = await self._source.server.call("HMGET", self._moving, *names)
        if token is None or to is None:
            return None
        return QueueMove(token.decode(), to.decode(), paused == b"1", done is not None)

    async def _close_target(self, move: QueueMove) -> None:
        """Let the partitions at the target accept nothing else."""
        for base in await self._bases():
            if await self._copy_that_counts(base) is None and not await self._target.server.script(
                "move_arrive", base, move.token
            ):
                await self.give_up(move)
                raise Conflict(
                    f'queue "{self._queue}": the server at {self._address} has jobs or schedules of this '
                    "queue. Let its workers finish them, or remove them.",
                    state="moving",
                )

    async def _copy_queue(self, base: str, source: Conversation, target: Conversation) -> None:
        copier = NameCopier(source, target)
        for name in await names_under(source, base):
            if not name.startswith(STAYING_QUEUE_NAMES):
                await copier.copy(base.encode() + name)

    async def _bases(self) -> list[str]:
        settings = await self._source.settings(self._queue)
        return [partition.base for partition in await self._source.partitions(settings)]

    async def move_partitions(self, move: QueueMove) -> bool:
        """Move all partitions, as far as no worker has a job of them. Returns whether all have moved."""
        all_moved = True
        for base in await self._bases():
            all_moved &= await self._move_partition(base, move)
        return all_moved

    async def _move_partition(self, base: str, move: QueueMove) -> bool:
        while (run := await self._copy_that_counts(base)) is None:
            if not await self._target.server.script("move_arrive", base, move.token):
                raise Conflict(f"{self._address}: somebody has changed {base} meanwhile", state="moving")
            word = await self._converse(base, partial(self._copy_partition, base))
            if word == "busy":
                return False
            if word == "changed":
                await self._source.server.script("move_leave", base, 1)
        await self._open(base, move, run)
        await self._move_schedule_names(base)
        return True

    async def _copy_that_counts(self, base: str) -> str | None:
        """The copy that has replaced a partition of the source; None if the source still has it."""
        mark = await self._source.server.call("HGET", base + "index", "\n")
        if mark is None or not mark.startswith(MOVED_MARK.encode()):
            return None
        return str(mark.decode().removeprefix(MOVED_MARK).partition(" ")[0])

    async def _copy_partition(self, base: str, source: Conversation, target: Conversation) -> str:
        """Copy a partition and delete it at the source. Returns "moved", "busy", or "changed"."""
        run = COPY_MARK + secrets.token_hex(8)
        fixed = [base + name for names in KEY_TYPES.values() for name in names]
        await source.call("WATCH", *fixed)
        mark = await source.call("HGET", base + "index", "\n") or b""
        if mark.startswith(MOVED_MARK.encode()):
            await source.call("UNWATCH")
            return "changed"
        names = [name for name in await names_under(source, base) if not name.startswith(STAYING_NAMES)]
        for start in range(0, len(names), WATCH_BATCH_COUNT):
            some = names[start : start + WATCH_BATCH_COUNT]
            await source.call("WATCH", *(base.encode() + name for name in some))
        copier = NameCopier(source, target)
        for name in names:
            await copier.copy(base.encode() + name, f"{base}{run}:".encode() + name)
        await target.call("SET", f"{base}{run}:was", mark.removeprefix(LEAVING_MARK))
        if self._confirmed is not None:
            await self._confirmed.confirm(base)
        verb = script("move_away", test_clock=source.server.address.test_clock)
        await source.call("MULTI")
        await source.call("EVAL", verb.source, 1, base, f"{MOVED_MARK}{run} {self._address}", *names)
        answer = await source.call("EXEC")
        word = "changed" if answer is None else str(answer[0].decode())
        if word != "moved":
            for name in (*names, b"was"):
                await target.call("UNLINK", f"{base}{run}:".encode() + name)
        return word

    async def _open(self, base: str, move: QueueMove, run: str) -> None:
        """Put the copy in its place, open the partition, and delete other copies."""

        async def copies(target: Conversation) -> list[bytes]:
            return [name for name in await names_under(target, base) if name.startswith(COPY_MARK.encode())]

        start = f"{run}:".encode()
        found = [name for name in await self._on_target(base, copies) if name.startswith(start)]
        names = [name.removeprefix(start) for name in found if name != start + b"was"]
        if not await self._target.server.script("move_open", base, move.token, run, *names):
            raise Conflict(
                f"{self._address}: somebody has added jobs to {base} meanwhile. The jobs that have moved are "
                f"in {base}{run}:*. Remove the others, and run it again.",
                state="moving",
            )
        for name in await self._on_target(base, copies):
            await self._target.server.call("UNLINK", base.encode() + name)

    async def _on_target(self, base: str, talk: Callable[[Conversation], Awaitable[A]]) -> A:
        return await self._target.server.converse(base, talk)

    async def _converse(self, base: str, talk: Callable[[Conversation, Conversation], Awaitable[A]]) -> A:
        """Talk to both servers at once, on connections of their own."""

        async def with_source(source: Conversation) -> A:
            return await self._target.server.converse(base, lambda target: talk(source, target))

        return await self._source.server.converse(base, with_source)

    async def _move_schedule_names(self, base: str) -> None:
        """The schedules of a partition are found by name, at the target from now on."""
        found_by_name = self._source.names.schedules
        for name in await self._target.server.call("ZRANGE", base + "schedules", 0, -1):
            location = await self._source.server.call("HGET", found_by_name, name)
            if location is not None:
                await self._target.server.call("HSET", found_by_name, name, location)
                await self._source.server.call("HDEL", found_by_name, name)

    async def finish(self, move: QueueMove) -> None:
        """All partitions are open at the target. Start jobs there, unless the queue was paused before."""
        if not move.paused:
            await change(self._target, self._queue, {PAUSED_SETTING: RESET_SETTING}, MOVE_AUTHOR)
        await self._source.server.call("HSET", self._moving, "done", "1")

    async def give_up(self, move: QueueMove) -> bool:
        """Let jobs run at the source again. Returns False if a part of the queue has moved already."""
        bases = await self._bases()
        here = [base for base in bases if await self._copy_that_counts(base) is None]
        for base in here:
            await self._source.server.script("move_leave", base, 0)
        if len(here) < len(bases):
            return False
        for base in here:
            await self._target.server.script("move_open", base, move.token, "")
        if not move.paused:
            await change(self._source, self._queue, {PAUSED_SETTING: RESET_SETTING}, MOVE_AUTHOR)
        await self._source.server.call("UNLINK", self._moving)
        return True

    async def has_messages(self) -> bool:
        """Whether messages of flows are on their way to other partitions."""
        lengths = [await self._source.server.call("XLEN", base + "outgoing") for base in await self._bases()]
        return any(lengths)

    async def tied_job(self) -> str | None:
        """A job that waits for others in a flow or a call, or that others wait for; None if there is none."""
        for base in await self._bases():
            cursor = b"0"
            while True:
                cursor, ids = await self._source.server.call("SSCAN", base + "extras", cursor, "COUNT", 1000)
                found = await _tied(self._source, base, ids)
                if found is not None:
                    return found
                if cursor == b"0":
                    break
        return None


async def _tied(store: Store, base: str, ids: Sequence[bytes]) -> str | None:
    places = await store.server.call("HMGET", base + "index", *ids) if ids else []
    for id, place in zip(ids, places, strict=True):
        if place is None or place[:1] in (b"c", b"f", b"x"):
            continue  # It has ended. A job that waits for it is found itself.
        fields = await store.server.call("HKEYS", f"{base}job:".encode() + id)
        if any(field.startswith(FLOW_FIELDS) for field in fields):
            return id.decode("utf-8", "replace")
    return None


@asynccontextmanager
async def only_mover(store: Store) -> AsyncIterator[None]:
    """Let one process move queues of a prefix at a time. Waits for the one that does, or did until now."""
    lock, mine = store.names.app + MOVER_LOCK, secrets.token_hex(8)
    while True:
        if await store.server.call("SET", lock, mine, "NX", "PX", MOVER_LOCK_MS):
            break
        await asyncio.sleep(MOVER_LOCK_MS / 5000)

    async def renew() -> None:
        while True:
            await asyncio.sleep(MOVER_LOCK_MS / 5000)
            with suppress(ServerError):
                if await store.server.call("GET", lock) == mine.encode():
                    await store.server.call("PEXPIRE", lock, MOVER_LOCK_MS)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        if await store.server.call("GET", lock) == mine.encode():
            await store.server.call("UNLINK", lock)


async def copy_limits(source: Store, target: Store) -> None:
    """Copy the shared limits with their live settings, their windows, and what is spent of their budgets."""
    for limit in await source.server.call("SMEMBERS", source.names.limits):
        base = source.names.limit(limit.decode())
        await source.server.converse(base, partial(_copy_limit, target, base))
        await target.server.call("SADD", target.names.limits, limit)


async def _copy_limit(target: Store, base: str, ours: Conversation) -> None:
    async def copy(theirs: Conversation) -> None:
        copier = NameCopier(ours, theirs)
        for name in await names_under(ours, base):
            if name.startswith((b"settings", b"live", b"changes", b"log:", b"spent:")):
                await copier.copy(base.encode() + name)

    await target.server.converse(base, copy)
