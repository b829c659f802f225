"""Signatures on agent cards: JWS over canonical JSON (A2A 1.0, 8.4; RFC 8785).

A card is signed and verified as the document that is served, because the signed bytes must be the ones that are read.
Implementations disagree on which members of a card are signed (see `payloads`), so each reading gets its own signature
and any of them is accepted. A signature covers only the members of its reading: a verifier gets those, and must read
nothing else. Our signatures also contain the digest of the specification's reading. Otherwise a member that a weaker
reading leaves out, such as a security requirement without scopes, could be removed. Keys are pinned: a card's `jku` is
written for other verifiers and never fetched here.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord.errors import AccordError
from accord.model.base import A2AModel
from accord.protocol import codec, jose
from accord.protocol.dialects import DIALECTS
from accord.protocol.jose import BadSignature
from accord.protocol.operations import DialectName

MAX_CANONICAL_DEPTH = 100
"""Maximum nesting, the same as for all other untrusted JSON."""


class NotCanonical(ValueError):
    """The value has no canonical form."""


def encode_canonical(value: Any) -> bytes:
    """Return the canonical form of plain data, as produced by JSON decoders."""
    try:
        return _write(value, 1).encode()
    except UnicodeEncodeError:
        raise NotCanonical("Text with half a surrogate pair") from None


def _write(value: Any, depth: int) -> str:
    if depth > MAX_CANONICAL_DEPTH:
        raise NotCanonical("Nested too deeply")
    match value:
        case dict():
            return "{" + ",".join(f"{_text(name)}:{_write(value[name], depth + 1)}" for name in _sorted(value)) + "}"
        case list():
            return "[" + ",".join(_write(item, depth + 1) for item in value) + "]"
        case str():
            return _text(value)
        case None | bool():
            return json.dumps(value)
        case int():
            return _integer(value)
        case float() if isfinite(value):
            return write_number(value)
    raise NotCanonical(f"No canonical form for {type(value).__name__}")


def _sorted(names: dict[Any, Any]) -> list[str]:
    if not all(isinstance(name, str) for name in names):
        raise NotCanonical("A name is not text")
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # escapes quotes, backslashes and control characters as in 3.2.2.2


def _integer(value: int) -> str:
    """Write an integer that a double represents exactly; others would be signed as a neighboring value."""
    if abs(value) >= 10**21 or (abs(value) >= 2**53 and write_number(float(value)) != str(value)):
        raise NotCanonical("An integer that is no double")
    return str(value)


def write_number(value: float) -> str:
    """Write a double as ECMAScript does (Number::toString), from its shortest exact digits.

    Python's `repr` finds the same digits. Only the position of the point and the use of an exponent differ.
    """
    if value == 0:
        return "0"  # minus zero as well
    sign, places, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits, point = "".join(map(str, places)), len(places) + int(exponent)
    return "-" * sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Return 0.DIGITS times ten to the power of `point`."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


MAX_SIGNATURES = 16
"""Maximum signatures of one card that are checked; each costs a verification."""

_ALGORITHMS = {kind: alg for alg, kind in reversed(jose.KEY_TYPES.items())} | {("OKP", "Ed25519"): "EdDSA"}
"""Type and curve of a key -> the signing algorithm that most verifiers support."""

_EXPLICIT = frozenset({"documentation_url", "icon_url"})
"""Text that may be present and empty: protobuf's `optional`. Other optional text is absent when empty."""

_document = Decoder(dict[str, Any])


class UntrustedCard(Exception):
    """No signature of the card is by a trusted key."""


class VerifiedCard(Struct, frozen=True, kw_only=True):
    """The signed content of a card: the name of the key, and a document with all members that the signature covers.

    Without `is_whole`, members were left out that anyone may have added or changed. The signatures are included, for
    further verifiers.
    """

    key: str
    document: bytes
    is_whole: bool


