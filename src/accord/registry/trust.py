"""Verification of card signatures with keys that the operator pinned."""

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


NOT_ALL = ", but not all of it: members that the signature does not cover do not count"

_signed = Decoder(dict[str, Any])


class SignedBy(Enum):
    """The signer of a card: a trusted key, another key, or none."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    UNSIGNED = "unsigned"


class SignatureVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on a card's signatures. `key` is the name of the trusted key."""

    state: SignedBy
    key: str | None = None
    detail: str


class TrustedKeys:
    """The pinned keys."""

    def __init__(self, keys: "tuple[Key, ...]" = (), now: Callable[[], float] = time.time) -> None:
        """Trust `keys`. `now` returns the time of day, since keys may expire."""
        self._keys = keys
        self._now = now

    @classmethod
    def reading(cls, jwks: bytes) -> "TrustedKeys":
        """Trust the keys of a JSON Web Key set. Raises ValueError if it has none."""
        from accord.protocol import jose

        try:
            keys = jose.read_keys(jwks)
        except jose.BadSignature as error:
            raise ValueError(str(error)) from None
        if not keys:
            raise ValueError("There is no key in it that can verify signatures")
        return cls(keys)

    def judge(self, document: bytes) -> SignatureVerdict:
        """Return the verdict on a card's signatures."""
        verdict, _ = self.sift(document)
        return verdict

    def sift(self, document: bytes) -> tuple[SignatureVerdict, bytes]:
        """Return the verdict on a card's signatures, and the accepted part of the card.

        If the signer is trusted, that is the part that its signature covers, else the whole card.
        """
        if not _signatures(document):
            return SignatureVerdict(state=SignedBy.UNSIGNED, detail="The card is not signed"), document
        if not self._keys:
            detail = "The card is signed, but no key is pinned to verify it with"
            return SignatureVerdict(state=SignedBy.UNTRUSTED, detail=detail), document
        from accord.protocol.card_signatures import UntrustedCard, verify_card

        try:
            found = verify_card(document, self._keys, self._now())
        except UntrustedCard as error:
            return SignatureVerdict(state=SignedBy.UNTRUSTED, detail=str(error)), document
        detail = f"Signed by the trusted key {found.key}" + ("" if found.is_whole else NOT_ALL)
        return SignatureVerdict(state=SignedBy.TRUSTED, key=found.key, detail=detail), found.document


def _signatures(document: bytes) -> Any:
    try:
        return codec.decode(document, _signed).get("signatures")
    except AccordError:
        return None
