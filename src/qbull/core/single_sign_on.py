"""Single sign-on: which OpenID Connect provider people log in at, and which role its claims give them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from qbull.errors import ConfigError

if TYPE_CHECKING:
    from qbull.core.access import TokenRole

ANYBODY = "*"
"""In a list of claim values: everybody whom the provider lets log in."""
CALLBACK_PATH = "/api/oidc/callback"
MAX_NAME_CHARS = 200
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class SingleSignOn:
    """Log-in at an OpenID Connect provider. `Access(single_sign_on=…)` takes it; needs `qbull[oidc]`.

    Register `PUBLIC_URL/api/oidc/callback` as the redirect address at the provider.

    Args:
        issuer: the address of the provider, as its discovery document names it.
        client_id: the name that the provider has for this client.
        public_url: where browsers reach this server, for example https://jobs.example.com.
        client_secret: the secret of the client; None for a public client, which PKCE protects.
        role_claim: the claim of the ID token that decides about the role. Dots lead into objects:
            "realm_access.roles".
        admins: values of that claim which give the role admin; "*" stands for everybody.
        operators: the same for the role operator.
        viewers: the same for the role viewer.
        name_claim: the claim that names a person in the audit log. The subject stands in for it.
        scopes: the scopes that are asked for.
        label: the text of the button.
    """

    issuer: str
    client_id: str
    public_url: str
    client_secret: str | None = field(default=None, repr=False)
    role_claim: str = "groups"
    admins: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()
    name_claim: str = "email"
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    label: str = "Single sign-on"

    def __post_init__(self) -> None:
        for name in ("issuer", "public_url"):
            check_web_address(getattr(self, name), name)
        for name in ("client_id", "role_claim", "name_claim", "label"):
            value = getattr(self, name)
            if not value or not value.isprintable() or len(value) > MAX_NAME_CHARS:
                raise ConfigError(f"{name}={value!r}: give 1 to {MAX_NAME_CHARS} printable characters")
        if self.client_secret is not None and not self.client_secret:
            raise ConfigError("client_secret: is empty; use None for a public client")
        if "openid" not in self.scopes:
            raise ConfigError('scopes: "openid" is missing; the provider gives an ID token only with it')
        if not (self.admins or self.operators or self.viewers):
            raise ConfigError(
                "single sign-on gives nobody a role; "
                f'set admins, operators or viewers, for example viewers=("{ANYBODY}",)'
            )

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends people back to."""
        return self.public_url.rstrip("/") + CALLBACK_PATH

    @property
    def host(self) -> str:
        """The host name under which browsers reach this server."""
        return urlsplit(self.public_url).hostname or ""

    @property
    def digest(self) -> str:
        """Changes with every setting: sessions that were opened under others end."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()

    def role_of(self, claims: Mapping[str, Any]) -> TokenRole | None:
        """The strongest role that the claims give; None if they give none."""
        found = _claim(claims, self.role_claim)
        values = {
            str(value) for value in (found if isinstance(found, list) else [found]) if value is not None
        }
        ranked: tuple[tuple[TokenRole, tuple[str, ...]], ...] = (
            ("admin", self.admins),
            ("operator", self.operators),
            ("viewer", self.viewers),
        )
        return next((role for role, wanted in ranked if ANYBODY in wanted or values & set(wanted)), None)

    def name_of(self, claims: Mapping[str, Any]) -> str:
        """The name of a person in the audit log. An address that the provider did not verify is no name.

        Args:
            claims: the claims of the id token.
        """
        named = _claim(claims, self.name_claim)
        if self.name_claim == "email" and claims.get("email_verified") is False:
            named = None
        if not isinstance(named, str) or not named.isprintable() or not 0 < len(named) <= MAX_NAME_CHARS:
            named = "".join(filter(str.isprintable, str(claims["sub"])))[:MAX_NAME_CHARS]
        return named


def check_web_address(text: str, name: str) -> None:
    """Refuse an address without TLS, unless it is on this machine.

    Raises:
        ConfigError: It is no such address.
    """
    parts = urlsplit(text)
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK_HOSTS)
    if not secure or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{name}={text!r}: give an address with https://, without query and user")


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by the path to it: the name of a claim may have dots itself."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
