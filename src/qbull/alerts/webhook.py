"""Webhook: post to an allowed address, and nowhere else.

A name is resolved once, and the connection goes to the very address that was checked, so the name cannot
change its meaning in between. Internal addresses, and hosts without TLS, are refused unless they are allowed.
Redirects are not followed. Only the status of the answer is read: the content behind a wrong address must not
end up in a log.

Why no HTTP client: none of the usual ones connects to a checked address and still verifies the certificate of
the name.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from qbull.core.alerts import Alerts
from qbull.core.webhook_addresses import why_address_refused
from qbull.errors import QbullError

WEBHOOK_TIMEOUT_SECONDS = 10.0
MAX_RESPONSE_LINE_BYTES = 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r\n]")


class NotSent(QbullError):
    """The message was not delivered, as far as the sender knows."""


@dataclass(frozen=True)
class HostPolicy:
    """The hosts that may be posted to."""

    alerts: Alerts

    def refuse(self, url: SplitResult, address: str) -> None:
        """Raise NotSent if this address must not be reached for this URL."""
        host = url.hostname or ""
        allowed = host.lower() in self.alerts.allow
        reason = why_address_refused(address, self.alerts.networks, host_allowed=allowed)
        if reason is not None:
            raise NotSent(f"{host} is {address}, which {reason}; name it in QBULL_ALERT_ALLOW to allow it")
        if url.scheme == "http" and not allowed and why_address_refused(address) is None:
            raise NotSent(
                f"{host}: http sends alerts in the clear; use https, or name it in QBULL_ALERT_ALLOW"
            )


async def post_webhook(url: str, body: bytes, headers: Mapping[str, str], alerts: Alerts) -> None:
    """Post JSON. Raises NotSent if the receiver did not accept it."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(WEBHOOK_TIMEOUT_SECONDS):
            status = await _exchange(parts, host, port, body, headers, HostPolicy(alerts))
    except TimeoutError:
        raise NotSent(f"{host}: it did not answer within {WEBHOOK_TIMEOUT_SECONDS:g} s") from None
    except ssl.SSLError as error:
        raise NotSent(f"{host}: {getattr(error, 'verify_message', '') or error.reason}") from None
    except OSError as error:
        raise NotSent(f"{host}: {error.strerror or error}") from None
    if 300 <= status < 400:
        raise NotSent(f"{host} answered {status}; redirects are not followed; give the final address")
    if not 200 <= status < 300:
        raise NotSent(f"{host} answered {status}")


async def _exchange(
    url: SplitResult, host: str, port: int, body: bytes, headers: Mapping[str, str], guard: HostPolicy
) -> int:
    address = await _resolve(url, host, port, guard)
    context = ssl.create_default_context() if url.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        address, port, ssl=context, server_hostname=host if context else None, limit=MAX_RESPONSE_LINE_BYTES
    )
    try:
        writer.write(_request(url, host, body, headers))
        await writer.drain()
        line = await reader.readline()
    except ValueError:  # a line without an end
        line = b""
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1)
    found = _STATUS_LINE.match(line)
    if found is None:
        raise NotSent(f"{host}: its answer is not HTTP")
    return int(found.group(1))


async def _resolve(url: SplitResult, host: str, port: int, guard: HostPolicy) -> str:
    """The address to connect to.

    If one of several is refused, the name is refused: it could resolve to any of them.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        guard.refuse(url, address)
    return addresses[0]


def _request(url: SplitResult, host: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    name = f"[{host}]" if ":" in host else host
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {name}{f':{url.port}' if url.port else ''}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "User-Agent: qbull",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body
