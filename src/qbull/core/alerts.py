"""Alert and Alerts: which problems people are told about, and through which destinations.

Value objects; `environment.py` reads them from the environment.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, assert_never
from urllib.parse import urlsplit

from qbull.core.rate import Rate
from qbull.errors import MAX_DELAY_SECONDS, ConfigError

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_ALERT_RATE = Rate(5, per=300)
SLACK_URL_PREFIX = "https://hooks.slack.com/"
_ALERT_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Alert:
    """The problems of a queue that raise an alert, besides jobs that fail permanently.

    Args:
        stale_after: seconds that the oldest runnable job may wait; None for no such alert.
        repeated: how many attempts of one task may fail within five minutes; None for no such alert.
    """

    stale_after: float | None = 300.0
    repeated: int | None = 10

    def __post_init__(self) -> None:
        if self.stale_after is not None and not 1 <= self.stale_after <= MAX_DELAY_SECONDS:
            raise ConfigError(f"Alert(stale_after={self.stale_after!r}): give seconds from 1, or None")
        if self.repeated is not None and (not isinstance(self.repeated, int) or self.repeated < 1):
            raise ConfigError(f"Alert(repeated={self.repeated!r}): give a whole number from 1, or None")


DestinationKind = Literal["slack", "webhook", "other"]


@dataclass(frozen=True)
class Destination:
    """One address that receives alerts.

    The address is a secret; the label is not, and is the same in every process.
    """

    kind: DestinationKind
    url: str = field(repr=False)

    @cached_property
    def label(self) -> str:
        return f"{self.kind}:{self.host}:{hashlib.sha256(self.url.encode()).hexdigest()[:6]}"

    @property
    def host(self) -> str:
        """A part of the address that is no secret."""
        match self.kind:
            case "slack" | "webhook":
                return urlsplit(self.url).hostname or "?"
            case "other":
                return urlsplit(self.url).scheme
            case _:
                assert_never(self.kind)


@dataclass(frozen=True)
class Alerts:
    """Where the alerts of an app are sent, and how often.

    Args:
        slack: the address of an incoming webhook of Slack.
        urls: addresses of webhooks, or addresses in the form of apprise.
        secret: signs the messages to webhooks.
        link: the address of the dashboard, for links in messages.
        allow: internal hosts and networks that messages may be sent to.
        every: seconds in which the same problem is not reported again.
        rate: maximum number of messages in a period.
    """

    slack: str | None = field(default=None, repr=False)
    urls: tuple[str, ...] = field(default=(), repr=False)
    secret: str | None = field(default=None, repr=False)
    link: str | None = None
    allow: tuple[str, ...] = ()
    every: float = 300.0
    rate: Rate = DEFAULT_ALERT_RATE

    def __post_init__(self) -> None:
        object.__setattr__(self, "urls", _list("urls", self.urls))
        object.__setattr__(self, "allow", tuple(host.lower() for host in _list("allow", self.allow)))
        if self.slack is not None:
            _check_web("slack", self.slack)
        for number, url in enumerate(self.urls, 1):
            _check_url(f"urls, the {_nth(number)}", url)
        if self.link is not None:
            _check_web("link", self.link)
        for host in self.allow:
            if _network(host) is None and not _ALERT_HOST.fullmatch(host):
                raise ConfigError(f"Alerts: allow={host!r}: give a host or a network such as 10.1.0.0/16")
        if not 1 <= self.every <= MAX_DELAY_SECONDS:
            raise ConfigError(f"Alerts(every={self.every!r}): give seconds from 1")
        if self.secret is not None and len(self.secret) < 16:
            raise ConfigError("Alerts: secret: give 16 characters or more; a shorter one can be guessed")

    @cached_property
    def destinations(self) -> tuple[Destination, ...]:
        """All destinations."""
        named = [] if self.slack is None else [Destination("slack", self.slack)]
        return (*named, *(_destination(url) for url in self.urls))

    @cached_property
    def networks(self) -> tuple[IpNetwork, ...]:
        """The internal networks that webhooks may be sent to."""
        return tuple(found for host in self.allow if (found := _network(host)) is not None)


def _list(name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ConfigError(f'Alerts: {name}: give a list, for example {name}=["…"]')
    return tuple(given)


def _destination(url: str) -> Destination:
    scheme, _, rest = url.partition("://")
    if scheme in ("slack+https", "slack+http"):
        return Destination("slack", f"{scheme.removeprefix('slack+')}://{rest}")
    if scheme in ("https", "http"):
        return Destination("slack" if url.startswith(SLACK_URL_PREFIX) else "webhook", url)
    return Destination("other", url)


def _check_url(name: str, url: str) -> None:
    scheme, there, rest = url.partition("://")
    if scheme.removeprefix("slack+") in ("http", "https"):
        _check_web(name, url.removeprefix("slack+"))
    elif not there or not rest or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ConfigError(f"Alerts: {name}: give an address such as https://HOST/PATH or mailto://…")


def _check_web(name: str, url: str) -> None:
    """The address itself is not shown: it is a secret."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"Alerts: {name}: give an address such as https://HOST/PATH")
    if parts.username is not None:
        raise ConfigError(f"Alerts: {name}: leave user and password out of the address; sign with a secret")


def _network(text: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        return None


def _nth(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
