"""The token in the names of a queue's arguments that are stored elsewhere."""

from __future__ import annotations

import secrets

from qbull.core.argument_names import argument_folder
from qbull.store.retry import StoreVerbs, idempotent


class ArgumentTokens(StoreVerbs):
    """The folders of stored arguments, which belong to the queues of this server."""

    @idempotent
    async def folder(self, queue: str) -> str:
        """The folder of a queue's arguments. The first call decides about it."""
        token: bytes = await self._store.server.script(
            "argument_token", self._store.names.settings(queue), secrets.token_hex(16)
        )
        return argument_folder(queue, token.decode())

    @idempotent
    async def known_folder(self, queue: str) -> str | None:
        """The same; None if no arguments of the queue were ever stored."""
        (token,) = await self._store.server.call("HMGET", self._store.names.settings(queue), "arguments")
        return None if token is None else argument_folder(queue, token.decode())
