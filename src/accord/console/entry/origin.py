"""Where a request comes from, as browsers say it: pages of other origins are kept from asking in somebody's name.

A cookie, a certificate, a password that a browser remembers, and on an open server merely being on this machine: all of
them come along with what any page makes a browser send. Programs say nothing about pages and are let through; who they
are is `console.entry.gate`.
"""

from accord.console.entry.cookies import SESSION
from accord.core.access import Presented
from accord.errors import PermissionDenied
from accord.protocol import hosts

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
"""What `Sec-Fetch-Site` says of a page of this origin, and of somebody who typed the address."""

_PORTS = {"http": ":80", "https": ":443"}


def check(presented: Presented, *, is_public: bool = False) -> None:
    """Refuse what a page of another origin has a browser send; with `is_public` such pages may read."""
    is_read = presented.method in SAFE
    is_fine = (is_public or _may_read(presented)) if is_read else _may_write(presented)
    if not is_fine:
        raise PermissionDenied("This comes from a page of another origin")


def _may_read(presented: Presented) -> bool:
    """Whether an answer may be had: links from elsewhere lead here, but no page looks at what is behind them."""
    origin = presented.header("origin")
    if origin is not None:
        return is_own(origin, presented)
    site = presented.header("sec-fetch-site") or "none"
    return site in OWN_SITES or presented.header("sec-fetch-mode") == "navigate"


def _may_write(presented: Presented) -> bool:
    origin = presented.header("origin")
    if origin is not None:
        return is_own(origin, presented)
    site = presented.header("sec-fetch-site")
    if site is not None:
        return site in OWN_SITES
    return SESSION.read(presented) is None  # every browser that has cookies says where they come from


def is_own(origin: str, presented: Presented) -> bool:
    """Whether an `Origin` is that of the host that was asked.

    The scheme is compared only where this server knows that TLS was used: behind a proxy that it was not told of, it
    does not see it.
    """
    parts = hosts.split(origin)
    if parts.scheme not in _PORTS or (presented.secure and parts.scheme != "https"):
        return False
    port = _PORTS[parts.scheme]
    asked = (presented.header("host") or "").lower()
    return bool(asked) and parts.netloc.lower().removesuffix(port) == asked.removesuffix(port)
