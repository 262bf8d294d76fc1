"""Declare: the schedules that the code of a queue's workers declares, and the version that decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qbull.store.retry import StoreVerbs, idempotent


class ScheduleDeclarations(StoreVerbs):
    """The schedules that the code of a queue's workers declares."""

    @idempotent
    async def newest(self, queue: str, versions: Sequence[str]) -> str:
        """The one of these versions that decides: the newest."""
        newest: bytes = await self._store.server.script("declare", self._store.names.queue(queue), *versions)
        return newest.decode()

    @idempotent
    async def names(self, queue: str) -> set[str]:
        """The schedules that the code has declared so far."""
        found = await self._store.server.call("HGET", self._store.names.settings(queue), "schedules")
        try:
            return set(msgspec.json.decode(found or b"[]", type=list[str]))
        except msgspec.MsgspecError:
            return set()

    @idempotent
    async def remember(self, queue: str, names: set[str]) -> None:
        packed = msgspec.json.encode(sorted(names))
        await self._store.server.script("register", self._store.names.settings(queue), "schedules", packed)
