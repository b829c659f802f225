"""Validation of cards for publication, in any dialect, and of their signatures by keys that the operator pinned."""

import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol import codec, urls
from accord.protocol.cards import decode_card
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.registry import names
from accord.storage.commands.published_agents import CardIndex

if TYPE_CHECKING:
    from joserfc.jwk import Key

MAX_CARD = 256 * 1024
"""Maximum size of a card, in bytes: the largest cards in use, with a schema for each skill, have a tenth of it."""

MAX_TITLE, MAX_DESCRIPTION, MAX_WORDS = 256, 8192, 8192
"""Maximum characters of a name, of a description, and of the text that a search uses."""

MAX_TAGS, MAX_TAG = 50, 64
MAX_URL = 2048

ONLY_TLS = "Only https is safe, except on this machine itself (http://localhost)"

_GRPC_TLS, _GRPC_CLEAR = ("https", "grpcs"), ("http", "grpc")
"""Schemes of gRPC addresses, as `client.grpc_link` reads them."""

_LINKS = ("documentationUrl", "iconUrl", "privacyPolicyUrl", "termsOfServiceUrl")
_document = Decoder(dict[str, Any])


class CardObjection(NamedTuple):
    """A problem of a card, and its location."""

    field: str
    problem: str


class InvalidCard(Exception):
    """The card cannot be published. `findings` contains all detected problems."""

    def __init__(self, findings: tuple[CardObjection, ...]) -> None:
        super().__init__("; ".join(f"{field}: {problem}" if field else problem for field, problem in findings))
        self.findings = findings


class PublishableCard(Struct, frozen=True, kw_only=True):
    """A card that can be published: the decoded card, and its index entry."""

    card: AgentCard
    facts: CardIndex


def read(document: bytes, name: str | None = None) -> PublishableCard:
    """Read a card for publication under `name` or its own name, or raise InvalidCard."""
    card, stated = _decoded(document)
    chosen = names.handle(name or _name_of(card, stated))
    tags = _tags(card, stated)
    tee = _tee(stated)
    findings = tuple(_objections(card, stated, chosen, tags))
    if findings:
        raise InvalidCard(findings)
    facts = CardIndex(
        handle=chosen,
        name=card.name,
        description=card.description,
        words=_words(card, chosen, tags),
        tags=tags,
        tee=None if tee is None else str(tee.get("type", "")).lower(),
        card=document.decode(),
    )
    return PublishableCard(card=card, facts=facts)


def merged(document: str, changes: dict[str, Any]) -> bytes:
    """Return a card with some of its members replaced."""
    return codec.encode(codec.decode(document.encode(), _document) | changes)


# --- reading ----------------------------------------------------------------------------------------------------------


def _decoded(document: bytes) -> tuple[AgentCard, dict[str, Any]]:
    if len(document) > MAX_CARD:
        raise InvalidCard((CardObjection("", f"The card is larger than {MAX_CARD} bytes"),))
    if codec.is_too_deep(document):
        raise InvalidCard((CardObjection("", "The card is nested too deeply"),))
    try:
        codec.check_utf8(document)
        return decode_card(document), codec.decode(document, _document)
    except AccordError as error:
        objections = tuple(CardObjection(field, reason) for field, reason in error.violations)
        raise InvalidCard(objections or (CardObjection("", error.message),)) from None


def _name_of(card: AgentCard, stated: dict[str, Any]) -> str:
    """Return the name in a card, or the name that AgentVault's form of it would have."""
    own = stated.get("humanReadableId")
    if own is not None:
        return own if isinstance(own, str) else ""
    derived: str = DIALECTS[DialectName.VAULT].encode_card(card)["humanReadableId"]
    return derived


def _tags(card: AgentCard, stated: dict[str, Any]) -> tuple[str, ...]:
    own = stated.get("tags")
    every = [*(own if isinstance(own, list) else ()), *(tag for skill in card.skills for tag in skill.tags)]
    return tuple(dict.fromkeys(tag.strip().lower() for tag in every if isinstance(tag, str) and tag.strip()))


def _tee(stated: dict[str, Any]) -> dict[str, Any] | None:
    capabilities = stated.get("capabilities")
    found = capabilities.get("teeDetails") if isinstance(capabilities, dict) else None
    return found if isinstance(found, dict) else None


def _words(card: AgentCard, name: str, tags: tuple[str, ...]) -> str:
    words = [name, card.name, card.description, *tags, card.provider.organization if card.provider else ""]
    for skill in card.skills:
        words += [skill.id, skill.name, skill.description]
    return "\n".join(words).lower()[:MAX_WORDS].replace("\0", " ")


# --- findings ---------------------------------------------------------------------------------------------------------


def _objections(card: AgentCard, stated: dict[str, Any], name: str, tags: tuple[str, ...]) -> Iterator[CardObjection]:
    if not names.is_name(name):
        yield CardObjection(
            "humanReadableId", f"A name must be org/agent, of letters, digits, dots and dashes: {name[:80]!r}"
        )
    yield from _text("name", card.name, MAX_TITLE)
    yield from _text("description", card.description, MAX_DESCRIPTION)
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG or "\0" in tag for tag in tags):
        yield CardObjection("tags", f"There may be {MAX_TAGS} tags with {MAX_TAG} characters each")
    if not card.supported_interfaces:
        yield CardObjection("supportedInterfaces", "The card has no interface")
    for at, interface in enumerate(card.supported_interfaces):
        check = _PLACES.get(interface.protocol_binding, _web_place)
        if problem := check(interface.url):
            field = "url" if "supportedInterfaces" not in stated else f"supportedInterfaces[{at}].url"
            yield CardObjection(field, problem)
    for member in _LINKS:
        link = stated.get(member)
        if link and not (isinstance(link, str) and link.lower().startswith(("https://", "http://"))):
            yield CardObjection(member, "A link begins with https:// or http://")


def _text(field: str, text: str, limit: int) -> Iterator[CardObjection]:
    if len(text) > limit:
        yield CardObjection(field, f"It has more than {limit} characters")
    if "\0" in text:
        yield CardObjection(field, "It has a NUL character in it")


def _web_place(url: str) -> str | None:
    """Return the problem of an agent's address, or None. Only this machine may be reached without TLS (2-01)."""
    parts = urls.split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > MAX_URL:
        return "The address begins neither with https:// nor with http://, or cannot be read"
    if parts.username is not None or parts.password is not None:
        return "The address contains a user name; credentials do not belong on a card"
    if parts.scheme == "http" and not urls.is_loopback(parts.hostname):
        return ONLY_TLS
    return None


def _grpc_place(url: str) -> str | None:
    """Return the problem of a gRPC address, or None. Without a scheme, any host but this machine means TLS."""
    parts = urls.split_url(url)
    if not parts.hostname or parts.username is not None or len(url) > MAX_URL:
        return "The address is not host:port"
    if parts.scheme not in ("", *_GRPC_TLS, *_GRPC_CLEAR):
        return "The address is neither host:port nor begins with https:// or http://"
    if parts.scheme in _GRPC_CLEAR and not urls.is_loopback(parts.hostname):
        return ONLY_TLS
    return None


_PLACES: dict[str, Callable[[str], str | None]] = {"GRPC": _grpc_place}


# --- signatures -------------------------------------------------------------------------------------------------------

NOT_ALL = ", but not all of it: members that the signature does not cover do not count"


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
            raise ValueError("The key set has no key that can verify signatures")
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
        return codec.decode(document, _document).get("signatures")
    except AccordError:
        return None
