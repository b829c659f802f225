"""Hosts in URLs, slugs (agent names as a part of a URL), and networks of addresses.

Hosts are read from text alone, in all their forms, and never resolved. The slug of a name never changes. A name in
Latin letters becomes its words, a name in another script is written in punycode (RFC 3492).
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from unicodedata import category, name, normalize
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address

LOCALHOST = "localhost"

_NUMBER = re.compile(r"0x0*(?P<hex>[0-9a-f]{0,8})|0+(?P<octal>[0-7]{0,11})|(?P<decimal>[1-9][0-9]{0,9})")
_BASES = {"hex": 16, "octal": 8, "decimal": 10}
_BYTES = 4
"""Bytes of an IPv4 address, and the maximum count of its numbers."""


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL, or of `host:port` without a scheme; an invalid URL has neither host nor port."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        _ = parts.port  # parsed only on access; raises for an invalid or too large port
    except ValueError:
        return SplitResult("", "", url, "", "")
    return parts


def host_of(url: str) -> str:
    """Return the host of a URL, or of `host:port`, in lower case and without brackets, or an empty text."""
    return split_url(url).hostname or ""


def is_http_url(url: str) -> bool:
    """Whether a text is a valid http or https URL with a host."""
    parts = split_url(url)
    is_plain = url.isprintable() and url == url.strip() and " " not in parts.netloc
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def address_of(host: str) -> Address | None:
    """Return a host as an address in its usual form, or None for a name.

    An IPv4 address in IPv6's form (`::ffff:127.0.0.1`), as reported by servers that listen for both, becomes IPv4.
    """
    try:
        address = ip_address(_plain(host))
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def network_of(peer: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the 64 bits of IPv6 that a host owns."""
    address = address_of(peer)
    if address is None:
        return peer
    return address.exploded[:19] if isinstance(address, IPv6Address) else str(address)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host: a loopback address, `localhost`, or a name below it (RFC 6761)."""
    address = _effective_address(host)
    if address is not None:
        return address.is_loopback
    name = _lookup_name(host)
    return name == LOCALHOST or name.endswith(f".{LOCALHOST}")


def is_unspecified(host: str) -> bool:
    """Whether a host is the unspecified address (`0.0.0.0`, `::`), which to a listener means all its addresses."""
    address = _effective_address(host)
    return address is not None and address.is_unspecified


def is_this_machine(host: str) -> bool:
    """Whether a connection to a host reaches this machine itself, also by the unspecified address."""
    return is_loopback(host) or is_unspecified(host)


def _effective_address(host: str) -> Address | None:
    """Return the address that a connection to a host reaches: 127.1, 0x7f.1 and 2130706433 are also 127.0.0.1.

    Browsers and the C library read up to four numbers, of which the last one fills the remaining bytes.
    """
    name = _lookup_name(host)
    if (address := address_of(name)) is not None:
        return address
    *first, last = map(_number, name.split("."))
    if last is None or len(first) >= _BYTES or last >= 256 ** (_BYTES - len(first)):
        return None
    for at, part in enumerate(first, 1):
        if part is None or part > 255:
            return None
        last += part << 8 * (_BYTES - at)
    return IPv4Address(last)


def _number(part: str) -> int | None:
    match = _NUMBER.fullmatch(part)
    base = None if match is None else match.lastgroup
    return None if match is None or base is None else int(match[base] or "0", _BASES[base])


def _lookup_name(host: str) -> str:
    """Return a host in the form of lookups (RFC 3490): wide digits and letters become plain, and so do other dots."""
    return _plain(host if host.isascii() else normalize("NFKC", host).replace("\N{IDEOGRAPHIC FULL STOP}", "."))


def _plain(host: str) -> str:
    """Return a host in the form of comparisons: a dot at the end of a name only marks it as complete."""
    return host.removeprefix("[").removesuffix("]").lower().removesuffix(".")


NAMELESS = "agent"
"""The slug of a name without readable characters in any script."""

PREFIX = "xn--"
"""Prefix of punycode host names (RFC 5890); no slug of Latin words has it."""

_KEPT = frozenset("LMNS")
"""Unicode categories of non-ASCII characters in slugs: letters, marks, numbers and symbols. Others separate words."""


def slug(text: str) -> str:
    """Return a name as a part of a path: lower-case ASCII letters and digits, and hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    folded = normalize("NFKC", text).lower()
    if words and not any(map(_is_foreign, folded)):
        return words
    label = "-".join("".join(char if _is_kept(char) else " " for char in folded).split())
    return (label if label.isascii() else PREFIX + label.encode("punycode").decode()) or NAMELESS


def _is_foreign(char: str) -> bool:
    """Whether a character is a letter of another script; symbols and accents occur in Latin names as well."""
    return category(char).startswith("L") and not name(char, "").startswith("LATIN")


def _is_kept(char: str) -> bool:
    return char.isalnum() if char.isascii() else category(char)[0] in _KEPT


# --- networks ---------------------------------------------------------------------------------------------------------

Network = IPv4Network | IPv6Network

EVERY_ADDRESS = ("0.0.0.0/0", "::/0")

_MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4-mapped IPv6 addresses, which dual-stack servers report for IPv4 peers."""


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses and networks. `*` is every address. Raises ValueError for other text."""
    return tuple(_parse_network(text) for one in texts for text in (EVERY_ADDRESS if one == "*" else (one,)))


def is_in_networks(peer: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    address = address_of(peer)
    return address is not None and any(
        address.version == network.version and address in network for network in networks
    )


def _parse_network(text: str) -> Network:
    """Parse one network. IPv4-mapped networks become IPv4 networks, like the peers."""
    network = ip_network(text, strict=False)
    if not isinstance(network, IPv6Network) or not network.subnet_of(_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - _MAPPED.prefixlen))
