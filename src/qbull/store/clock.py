"""Moved: a server's clock that tests can move forward. Only `qbull.testing` uses it, on a server of its own.

Every script of the process then begins with lua/lib/moved.lua, which adds what is in `qbull:moved` to the time. Names that
the server itself lets expire are made to expire as much sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbull.store.connection import scripts

if TYPE_CHECKING:
    from qbull.store.store import Store

CLOCK_SHIFT_KEY = "qbull:moved"
shift_ms = 0
"""How far the clock of this process's test server is ahead, in whole seconds as milliseconds."""


def enable_clock_shift() -> None:
    """From now on, until `forget()`."""
    global shift_ms
    shift_ms = 0
    scripts.set_prelude("moved")


def reset_clock() -> None:
    """The clock is the server's own again."""
    global shift_ms
    shift_ms = 0
    scripts.set_prelude("")


async def advance_clock(store: Store, by_ms: int) -> None:
    """Let so many milliseconds pass: whole seconds."""
    global shift_ms
    shift_ms += by_ms
    await store.server.call("SET", CLOCK_SHIFT_KEY, shift_ms)
    await _expire_keys(store, by_ms)
    living = await store.server.call("ZRANGE", store.names.workers, 0, -1)
    await store.heartbeat(60, [worker.decode() for worker in living])
    await store.server.call("PUBLISH", store.names.bell, "\n")


async def _expire_keys(store: Store, by_ms: int) -> None:
    """Windows of uniqueness, and holds of queues. A test's server has few names, so all are looked at."""
    cursor = b"0"
    while True:
        cursor, names = await store.server.call(
            "SCAN", cursor, "MATCH", f"{{{store.names.prefix}:*", "COUNT", 1000
        )
        for name in names:
            short = name.rpartition(b"}:")[2]
            if short == b"hold" or short.startswith(b"unique:"):
                left = await store.server.call("PTTL", name)
                await store.server.call("PEXPIRE", name, left - by_ms)  # at once where nothing is left
        if cursor == b"0":
            return
