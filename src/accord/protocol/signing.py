"""Signatures with a shared secret: one construction for our webhooks and for the requests that callers sign (4-30).

    X-A2A-Signature: t=1700000000,v1=<hex of HMAC-SHA256(secret, "1700000000." + body)>
    X-A2A-Signature: t=1700000000,k=partner,n=Zk3v9Q,v1=<hex of HMAC-SHA256(secret, "1700000000." + request + body)>

A webhook signs its time and body. A request signs where it goes as well: `request` is the nonce `n`, a newline, the
method, a space, the target (path and query as sent) and a newline. `k` names the secret; `n` makes equal requests of
one second differ and may be missing. Several `v1` are for changing a secret without a gap; unknown members are ignored.
There is no clock here and nothing is remembered: what is too old or was seen before is for whoever verifies, which is
`core.schemes.hmac` for requests and `push_headers` for webhooks.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable

from msgspec import Struct

from accord.model import ApiKeyScheme

HEADER = "X-A2A-Signature"

DESCRIPTION = (
    "Not a key but a signature of each request with a shared secret: t=<Unix time>,k=<name of the secret>,n=<nonce>,"
    "v1=<hex of HMAC-SHA256 over the time, a dot, the nonce, a newline, the method, a space, the path with its query, "
    "a newline and the body>; k may be left out where there is one secret, n where no request is repeated in a second"
)
"""What a card says of it."""

WINDOW_SECONDS = 300
"""How old a signature may be, and how far two clocks may differ."""

MAX_LENGTH = 1024

_NAME = re.compile(r"[A-Za-z0-9_~-]{1,128}")
_TIME = re.compile(r"[0-9]{1,12}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Request(Struct, frozen=True, kw_only=True):
    """What a signed request is, besides its body: no part of it can contain a newline, so none runs into the next."""

    method: str
    target: str
    nonce: str = ""

    def signed(self) -> bytes:
        """Return what is signed of it."""
        return f"{self.nonce}\n{self.method} {self.target}\n".encode("latin-1")


class Signature(Struct, frozen=True, kw_only=True):
    """A header as it was received; nothing about it is proven yet."""

    timestamp: int
    digests: tuple[str, ...]
    key_id: str = ""
    nonce: str = ""


def is_described_by(scheme: ApiKeyScheme) -> bool:
    """Whether a card asks for a signature: A2A has no word for one, so it is described as a key in its header."""
    return scheme.location == "header" and scheme.name.lower() == HEADER.lower()


def sign(
    body: bytes, timestamp: int, secrets: Iterable[bytes], *, request: Request | None = None, key_id: str = ""
) -> str:
    """Return the header's value, with a digest under each of the secrets."""
    names = {"k": key_id, "n": request.nonce if request else ""}
    if any(value and not _NAME.fullmatch(value) for value in names.values()):
        raise ValueError("The names of a key and a nonce are letters, digits and _ ~ -")
    signed = _signed(body, timestamp, request)
    members = [f"{name}={value}" for name, value in names.items() if value]
    return ",".join([f"t={timestamp}", *members, *(f"v1={_digest(secret, signed)}" for secret in secrets)])


def parse(value: str) -> Signature | None:
    """Read the header's value; what is no signature is None, and so is one that says something twice."""
    pairs = [member.strip().partition("=")[::2] for member in value[: MAX_LENGTH + 1].split(",")]
    digests = tuple(text for name, text in pairs if name == "v1")
    said = [(name, text) for name, text in pairs if name in ("t", "k", "n")]
    found = dict(said)
    names = [found[name] for name in ("k", "n") if name in found]
    is_sound = (
        len(value) <= MAX_LENGTH
        and len(found) == len(said)
        and _TIME.fullmatch(found.get("t", ""))
        and all(_NAME.fullmatch(name) for name in names)
        and digests
        and all(_DIGEST.fullmatch(digest) for digest in digests)
    )
    if not is_sound:
        return None
    return Signature(timestamp=int(found["t"]), digests=digests, key_id=found.get("k", ""), nonce=found.get("n", ""))


def proven(
    signature: Signature, body: bytes, secrets: Iterable[bytes], *, request: Request | None = None
) -> str | None:
    """Return the digest that one of the secrets makes, if the signature has it; each is compared in constant time."""
    signed = _signed(body, signature.timestamp, request)
    found = None
    for secret in secrets:
        wanted = _digest(secret, signed)
        if any([hmac.compare_digest(wanted, given) for given in signature.digests]):
            found = wanted
    return found


def is_signed_by(
    signature: Signature, body: bytes, secrets: Iterable[bytes], *, request: Request | None = None
) -> bool:
    """Whether one of the digests is that of one of the secrets."""
    return proven(signature, body, secrets, request=request) is not None


def _signed(body: bytes, timestamp: int, request: Request | None) -> bytes:
    return b"%d." % timestamp + (request.signed() if request else b"") + body


def _digest(secret: bytes, signed: bytes) -> str:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()
