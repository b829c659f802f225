"""Generates JSON Schemas from structs: of A2A's structures, the console's API, settings and workflow files.

msgspec writes the schemas. A struct is described by its docstring, and a field by the string below it in the source.
Reference pages read the same descriptions.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from inspect import getsource
from itertools import pairwise
from typing import Any

from msgspec import Struct, inspect
from msgspec.json import schema_components

Schema = dict[str, Any]

DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"
"""The draft that TOML and YAML editors support best."""

DEFINITIONS = "#/definitions/{name}"
"""References of draft 7."""


def components(types: Iterable[Any], reference: str) -> tuple[list[Schema], dict[str, Schema]]:
    """Return a schema for each type, and by name the structs and enumerations that these refer to.

    `reference` is the format of references, such as `#/$defs/{name}`.
    """
    types = list(types)
    structs = list(dict.fromkeys(struct for kind in types for struct in _structs(inspect.type_info(kind), set())))
    schemas, definitions = schema_components([*types, *structs], ref_template=reference)
    schema_of = {reference.format(name=name): schema for name, schema in definitions.items()}
    for struct, referring in zip(structs, schemas[len(types) :], strict=True):
        members = schema_of[referring["$ref"]]["properties"]
        for field, text in field_descriptions(struct).items():
            name = struct.__struct_encode_fields__[struct.__struct_fields__.index(field)]
            members[name] = {"description": text} | members[name]
    return list(schemas[: len(types)]), definitions


def _structs(kind: inspect.Type, seen: set[type]) -> Iterator[type[Struct]]:
    """Yield the structs of a type, each once."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            if cls not in seen:
                seen.add(cls)
                yield cls
                for field in fields:
                    yield from _structs(field.type, seen)
        case inspect.UnionType(types=choices) | inspect.TupleType(item_types=choices):
            for choice in choices:
                yield from _structs(choice, seen)
        case inspect.CollectionType(item_type=item) | inspect.DictType(value_type=item) | inspect.Metadata(type=item):
            yield from _structs(item, seen)


# --- draft 7 --------------------------------------------------------------------------------------------------------


def definitions(types: Iterable[type[Struct]], scalar: Callable[[Schema], Schema] = dict) -> dict[str, Schema]:
    """Return the definitions of structs and of those that they refer to, by name, for files without null.

    No unknown member is allowed. `scalar` may change the schema of a scalar value. A field without a description of
    its own has that of its struct.
    """
    _, named = components(types, DEFINITIONS)
    target = {DEFINITIONS.format(name=name): schema for name, schema in named.items()}

    def member(schema: Schema) -> Schema:
        text = schema.get("description") or target.get(schema.get("$ref", ""), {}).get("description")
        described = {"description": first_paragraph(text)} if text else {}
        return described | value(schema) | ({"default": schema["default"]} if _has_default(schema) else {})

    def value(schema: Schema) -> Schema:
        if "$ref" in schema:
            found = target[schema["$ref"]]
            # Draft 7 ignores keywords beside a reference.
            return scalar({"enum": found["enum"]}) if "enum" in found else {"allOf": [{"$ref": schema["$ref"]}]}
        if "anyOf" in schema:
            choices = [value(choice) for choice in _choices(schema)]
            return choices[0] if len(choices) == 1 else {"anyOf": choices}
        inner = {
            key: value(schema[key]) for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)
        }
        keywords = {key: schema[key] for key in schema if key not in ("description", "default")} | inner
        return keywords if not keywords or schema.get("type") in ("array", "object") else scalar(keywords)

    return {
        name: {
            "type": "object",
            "description": first_paragraph(schema["description"]),
            "properties": {name: member(about) for name, about in schema["properties"].items()},
            "additionalProperties": False,
            **({"required": schema["required"]} if schema["required"] else {}),
        }
        for name, schema in named.items()
        if "properties" in schema
    }


def _choices(schema: Schema) -> Iterator[Schema]:
    """Yield the choices of a union without null, also those of a union in it."""
    for choice in schema["anyOf"]:
        if "anyOf" in choice:
            yield from _choices(choice)
        elif choice.get("type") != "null":
            yield choice


def _has_default(schema: Schema) -> bool:
    """Whether a default is worth stating: not None, an empty text, or a struct."""
    default = schema.get("default")
    return default is not None and default != "" and not isinstance(default, dict)


# --- descriptions ---------------------------------------------------------------------------------------------------


def struct_description(struct: type) -> str:
    """Return the first paragraph of a struct's docstring, in one line."""
    return first_paragraph(struct.__doc__ or "")


def first_paragraph(text: str) -> str:
    """Return the first paragraph of a text, in one line."""
    return _line(text.partition("\n\n")[0])


@cache
def field_descriptions(struct: type[Struct]) -> Mapping[str, str]:
    """Return the descriptions of a struct's fields by name, each in one line. A base's descriptions are inherited."""
    descriptions: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            descriptions |= _descriptions_in(base.__module__).get(base.__name__, {})
    return {name: text for name, text in descriptions.items() if name in struct.__struct_fields__}


@cache
def _descriptions_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the strings below fields, by class and field, in the source of a module, if there is one."""
    try:
        tree = ast.parse(getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: dict(_texts(node.body)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _texts(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _line(text)


def _line(text: str) -> str:
    return " ".join(text.split())
