"""The hosts in addresses, and which of them are this machine: read from text alone, in every form that they come in.

Nothing is resolved, so that a name that only happens to have an address of this machine is not known to be one. What
may be connected to is `outbound`'s business; whoever takes an address from a card, a setting or a header is above.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address

LOCALHOST = "localhost"


def split(url: str) -> SplitResult:
    """Return the parts of a URL, or of `host:port` without a scheme; one whose host or port is none has neither."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        _ = parts.port  # which is read only now, and raises for what is no number or too large
    except ValueError:
        return SplitResult("", "", url, "", "")
    return parts


def host_of(url: str) -> str:
    """Return the host of a URL, or of `host:port`, in lower case and without brackets; of what has none, nothing."""
    return split(url).hostname or ""


def is_web(url: str) -> bool:
    """Whether a text is a URL of http or https that can be read, with a host."""
    parts = split(url)
    is_plain = url.isprintable() and url == url.strip() and " " not in parts.netloc
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def address(host: str) -> Address | None:
    """Return the address that a host is, or None for a name.

    An IPv4 address in IPv6's form (`::ffff:127.0.0.1`), as servers report peers that listen for both, is that of IPv4.
    """
    try:
        found = ip_address(_plain(host))
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def is_loopback(host: str) -> bool:
    """Whether only this machine gets to a host: a loopback address, `localhost`, or a name below that (RFC 6761)."""
    found = address(host)
    if found is not None:
        return found.is_loopback
    name = _plain(host)
    return name == LOCALHOST or name.endswith(f".{LOCALHOST}")


def is_unspecified(host: str) -> bool:
    """Whether a host is the address of none in particular (`0.0.0.0`, `::`): for those who listen, all of their own."""
    found = address(host)
    return found is not None and found.is_unspecified


def is_here(host: str) -> bool:
    """Whether whoever connects to a host gets to this machine itself: to the unspecified address one does as well."""
    return is_loopback(host) or is_unspecified(host)


def _plain(host: str) -> str:
    """Return a host as it is compared: a dot at the end of a name only says that it is whole."""
    return host.removeprefix("[").removesuffix("]").lower().removesuffix(".")
