"""Guard: checks on every request before it is handled, and headers on every answer.

A host name that an attacker's page points at this machine is refused (DNS rebinding), and so are requests
from another site's page (cross-site requests). Both matter only if a browser adds the credentials by itself,
which it does not do with bearer tokens.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

from qbull.api.auth import Caller
from qbull.api.headers import header
from qbull.api.problems import ApiProblem

log = logging.getLogger("qbull.api")

SECURITY_HEADERS: list[tuple[bytes, bytes]] = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
HSTS_HEADER = (b"strict-transport-security", b"max-age=31536000")
_SECURITY_HEADER_NAMES = {name for name, _ in SECURITY_HEADERS}


class AllowedHosts:
    """The host names that browsers may use. IP addresses are always allowed: nobody can repoint them."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._any = "*" in allowed
        names = {"localhost", socket.gethostname().lower(), *(host.lower() for host in allowed)}
        self._exact = {name for name in names if not name.startswith(".")}
        self._endings = tuple(name for name in names if name.startswith("."))

    def check(self, request: Request) -> None:
        host = name_in(request.headers.get("host", ""))
        if self._any or host in self._exact or _is_address(host):
            return
        if self._endings and host.endswith(self._endings):
            return
        raise ApiProblem(
            421,
            (f'host "{host[:100]}" is not one of this server\'s; add it to QBULL_ALLOWED_HOSTS to allow it'),
        )


class UndeclaredProxies:
    """Logs once that a proxy forwards requests which this server does not trust.

    Then all clients behind it count as one address: for the limits of log-ins and of connections, and in the
    audit log. If the proxy is trusted, the client's address is one of those that it forwards.
    """

    def __init__(self) -> None:
        self._is_logged = False

    def check(self, request: Request) -> None:
        if self._is_logged:
            return
        forwarded = header(request, b"x-forwarded-for")
        if forwarded is None:
            return
        address = request.client.host if request.client is not None else ""
        if address in (part.strip() for part in forwarded.split(",")):
            return
        self._is_logged = True
        log.warning(
            "a proxy at %s forwards requests (X-Forwarded-For) and is not declared, so all its clients count "
            'as one address. Name it with "qbull serve --proxies %s", or stop it from sending the header.',
            address or "a socket",
            address or "ADDRESSES",
        )


def check_same_origin(request: Request, caller: Caller) -> None:
    """Refuse a request that another site's page could have sent. Tools send neither of the headers."""
    context = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if context is not None:
        right = context == "same-origin"
    elif origin is not None:
        right = urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    else:
        right = caller.how != "session"
    if not right:
        raise ApiProblem(
            403,
            "this was not sent by this server's own page; programs send Authorization: Bearer TOKEN instead",
        )


def guarded(headers: list[tuple[bytes, bytes]], *, tls: bool) -> list[tuple[bytes, bytes]]:
    """The headers of an answer plus the common ones; its own headers win."""
    said = {name for name, _ in headers} & _SECURITY_HEADER_NAMES
    always = [pair for pair in SECURITY_HEADERS if pair[0] not in said] if said else SECURITY_HEADERS
    return [*headers, *always, HSTS_HEADER] if tls else [*headers, *always]


def name_in(host: str) -> str:
    """The host without its port, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0][1:].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
