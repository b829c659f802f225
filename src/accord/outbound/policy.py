"""URLs and addresses that outgoing requests may reach: protection against SSRF.

The policy allows https to public hosts, and the hosts that the operator trusts. It resolves no names: `connector`
checks the addresses of a name when it connects, because they may change at any time. The URL parser is also the
connection's, so both interpret a URL alike. The table of addresses is our own because `ipaddress.is_global` differs
between patch releases of Python and allows multicast.
"""

import re
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from accord.outbound.messages import TargetRefused

if TYPE_CHECKING:
    from yarl import URL


Address = IPv4Address | IPv6Address

Resolve = Callable[[str], Awaitable[list[str]]]
"""Returns the addresses of a name, or raises OSError."""

AddressInfo = tuple[Any, ...]
"""Family, type, protocol, name and socket address, as returned by `socket.getaddrinfo`."""


class Range(NamedTuple):
    """A range of addresses that are not public, and its meaning.

    `is_private` addresses may be an operator's own machines, so a trusted host may have them. The others have no
    machine that serves requests, or a service that returns the credentials of a cloud.
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
    # Of the remaining addresses only 2000::/3 is assigned.
    _range("::/3", "not assigned, or an IPv4 address in disguise"),
    _range("4000::/2", "not assigned"),
    _range("8000::/1", "not assigned"),
)
"""All ranges that are not public. The first range that contains an address determines its meaning."""

_EMBEDDING = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv4 mapped into IPv6, and NAT64, whose resolvers return it for every host that has only IPv4. The embedded
address is checked. No public host uses the older embeddings, so the table refuses their whole ranges.
"""


def find_special_range(address: Address) -> Range | None:
    """Return the range that makes an address not public, or None if it is public."""
    if isinstance(address, IPv6Address) and any(address in network for network in _EMBEDDING):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    return next((row for row in RANGES if address in row.network), None)


def check_address(address: str, *, is_trusted: bool = False) -> str | None:
    """Return the reason not to connect to an address, or None. A trusted host may be on a private network."""
    try:
        special_range = find_special_range(ip_address(address))
    except ValueError:
        return "no address"
    return None if special_range is None or (is_trusted and special_range.is_private) else special_range.what


MAX_LENGTH = 2048
"""Maximum length of a URL, in characters."""

FIRST_PORT = 1024
USUAL_PORTS = frozenset({80, 443})
"""Ports below `FIRST_PORT` belong to other protocols. Some of them, such as mail, could obey commands in an HTTP
body.
"""

_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


class Target(NamedTuple):
    """A URL that may be requested. `is_trusted` is true if its host may be on a private network."""

    url: "URL"
    is_trusted: bool


class Policy(Struct, frozen=True, kw_only=True):
    """Targets that are allowed besides https on public addresses.

    Hosts in `allow_hosts` are trusted: they may use plain http, any port and private networks. An entry is a name,
    an address, or `*.name` for all names below it. `allow_private` trusts every host, for development. Link-local
    and similar addresses are refused even so, because they serve no requests.
    """

    allow_private: bool = False
    allow_hosts: frozenset[str] = frozenset()

    def trusts(self, host: str) -> bool:
        """Whether the host of a parsed URL may be on a private network."""
        if self.allow_private:
            return True
        names = {_plain(entry) for entry in self.allow_hosts}
        above = host.split(".")
        return host in names or any(f"*.{'.'.join(above[at:])}" in names for at in range(1, len(above)))

    def target(self, text: str) -> Target:
        """Return the target of a URL, or raise TargetRefused."""
        url = _parse_url(text)
        host = url.raw_host or ""
        is_trusted = self.trusts(host)
        if not is_trusted:
            _check_public(url, host)
        if _is_address(host) and (what := check_address(host, is_trusted=is_trusted)):
            raise TargetRefused(f"{host} is not a public address: {what}")
        return Target(url, is_trusted)


def _parse_url(text: str) -> "URL":
    """Parse a URL, refusing those that parsers interpret differently."""
    from yarl import URL  # imported here: most servers start, and many end, without a webhook

    if len(text) > MAX_LENGTH:
        raise TargetRefused(f"The address has more than {MAX_LENGTH} characters")
    if _ODD.search(text):
        raise TargetRefused("The address has a space, a control character or a backslash in it")
    scheme, _, remainder = text.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise TargetRefused("The address begins neither with https:// nor with http://")
    if "#" in remainder:
        raise TargetRefused("The address has a fragment")
    authority = re.split("[/?]", remainder, maxsplit=1)[0]
    if "@" in authority:
        raise TargetRefused("The address contains a user name; credentials are sent separately")
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
    """Whether a host is an address. Raises TargetRefused for forms that only some systems read as an address.

    To browsers and the C library, a host that ends in a number is an address. They also read 127.1, 0x7f.1 and
    2130706433.
    """
    if ":" not in host and not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is None or "%" in host:  # a zone is valid on one machine only
        raise TargetRefused("The host is a number, but not an address in its usual form")
    return True


def _plain(entry: str) -> str:
    """Return an entry of a host list in the form of a parsed URL's host."""
    host = entry.strip().strip("[]").lower().removesuffix(".")
    return str(ip_address(host)) if ":" in host else host
