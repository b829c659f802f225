"""Networks of trusted proxies."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from accord.protocol import urls

Network = IPv4Network | IPv6Network

EVERYBODY = ("0.0.0.0/0", "::/0")

_MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4-mapped IPv6 addresses, which dual-stack servers report for IPv4 peers."""


def networks(trusted: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and networks. `*` is every address. Raises ValueError for other text."""
    return tuple(_network(text) for one in trusted for text in (EVERYBODY if one == "*" else (one,)))


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    address = urls.address_of(peer)
    return address is not None and any(address.version == network.version and address in network for network in trusted)


def _network(text: str) -> Network:
    """Parse one network. IPv4-mapped networks become IPv4 networks, like the peers."""
    network = ip_network(text, strict=False)
    if not isinstance(network, IPv6Network) or not network.subnet_of(_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - _MAPPED.prefixlen))
