"""Where callers reach this server: cards and addresses that are known only by a local name are given theirs.

Clients refuse a card that points to another origin than its own, and a server that was not told its address cannot know
it. What was set as a public address is never touched: a caller's `Host` header says nothing against it.
"""

from urllib.parse import SplitResult

from msgspec.structs import replace

from accord.bindings.http import Scope, authority
from accord.model import AgentCard
from accord.protocol import urls

_PORTS = {"http": 80, "https": 443}


def asked(scope: Scope) -> str | None:
    """Return the origin that the caller used, if it said one, with the path that the host is mounted at."""
    host = authority(scope)
    scheme = "https" if scope.get("scheme") == "https" else "http"
    return f"{scheme}://{host}{scope.get('accord.mount', '')}" if host else None


def is_local(card: AgentCard) -> bool:
    """Whether a card is at an address that nobody but this machine can use."""
    return bool(card.supported_interfaces) and urls.is_this_machine(urls.host_of(card.supported_interfaces[0].url))


def is_own(card: AgentCard, origin: str | None) -> bool:
    """Whether a card that is `moved` to an origin is at addresses of its own, and not at one that its caller made up.

    Of a local card those are the names of this machine, at the port that is listened on: another port may be anybody's.
    """
    if origin is None or not is_local(card):
        return True
    own, asked = urls.split_url(card.supported_interfaces[0].url), urls.split_url(origin)
    return urls.is_loopback(asked.hostname or "") and _port(asked) == _port(own)


def moved(card: AgentCard, origin: str | None) -> AgentCard:
    """Return a card that is local with the addresses of its host at an origin, where gRPC has a port of its own.

    Signatures hold only for the card that was signed.
    """
    if origin is None or not is_local(card):
        return card
    own = urls.split_url(card.supported_interfaces[0].url)
    interfaces = tuple(
        replace(found, url=at(found.url, origin)) if _is_beside(urls.split_url(found.url), own) else found
        for found in card.supported_interfaces
    )
    signatures = card.signatures if interfaces == card.supported_interfaces else ()
    return replace(card, supported_interfaces=interfaces, signatures=signatures)


def at(url: str, origin: str | None) -> str:
    """Return a URL at an origin if it is local; one of gRPC, which has no scheme, keeps its port."""
    parts = urls.split_url(url)
    if origin is None or not urls.is_this_machine(parts.hostname or ""):
        return url
    if parts.scheme:
        return origin + url.removeprefix(f"{parts.scheme}://{parts.netloc}")
    host = urls.host_of(origin)
    return f"{f'[{host}]' if ':' in host else host}:{parts.port}"


def _is_beside(url: SplitResult, own: SplitResult) -> bool:
    """Whether a URL is of the same host as another: of its origin, or of its name and without a scheme."""
    return url[:2] == own[:2] or (not url.scheme and url.hostname == own.hostname)


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)
