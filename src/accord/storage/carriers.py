"""Which carriers of hints there are besides the database's own, by the scheme of their addresses.

A store's address names them: `postgresql://.../accord?signals=nats://a:4222,nats://b:4222`. Hints are lossy by
contract (`signals`), so a carrier that is away delays followers by a second and fails nobody.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from accord.entries import Group, Unusable
from accord.storage.located import Location, NoOptions, located
from accord.storage.signals import Hear, Signals
from accord.storage.store import StoreRefused


class SignalsKind(Struct, frozen=True, kw_only=True):
    """A carrier: `make` gets one address, or several that are as good, and who hears what arrives."""

    make: Callable[[Sequence[Location], Hear], Signals]
    options: type[Struct] = NoOptions


CARRIERS = Group(
    "accord.signals",
    "carrier of hints",
    SignalsKind,
    {"nats": "accord.storage.nats:SIGNALS", "tls": "accord.storage.nats:SIGNALS"},
)
"""All of them, by the scheme of their addresses."""


def carrier(urls: Sequence[str], heard: Hear) -> Signals:
    """Return the carrier at some addresses; raises StoreRefused."""
    schemes = {url.partition("://")[0] for url in urls}
    try:
        kinds = {CARRIERS.load(scheme) for scheme in sorted(schemes)}
    except (Unusable, ImportError) as error:
        raise StoreRefused(f"Hints cannot be carried: {error}") from error
    if len(kinds) > 1:
        raise StoreRefused(f"Hints are carried by one kind of carrier, not by {' and '.join(sorted(schemes))}")
    (kind,) = kinds
    return kind.make([located(url, kind.options, {}, "a carrier of hints") for url in urls], heard)
