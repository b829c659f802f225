"""Whose signatures count: a card is signed by a key that is pinned here, by some other key, or not at all.

Keys are pinned by the operator; what a card says about where its key can be had is never followed. The signatures
themselves are `protocol.card_signatures`.
"""

import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.json import Decoder

from accord.errors import AccordError
from accord.protocol import codec

if TYPE_CHECKING:
    from joserfc.jwk import Key

_signed = Decoder(dict[str, Any])


class Signed(Enum):
    """By whom a card is signed: a key that is trusted, another, nobody."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    UNSIGNED = "unsigned"


class Verdict(Struct, frozen=True, kw_only=True):
    """What is known about a card's signatures; `key` is the name of the trusted key."""

    state: Signed
    key: str | None = None
    detail: str


class Trust:
    """The keys that are pinned."""

    def __init__(self, keys: "tuple[Key, ...]" = (), now: Callable[[], float] = time.time) -> None:
        """Trust `keys`; `now` is the time of day, since keys may expire."""
        self._keys = keys
        self._now = now

    @classmethod
    def reading(cls, jwks: bytes) -> "Trust":
        """Trust the keys of a JSON Web Key set; ValueError if there are none in it."""
        from accord.protocol import jose  # late, as below: it takes longer to load than most of a server

        try:
            keys = jose.read_keys(jwks)
        except jose.BadSignature as error:
            raise ValueError(str(error)) from None
        if not keys:
            raise ValueError("There is no key in it that can verify signatures")
        return cls(keys)

    def judge(self, document: bytes) -> Verdict:
        """Say by whom a card is signed."""
        if not _signatures(document):
            return Verdict(state=Signed.UNSIGNED, detail="The card is not signed")
        if not self._keys:
            return Verdict(state=Signed.UNTRUSTED, detail="The card is signed, but no key is pinned to verify it with")
        from accord.protocol.card_signatures import UntrustedCard, verify

        try:
            key = verify(document, self._keys, self._now())
        except UntrustedCard as error:
            return Verdict(state=Signed.UNTRUSTED, detail=str(error))
        return Verdict(state=Signed.TRUSTED, key=key, detail=f"Signed by the trusted key {key}")


def _signatures(document: bytes) -> Any:
    try:
        return codec.decode(document, _signed).get("signatures")
    except AccordError:
        return None
