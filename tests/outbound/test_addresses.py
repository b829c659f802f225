"""Which addresses are public, and that no disguise makes one of a private network look so."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.outbound.policy import RANGES, check_address, find_special_range
from tests.cases import each

PRIVATE = ["127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.9",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
]
PRIVATE_6 = ["::1", "fc00::1", "fdff::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::7f00:1"]
NEVER_6 = [
    "::",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:db8::1",
    "3fff::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "100::1",
    "5f00::1",
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]


@each("address", PUBLIC)
def test_public_addresses_may_be_connected_to(address: str) -> None:
    assert check_address(address) is None


@pytest.mark.proves("B-18")
@each("address", PRIVATE + PRIVATE_6)
def test_private_addresses_need_trust(address: str) -> None:
    assert check_address(address)
    assert check_address(address, is_trusted=True) is None


@pytest.mark.proves("B-18")
@each("address", NEVER + NEVER_6)
def test_reserved_addresses_are_refused_even_if_trusted(address: str) -> None:
    assert check_address(address)
    assert check_address(address, is_trusted=True)


@pytest.mark.parametrize("text", ["", "localhost", "0x7f.1", "127.1", "2130706433", "8.8.8.8 ", "08.8.8.8"])
def test_invalid_addresses_are_refused(text: str) -> None:
    assert check_address(text) == "no address"


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.ip_addresses(network="2000::/3"))


@given(addresses)
def test_nothing_is_public_that_the_standard_library_calls_private(address: IPv4Address | IPv6Address) -> None:
    embeds = isinstance(address, IPv6Address) and address in IPv6Network("64:ff9b::/96")
    if find_special_range(address) is None and not embeds:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_embedded_ipv4_addresses_are_checked(address: IPv4Address) -> None:
    for prefix in ("::ffff:", "64:ff9b::"):
        assert find_special_range(ip_address(f"{prefix}{address}")) == find_special_range(address)


def test_the_edges_of_every_range_belong_to_it() -> None:
    for row in RANGES:
        for edge in (row.network[0], row.network[-1]):
            found = find_special_range(edge)
            assert found is not None, edge
            assert isinstance(found.network, IPv4Network | IPv6Network)
