"""Which URLs may be asked: https to public hosts, and whatever else the operator trusts.

It resolves no names: what a name turns out to mean is checked by `session` when it connects, since that may change at
any time. The parser is the one that connects, so that both read a URL alike.
"""

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from accord.outbound.addresses import objection

if TYPE_CHECKING:
    from yarl import URL

MAX_LENGTH = 2048
"""Characters in a URL; what is longer is no address."""

FIRST_PORT = 1024
USUAL_PORTS = frozenset({80, 443})
"""Ports below `FIRST_PORT` belong to other protocols, some of which can be made to obey an HTTP body (mail, say)."""

_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


class Refused(Exception):
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
        url = _read(text)
        host = url.raw_host or ""
        is_trusted = self.trusts(host)
        if not is_trusted:
            _check_public(url, host)
        if _is_address(host) and (what := objection(host, is_trusted=is_trusted)):
            raise Refused(f"{host} is not a public address: {what}")
        return Target(url, is_trusted)


def _read(text: str) -> "URL":
    """Read a URL whose parts mean the same to every reader."""
    from yarl import URL  # late: most servers start, and many end, without a webhook

    if len(text) > MAX_LENGTH:
        raise Refused(f"The address has more than {MAX_LENGTH} characters")
    if _ODD.search(text):
        raise Refused("The address has a space, a control character or a backslash in it")
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise Refused("The address begins neither with https:// nor with http://")
    if "#" in rest:
        raise Refused("The address has a fragment")
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise Refused("The address has a user in it; credentials go elsewhere")
    try:
        url = URL(text)
    except ValueError:
        raise Refused("The address cannot be read") from None
    host = (url.raw_host or "").removesuffix(".")
    is_host = (_is_address(host) or _HOST.fullmatch(host)) and ("[" in authority) == (":" in host)
    if not is_host or url.port == 0:
        raise Refused("The address has no host, or one that cannot be")
    return url.with_host(host)


def _check_public(url: "URL", host: str) -> None:
    if url.scheme != "https":
        raise Refused("Only https is allowed")
    if url.port not in USUAL_PORTS and (url.port or 0) < FIRST_PORT:
        raise Refused(f"Port {url.port} is not allowed: 80, 443 and those from {FIRST_PORT} on are")
    if host == "localhost" or host.endswith(".localhost"):
        raise Refused("localhost is not a public address")


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
        raise Refused("The host is a number, but not an address in its usual form")
    return True


def _plain(entry: str) -> str:
    """Return an entry of a list of hosts as hosts are written in a URL that was read."""
    host = entry.strip().strip("[]").lower().removesuffix(".")
    return str(ip_address(host)) if ":" in host else host
