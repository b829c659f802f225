"""Which page a request comes from, as browsers say it.

A cookie, a certificate, a password that a browser remembers, and on an open server merely being on this machine: all of
them come along with what any page makes a browser send. Programs say nothing about pages. Who is kept out is decided by
`bindings.local` and by the console.
"""

from accord.auth.authentication import Presented
from accord.protocol import urls

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
"""What `Sec-Fetch-Site` says of a page of this origin, and of somebody who typed the address."""

_PORTS = {"http": ":80", "https": ":443"}


def is_ours(presented: Presented) -> bool | None:
    """Whether a page of this very origin sends something, or somebody who typed the address; None if nothing says."""
    origin = presented.header("origin")
    if origin is not None:
        return is_own(origin, presented)
    site = presented.header("sec-fetch-site")
    return None if site is None else site in OWN_SITES


def is_own(origin: str, presented: Presented) -> bool:
    """Whether an `Origin` is that of the host that was asked.

    The scheme is compared only where this server knows that TLS was used: behind a proxy that it was not told of, it
    does not see it.
    """
    parts = urls.split_url(origin)
    if parts.scheme not in _PORTS or (presented.secure and parts.scheme != "https"):
        return False
    port = _PORTS[parts.scheme]
    asked = (presented.header("host") or "").lower()
    return bool(asked) and parts.netloc.lower().removesuffix(port) == asked.removesuffix(port)
