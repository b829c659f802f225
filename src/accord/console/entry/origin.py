"""Pages of other origins are kept from asking the console in somebody's name.

What browsers say about pages is read by `bindings.sites`. Programs say nothing about them and are let through; who they
are is `console.entry.gate`.
"""

from accord.auth.authentication import Presented
from accord.bindings.sites import OWN_SITES, SAFE, is_ours, is_own
from accord.console.entry.cookies import SESSION
from accord.errors import PermissionDenied


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
    stated = is_ours(presented)
    # Every browser that has cookies says where they come from.
    return SESSION.read(presented) is None if stated is None else stated
