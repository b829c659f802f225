"""Hosts in URLs, and slugs: agent names as a part of a URL.

Hosts are read from text alone, in every form that they come in; nothing is resolved. A slug is the same for the same
name at all times. A name in Latin letters becomes its words, a name in another script is written in punycode (RFC
3492).
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from unicodedata import category, name, normalize
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address

LOCALHOST = "localhost"

_NUMBER = re.compile(r"0x0*(?P<hex>[0-9a-f]{0,8})|0+(?P<octal>[0-7]{0,11})|(?P<decimal>[1-9][0-9]{0,9})")
_BASES = {"hex": 16, "octal": 8, "decimal": 10}
_BYTES = 4
"""Of an address of IPv4, whose numbers have no more digits than these."""


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL, or of `host:port` without a scheme; one whose host or port is none has neither."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        _ = parts.port  # which is read only now, and raises for what is no number or too large
    except ValueError:
        return SplitResult("", "", url, "", "")
    return parts


def host_of(url: str) -> str:
    """Return the host of a URL, or of `host:port`, in lower case and without brackets; of what has none, nothing."""
    return split_url(url).hostname or ""


def is_http_url(url: str) -> bool:
    """Whether a text is a URL of http or https that can be read, with a host."""
    parts = split_url(url)
    is_plain = url.isprintable() and url == url.strip() and " " not in parts.netloc
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def address_of(host: str) -> Address | None:
    """Return the address that a host is, in its usual form, or None for a name.

    An IPv4 address in IPv6's form (`::ffff:127.0.0.1`), as servers report peers that listen for both, is that of IPv4.
    """
    try:
        found = ip_address(_plain(host))
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def network_of(peer: str) -> str:
    """Return what counts as one client: an address of IPv4, or the 64 bits of IPv6 that one host has to itself."""
    found = address_of(peer)
    if found is None:
        return peer
    return found.exploded[:19] if isinstance(found, IPv6Address) else str(found)


def is_loopback(host: str) -> bool:
    """Whether only this machine gets to a host: a loopback address, `localhost`, or a name below that (RFC 6761)."""
    found = _effective_address(host)
    if found is not None:
        return found.is_loopback
    name = _lookup_name(host)
    return name == LOCALHOST or name.endswith(f".{LOCALHOST}")


def is_unspecified(host: str) -> bool:
    """Whether a host is the address of none in particular (`0.0.0.0`, `::`): for those who listen, all of their own."""
    found = _effective_address(host)
    return found is not None and found.is_unspecified


def is_this_machine(host: str) -> bool:
    """Whether whoever connects to a host gets to this machine itself: to the unspecified address one does as well."""
    return is_loopback(host) or is_unspecified(host)


def _effective_address(host: str) -> Address | None:
    """Return the address that whoever connects to a host gets to: 127.1, 0x7f.1 and 2130706433 are 127.0.0.1 as well.

    So browsers and the C library read them: up to four numbers, of which the last one fills the bytes that are left.
    """
    name = _lookup_name(host)
    if (found := address_of(name)) is not None:
        return found
    *first, last = map(_number, name.split("."))
    if last is None or len(first) >= _BYTES or last >= 256 ** (_BYTES - len(first)):
        return None
    for at, part in enumerate(first, 1):
        if part is None or part > 255:
            return None
        last += part << 8 * (_BYTES - at)
    return IPv4Address(last)


def _number(part: str) -> int | None:
    found = _NUMBER.fullmatch(part)
    base = None if found is None else found.lastgroup
    return None if found is None or base is None else int(found[base] or "0", _BASES[base])


def _lookup_name(host: str) -> str:
    """Return a host as it is looked up (RFC 3490): wide digits and letters are plain ones, and there are other dots."""
    return _plain(host if host.isascii() else normalize("NFKC", host).replace("\N{IDEOGRAPHIC FULL STOP}", "."))


def _plain(host: str) -> str:
    """Return a host as it is compared: a dot at the end of a name only says that it is whole."""
    return host.removeprefix("[").removesuffix("]").lower().removesuffix(".")


NAMELESS = "agent"
"""What stands for a name that has nothing to read in any script."""

PREFIX = "xn--"
"""How names of hosts begin that are written so (RFC 5890), and no name of Latin words."""

_KEPT = frozenset("LMNS")
"""What is kept beyond ASCII: letters, marks, numbers and symbols. The rest separates."""


def slug(text: str) -> str:
    """Return a name as a part of a path: lower-case letters and digits of ASCII, and hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    folded = normalize("NFKC", text).lower()
    if words and not any(map(_is_foreign, folded)):
        return words
    label = "-".join("".join(char if _is_kept(char) else " " for char in folded).split())
    return (label if label.isascii() else PREFIX + label.encode("punycode").decode()) or NAMELESS


def _is_foreign(char: str) -> bool:
    """Whether a character is a letter of another script: symbols and accents are in Latin names as well."""
    return category(char).startswith("L") and not name(char, "").startswith("LATIN")


def _is_kept(char: str) -> bool:
    return char.isalnum() if char.isascii() else category(char)[0] in _KEPT
