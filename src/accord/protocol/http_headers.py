"""Accord's HTTP headers: signatures, webhooks, and W3C trace context.

    X-A2A-Signature: t=1700000000,v1=<hex of HMAC-SHA256(secret, "1700000000." + body)>
    X-A2A-Signature: t=1700000000,k=partner,n=Zk3v9Q,v1=<hex of HMAC-SHA256(secret, "1700000000." + request + body)>

A webhook signs its time and body. A request also signs its destination: `request` is the nonce `n`, a newline, the
method, a space, the target (path and query as sent) and a newline. `k` names the secret. `n` distinguishes equal
requests within one second and may be missing. Several `v1` allow a secret to be rotated without a gap. Unknown members
are ignored. This module has no clock and no memory: the verifier refuses old or repeated signatures.

    Authorization: Bearer <credentials or token>
    X-A2A-Notification-Token: <token>
    X-A2A-Task-Id: <task>
    X-A2A-Event-Id: <task>:<webhook>:<number>

A webhook's signature has a digest for each key of the sender (B-09). The keys of a server are derived for each receiver
(`receiver_key`), so one receiver can neither read nor forge signatures that another trusts. The same event always has
the same id, by which a receiver detects duplicates.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from msgspec import Struct

from accord.model import ApiKeyScheme, PushConfig
from accord.protocol import urls
from accord.protocol.codec import invalid_field

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
"""Header names. In the environment of a child process they are in capitals."""

MAX_TRACESTATE = 512
"""Characters of vendors' state that must be forwarded (3.3.1.5); a longer state is dropped, and the trace continues."""

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]*")


def join_trace(parent: str | None, state: str | None = None) -> str | None:
    """Return both headers as one text, or None without a valid parent, as a state alone means nothing."""
    if parent is None or not _PARENT.fullmatch(parent):
        return None
    if not state or len(state) > MAX_TRACESTATE or not _STATE.fullmatch(state):
        return parent
    return f"{parent} {state}"


def trace_headers(trace: str | None) -> Mapping[str, str]:
    """Return the headers that propagate a trace; none without one."""
    if trace is None:
        return {}
    parent, _, state = trace.partition(" ")
    return {TRACEPARENT: parent, TRACESTATE: state} if state else {TRACEPARENT: parent}


def trace_variables(trace: str | None) -> Mapping[str, str]:
    """Return the environment variables that propagate a trace."""
    return {name.upper(): value for name, value in trace_headers(trace).items()}


def trace_ids(trace: str | None) -> tuple[str, str] | None:
    """Return the ids of the trace and of the span, as in log records."""
    match = None if trace is None else _PARENT.match(trace)
    return None if match is None else (match["trace"], match["span"])


SIGNATURE_HEADER = "X-A2A-Signature"

SIGNATURE_DESCRIPTION = (
    "Not a key but a signature of each request with a shared secret: t=<Unix time>,k=<name of the secret>,n=<nonce>,"
    "v1=<hex of HMAC-SHA256 over the time, a dot, the nonce, a newline, the method, a space, the path with its query, "
    "a newline and the body>; k may be left out where there is one secret, n where no request is repeated in a second"
)
"""The description of the scheme in a card."""

SIGNATURE_WINDOW_SECONDS = 300
"""Maximum age of a signature in seconds, and maximum difference of two clocks."""

MAX_SIGNATURE_LENGTH = 1024

