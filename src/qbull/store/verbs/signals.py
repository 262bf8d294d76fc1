"""Signals: send one to a durable job, and read those that wait. lua/history_write.lua takes them.

The verbs are lua/signal.lua and lua/signals_read.lua.
"""

from __future__ import annotations

import msgspec

from qbull.core.signals import MAX_SIGNALS, MAX_SIGNALS_BYTES, NewSignal, StoredSignal, read_signals
from qbull.errors import NotConfirmed, ServerAway
from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition


class PendingSignals(msgspec.Struct, frozen=True):
    """The signals of a job that its task has not taken, the newest number, and the server's time."""

    now_ms: int
    last: int = 0
    signals: dict[int, StoredSignal] = msgspec.field(default_factory=dict)


@idempotent
async def send_signal(
    partition: Partition, confirmed: ConfirmedServer | None, token: str, id: str, signal: NewSignal
) -> str:
    """Send a signal: "sent", or the word of lua/signal.lua. The caller makes `token` before the first send.

    Raises ServerAway if it is not confirmed in time as `confirmed` asks.
    """
    server, limit = confirmed or partition.server, partition.settings.lane_limit
    bounds = (MAX_SIGNALS, MAX_SIGNALS_BYTES)
    try:
        answer: bytes = await server.script("signal", partition.base, token, limit, *bounds, id, *signal)
    except NotConfirmed as error:
        raise ServerAway(error.fact) from None
    return answer.decode()


@idempotent
async def read_pending_signals(partition: Partition, id: bytes) -> PendingSignals:
    """The signals of a job that its task has not taken."""
    now_ms, last, *flat = await partition.server.script("signals_read", partition.base, id)
    return PendingSignals(now_ms, last, read_signals(dict(zip(flat[::2], flat[1::2], strict=True))))
