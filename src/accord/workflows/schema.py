"""JSON Schema of workflow files, with a description of each key.

Types, defaults and names come from the structs and from `decoder`. A test fails for a key without a description.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct, to_builtins

from accord.model import schemas
from accord.workflows import agent_definition, decoder
from accord.workflows import document as d
from accord.workflows.agent_definition import FilePermissions, Permissions
from accord.workflows.document import CustomStep, Document, Step, Swarm, Trajectories
from accord.workflows.executors import step_types
from accord.workflows.notation import DURATION_PATTERN, format_duration

STRUCTS: tuple[type[Struct], ...] = (
    d.Document,
    agent_definition.FilePermissions,
    d.Swarm,
    d.IdleNudge,
    d.Triggers,
    d.Schedule,
    d.Hook,
    d.Input,
    d.Path,
    agent_definition.Permissions,
    agent_definition.Files,
    agent_definition.AgentDef,
    agent_definition.Constraints,
    d.CustomStep,
    d.Param,
    d.Workflow,
    d.Preflight,
    d.Step,
    d.Verification,
    d.Coordination,
    d.Barrier,
    d.SharedState,
    d.ErrorHandling,
    d.Trajectories,
)
"""The structs of a file, in the order of the reference."""


def meanings(struct: type[Struct]) -> dict[str, str]:
    """Return the description of each key of a struct."""
    texts = schemas.field_descriptions(struct)
    return {field.encode_name: texts[field.name] for field in decoder.fields_of(struct)}


SECRETIVE = {"doNotSuggest": True}
"""Marks other spellings, which are valid but not suggested."""


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow files."""
    definitions = {struct.__name__: _SPECIAL.get(struct, _struct)(struct) for struct in STRUCTS}
    return {
        "$schema": schemas.DRAFT_07,
        "title": "Accord workflow",
        "description": "A workflow of accord: agents, and the steps that they do together.",
        "allOf": [_ref(Document)],  # in this dialect, keywords next to a $ref are ignored
        "definitions": definitions,
    }


def _ref(struct: type[Any]) -> dict[str, str]:
    return {"$ref": schemas.DEFINITIONS.format(name=struct.__name__)}


@cache
def _plain_definitions() -> dict[str, schemas.Schema]:
    """Return the schemas of all structs, as their types have them."""
    return schemas.definitions(STRUCTS, _in_notation)


def _in_notation(scalar: schemas.Schema) -> schemas.Schema:
    """Return the schema of a value as files write it."""
    match scalar.get("notation"):
        case "duration":
            text = {"type": "string", "pattern": DURATION_PATTERN}
            return {"anyOf": [{"type": "number", "minimum": 0}, text]}
        case "scalar":
            return {"type": ["string", "number", "boolean"]}
        case "step type":
            return {"enum": list(step_types())}
    return scalar


def _struct(struct: type[Struct]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (struct.__doc__ or "").partition("\n")[0],
        "properties": _properties(struct),
        "additionalProperties": False,
        **_required(struct),
    }


_MORE: Mapping[str, dict[str, Any]] = {
    "url": {"anyOf": [{"format": "uri"}, {"pattern": r"\{\{|\$\{"}]},
    "streaming": {"default": True},  # for an agent that offers it
}
"""Keywords that the types do not contain."""


def _properties(struct: type[Struct]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain = _plain_definitions()[struct.__name__]["properties"]
    for name, member in decoder.members_of(struct).items():
        keywords = {key: value for key, value in plain[member.name].items() if key != "default"}
        if name == member.name:
            found[name] = keywords | _default(member) | _MORE.get(name, {})
        elif decoder.has_time_unit(name):
            found[name] = {"type": "number", "minimum": 0}
        else:
            found[name] = keywords
        if name != member.name:
            found[name] |= {"description": f"The same as `{member.name}`.", **SECRETIVE}
    for (owner, name, also), _ in decoder.SAME_VALUES.items():
        if owner is struct:
            found[name]["enum"] = [*found[name]["enum"], also]
    for (owner, name), only in decoder.IMPLIED.items():
        if owner is struct:
            found[name] = {"description": "Has no effect.", "const": only, **SECRETIVE}
    return found


def _default(member: decoder.MemberName) -> dict[str, Any]:
    value = None if member.field.required else decoder.default_of(member.field)
    if value is None or isinstance(value, Struct | tuple | dict) or value == "":
        return {}
    return {"default": format_duration(value) if decoder.written_as(member.kind) == "duration" else to_builtins(value)}


def _required(struct: type[Struct]) -> dict[str, Any]:
    """Return the required members, each under any of its names."""
    names = {
        field.encode_name: [name for name, member in decoder.members_of(struct).items() if member.field is field]
        for field in decoder.fields_of(struct)
        if field.required
    }
    plain = [name for name, spelled in names.items() if len(spelled) == 1]
    either = [{"anyOf": [{"required": [name]} for name in spelled]} for spelled in names.values() if len(spelled) > 1]
    return ({"required": plain} if plain else {}) | ({"allOf": either} if either else {})


def _step(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a step. With `use`, unknown keys are parameters."""
    found = _struct(struct)
    del found["additionalProperties"]
    only = {"propertyNames": {"enum": list(found["properties"])}}
    return {**found, "if": {"not": {"required": ["use"]}}, "then": only}


def _custom(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a custom step. Any member may be a template, and may be next to `params`."""
    found = _struct(struct)
    own = found["properties"]
    inside: dict[str, Any] = {
        "type": "object",
        "properties": {name: {} for name in decoder.members_of(Step)},
        "additionalProperties": False,
    }
    own["step"] = {"description": own["step"]["description"], **inside}
    return {**found, "properties": {**inside["properties"], **own}}


def _short(also: str) -> Callable[[type[Struct]], dict[str, Any]]:
    return lambda struct: {"anyOf": [{"type": also}, _struct(struct)]}


_SPECIAL: Mapping[type[Struct], Callable[[type[Struct]], dict[str, Any]]] = {
    Step: _step,
    CustomStep: _custom,
    Swarm: _short("string"),
    FilePermissions: _short("string"),
    Permissions: _short("string"),
    Trajectories: _short("boolean"),
}
