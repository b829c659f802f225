"""Calls of a document's webhook endpoints: how they are authenticated, and the message that starts a run.

It reads values and makes a message; nothing here knows HTTP, which is `console.flows.hooks`, nor starts anything. Three
kinds of signatures are known, of which an endpoint takes those of its `signature`:

    timestamp   X-A2A-Signature: t=...,n=...,v1=...   as requests of callers are signed (`protocol.signing`)
    timestamp   webhook-id, webhook-timestamp, webhook-signature: v1,...   (standardwebhooks.com)
    github      X-Hub-Signature-256: sha256=...   of the body alone

One endpoint takes one kind: what is signed with a timestamp could otherwise be sent again as the body of another kind.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from accord.engine.ids import new_id
from accord.errors import AuthenticationFailed, InvalidParams
from accord.model import Message, Part, Role
from accord.protocol import signing
from accord.workflows.beginning import INNER
from accord.workflows.document import Document, Hook
from accord.workflows.givens import inputs_of
from accord.workflows.values import BadExpression, Unresolved, Values

DELIVERIES = ("x-github-delivery", "idempotency-key", "webhook-id")
"""Headers that name a delivery of a caller whom the server authenticates: the same name starts no second run."""

MAX_DELIVERY = 256
"""Characters of such a name: it becomes part of a key."""

STANDARD_PREFIX = "whsec_"
"""What secrets of Standard Webhooks begin with; the rest is base64."""

_TIME = re.compile(r"[0-9]{1,12}")


class Call(NamedTuple):
    """A request to a webhook endpoint; names of headers are in lower case."""

    target: str
    headers: Mapping[str, str]
    body: bytes


def hook_at(document: Document, path: str) -> Hook | None:
    """Return the webhook of a document at a path, whose slashes at its ends do not matter."""
    wanted = path.strip("/")
    found = document.on.webhook if document.on is not None else ()
    return next((hook for hook in found if hook.path.strip("/") == wanted), None)


def verify(hook: Hook, secret: str, call: Call, now: int, tolerance: int) -> str:
    """Return the id of a signed delivery, which is signed too, or raise AuthenticationFailed."""
    kinds = SIGNATURES[hook.signature]
    for header, verified in kinds.items():
        if header in call.headers:
            return verified(secret, call, now, tolerance)
    raise AuthenticationFailed(f"The signature is missing: this webhook needs {' or '.join(kinds)}")


def _a2a(secret: str, call: Call, now: int, tolerance: int) -> str:
    found = signing.parse(call.headers[signing.HEADER.lower()])
    if found is None:
        raise _wrong()
    _check_time(found.timestamp, now, tolerance)
    request = signing.Request(method="POST", target=call.target, nonce=found.nonce)
    digest = signing.proven(found, call.body, (secret.encode(),), request=request)
    if digest is None:
        raise _wrong()
    return found.nonce or digest


def _standard(secret: str, call: Call, now: int, tolerance: int) -> str:
    id, stated = call.headers.get("webhook-id", ""), call.headers.get("webhook-timestamp", "")
    if not id or "." in id or not _TIME.fullmatch(stated):  # a dot ends the id in what is signed
        raise AuthenticationFailed("webhook-id and webhook-timestamp are missing or not valid")
    _check_time(int(stated), now, tolerance)
    due = hmac.new(standard_key(secret), f"{id}.{stated}.".encode("latin-1") + call.body, hashlib.sha256).digest()
    value = f"v1,{base64.b64encode(due).decode()}".encode()
    if not any([hmac.compare_digest(value, one.encode()) for one in call.headers["webhook-signature"].split(" ")]):
        raise _wrong()
    return id


def standard_key(secret: str) -> bytes:
    """Return the key of a secret, which Standard Webhooks write as `whsec_` and base64; else raise ValueError."""
    encoded = secret.removeprefix(STANDARD_PREFIX)
    return secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)


def _github(secret: str, call: Call, _now: int, _tolerance: int) -> str:
    """Return the digest of the body: the header that names a delivery is not signed, so a replay can change it."""
    stated = call.headers["x-hub-signature-256"].removeprefix("sha256=").strip().lower()
    due = hmac.new(secret.encode(), call.body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(stated.encode(), due.encode()):
        raise _wrong()
    return due


Verify = Callable[[str, Call, int, int], str]

SIGNATURES: Mapping[str, Mapping[str, Verify]] = {
    "timestamp": {signing.HEADER.lower(): _a2a, "webhook-signature": _standard},
    "github": {"x-hub-signature-256": _github},
}
"""The `signature` of a webhook -> the header that has one -> how it is verified."""


def _check_time(timestamp: int, now: int, tolerance: int) -> None:
    if abs(now - timestamp) > tolerance:
        raise AuthenticationFailed(f"The timestamp of the signature is more than {tolerance} seconds off")


def _wrong() -> AuthenticationFailed:
    return AuthenticationFailed("The signature is not valid")


def delivery_named(headers: Mapping[str, str]) -> str | None:
    """Return the name that a caller gives a delivery, if it gives one."""
    return next((headers[name] for name in DELIVERIES if headers.get(name)), None)


def message(document: Document, hook: Hook, call: Call, delivery: str | None, fixed: Mapping[str, Any]) -> Message:
    """Return what a call asks for; `fixed` are the values of all runs of the document.

    Raises InvalidParams, also for inputs that are missing or wrong: whoever calls hears nothing of a run that is
    rejected.
    """
    try:
        text = call.body.decode()
    except UnicodeDecodeError:
        raise InvalidParams("The body is no text") from None
    said = _read(text)
    wish: dict[str, Any] = {"input": _input(hook, said, text, call.headers)}
    if isinstance(said, dict):
        wish["inputs"] = {name: said[name] for name in document.inputs if name in said}
    _, problems = inputs_of(document, {**fixed, **wish.get("inputs", {})}, wish["input"])
    if problems:
        raise InvalidParams("; ".join(f"{one.message} ({one.fix})" for one in problems))
    if delivery is not None and len(delivery) > MAX_DELIVERY:
        raise InvalidParams(f"The name of a delivery has up to {MAX_DELIVERY} characters")
    return Message(
        message_id=f"hook/{hook.path.strip('/')}/{delivery or new_id()}",
        role=Role.USER,
        parts=(Part(data={name: value for name, value in wish.items() if value}),),
        metadata={INNER: True},
    )


def _input(hook: Hook, said: Any, text: str, headers: Mapping[str, str]) -> str:
    if hook.input is None:
        return text
    try:
        return Values(vars={"body": said, "headers": headers}).text(hook.input)
    except (Unresolved, BadExpression) as error:
        raise InvalidParams(f"The input of a run cannot be made of this: {error}") from None


def _read(text: str) -> Any:
    """Return what a body says: as JSON if it is some, else as the text that it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
