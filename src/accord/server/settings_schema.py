"""JSON Schema of the settings file, and the descriptions of settings.

Both come from the structs of `settings`: a description is the text below a field in their source. The schema is a
little stricter than loading: a number in quotes is accepted by the loader and not by the schema.
"""

import ast
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from inspect import getsource
from textwrap import dedent
from typing import Any

from msgspec import NODEFAULT, Struct, inspect, json, to_builtins

from accord.api.agent_types import KINDS, Kind
from accord.entries import Unusable
from accord.server.settings import Settings
from accord.server.settings_loader import REFERENCE_PREFIX


@cache
def field_descriptions(kind: type[Struct]) -> Mapping[str, str]:
    """Return the descriptions of a struct's fields, each in one line. Descriptions of a base are inherited."""
    inherited = [one for one in reversed(kind.__mro__) if issubclass(one, Struct) and one is not Struct]
    return {name: said for one in inherited for name, said in _read_descriptions(one).items()}


def section_description(kind: type) -> str:
    """Return the description of a group of settings, in one line."""
    return _line((kind.__doc__ or "").partition("\n\n")[0])


def _read_descriptions(kind: type[Struct]) -> dict[str, str]:
    (found,) = ast.parse(dedent(getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    written = {}
    for field, below in zip(found.body, found.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                written[name] = _line(said)
    return written


def _line(text: str) -> str:
    return " ".join(text.split())


SCHEMA_DIALECT = "http://json-schema.org/draft-07/schema#"
"""Schema dialect that TOML editors support best."""

SCHEMA_FILE = "accord.schema.json"
"""Name of the schema file."""

REFERENCE = {"type": "string", "pattern": f"^{REFERENCE_PREFIX}."}
"""A reference to the environment, valid in place of any value but a list or a table."""

AGENT = "agent"


def own_agent_types() -> list[Kind]:
    """Return the agent types of this package."""
    return [KINDS.load(name) for name in KINDS.ours]


def all_agent_types() -> list[Kind]:
    """Return all installed agent types. Types of other packages that cannot be used are left out."""
    found = []
    for entry in KINDS.entries():
        try:
            found.append(KINDS.take(entry))
        except Unusable:
            continue
    return found


def settings_schema(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Return the schema, with these agent types."""
    definitions = _Definitions()
    settings = definitions.struct(Settings)
    told = settings["properties"]["agents"]["description"]
    settings["properties"]["agents"] = {
        "description": told,
        "type": "object",
        "additionalProperties": definitions.agents(list(kinds)),
    }
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "Accord settings",
        **settings,
        "description": "The settings of accord: accord.toml, or [tool.accord] in pyproject.toml.",
        "definitions": dict(sorted(definitions.found.items())),
    }


class _Definitions:
    """The schemas of structs, each defined once."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._names: dict[type[Struct], str] = {}

    def agents(self, kinds: list[Kind]) -> dict[str, Any]:
        """Return the schema of an agent: a target, or a table of an agent type."""
        made = []
        for kind in kinds:
            name = f"{AGENT}.{kind.name}"
            self.found[name] = self._agent(kind)
            made.append(_ref(name))
        known = {name for kind in kinds if kind.recognises for name in kind.options.__struct_fields__}
        self.found[AGENT] = {
            "description": "An agent made of a thing whose kind is recognised.",
            "type": "object",
            "properties": {name: {} for name in sorted(known - {"type"})} | {"target": {"type": "string"}},
            "required": ["target"],
            "additionalProperties": False,
        }
        return {"anyOf": [{"type": "string"}, *made, _ref(AGENT)]}

    def _agent(self, kind: Kind) -> dict[str, Any]:
        made = self.struct(kind.options)
        needed = ["type", "target"] if kind.recognises else ["type"]
        made["properties"]["type"] = {"const": kind.name}
        if not kind.recognises:
            del made["properties"]["target"]
        return {**made, "required": sorted({*made.get("required", ()), *needed})}

    def struct(self, kind: type[Struct]) -> dict[str, Any]:
        """Return the schema of a group of settings."""
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        said = field_descriptions(kind)
        properties = {}
        if info.tag_field is not None:
            properties[info.tag_field] = {"const": info.tag}
        for field in info.fields:
            told = said.get(field.name) or (
                section_description(field.type.cls) if isinstance(field.type, inspect.StructType) else ""
            )
            properties[field.name] = ({"description": told} if told else {}) | self.of(field.type) | _default(field)
        required = [field.name for field in info.fields if field.required]
        required += [info.tag_field] if info.tag_field is not None else []
        return {
            "type": "object",
            "description": section_description(kind),
            "properties": properties,
            "additionalProperties": False,
            **({"required": required} if required else {}),
        }

    def of(self, kind: inspect.Type) -> dict[str, Any]:
        """Return the schema of a type. TOML has no null, so None is left out."""
        match kind:
            case inspect.Metadata(type=inner):
                return self.of(inner)
            case inspect.StructType(cls=cls):
                return {"allOf": [self._defined(cls)]}  # in this dialect, members beside a $ref are ignored
            case inspect.UnionType(types=kinds):
                found = [self.of(one) for one in kinds if not isinstance(one, inspect.NoneType)]
                return found[0] if len(found) == 1 else {"anyOf": found}
            case (
                inspect.VarTupleType(item_type=item, min_length=least)
                | inspect.FrozenSetType(item_type=item, min_length=least)
            ):
                return {"type": "array", "items": self.of(item)} | ({"minItems": least} if least else {})
            case inspect.DictType(value_type=value):
                return {"type": "object", "additionalProperties": self.of(value)}
            case inspect.AnyType():
                return {}
            case inspect.StrType(pattern=None):
                return {"type": "string"}
            case _:
                return {"anyOf": [_scalar(kind), REFERENCE]}

    def _defined(self, kind: type[Struct]) -> dict[str, str]:
        if kind not in self._names:
            taken = kind.__name__ in self.found
            name = self._names[kind] = f"{kind.__module__.split('.')[-2]}.{kind.__name__}" if taken else kind.__name__
            self.found[name] = {}  # a placeholder, in case it contains itself
            self.found[name] = self.struct(kind)
        return _ref(self._names[kind])


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def _scalar(kind: inspect.Type) -> dict[str, Any]:
    match kind:
        case inspect.EnumType(cls=cls):
            return {"enum": [one.value for one in cls]}
        case inspect.LiteralType(values=words):
            return {"enum": list(words)}
        case inspect.IntType() | inspect.FloatType():
            bounds = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le, "exclusiveMaximum": kind.lt}
            told = {name: bound for name, bound in bounds.items() if bound is not None}
            return {"type": "integer" if isinstance(kind, inspect.IntType) else "number", **told}
        case inspect.StrType(pattern=pattern):
            return {"type": "string", "pattern": pattern}
        case inspect.BoolType():
            return {"type": "boolean"}
    raise TypeError(f"There is no schema for {kind}")


def _default(field: inspect.Field) -> dict[str, Any]:
    value = field.default
    if value is NODEFAULT or value is None or isinstance(value, Struct) or (isinstance(value, str) and not value):
        return {}
    return {"default": to_builtins(value.value if isinstance(value, Enum) else value)}


def schema_document(kinds: Iterable[Kind]) -> str:
    """Return the schema as the text of its file."""
    return json.format(json.encode(settings_schema(kinds)), indent=2).decode() + "\n"
