"""Test clock: a server's clock that tests can move forward. `qbull.testing` uses it, on its own server.

The address of such a server has `?test_clock=1`. Every script that is sent there starts with
lua/lib/moved.lua, which adds the number in `qbull:moved` to the time. Keys that the server itself lets expire
get a shorter life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbull.store.connection.server import Server
    from qbull.store.store import Store

CLOCK_SHIFT_KEY = "qbull:moved"


async def clock_shift_ms(server: Server) -> int:
    """How far tests have moved the clock of this server forward, in whole seconds as milliseconds."""
    if not server.address.test_clock:
        return 0
    return int(await server.call("GET", CLOCK_SHIFT_KEY) or 0)


async def advance_clock(store: Store, by_ms: int) -> None:
    """Move the clock of a test server forward, by whole seconds."""
    await store.server.call("INCRBY", CLOCK_SHIFT_KEY, by_ms)
    await _expire_keys(store, by_ms)
    living = await store.server.call("ZRANGE", store.names.workers, 0, -1)
    await store.heartbeat(60, [worker.decode() for worker in living])
    await store.server.call("PUBLISH", store.names.bell, "\n")


async def _expire_keys(store: Store, by_ms: int) -> None:
    """Shorten unique windows and holds of queues. A test server has few keys, so all of them are read."""
    cursor = b"0"
    while True:
        cursor, names = await store.server.call(
            "SCAN", cursor, "MATCH", f"{{{store.names.prefix}:*", "COUNT", 1000
        )
        for name in names:
            short = name.rpartition(b"}:")[2]
            if short == b"hold" or short.startswith(b"unique:"):
                left = await store.server.call("PTTL", name)
                await store.server.call("PEXPIRE", name, left - by_ms)  # deletes it if nothing is left
        if cursor == b"0":
            return
