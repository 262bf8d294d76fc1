"""The addresses that webhooks may be sent to.

Pure; the sender checks each address that a name resolves to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from qbull.core.alerts import IpNetwork

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",
        "100.100.100.200/32",
        "192.0.0.192/32",
        "168.63.129.16/32",
    )
)
"""The addresses at which clouds tell a machine its secrets. They are never allowed."""
_NAT64_NETWORK = ipaddress.ip_network("64:ff9b::/96")


def why_address_refused(
    address: str, allowed: Sequence[IpNetwork] = (), *, host_allowed: bool = False
) -> str | None:
    """Why this address is refused; None if it is allowed.

    An address that embeds another is judged by both.
    """
    try:
        meant = _embedded_addresses(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return "is no address"
    if any(_within(one, _METADATA_NETWORKS) for one in meant):
        return "is where a cloud keeps secrets, and is never allowed"
    if host_allowed or any(_within(one, allowed) for one in meant):
        return None
    return "is an internal address" if any(_is_internal(one) for one in meant) else None


def _is_internal(address: IpAddress) -> bool:
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return not address.is_global or address.is_multicast or address.is_reserved or site_local


def _embedded_addresses(address: IpAddress) -> list[IpAddress]:
    """The addresses that another address stands for or embeds."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None or address in _NAT64_NETWORK:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    found: list[IpAddress] = [address, *(address.teredo or ())]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    return found


def _within(address: IpAddress, networks: Sequence[IpNetwork]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