_NAME = re.compile(r"[A-Za-z0-9_~-]{1,128}")
_TIME = re.compile(r"[0-9]{1,12}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class SignedRequest(Struct, frozen=True, kw_only=True):
    """The signed request line and nonce: no part can contain a newline, so none runs into the next."""

    method: str
    target: str
    nonce: str = ""

    def signed(self) -> bytes:
        """Return the signed bytes of the request, without its body."""
        return f"{self.nonce}\n{self.method} {self.target}\n".encode("latin-1")


class HmacSignature(Struct, frozen=True, kw_only=True):
    """A header as received, not verified yet."""

    timestamp: int
    digests: tuple[str, ...]
    key_id: str = ""
    nonce: str = ""


def is_signature_scheme(scheme: ApiKeyScheme) -> bool:
    """Whether a card's scheme is a signature. A2A has no such scheme, so it is described as a key in its header."""
    return scheme.location == "header" and scheme.name.lower() == SIGNATURE_HEADER.lower()


def sign_body(
    body: bytes, timestamp: int, secrets: Iterable[bytes], *, request: SignedRequest | None = None, key_id: str = ""
) -> str:
    """Return the header's value, with a digest for each of the secrets."""
    names = {"k": key_id, "n": request.nonce if request else ""}
    if any(value and not _NAME.fullmatch(value) for value in names.values()):
        raise ValueError("The names of a key and a nonce are letters, digits and _ ~ -")
    signed = _signed(body, timestamp, request)
    members = [f"{name}={value}" for name, value in names.items() if value]
    return ",".join([f"t={timestamp}", *members, *(f"v1={_digest(secret, signed)}" for secret in secrets)])


def parse_signature(value: str) -> HmacSignature | None:
    """Read the header's value. Returns None if it is invalid or repeats a member."""
    pairs = [member.strip().partition("=")[::2] for member in value[: MAX_SIGNATURE_LENGTH + 1].split(",")]
    digests = tuple(text for name, text in pairs if name == "v1")
    parameters = [(name, text) for name, text in pairs if name in ("t", "k", "n")]
    signature = dict(parameters)
    names = [signature[name] for name in ("k", "n") if name in signature]
    is_sound = (
        len(value) <= MAX_SIGNATURE_LENGTH
        and len(signature) == len(parameters)
        and _TIME.fullmatch(signature.get("t", ""))
        and all(_NAME.fullmatch(name) for name in names)
        and digests
        and all(_DIGEST.fullmatch(digest) for digest in digests)
    )
    if not is_sound:
        return None
    return HmacSignature(
        timestamp=int(signature["t"]), digests=digests, key_id=signature.get("k", ""), nonce=signature.get("n", "")
    )


def find_digest(
    signature: HmacSignature, body: bytes, secrets: Iterable[bytes], *, request: SignedRequest | None = None
) -> str | None:
    """Return the digest that a secret produces, if the signature has it, in constant time for each secret."""
    signed = _signed(body, signature.timestamp, request)
    found = None
    for secret in secrets:
        expected = _digest(secret, signed)
        if any([hmac.compare_digest(expected, given) for given in signature.digests]):
            found = expected
    return found


def is_signed_by(
    signature: HmacSignature, body: bytes, secrets: Iterable[bytes], *, request: SignedRequest | None = None
) -> bool:
    """Whether one of the digests is from one of the secrets."""
    return find_digest(signature, body, secrets, request=request) is not None


def _signed(body: bytes, timestamp: int, request: SignedRequest | None) -> bytes:
    return b"%d." % timestamp + (request.signed() if request else b"") + body


def _digest(secret: bytes, signed: bytes) -> str:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()


AUTHORIZATION = "Authorization"
TOKEN = "X-A2A-Notification-Token"
TASK_ID = "X-A2A-Task-Id"
EVENT_ID = "X-A2A-Event-Id"

MAX_SECRET = 4096
"""Characters of a token or of credentials: servers commonly accept 8 KiB of headers."""

MAX_ID = 256

_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")


def check_push_config(config: PushConfig) -> None:
    """Refuse a webhook whose headers could not be sent, or could inject another header."""
    if len(config.id or "") > MAX_ID:
        raise invalid_field("id", f"More than {MAX_ID} characters")
    _check_secret("token", config.token)
    if config.authentication is not None:
        if not _SCHEME.fullmatch(config.authentication.scheme):
            raise invalid_field("authentication.scheme", "Not the name of an authentication scheme")
        _check_secret("authentication.credentials", config.authentication.credentials)


def _check_secret(field: str, value: str | None) -> None:
    if not value:
        return
    if len(value) > MAX_SECRET:
        raise invalid_field(field, f"More than {MAX_SECRET} characters")
    if not _VISIBLE.fullmatch(value):
        raise invalid_field(field, "Only visible ASCII characters, with spaces between them, can be sent in a header")


def push_headers(config: PushConfig, task_id: str, seq: int) -> dict[str, str]:
    """Return a webhook's headers except the signature; the configuration has been checked."""
    task, webhook = quote(task_id, safe=""), quote(config.id or "", safe="")
    headers = {TASK_ID: task, EVENT_ID: f"{task}:{webhook}:{seq}"}
    if config.token:
        headers[TOKEN] = config.token
    if authorization := _authorization(config):
        headers[AUTHORIZATION] = authorization
    return headers


def _authorization(config: PushConfig) -> str | None:
    """Return `{scheme} {credentials}` (1.0.1, 4.3.3); `Bearer` and the token are the defaults."""
    authentication = config.authentication
    scheme = authentication.scheme if authentication else "Bearer"
    credentials = (authentication.credentials if authentication else None) or config.token
    return f"{scheme} {credentials}" if credentials else None


def receiver_key(signing_key: str, url: str, tenant: str = "") -> str:
    """Return the signing key of a receiver: of one host and port, for the webhooks of one tenant.

    It is the HMAC-SHA256 of both under a signing key of the server, in hexadecimal, which does not reveal that key.
    """
    parts = urls.split_url(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    text = f"webhook key\n{tenant}\n{parts.hostname or ''}\n{port}"
    return hmac.new(signing_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def sign_webhook(body: bytes, at: int, keys: Iterable[str]) -> str:
    """Return the signature of a body for a time in seconds, with each of the keys."""
    return sign_body(body, at, (key.encode() for key in keys))


def is_signed_webhook(signature: str, body: bytes, keys: Iterable[str], now: float) -> bool:
    """Whether a body was signed with one of the keys within the time window."""
    parsed = parse_signature(signature)
    if parsed is None or abs(now - parsed.timestamp) > SIGNATURE_WINDOW_SECONDS:
        return False
    return is_signed_by(parsed, body, (key.encode() for key in keys))
