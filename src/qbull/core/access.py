"""Access: who may use the REST API, from where, and what it hides. `qbull.asgi` and `qbull serve` take it."""

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
"""The role that an endpoint requires; "open" ones need no token. A role includes those before it."""
ROLES: tuple[Role, ...] = get_args(Role)

_ALLOWED_HOST = re.compile(r"\*|\.?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Access:
    """Who may use the REST API. Authentication is always on; `qbull token create` makes further tokens.

    Args:
        password: the password of the user admin.
        admin_token: a token with the role admin.
        viewer_token: a token with the role viewer.
        hosts: host names under which browsers may use the server, besides localhost and its own.
            ".example.com" stands for all names that end so, "*" for any.
        hide_payloads: hide arguments, results, tracebacks and logs from viewers.
        redact: names of fields that are shown to nobody.
        public_metrics: serve the metrics without a token.
        session_idle: seconds after which an unused session ends.
        session_longest: seconds after which every session ends.
        stale_after: a queue is unhealthy if its oldest runnable job has waited for so many seconds.
    """

    password: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    hide_payloads: bool = False
    redact: tuple[str, ...] = ()
    public_metrics: bool = False
    session_idle: float = 3600.0
    session_longest: float = 12 * 3600.0
    stale_after: float = 300.0

    def __post_init__(self) -> None:
        for name in ("password", "admin_token", "viewer_token"):
            value = getattr(self, name)
            if value is not None and (not value or not value.isprintable() or len(value) > 500):
                raise ConfigError(f"{name}: give 1 to 500 printable characters")
        if self.admin_token is not None and self.admin_token == self.viewer_token:
            raise ConfigError(
                "admin_token and viewer_token are the same, so a viewer could act; use two tokens"
            )
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
