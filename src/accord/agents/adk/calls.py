"""Calls that an ADK agent waits for: of tools that take long, for a person's word, for credentials.

They are questions of the task, and what the caller answers is what the calls gave. `agent` stands above.
"""

from typing import Any

import msgspec
from msgspec import Struct

from accord.engine.context import Context
from accord.engine.messages import YES, IncomingMessage
from accord.model import Part

CONFIRM = "adk_request_confirmation"
CREDENTIAL = "adk_request_credential"
"""What the framework calls its own questions."""


class Call(Struct, frozen=True, kw_only=True):
    """A call that waits for somebody."""

    id: str
    name: str
    args: dict[str, Any] = {}


async def answered(ctx: Context, calls: list[Call], key: str) -> list[tuple[Call, dict[str, Any]]]:
    """Ask for what calls wait for, one after the other, and return what each gave."""
    found = []
    for call in calls:
        asking = ctx.require_auth if call.name == CREDENTIAL else ctx.ask
        found.append((call, _response(call, await asking(_question(call), key=f"{key}/{call.id}"))))
    return found


def _question(call: Call) -> tuple[Part, ...]:
    """Return the question in words, and the call as data for those who can do more with it."""
    plain = {"id": call.id, "name": call.name, "args": call.args}
    return (Part(text=_words(call)), Part(data=plain, media_type="application/json"))


def _words(call: Call) -> str:
    if call.name == CONFIRM:
        asked = call.args.get("originalFunctionCall") or {}
        hint = (call.args.get("toolConfirmation") or {}).get("hint")
        return str(hint or f"May {asked.get('name')} be called?")
    if call.name == CREDENTIAL:
        return "The agent needs credentials"
    texts = [value for value in call.args.values() if isinstance(value, str)]
    if len(texts) == 1:  # a tool that asks something is told what
        return texts[0]
    return f"{call.name} waits for an answer: {msgspec.json.encode(call.args).decode()}"


def _response(call: Call, said: IncomingMessage) -> dict[str, Any]:
    if isinstance(said.data, dict):
        return said.data
    if call.name == CONFIRM:
        return {"confirmed": said.text.strip().strip(".,!").lower() in YES}
    return {"result": said.text if said.data is None else said.data}
