"""Which addresses are public: not those of somebody's own network, and not those that hide one.

It resolves nothing and knows no URLs; `policy` looks at addresses in URLs, `names` at those that names have.
The table is ours because `ipaddress.is_global` differs between patch releases of Python and lets multicast through.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

Address = IPv4Address | IPv6Address


class Range(NamedTuple):
    """Addresses that are not public, and what they are.

    `is_private` ones may be an operator's own machines: a host that the operator trusts may have them. The others have
    no machine behind them that wants requests, or one that hands out the credentials of a cloud.
    """

    network: IPv4Network | IPv6Network
    what: str
    is_private: bool = False


def _range(network: str, what: str, *, is_private: bool = False) -> Range:
    return Range(ip_network(network), what, is_private)


_OF_A_CLOUD = "a cloud's own service"

RANGES: tuple[Range, ...] = (
    _range("168.63.129.16/32", _OF_A_CLOUD),
    _range("100.100.100.200/32", _OF_A_CLOUD),
    _range("fd00:ec2::/32", _OF_A_CLOUD),
    _range("fd20:ce::/32", _OF_A_CLOUD),
    _range("169.254.0.0/16", "link-local"),
    _range("127.0.0.0/8", "loopback", is_private=True),
    _range("10.0.0.0/8", "a private network", is_private=True),
    _range("172.16.0.0/12", "a private network", is_private=True),
    _range("192.168.0.0/16", "a private network", is_private=True),
    _range("100.64.0.0/10", "a provider's shared network", is_private=True),
    _range("198.18.0.0/15", "a network for measurements", is_private=True),
    _range("0.0.0.0/8", "no machine's address"),
    _range("192.0.0.0/24", "reserved for protocols"),
    _range("192.0.2.0/24", "for documentation"),
    _range("198.51.100.0/24", "for documentation"),
    _range("203.0.113.0/24", "for documentation"),
    _range("192.88.99.0/24", "a tunnel's entrance"),
    _range("224.0.0.0/4", "multicast"),
    _range("240.0.0.0/4", "reserved or broadcast"),
    _range("::1/128", "loopback", is_private=True),
    _range("fc00::/7", "a private network", is_private=True),
    _range("fe80::/10", "link-local"),
    _range("fec0::/10", "site-local"),
    _range("ff00::/8", "multicast"),
    _range("2001::/23", "reserved for protocols, Teredo among them"),
    _range("2001:db8::/32", "for documentation"),
    _range("3fff::/20", "for documentation"),
    _range("2002::/16", "a tunnel's (6to4)"),
    # Of what is left only 2000::/3 is given to anybody.
    _range("::/3", "not assigned, or an IPv4 address in disguise"),
    _range("4000::/2", "not assigned"),
    _range("8000::/1", "not assigned"),
)
"""Everything that is not public; the first row that has an address is what it is."""

_EMBEDDING = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4 mapped into IPv6, and NAT64, whose resolvers answer so for every host that has only IPv4: what counts is the
address inside. Older disguises have no host that wants requests, so the table refuses them whole."""


def special(address: Address) -> Range | None:
    """Return the range that makes an address not public, or None if it is public."""
    if isinstance(address, IPv6Address) and any(address in network for network in _EMBEDDING):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    return next((row for row in RANGES if address in row.network), None)


def objection(address: str, *, is_trusted: bool = False) -> str | None:
    """Return what speaks against connecting to an address, or None; a trusted host may be on a private network."""
    try:
        found = special(ip_address(address))
    except ValueError:
        return "no address"
    return None if found is None or (is_trusted and found.is_private) else found.what