class CardSigningKey(Struct, frozen=True, kw_only=True):
    """A private key with its name and algorithm; `jku` is the URL of its public half, for verifiers."""

    key: Key
    kid: str
    alg: str
    jku: str | None = None

    def __repr__(self) -> str:
        return f"CardSigningKey(kid={self.kid!r}, alg={self.alg!r}, jku={self.jku!r})"

    def public(self) -> bytes:
        """Return the public half as a JWK set, to be served at `jku`."""
        member = self.key.as_dict(private=False) | {"kid": self.kid, "alg": self.alg, "use": "sig"}
        return codec.encode({"keys": [member]})


def read_signing_key(jwk: bytes, jku: str | None = None) -> CardSigningKey:
    """Read a private key in JWK form; without a `kid` its name is its thumbprint (RFC 7638)."""
    try:
        key = JWKRegistry.import_key(msgspec.json.decode(jwk, type=dict[str, Any]))
    except (MsgspecError, JoseError, ValueError, TypeError, KeyError):
        raise ValueError("The key to sign cards with is no JSON Web Key") from None
    curve = key.get("crv")
    alg = key.alg or _ALGORITHMS.get((key.key_type, curve if isinstance(curve, str) else None))
    if not key.is_private or alg not in jose.KEY_TYPES:
        raise ValueError("Cards are signed with a private RSA, EC or Ed25519 key")
    return CardSigningKey(key=key, kid=key.kid or key.thumbprint(), alg=alg, jku=jku)


def sign_card(document: bytes, key: CardSigningKey) -> bytes:
    """Return a card with added signatures, one for each reading."""
    signed = payloads(document)
    header = {"alg": key.alg, "typ": "JOSE", "kid": key.kid, "card_digest": _digest(signed[0])}
    if key.jku:
        header["jku"] = key.jku
    added = []
    for payload in signed:
        protected, _, signature = jose.sign_payload(payload, header, key.key).split(".")
        added.append({"protected": protected, "signature": signature})
    card = codec.decode(document, _document)
    return codec.encode(card | {"signatures": [*card.get("signatures", ()), *added]})


def verify_card(document: bytes, keys: Iterable[Key], now: float) -> VerifiedCard:
    """Return the part of a card that a trusted key has signed, the largest possible, or raise UntrustedCard.

    - A signature over the whole document covers all of it.
    - A signature as in A2A 1.0 covers the members of A2A 1.0. It does not cover those that other dialects read: 0.3's
      `url` and `additionalInterfaces`, AgentVault's `authSchemes` and `tokenUrl`.
    - A signature by an official SDK also does not cover empty members, such as a requirement without scopes.
    - A signature with our digest covers all members of A2A 1.0 by any reading.

    Keys are pinned by their `kid`. A key with a past `exp`, or with `revoked`, verifies nothing.
    """
    trusted = [key for key in keys if _is_valid(key, now)]
    try:
        signatures = codec.decode(document, _document).get("signatures")
        readings = _readings(document)
        payloads = [encode_canonical(reading) for reading in readings]
    except (AccordError, NotCanonical) as error:
        raise UntrustedCard(f"The card cannot be verified: {error}") from None
    checked = signatures[:MAX_SIGNATURES] if isinstance(signatures, list) else []
    specified = 1 if len(readings) > 1 else 0
    problem = "The card has no signature by a trusted key" if signatures else "The card is not signed"
    for at, payload in enumerate(payloads):
        for member in checked:
            header = _signer(member, payload, trusted)
            if header is None:
                continue
            if header.card_digest is not None:
                is_covered = header.card_digest == _digest(payloads[specified])
                covers = min(at, specified)
            else:
                is_covered, covers = _states_requirements(readings[specified]), at
            if is_covered:
                document = codec.encode(readings[covers] | {"signatures": signatures})
                return VerifiedCard(key=header.kid or "", document=document, is_whole=payloads[covers] == payloads[0])
            problem = "The card is not as it was signed: members may have been removed, such as securityRequirements"
    raise UntrustedCard(problem)


