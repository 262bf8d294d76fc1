"""Access: who may use the REST API, from where, and what is hidden from whom. `qbull.asgi` and `qbull serve` take it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from qbull.errors import ConfigError

TokenRole = Literal["viewer", "admin"]
"""The roles that a token or a session can have, the weakest first."""
TOKEN_ROLES: tuple[TokenRole, ...] = get_args(TokenRole)
Role = Literal["open", TokenRole]
"""The role that an endpoint requires; "open" endpoints need no token. Each role includes the ones before it."""
ROLES: tuple[Role, ...] = get_args(Role)

_ALLOWED_HOST = re.compile(r"\*|\.?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Access:
    """Authentication is always on: without any of the first three, only tokens of `qbull token create` open the door.

    `hosts` are the names under which browsers may use the server, besides localhost and its own; ".example.com" is said of
    all names that end so, "*" of any. Fields called as in `redact` are shown to nobody. Durations are seconds.
    """

    password: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    hide_payloads: bool = False
    """From viewers: arguments, results, tracebacks and logs."""
    redact: tuple[str, ...] = ()
    public_metrics: bool = False
    session_idle: float = 3600.0
    session_longest: float = 12 * 3600.0
    stale_after: float = 300.0
    """A queue is unhealthy whose oldest waiting job has been runnable for so long."""

    def __post_init__(self) -> None:
        for name in ("password", "admin_token", "viewer_token"):
            value = getattr(self, name)
            if value is not None and (not value or not value.isprintable() or len(value) > 500):
                raise ConfigError(f"{name}: give 1 to 500 printable characters")
        if self.admin_token is not None and self.admin_token == self.viewer_token:
            raise ConfigError("admin_token and viewer_token are the same; a viewer could act; use two")
        for host in self.hosts:
            if not _ALLOWED_HOST.fullmatch(host.lower()) and not _is_address(host):
                raise ConfigError(
                    f"host {host!r}: give a name without scheme and port, for example jobs.example.com"
                )
        for name in ("session_idle", "session_longest", "stale_after"):
            if not 1 <= getattr(self, name) <= 366 * 86_400:
                raise ConfigError(f"{name}={getattr(self, name)}: give seconds, from 1 to a year")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
