"""JSON Schema of the settings file, from the structs of `settings` and of the agent types' options.

The schema is a little stricter than loading: a number in quotes is accepted by the loader and not by the schema.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import json

from accord.api.agent_types import AGENT_TYPES, AgentType
from accord.entries import Unusable
from accord.model import schemas
from accord.server.settings import Settings
from accord.server.settings_loader import REFERENCE_PREFIX

SCHEMA_FILE = "accord.schema.json"
"""Name of the schema file."""

REFERENCE = {"type": "string", "pattern": f"^{REFERENCE_PREFIX}."}
"""A reference to the environment, valid in place of any value but a list or a table."""

AGENT = "agent"


def own_agent_types() -> list[AgentType]:
    """Return the agent types of this package."""
    return [AGENT_TYPES.load(name) for name in AGENT_TYPES.ours]


def all_agent_types() -> list[AgentType]:
    """Return all installed agent types. Types of other packages that cannot be used are left out."""
    found = []
    for entry in AGENT_TYPES.entries():
        try:
            found.append(AGENT_TYPES.take(entry))
        except Unusable:
            continue
    return found


def settings_schema(agent_types: Iterable[AgentType]) -> dict[str, Any]:
    """Return the schema, with these agent types."""
    agent_types = list(agent_types)
    found = schemas.definitions([Settings, *(agent_type.options for agent_type in agent_types)], _scalar)
    agents = {
        f"{AGENT}.{agent_type.name}": _agent(agent_type, found[agent_type.options.__name__])
        for agent_type in agent_types
    }
    settings = found.pop(Settings.__name__)
    settings["properties"]["agents"] |= {
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "string"}, *map(_ref, agents), _ref(AGENT)]},
    }
    names = {
        name for agent_type in agent_types if agent_type.recognizes for name in agent_type.options.__struct_fields__
    }
    agents[AGENT] = {
        "description": "An agent made from an object whose agent type is recognized.",
        "type": "object",
        "properties": {name: {} for name in sorted(names - {"type"})} | {"target": {"type": "string"}},
        "required": ["target"],
        "additionalProperties": False,
    }
    for agent_type in agent_types:
        found.pop(agent_type.options.__name__, None)
    return {
        "$schema": schemas.DRAFT_07,
        "title": "Accord settings",
        **settings,
        "description": "The settings of accord: accord.toml, or [tool.accord] in pyproject.toml.",
        "definitions": dict(sorted((found | agents).items())),
    }


def _agent(agent_type: AgentType, options: schemas.Schema) -> schemas.Schema:
    """Return the schema of an agent of a type: its options, with what must be stated."""
    properties = options["properties"] | {"type": {"const": agent_type.name}}
    needed = ["type", "target"] if agent_type.recognizes else ["type"]
    if not agent_type.recognizes:
        del properties["target"]
    return options | {"properties": properties, "required": sorted({*options.get("required", ()), *needed})}


def _ref(name: str) -> schemas.Schema:
    return {"$ref": schemas.DEFINITIONS.format(name=name)}


def _scalar(schema: schemas.Schema) -> schemas.Schema:
    """Allow a reference to the environment as well, except for texts, which include them, and tags."""
    if schema.get("type") == "string" and "pattern" not in schema:
        return schema
    return schema if len(schema.get("enum", ())) == 1 else {"anyOf": [schema, REFERENCE]}


def schema_document(agent_types: Iterable[AgentType]) -> str:
    """Return the schema as the text of its file."""
    return json.format(json.encode(settings_schema(agent_types)), indent=2).decode() + "\n"
