"""What a POST to a document's webhook says: whether whoever sends it may, and what a run is asked for by it.

It reads values and makes a message; nothing here knows HTTP, which is `console.flows.hooks`, nor begins anything.
Signatures are those of GitHub and everybody who does the same: `X-Hub-Signature-256: sha256=<hex of HMAC-SHA256(secret,
body)>`.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from accord.core.ids import new_id
from accord.errors import InvalidParams
from accord.model import Message, Part, Role
from accord.workflows.beginning import INNER
from accord.workflows.document import Document, Hook
from accord.workflows.givens import inputs_of
from accord.workflows.values import BadExpression, Unresolved, Values

SIGNATURE = "x-hub-signature-256"

DELIVERIES = ("x-github-delivery", "idempotency-key", "webhook-id")
"""Headers that name a delivery: one that comes again with the same name begins nothing new."""

MAX_DELIVERY = 256
"""Characters of such a name: it becomes part of a key."""


def hook_at(document: Document, path: str) -> Hook | None:
    """Return the webhook of a document at a path, whose slashes at its ends do not matter."""
    wanted = path.strip("/")
    found = document.on.webhook if document.on is not None else ()
    return next((hook for hook in found if hook.path.strip("/") == wanted), None)


def is_signed(secret: str, body: bytes, signature: str | None) -> bool:
    """Whether a body was signed with a secret; how long that takes to say tells nothing about it."""
    stated = (signature or "").removeprefix("sha256=").strip().lower()
    due = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(stated.encode(), due.encode())


def message(
    document: Document, hook: Hook, body: bytes, headers: Mapping[str, str], fixed: Mapping[str, Any]
) -> Message:
    """Return what a call asks for; names of headers are in lower case, and `fixed` are the values of all its runs.

    Raises InvalidParams, also for inputs that are missing or wrong: whoever calls hears nothing of a run that is
    rejected.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidParams("The body is no text") from None
    said = _read(text)
    wish: dict[str, Any] = {"input": _input(hook, said, text, headers)}
    if isinstance(said, dict):
        wish["inputs"] = {name: said[name] for name in document.inputs if name in said}
    _, problems = inputs_of(document, {**fixed, **wish.get("inputs", {})}, wish["input"])
    if problems:
        raise InvalidParams("; ".join(f"{one.message} ({one.fix})" for one in problems))
    delivery = next((headers[name] for name in DELIVERIES if headers.get(name)), None)
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
