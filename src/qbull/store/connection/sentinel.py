"""Sentinel: the server that the sentinels call the master, whichever it is at the moment.

The sentinels are asked for its address before the first connection and after every loss. Each new connection
must confirm that it reached a master, because a sentinel may not have heard of a failover yet. In addition,
we subscribe to one sentinel: an old master that is cut off from the others would go on accepting jobs that
nobody will ever see. While no sentinel answers, the last known master is used.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from typing import NamedTuple

import redis.asyncio.connection as client
import redis.exceptions as foreign

from qbull.errors import ServerAway, ServerError, ServerRefused
from qbull.store.connection.address import Address
from qbull.store.connection.server import (
    CALL_TIMEOUT_SECONDS,
    ErrorReply,
    Server,
    TopologyLookup,
    close_connection,
)

SENTINEL_ASK_TIMEOUT_SECONDS = 1.0
"""Seconds for one sentinel to answer; then another one is asked."""
SENTINEL_REDISCOVERY_PAUSE_SECONDS = 0.1
"""Seconds between two questions, however many calls fail in the meantime."""


class SentinelAnswer(NamedTuple):
    """The answer of a sentinel. The epoch rises with each failover, so the higher of two is newer."""

    epoch: int
    master: Address


class SentinelServer(Server):
    """A master that sentinels watch over, for one event loop."""

    def __init__(self, url: str | Address) -> None:
        super().__init__(url)
        self._sentinels = [Server(seed) for seed in self.address.seeds]
        self._master: Address | None = None
        self._epoch = -1
        self._doubted = True
        self._inquiry = TopologyLookup(self._ask_around, SENTINEL_REDISCOVERY_PAUSE_SECONDS)
        self._watching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        for sentinel in self._sentinels:
            await sentinel.close()
        await super().close()
        self._master, self._epoch = None, -1
        self._inquiry.forget()

    async def replicas(self) -> list[tuple[str, int]]:
        """The addresses of the master's replicas, down ones included, as far as any sentinel knows them."""
        told = await asyncio.gather(*map(self._ask_for_replicas, self._sentinels), return_exceptions=True)
        heard = [places for places in told if isinstance(places, list)]
        if not heard:
            raise ServerAway(f"{self.address.shown}: none of its sentinels can be reached")
        return sorted({place for places in heard for place in places})

    async def _drop(self) -> None:
        self._doubted = True
        await super()._drop()

    async def _connect(self) -> client.AbstractConnection:
        master = await self._find()
        try:
            connection = await self._dial(master)
            await self._confirm(connection, master)
        except ServerAway:
            self._doubted = True
            raise
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return connection

    async def _find(self) -> Address:
        if self._doubted:
            try:
                await self._inquiry()
            except ServerError:
                if self._master is None:
                    raise
        assert self._master is not None
        return self._master

    async def _ask_around(self) -> None:
        newest: SentinelAnswer | None = None
        failures: list[ServerError] = []
        for sentinel in self._in_turn():
            try:
                told = await self._ask(sentinel)
            except ServerError as error:
                failures.append(error)
                continue
            if newest is None or told.epoch > newest.epoch:
                newest = told
            if told.epoch >= self._epoch:
                break  # the others have not heard of the last failover yet
        if newest is not None:
            self._epoch, self._master = newest
            self._doubted = False
        elif refusal := next((failure for failure in failures if isinstance(failure, ServerRefused)), None):
            raise refusal
        else:
            raise ServerAway(
                f"{self.address.shown}: none of its sentinels can be reached; the last: {failures[-1]}"
            )

    async def _ask(self, sentinel: Server) -> SentinelAnswer:
        name = self.address.master
        try:
            async with asyncio.timeout(SENTINEL_ASK_TIMEOUT_SECONDS):
                facts = await sentinel.call("SENTINEL", "MASTER", name)
                # During a failover, this sentinel may report the new master sooner.
                host, port = await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
        except TimeoutError:
            raise ServerAway(
                f"{sentinel.address.shown}: no answer in {SENTINEL_ASK_TIMEOUT_SECONDS:g} s"
            ) from None
        except ErrorReply as error:
            raise ServerRefused(f'{error}; check the master\'s name in the URL, "{name}"') from None
        epoch = int(facts[facts.index(b"config-epoch") + 1])
        return SentinelAnswer(epoch, self.address.at(host.decode(), int(port)))

    async def _ask_for_replicas(self, sentinel: Server) -> list[tuple[str, int]]:
        async with asyncio.timeout(SENTINEL_ASK_TIMEOUT_SECONDS):
            rows = await sentinel.call("SENTINEL", "REPLICAS", self.address.master)
        facts = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        return [(fact[b"ip"].decode(), int(fact[b"port"])) for fact in facts]

    async def _confirm(self, connection: client.AbstractConnection, master: Address) -> None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                await connection.send_command("ROLE")
                role, *_ = await connection.read_response()
            if role != b"master":
                raise ServerAway(f"{master.shown}: it is not the master any more")
        except BaseException as error:
            await close_connection(connection)
            if isinstance(error, foreign.RedisError | OSError):
                raise self._translated(error) from error
            raise

    async def _watch(self) -> None:
        """Wait for news of another master.

        Each subscription starts with a question: the change may have been announced just before.
        """
        while True:
            for sentinel in self._in_turn():
                with suppress(ServerError):
                    async with aclosing(sentinel.listen("+switch-master")) as messages:
                        async for _ in messages:
                            await self._follow(await self._ask(sentinel))
            await asyncio.sleep(1)

    async def _follow(self, told: SentinelAnswer) -> None:
        if self._master is None or told.epoch < self._epoch:
            return
        moved = told.master.endpoint != self._master.endpoint
        self._epoch, self._master = told
        if moved:
            await self._drop()
            await self._stop_listening()
            self._doubted = False

    def _in_turn(self) -> list[Server]:
        """In random order, so that a wrong one is not asked forever."""
        return random.sample(self._sentinels, len(self._sentinels))
