"""Reach: which addresses a webhook may be sent to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.webhook_addresses import why_address_refused

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
INTERNAL = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "100.64.0.1", "100.127.255.254", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.1"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "fc00::1"),
    *("fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1", "100::1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2001::7f00:1", "2001:0:4136:e378::1"),
]
SECRET = [
    *("169.254.169.254", "169.254.170.2", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),
    *("100.100.100.200", "192.0.0.192", "168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
    "2002:a9fe:a9fe::1",
]
EVERYWHERE = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert why_address_refused(address) is None


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_ones_may_not_unless_they_are_allowed(address: str) -> None:
    assert why_address_refused(address) == "is an internal address"
    assert why_address_refused(address, EVERYWHERE) is None
    assert why_address_refused(address, host_allowed=True) is None


@pytest.mark.parametrize("address", SECRET)
def test_where_clouds_keep_secrets_is_never_allowed(address: str) -> None:
    assert "never allowed" in (why_address_refused(address, EVERYWHERE, host_allowed=True) or "")


@given(st.ip_addresses(v=4))
def test_an_address_in_other_clothes_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    for dressed in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert why_address_refused(dressed) == why_address_refused(str(address))


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "0x7f000001", "2130706433"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert why_address_refused(text) == "is no address"
