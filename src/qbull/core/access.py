"""Access: who may use the REST API, from where, and what it hides. `qbull.asgi` and `qbull serve` take it."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, get_args

from qbull.core.single_sign_on import SingleSignOn
from qbull.errors import ConfigError

TokenRole = Literal["viewer", "operator", "admin"]
"""The roles that a token or a session can have, the weakest first."""
TOKEN_ROLES: tuple[TokenRole, ...] = get_args(TokenRole)
Role = Literal["open", TokenRole]
"""The role that an endpoint requires; "open" ones need no token. A role includes those before it."""
ROLES: tuple[Role, ...] = get_args(Role)

MIN_PASSWORD_CHARS = 12
"""A shorter password can be guessed."""
MIN_TOKEN_CHARS = 16
"""The same for configured tokens, whose attempts are not counted."""
MAX_SCOPE_PATTERNS = 50
"""Patterns in the scope of one token."""

_SCOPE_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,100}")
_ALLOWED_HOST = re.compile(r"\*|\.?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9])?")


MAX_ENVIRONMENT_CHARACTERS = 40
"""Length of the name of a deployment."""


@dataclass(frozen=True)
class Access:
    """Who may use the REST API. Authentication is always on; `qbull token create` makes further tokens.

    Args:
        password: the password of the user admin.
        admin_token: a token with the role admin.
        operator_token: a token with the role operator.
        viewer_token: a token with the role viewer.
        hosts: host names under which browsers may use the server, besides localhost and its own.
            ".example.com" stands for all names that end so, "*" for any.
        hide_payloads: hide arguments, results, tracebacks and logs from everybody but admins.
        redact: names of fields that are shown to nobody.
        public_metrics: serve the metrics without a token.
        session_idle: seconds after which an unused session ends.
        session_longest: seconds after which every session ends.
        single_sign_on: an OpenID Connect provider at which people log in to the dashboard.
        stale_after: a queue is unhealthy if its oldest runnable job has waited for so many seconds.
        environment: the name of this deployment, such as "staging", which the dashboard shows in every view.
    """

    password: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    operator_token: str | None = field(default=None, repr=False, kw_only=True)
    hosts: tuple[str, ...] = ()
    hide_payloads: bool = False
    redact: tuple[str, ...] = ()
    public_metrics: bool = False
    session_idle: float = 3600.0
    session_longest: float = 12 * 3600.0
    stale_after: float = 300.0
    single_sign_on: SingleSignOn | None = field(default=None, kw_only=True)
    environment: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name, _ in SECRETS:
            value = getattr(self, name)
            if value is not None and (not value or not value.isprintable() or len(value) > 500):
                raise ConfigError(f"{name}: give 1 to 500 printable characters")
        if len(self.environment) > MAX_ENVIRONMENT_CHARACTERS or not self.environment.isprintable():
            raise ConfigError(f"environment: give up to {MAX_ENVIRONMENT_CHARACTERS} printable characters")
        tokens = [name for name, _ in SECRETS if name.endswith("_token") and getattr(self, name) is not None]
        for one, other in itertools.combinations(tokens, 2):
            if getattr(self, one) == getattr(self, other):
                raise ConfigError(f"{one} and {other} are the same; use a token of its own for each role")
        for host in self.hosts:
            if not _ALLOWED_HOST.fullmatch(host.lower()) and not _is_address(host):
                raise ConfigError(
                    f"host {host!r}: give a name without scheme and port, for example jobs.example.com"
                )
        for name in ("session_idle", "session_longest", "stale_after"):
            if not 1 <= getattr(self, name) <= 366 * 86_400:
                raise ConfigError(f"{name}={getattr(self, name)}: give seconds, from 1 to a year")

    def check_secrets(self) -> None:
        """Refuse secrets that can be guessed. Only the API needs that: workers share its environment.

        Raises:
            ConfigError: A password or a token is too short.
        """
        for name, variable in SECRETS:
            value = getattr(self, name)
            least = MIN_PASSWORD_CHARS if name == "password" else MIN_TOKEN_CHARS
            if value is not None and len(value) < least:
                raise ConfigError(
                    f"{variable} ({name}) has {len(value)} characters and can be guessed. "
                    f"Use {least} or more, best of all random ones."
                )


SECRETS = (
    ("password", "QBULL_PASSWORD or QUEUES_UI_PASS"),
    ("admin_token", "QBULL_ADMIN_TOKEN"),
    ("operator_token", "QBULL_OPERATOR_TOKEN"),
    ("viewer_token", "QBULL_VIEWER_TOKEN"),
)
"""The secrets of Access, each with its variable in the environment."""


def check_scope(patterns: Sequence[str]) -> tuple[str, ...]:
    """The queues of a token: names, or patterns with * and ?. None stands for all queues.

    Raises:
        ConfigError: A pattern cannot be the name of a queue, or there are too many.
    """
    for pattern in patterns:
        if not _SCOPE_PATTERN.fullmatch(pattern):
            raise ConfigError(f"queue {pattern!r}: use the name of a queue, or a pattern such as mail-*")
    if len(patterns) > MAX_SCOPE_PATTERNS:
        raise ConfigError(
            f"{len(patterns)} queues: a token takes at most {MAX_SCOPE_PATTERNS}; use a pattern"
        )
    return tuple(dict.fromkeys(patterns))


def in_scope(queue: str, patterns: tuple[str, ...]) -> bool:
    """Whether a token of this scope may use a queue."""
    return not patterns or any(fnmatchcase(queue, pattern) for pattern in patterns)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
