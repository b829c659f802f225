"""The headers of a webhook: who sends it, what it is about, and that nobody has changed it.

    Authorization: Bearer <credentials or token>
    X-A2A-Notification-Token: <token>
    X-A2A-Task-Id: <task>
    X-A2A-Event-Id: <task>:<webhook>:<number>
    X-A2A-Signature: t=<seconds>,v1=<digest>[,v1=<digest> ...]

A signature (`protocol.signing`) has a digest for each key that the sender has (B-09), so keys can be changed without
a gap, and a receiver needs to know one of them. The keys of a server are derived for each receiver (`receiver_key`):
one receiver can neither read nor make what another one believes. The same event always has the same id, by which a
receiver knows it again. Nothing is sent or received here; the sender of webhooks writes these headers, their receiver
reads them.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from urllib.parse import quote

from accord.model import PushConfig
from accord.protocol import hosts, signing
from accord.protocol.codec import invalid_field

AUTHORIZATION = "Authorization"
TOKEN = "X-A2A-Notification-Token"
TASK_ID = "X-A2A-Task-Id"
EVENT_ID = "X-A2A-Event-Id"

MAX_SECRET = 4096
"""Characters of a token or of credentials: servers commonly take 8 KiB of headers."""

MAX_ID = 256

_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")


def check(config: PushConfig) -> None:
    """Refuse a webhook whose headers could not be sent, or would end early and begin another."""
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


def headers(config: PushConfig, task_id: str, seq: int) -> dict[str, str]:
    """Return what a webhook's headers say besides the signature; the configuration has been checked."""
    task, webhook = quote(task_id, safe=""), quote(config.id or "", safe="")
    found = {TASK_ID: task, EVENT_ID: f"{task}:{webhook}:{seq}"}
    if config.token:
        found[TOKEN] = config.token
    if authorization := _authorization(config):
        found[AUTHORIZATION] = authorization
    return found


def _authorization(config: PushConfig) -> str | None:
    """Return `{scheme} {credentials}` (1.0.1, 4.3.3); the token stands in for a scheme or credentials not stated."""
    stated = config.authentication
    scheme = stated.scheme if stated else "Bearer"
    credentials = (stated.credentials if stated else None) or config.token
    return f"{scheme} {credentials}" if credentials else None


def receiver_key(signing_key: str, url: str, tenant: str = "") -> str:
    """Return the key that a receiver is given: of one host and port, for the webhooks of one tenant.

    It is the HMAC-SHA256 of both under a signing key of the server, in hexadecimal, which does not give that key away.
    """
    parts = hosts.split(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    text = f"webhook key\n{tenant}\n{parts.hostname or ''}\n{port}"
    return hmac.new(signing_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def sign(body: bytes, at: int, keys: Iterable[str]) -> str:
    """Return the signature of a body that is sent at a time, in seconds, under each of the keys."""
    return signing.sign(body, at, (key.encode() for key in keys))


def is_signed(signature: str, body: bytes, keys: Iterable[str], now: float) -> bool:
    """Whether a body was signed with one of the keys, not long ago."""
    found = signing.parse(signature)
    if found is None or abs(now - found.timestamp) > signing.WINDOW_SECONDS:
        return False
    return signing.is_signed_by(found, body, (key.encode() for key in keys))
