"""URLs and addresses that outgoing requests may reach.

The policy allows https to public hosts, and the hosts that the operator trusts. It resolves no names: `connector`
checks the addresses of a name when it connects, because they may change at any time. The URL parser is the one that
connects, so both read a URL alike. The table of addresses is ours because `ipaddress.is_global` differs between patch
releases of Python and allows multicast.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from yarl import URL


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


def find_special_range(address: Address) -> Range | None:
    """Return the range that makes an address not public, or None if it is public."""
    if isinstance(address, IPv6Address) and any(address in network for network in _EMBEDDING):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    return next((row for row in RANGES if address in row.network), None)


def check_address(address: str, *, is_trusted: bool = False) -> str | None:
    """Return what speaks against connecting to an address, or None; a trusted host may be on a private network."""
    try:
        found = find_special_range(ip_address(address))
    except ValueError:
        return "no address"
    return None if found is None or (is_trusted and found.is_private) else found.what


MAX_LENGTH = 2048
"""Characters in a URL; what is longer is no address."""

FIRST_PORT = 1024
USUAL_PORTS = frozenset({80, 443})
"""Ports below `FIRST_PORT` belong to other protocols, some of which can be made to obey an HTTP body (mail, say)."""

_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


class TargetRefused(Exception):
    """A request that may not be made, and why: asking again is of no use."""


class Target(NamedTuple):
    """A URL that may be asked; `is_trusted` if its host may be on a private network."""

    url: "URL"
    is_trusted: bool


class Policy(Struct, frozen=True, kw_only=True):
    """What may be asked besides https on public addresses.

    `allow_hosts` are trusted: plain http, any port and private networks are fine for them. An entry is a name, an
    address, or `*.name` for every name below one. `allow_private` trusts every host, which is for development.
    Link-local addresses and the like are refused even so: nothing there wants a request.
    """

    allow_private: bool = False
    allow_hosts: frozenset[str] = frozenset()

    def trusts(self, host: str) -> bool:
        """Whether a host, as in a URL that was read, may be on a private network."""
        if self.allow_private:
            return True
        names = {_plain(entry) for entry in self.allow_hosts}
        above = host.split(".")
        return host in names or any(f"*.{'.'.join(above[at:])}" in names for at in range(1, len(above)))

    def target(self, text: str) -> Target:
        """Return what a URL names, or raise Refused."""
        url = _parse_url(text)
        host = url.raw_host or ""
        is_trusted = self.trusts(host)
        if not is_trusted:
            _check_public(url, host)
        if _is_address(host) and (what := check_address(host, is_trusted=is_trusted)):
            raise TargetRefused(f"{host} is not a public address: {what}")
        return Target(url, is_trusted)


def _parse_url(text: str) -> "URL":
    """Read a URL whose parts mean the same to every reader."""
    from yarl import URL  # late: most servers start, and many end, without a webhook

    if len(text) > MAX_LENGTH:
        raise TargetRefused(f"The address has more than {MAX_LENGTH} characters")
    if _ODD.search(text):
        raise TargetRefused("The address has a space, a control character or a backslash in it")
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise TargetRefused("The address begins neither with https:// nor with http://")
    if "#" in rest:
        raise TargetRefused("The address has a fragment")
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise TargetRefused("The address has a user in it; credentials go elsewhere")
    try:
        url = URL(text)
    except ValueError:
        raise TargetRefused("The address cannot be read") from None
    host = (url.raw_host or "").removesuffix(".")
    is_host = (_is_address(host) or _HOST.fullmatch(host)) and ("[" in authority) == (":" in host)
    if not is_host or url.port == 0:
        raise TargetRefused("The address has no host, or one that cannot be")
    return url.with_host(host)


def _check_public(url: "URL", host: str) -> None:
    if url.scheme != "https":
        raise TargetRefused("Only https is allowed")
    if url.port not in USUAL_PORTS and (url.port or 0) < FIRST_PORT:
        raise TargetRefused(f"Port {url.port} is not allowed: 80, 443 and those from {FIRST_PORT} on are")
    if host == "localhost" or host.endswith(".localhost"):
        raise TargetRefused("localhost is not a public address")


def _is_address(host: str) -> bool:
    """Whether a host is an address; what some systems would read as one, and others not, is refused.

    Whatever ends in a number is an address and no name to browsers and to the C library, which also read 127.1, 0x7f.1
    and 2130706433.
    """
    if ":" not in host and not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is None or "%" in host:  # a zone means something on one machine only
        raise TargetRefused("The host is a number, but not an address in its usual form")
    return True


def _plain(entry: str) -> str:
    """Return an entry of a list of hosts as hosts are written in a URL that was read."""
    host = entry.strip().strip("[]").lower().removesuffix(".")
    return str(ip_address(host)) if ":" in host else host
