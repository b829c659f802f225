"""Keys and signatures of JOSE (RFC 7515, 7517, 8725).

A signature's own header never determines how it is verified: its algorithm must be an allowed one, and a key is used
only with its own algorithms. `auth.schemes` handles bearer tokens, `card_signatures` agent cards.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from msgspec import MsgspecError, Struct, convert
from msgspec.json import Decoder

KEY_TYPES: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""Asymmetric algorithm -> the type and the curve of its keys. EdDSA is RFC 9864's Ed25519 under its older name."""

SECRET_LENGTHS: dict[str, int] = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithm of a shared secret -> minimum bytes of the secret (RFC 7518, 3.2)."""

RSA_BITS = range(2048, 8193)
"""Shorter keys can be broken, longer ones cost too much time for each signature."""

MAX_HEADER = 4096


class BadSignature(ValueError):
    """Not signed by this key, or not readable."""


class JoseHeader(Struct, frozen=True):
    """The header of a signature; unknown members are ignored, unless `crit` forbids it."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: Any = None
    card_digest: str | None = None
    """SHA-256 of an agent card's members of A2A 1.0, in base64url (`card_signatures`)."""


class _Keys(Struct):
    keys: list[dict[str, Any]]


class _Member(Struct):
    kty: str
    use: str = "sig"
    key_ops: list[str] | None = None
    n: str = ""

    def is_usable(self) -> bool:
        """Whether the key can verify signatures: a shared secret ("oct") in a public set would be known to everyone."""
        if self.use != "sig" or "verify" not in (self.key_ops or ["verify"]):
            return False
        if self.kty == "RSA":
            return int.from_bytes(from_base64url(self.n)).bit_length() in RSA_BITS
        return self.kty in ("EC", "OKP")


class _Registry(jws.JWSRegistry):
    """joserfc without its warnings and checks of unused members: this module decides which algorithms are allowed."""

    max_header_length = MAX_HEADER
    max_payload_length = 2 * 1024 * 1024
    max_signature_length = 2048

    def get_alg(self, name: str) -> Any:
        """Return an algorithm if it is allowed."""
        if name not in (self.allowed or ()):
            raise BadSignature("Another algorithm than was allowed")
        return self.algorithms[name]

    def check_header(self, header: dict[str, Any]) -> None:
        """Check nothing: `read_header` has done it."""


_REGISTRIES = {alg: _Registry(algorithms=[alg]) for alg in (*KEY_TYPES, *SECRET_LENGTHS)}
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_header, _keys = Decoder(JoseHeader), Decoder(_Keys)


def read_header(segment: str) -> JoseHeader:
    """Read the protected header of a signature."""
    if len(segment) > MAX_HEADER:
        raise BadSignature("The header is too large")
    try:
        header = _header.decode(from_base64url(segment))
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadSignature("The header is not readable") from None
    if header.crit is not None:
        raise BadSignature("The header needs an extension that is not known here")
    return header


def from_base64url(text: str) -> bytes:
    """Decode unpadded base64 with the alphabet for URLs, and nothing else."""
    try:
        if _BASE64URL.fullmatch(text):
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        pass  # of an impossible length
    raise BadSignature("Not base64url")


def read_keys(data: bytes) -> tuple[Key, ...]:
    """Return the keys of a JWK set that can verify signatures; others are left out (RFC 7517, 5)."""
    try:
        members = _keys.decode(data).keys
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadSignature("Not a JSON Web Key Set") from None
    return tuple(key for member in members if (key := _read_key(member)) is not None)


def _read_key(member: dict[str, Any]) -> Key | None:
    try:
        key_members = convert(member, _Member)
        return JWKRegistry.import_key(member) if key_members.is_usable() else None
    except Exception:  # joserfc raises various errors for an invalid key; the other keys of the set are still valid
        return None


def find_key(keys: Iterable[Key], alg: str, kid: str | None) -> Key | None:
    """Return the key to verify a signature with, if exactly one matches; without a `kid` any name matches."""
    fitting = [key for key in keys if _fits(key, alg) and kid in (None, key.kid)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(key: Key, alg: str) -> bool:
    kind, curve = KEY_TYPES.get(alg, ("", None))
    return key.key_type == kind and curve in (None, key.get("crv")) and key.alg in (None, alg)


def verify_signature(signature: str, key: Key, alg: str, payload: bytes | None = None) -> bytes:
    """Return the payload of a compact signature by this key and algorithm; `payload` is a detached one."""
    try:
        verified = jws.deserialize_compact(signature, key, registry=_REGISTRIES[alg], payload=payload)
    except (JoseError, ValueError, RecursionError) as error:
        raise BadSignature(f"Not signed: {type(error).__name__}") from None
    return bytes(verified.payload or b"")


def sign_payload(payload: bytes, header: dict[str, str], key: Key) -> str:
    """Return a compact signature; `header` names the algorithm."""
    return jws.serialize_compact(header, payload, key, registry=_REGISTRIES[header["alg"]])
