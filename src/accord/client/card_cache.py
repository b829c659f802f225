"""Cards that were fetched before, kept as HTTP says (RFC 9111, as far as a card needs it).

One document for each address: fresh ones are used as they are, stale ones are asked for again by their ETag or date. It
fetches nothing, and whoever fetches with credentials must not share what they got; `discovery` is above.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping

from msgspec import Struct

MAX_CARDS = 256
"""How many documents are kept, the least recently used leaving first."""

MAX_AGE_SECONDS = 24 * 3600.0
"""How long one is taken as it is at most, whatever its server says: agents move."""

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)


class Kept(Struct, frozen=True, kw_only=True):
    """A document and what its server said about keeping it; `fresh_until` is a time of the clock that stored it."""

    body: bytes
    etag: str | None
    modified: str | None
    fresh_until: float

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """The headers that ask whether it is still the same."""
        stated = (("If-None-Match", self.etag), ("If-Modified-Since", None if self.etag else self.modified))
        return tuple((name, value) for name, value in stated if value)


class CardCache:
    """Documents by address."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def get(self, url: str) -> Kept | None:
        """Return what is known of an address, fresh or not."""
        found = self._kept.get(url)
        if found is not None:
            self._kept.move_to_end(url)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def put(self, url: str, body: bytes, headers: Mapping[str, str], now: float) -> None:
        """Keep a document that was fetched, or confirmed, just now; or forget it if it may not be kept."""
        directives = headers.get("Cache-Control", "").lower()
        etag, modified = headers.get("ETag"), headers.get("Last-Modified")
        fresh = _fresh_seconds(directives)
        if "no-store" in directives or not (fresh or etag or modified):
            self._kept.pop(url, None)
            return
        self._kept[url] = Kept(body=body, etag=etag, modified=modified, fresh_until=now + fresh)
        self._kept.move_to_end(url)
        while len(self._kept) > MAX_CARDS:
            self._kept.popitem(last=False)


def _fresh_seconds(directives: str) -> float:
    """Return for how long a document needs no asking; a card without a word about it is asked for each time."""
    found = _MAX_AGE.search(directives)
    if found is None or "no-cache" in directives:
        return 0.0
    return min(float(found[1]), MAX_AGE_SECONDS)
