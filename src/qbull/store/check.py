"""Is this server fit to keep jobs? Asked once before the first call, and by `qbull doctor`."""

from __future__ import annotations

import re

from qbull.errors import ServerRefused
from qbull.store.connect import Server

LEAST = (7, 0)


async def read_info(server: Server) -> dict[str, str]:
    text = (await server.call("INFO")).decode("utf-8", "replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def refuse_unfit(shown: str, info: dict[str, str]) -> None:
    """Raise where jobs would not work, or would not be kept."""
    version = info.get("redis_version", "0")
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < LEAST:
        raise ServerRefused(
            f"{shown}: Redis {version} is too old; qbull needs Redis 7.0 or Valkey 7.2 and newer"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ServerRefused(
            f'{shown}: its maxmemory-policy is "{policy}", which deletes jobs when memory is short; '
            'run "CONFIG SET maxmemory-policy noeviction" and set it in the server\'s configuration'
        )
