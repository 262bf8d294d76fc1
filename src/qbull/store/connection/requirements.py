"""Is this server fit to keep jobs? Asked once before the first call, and by `qbull doctor`."""

from __future__ import annotations

import re
from typing import Any, Protocol

from qbull.errors import ServerRefused
from qbull.store.connection.server import CommandArgument

MIN_SERVER_VERSION = (7, 0)


class SupportsCall(Protocol):
    """A server, or one connection to it."""

    async def call(self, *command: CommandArgument) -> Any: ...


async def server_settings(server: SupportsCall, *names: str) -> dict[str, str]:
    """Nothing where the server does not tell: hosted ones often refuse, and a user may not have the right."""
    try:
        found = [await server.call("CONFIG", "GET", name) for name in names]
    except ServerRefused:
        return {}
    return {reply[0].decode(): reply[1].decode() for reply in found if reply}


async def read_info(server: SupportsCall, *sections: str) -> dict[str, str]:
    """What the server reports about itself: in these sections, or in the usual ones."""
    text = (await server.call("INFO", *sections)).decode("utf-8", "replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def is_loading(info: dict[str, str]) -> bool:
    """Whether the server still reads its dataset from disk.

    Until then it reports that it has no append-only file.
    """
    return info.get("loading") == "1"


def refuse_unfit_server(shown: str, info: dict[str, str]) -> None:
    """Raise where jobs would not work, or would not be kept."""
    version = info.get("redis_version", "0")
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < MIN_SERVER_VERSION:
        raise ServerRefused(
            f"{shown}: Redis {version} is too old; qbull needs Redis 7.0 or Valkey 7.2 and newer"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ServerRefused(
            f'{shown}: its maxmemory-policy is "{policy}", which deletes jobs when memory is short; '
            'run "CONFIG SET maxmemory-policy noeviction" and set it in the server\'s configuration'
        )