def _states_requirements(reading: dict[str, Any]) -> bool:
    """Whether a card that declares security schemes states its requirements.

    The official SDKs sign no requirement without scopes, so a card without any may have had one.
    """
    return not reading.get("securitySchemes") or bool(reading.get("securityRequirements") or reading.get("security"))


def _digest(payload: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(payload).digest()).decode().rstrip("=")


def _signer(member: Any, payload: bytes, trusted: list[Key]) -> jose.JoseHeader | None:
    match member:
        case {"protected": str(protected), "signature": str(signature)}:
            pass
        case _:
            return None
    try:
        header = jose.read_header(protected)
        key = jose.find_key(trusted, header.alg, header.kid) if header.kid else None  # 8.4.2: kid is required
    except BadSignature:
        return None
    if key is None:
        return None
    return header if _is_by(key, header.alg, protected, signature, payload) else None


def _is_by(key: Key, alg: str, protected: str, signature: str, payload: bytes) -> bool:
    try:
        jose.verify_signature(f"{protected}..{signature}", key, alg, payload)
    except BadSignature:
        return False
    return True


def _is_valid(key: Key, now: float) -> bool:
    """Whether a pinned key is still valid; `exp` and `revoked` are those of OpenID Federation's key sets."""
    members: dict[str, Any] = dict(key.dict_value)
    expires = members.get("exp")
    return members.get("revoked") is None and (expires is None or (isinstance(expires, int | float) and now < expires))


# --- signed readings --------------------------------------------------------------------------------------------------


def payloads(document: bytes) -> tuple[bytes, ...]:
    """Return the canonical forms of a card that verifiers may compute, each once, the specification's first.

    1. 8.4.1: the members of A2A 1.0, including required ones that are empty.
    2. The reading of the official SDKs: the same without anything empty. It does not cover whether an empty member
       is present, such as an alternative among `securityRequirements` that requires no scopes.
    3. The document as it stands, which covers the members of other dialects too.
    """
    whole, *of_1_0 = _readings(document)
    return tuple(dict.fromkeys(encode_canonical(reading) for reading in (*of_1_0, whole)))


def _readings(document: bytes) -> tuple[dict[str, Any], ...]:
    """Return the content of each form, the most complete first."""
    if codec.is_too_deep(document):
        raise NotCanonical("Nested too deeply")
    whole = codec.decode(document, _document)
    whole.pop("signatures", None)
    if "supportedInterfaces" not in whole:
        return (whole,)
    members = _a2a_members(document)
    return whole, members, _without_empty(members) or {}


def _a2a_members(document: bytes) -> dict[str, Any]:
    """Return the members of A2A 1.0 with protobuf's rules of presence, which are the model's except for empty text."""
    dialect = DIALECTS[DialectName.V1]
    plain = dialect.encode_card(_without_empty_text(dialect.decode_card(document)))
    plain.pop("signatures", None)
    return plain


def _without_empty_text(value: Any) -> Any:
    match value:
        case A2AModel():
            members = {name: getattr(value, name) for name in value.__struct_fields__}
            kept = {name: _without_empty_text(member) for name, member in members.items() if member != ""}
            return replace(value, **dict.fromkeys(_absent(type(value)) - kept.keys()), **kept)
        case tuple():
            return tuple(map(_without_empty_text, value))
        case dict():
            return {name: _without_empty_text(member) for name, member in value.items()}
    return value


@cache
def _absent(kind: type[A2AModel]) -> frozenset[str]:
    """Return the members that are None when absent."""
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.default is None) - _EXPLICIT


def _without_empty(value: Any) -> Any:
    """Return a value without its empty members, or None if it is empty."""
    match value:
        case dict():
            kept = {name: left for name, member in value.items() if (left := _without_empty(member)) is not None}
            return kept or None
        case list():
            return [left for member in value if (left := _without_empty(member)) is not None] or None
        case "":
            return None
    return value
