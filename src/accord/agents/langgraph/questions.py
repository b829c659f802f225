"""Interrupts of a graph as questions to the caller, and the caller's answers as what the graph goes on with.

Pure conversion; when a question is asked, and by whom it is answered, is `turn` and the context.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from langgraph.types import Interrupt

from accord.agents.langchain_messages import content_of, plain
from accord.engine.context import APPROVAL
from accord.engine.messages import IncomingMessage
from accord.model import Part
from accord.model.keys import SCHEMA

ASKING = ("question", "message", "prompt", "text", "description")
"""Keys under which graphs put what a person is to read."""

UNSAID = "The agent needs an answer to go on."

JSON = "application/json"


def question(interrupts: Sequence[Interrupt]) -> list[Part]:
    """Return what to ask: the question, with its data; of several, all with their ids."""
    if len(interrupts) == 1:
        value = interrupts[0].value
        if isinstance(value, str):
            return [Part(text=str(value))]
        return [Part(text=_words(value) or UNSAID), Part(data=plain(value), media_type=JSON)]
    lines = [f"{number}. {_words(one.value) or UNSAID}" for number, one in enumerate(interrupts, 1)]
    return [Part(text="\n".join(lines)), Part(data={"interrupts": listed(interrupts)}, media_type=JSON)]


def listed(interrupts: Sequence[Interrupt]) -> list[dict[str, Any]]:
    """Return interrupts with their ids and, where the graph says so, the schema of what it wants."""
    return [
        {"id": one.id, "value": plain(one.value)} | ({"schema": plain(schema)} if (schema := _schema(one)) else {})
        for one in interrupts
    ]


def about(interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Return the metadata of the question: all interrupts, and whether it asks for approval or states a schema."""
    found: dict[str, Any] = {"interrupts": listed(interrupts)}
    if len(interrupts) == 1:
        value, schema = interrupts[0].value, _schema(interrupts[0])
        if isinstance(value, dict) and value.get(APPROVAL) is True:
            found[APPROVAL] = True
        if schema is not None:
            found[SCHEMA] = plain(schema)
    return found


def answers(interrupts: Sequence[Interrupt], said: IncomingMessage) -> dict[str, Any]:
    """Return what the graph goes on with, by the ids of its interrupts.

    Data whose keys are their ids answers those that it names; anything else answers the first.
    """
    ids = {one.id for one in interrupts}
    data = said.data
    if isinstance(data, dict) and data and data.keys() <= ids:
        return data
    return {interrupts[0].id: _value(said)}


def _value(said: IncomingMessage) -> Any:
    if any(part.data is not msgspec.UNSET for part in said.parts):
        return said.data
    return content_of(said.parts) if said.files else said.text


def _words(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, dict):
        return ""
    return next((value[key] for key in ASKING if isinstance(value.get(key), str)), "")


def _schema(interrupt: Interrupt) -> dict[str, Any] | None:
    schema = getattr(interrupt, "response_schema", None)
    return schema if isinstance(schema, dict) else None
