"""Networks of trusted proxies."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from accord.protocol import urls

Network = IPv4Network | IPv6Network

EVERYBODY = ("0.0.0.0/0", "::/0")

_MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4 in IPv6's form, as which servers that listen for both report peers."""


def networks(trusted: Sequence[str]) -> tuple[Network, ...]:
    """Read addresses and networks; `*` is everybody. Raises ValueError for what is neither."""
    return tuple(_network(text) for one in trusted for text in (EVERYBODY if one == "*" else (one,)))


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    address = urls.address_of(peer)
    return address is not None and any(address.version == network.version and address in network for network in trusted)


def _network(text: str) -> Network:
    """Read one network; of IPv4 in IPv6's form it is that of IPv4, as peers are compared."""
    network = ip_network(text, strict=False)
    if not isinstance(network, IPv6Network) or not network.subnet_of(_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - _MAPPED.prefixlen))
