"""Retrying: a verb that may be sent twice is sent again while the server is unavailable.

Whether that is safe is a property of the verb, and the verb declares it: `@idempotent` verbs are retried by
the store's own call, so that callers simply await them. Verbs without it are sent once. A caller that must
not wait, such as a health probe or a worker that waits for the server in its own way, uses the
`without_retry` view of a store or partition.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial, wraps
from math import inf
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from qbull.core.backoff import ExponentialBackoff, jittered
from qbull.errors import EmbeddedError, ServerAway
from qbull.store.connection.requirements import read_info, refuse_unfit_server

if TYPE_CHECKING:
    from qbull.store.store import Store

SERVER_RETRY_SECONDS = 10.0
"""How long a verb is sent again while the server is unavailable."""
FIRST_CONNECT_RETRY_SECONDS = 1.0
"""How long before the server was first reached: then the address is probably wrong."""
SERVER_CHECK_TTL_SECONDS = 30.0
"""How long a check of the server's settings is valid."""
SERVER_BACKOFF = ExponentialBackoff(first_seconds=0.01, max_seconds=1.0)

A = TypeVar("A")
P = ParamSpec("P")


class Retrier:
    """Opens a server and repeats calls to it. A store has one, which its partitions share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checked = False
        # The loop's time until which the last check is valid.
        self._valid_until = -inf
        self._checking = asyncio.Lock()

    async def open(self) -> None:
        """Reach the server, and refuse it if it would not keep jobs. Its settings may change at run time."""
        clock = asyncio.get_running_loop().time
        if clock() < self._valid_until:
            return
        async with self._checking:
            if (asked_at := clock()) >= self._valid_until:
                for primary in await self._store.server.primaries():
                    try:
                        refuse_unfit_server(primary.address.shown, await read_info(primary))
                    except ServerAway:
                        self._store.server.invalidate(primary)
                        raise
                self._checked, self._valid_until = True, asked_at + SERVER_CHECK_TTL_SECONDS

    def forget(self) -> None:
        """Check the server again before the next call."""
        self._checked, self._valid_until = False, -inf

    async def run(self, call: Callable[[], Awaitable[A]]) -> A:
        """Open the server and make the call; do both again while the server is unavailable."""
        clock = asyncio.get_running_loop().time
        started = clock()
        delays: Iterator[float] | None = None
        while True:
            try:
                # The enqueue path asks with each call: spare it a coroutine.
                if delays is not None or started >= self._valid_until:
                    await self.open()
                return await call()
            except (ServerAway, EmbeddedError):
                delays = delays or SERVER_BACKOFF.delays()
                delay = next(delays)
                patience = SERVER_RETRY_SECONDS if self._checked else FIRST_CONNECT_RETRY_SECONDS
                if clock() + delay - started > patience:
                    raise
            await asyncio.sleep(jittered(delay))


class Retriable:
    """An object whose verbs are retried: a store, a partition, or a group of verbs of a store."""

    retrier: Retrier | None = None

    @property
    def without_retry(self) -> Self:
        """This object for a caller that must not wait: its verbs are sent once."""
        if self.retrier is None:
            return self
        view = copy.copy(self)
        view.retrier = None
        return view


T = TypeVar("T", bound=Retriable | Sequence[Retriable])


def idempotent(
    verb: Callable[Concatenate[T, P], Coroutine[Any, Any, A]],
) -> Callable[Concatenate[T, P], Coroutine[Any, Any, A]]:
    """Declare that a verb may be sent twice. It is retried while the server is unavailable.

    The first parameter of the verb is the store, partition or sequence of partitions that it works on. The
    verb gets the view of it without retry: a verb made of others is repeated as a whole, within one limit of
    time.
    """

    @wraps(verb)
    async def retried(target: T, /, *args: P.args, **kwargs: P.kwargs) -> A:
        direct: Any
        if isinstance(target, Retriable):
            retrier, direct = target.retrier, target.without_retry
        else:
            retrier = target[0].retrier if target else None
            direct = [one.without_retry for one in target]
        if retrier is None:
            return await verb(target, *args, **kwargs)
        return await retrier.run(partial(verb, direct, *args, **kwargs))

    return retried


class StoreVerbs(Retriable):
    """A group of verbs of one store, retried as the store says."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.retrier = store.retrier

    @property
    def without_retry(self) -> Self:
        view = super().without_retry
        view._store = self._store.without_retry
        return view
