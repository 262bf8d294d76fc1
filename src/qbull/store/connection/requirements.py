"""Requirements: whether a server can keep jobs. Checked before the first call, and by `qbull doctor`."""

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
    """Settings of the server; empty if it does not tell: a hosted one may refuse, or a right is missing."""
    try:
        found = [await server.call("CONFIG", "GET", name) for name in names]
    except ServerRefused:
        return {}
    return {reply[0].decode(): reply[1].decode() for reply in found if reply}


async def read_info(server: SupportsCall, *sections: str) -> dict[str, str]:
    """The server's INFO: these sections, or the usual ones."""
    text = (await server.call("INFO", *sections)).decode("utf-8", "replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def version_in(text: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    numbers = [int(n) for n in re.findall(r"[0-9]{1,4}", text)[:2]]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor


def is_loading(info: dict[str, str]) -> bool:
    """Whether the server still reads its dataset from disk.

    Until then it reports that it has no append-only file.
    """
    return info.get("loading") == "1"


def refuse_unfit_server(shown: str, info: dict[str, str]) -> None:
    """Raise if jobs would not work on this server, or would not be kept."""
    version = info.get("redis_version", "0")
    if version_in(version) < MIN_SERVER_VERSION:
        raise ServerRefused(
            f"{shown}: Redis {version} is too old; qbull needs Redis 7.0 or Valkey 7.2 and newer"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ServerRefused(
            f'{shown}: its maxmemory-policy is "{policy}", which deletes jobs when memory is short; '
            'run "CONFIG SET maxmemory-policy noeviction" and set it in the server\'s configuration'
        )
