"""JSON Schema of workflow files, with a description of each key.

Types, defaults and names come from the structs and from `decoder`. A test fails for a key without a description.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct, inspect, to_builtins

from accord.model.schemas import field_descriptions
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
    texts = field_descriptions(struct)
    return {field.encode_name: texts[field.name] for field in decoder.fields_of(struct)}


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The dialect that YAML editors support best."""

SECRETIVE = {"doNotSuggest": True}
"""Marks other spellings, which are valid but not suggested."""


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow files."""
    definitions = {struct.__name__: _SPECIAL.get(struct, _struct)(struct) for struct in STRUCTS}
    return {
        "$schema": DIALECT,
        "title": "Accord workflow",
        "description": "A workflow of accord: agents, and the steps that they do together.",
        "allOf": [_ref(Document)],  # in this dialect, keywords next to a $ref are ignored
        "definitions": definitions,
    }


def _ref(struct: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/definitions/{struct.__name__}"}


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
    properties, texts = {}, meanings(struct)
    for name, member in decoder.members_of(struct).items():
        if name == member.name:
            properties[name] = {"description": texts[name], **_of(member.kind), **_default(member)}
            properties[name] |= _MORE.get(name, {})
        else:
            alias = {"description": f"The same as `{member.name}`.", **SECRETIVE}
            properties[name] = {
                **alias,
                **({"type": "number", "minimum": 0} if decoder.has_time_unit(name) else _of(member.kind)),
            }
    for (owner, name, also), _ in decoder.SAME_VALUES.items():
        if owner is struct:
            properties[name]["enum"] = [*properties[name]["enum"], also]
    for (owner, name), only in decoder.IMPLIED.items():
        if owner is struct:
            properties[name] = {"description": "Has no effect.", "const": only, **SECRETIVE}
    return properties


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
    definition = _struct(struct)
    del definition["additionalProperties"]
    only = {"propertyNames": {"enum": list(definition["properties"])}}
    return {**definition, "if": {"not": {"required": ["use"]}}, "then": only}


def _custom(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a custom step. Any member may be a template, and may be next to `params`."""
    definition = _struct(struct)
    own = definition["properties"]
    inside: dict[str, Any] = {
        "type": "object",
        "properties": {name: {} for name in decoder.members_of(Step)},
        "additionalProperties": False,
    }
    own["step"] = {"description": own["step"]["description"], **inside}
    return {**definition, "properties": {**inside["properties"], **own}}


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


def _of(kind: inspect.Type) -> dict[str, Any]:
    """Return the schema of a type."""
    match kind:
        case inspect.Metadata():
            written = decoder.written_as(kind) or ""
            return {"enum": list(step_types())} if written == "step type" else _WRITTEN[written]
        case inspect.StructType(cls=cls):
            return {"allOf": [_ref(cls)]}
        case inspect.UnionType(types=kinds):
            return {"anyOf": [_of(one) for one in kinds if not isinstance(one, inspect.NoneType)]}
        case inspect.VarTupleType(item_type=item, min_length=least):
            return {"type": "array", "items": _of(item)} | ({"minItems": least} if least else {})
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _of(value)}
        case inspect.LiteralType(values=words):
            return {"enum": list(words)}
        case inspect.IntType() | inspect.FloatType():
            bounds = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le}
            stated = {name: bound for name, bound in bounds.items() if bound is not None}
            return {"type": "integer" if isinstance(kind, inspect.IntType) else "number", **stated}
        case _:
            return _PLAIN[type(kind)]


_PLAIN: Mapping[type[inspect.Type], dict[str, Any]] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.AnyType: {},
}
_WRITTEN: Mapping[str, dict[str, Any]] = {
    "duration": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]},
    "scalar": {"type": ["string", "number", "boolean"]},
}
