"""The tools of a planner as a model is offered them, and what it wants done with them.

It writes and reads values; a model's mistakes are passed over, because whoever reads the answer sees what was done.
Asking the model is `agents.chat`'s, using the tools `tools`'.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from accord.agents.chat.apis import Piece
from accord.agents.planner.tools import CANCELED, CREATE, ENDED, EXECUTED, PLAN, UPDATE, Wish

_TEXT = {"type": "string"}
_TASK = {
    "title": {**_TEXT, "description": "What is to be done, in one line"},
    "agent": {**_TEXT, "description": "The name of the agent that does it"},
    "prompt": {**_TEXT, "description": "What the agent is told, if that is more than the title"},
}


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool(
        PLAN,
        "Plan several tasks; each waits until the user wants it to begin.",
        {"tasks": {"type": "array", "items": {"type": "object", "properties": _TASK, "required": ["title"]}}},
        "tasks",
    ),
    _tool(CREATE, "Plan one more task.", _TASK, "title"),
    _tool(
        UPDATE,
        "Change a planned task: let it begin, drop it, or note how it went.",
        {
            "taskId": _TEXT,
            "status": {**_TEXT, "enum": [EXECUTED, CANCELED, *ENDED]},
            "result": {**_TEXT, "description": "What came of it"},
        },
        "taskId",
        "status",
    ),
]
"""What a model is offered."""


class Asked(Struct, frozen=True, kw_only=True):
    """What a model wants done: tasks to be planned, or a change of one."""

    wishes: tuple[Wish, ...] = ()
    task_id: str = ""
    status: str = ""
    result: str | None = None


def calls_of(pieces: Iterable[Piece]) -> list[Asked]:
    """Return what the pieces of an answer ask for, in order; each call comes in several."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for piece in pieces:
        for call in piece.calls:
            names[call.at] = names.get(call.at, "") + call.name
            arguments[call.at] = arguments.get(call.at, "") + call.arguments
    read = [_read(names[at], arguments[at]) for at in sorted(names)]
    return [asked for asked in read if asked is not None]


def _read(name: str, arguments: str) -> Asked | None:
    try:
        given = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return None
    if not isinstance(given, dict):
        return None
    if name == UPDATE:
        task_id, status, result = given.get("taskId"), given.get("status"), given.get("result")
        if not isinstance(task_id, str) or not isinstance(status, str) or status not in (EXECUTED, CANCELED, *ENDED):
            return None
        return Asked(task_id=task_id, status=status, result=_text(result))
    listed = given.get("tasks") if name == PLAN else [given] if name == CREATE else None
    wishes = [_wish(one) for one in listed] if isinstance(listed, list) else []
    found = tuple(wish for wish in wishes if wish is not None)
    return Asked(wishes=found) if found else None


def _wish(given: Any) -> Wish | None:
    if isinstance(given, str):
        given = {"title": given}
    if not isinstance(given, dict) or not (title := _text(given.get("title"))):
        return None
    return Wish(title=title, agent=_text(given.get("agent")) or "", text=_text(given.get("prompt")) or "")


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
