"""What is offered to MCP clients: a tool for each agent, or for each skill of each.

Names are made safe for every client, and all tools take and give the same; what is done with a call is `calls`, above.
"""

import re
from collections.abc import Iterable
from typing import Any

from mcp_types import Tool, ToolAnnotations
from msgspec import Struct

from accord.a2a import A2A, Caller
from accord.model import AgentSkill

MAX_NAME = 64
"""Characters of a tool's name: MCP allows 128, but models and their interfaces often half as many."""

MAX_SKILLS = 20
"""Skills that a description lists; it is read by a model, with every call."""

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent, or the answer to what it asked."},
        "data": {"description": "Structured data to send along: any JSON value."},
        "files": {
            "type": "array",
            "description": "Files to send along.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "media_type": {"type": "string"},
                    "content": {"type": "string", "description": "The bytes, as base64."},
                    "url": {"type": "string", "description": "Where the agent gets it, instead of its content."},
                },
            },
        },
        "task_id": {
            "type": "string",
            "description": "A task of this agent to go on with. Without a message, it is looked what became of it.",
        },
        "context_id": {"type": "string", "description": "A conversation with this agent to go on with."},
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "state": {"type": "string", "description": "completed, or input-required: answer with the task's id."},
        "task_id": {"type": "string"},
        "context_id": {"type": "string"},
        "text": {"type": "string", "description": "What the agent said."},
        "data": {"description": "Structured data of the answer; a list if there is more than one."},
    },
    "required": ["state"],
}


class Exposed(Struct, frozen=True, kw_only=True):
    """An agent to be offered, and as whom it is called; `unreachable` is what it raises if it is not there."""

    name: str
    agent: A2A
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()
    caller: Caller = Caller()
    unreachable: tuple[type[Exception], ...] = ()


class Offered(Struct, frozen=True, kw_only=True):
    """A tool, and what calling it means; a `skill` is asked for by its id."""

    tool: Tool
    exposed: Exposed
    skill: str | None = None


def offered(agents: Iterable[Exposed], *, by_skill: bool = False) -> dict[str, Offered]:
    """Return the tools of agents by name."""
    found: dict[str, Offered] = {}
    for one in agents:
        if by_skill and one.skills:
            for skill in one.skills:
                name = _free(f"{one.name}_{skill.id}", found)
                tool = _tool(name, skill.name, _described(skill.description or one.description, (), skill.examples))
                found[name] = Offered(tool=tool, exposed=one, skill=skill.id)
        else:
            name = _free(one.name, found)
            tool = _tool(name, one.name, _described(one.description, one.skills, ()))
            found[name] = Offered(tool=tool, exposed=one)
    return found


def _tool(name: str, title: str, description: str) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=INPUT_SCHEMA,
        output_schema=OUTPUT_SCHEMA,
        annotations=ToolAnnotations(title=title, open_world_hint=True),
    )


def _described(description: str, skills: tuple[AgentSkill, ...], examples: Iterable[str]) -> str:
    lines = [description]
    lines += [f"- {skill.name}: {skill.description}" for skill in skills[:MAX_SKILLS] if skill.description]
    lines += [f"Example: {example}" for example in examples]
    return "\n".join(filter(None, lines))


def _free(name: str, taken: dict[str, Offered]) -> str:
    """Return a name as it may be called, and that no other tool has."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:MAX_NAME] or "agent"
    number, free = 1, safe
    while free in taken:
        number += 1
        free = f"{safe[: MAX_NAME - len(str(number)) - 1]}_{number}"
    return free
