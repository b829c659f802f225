"""Names and types of settings: unknown names, and validation errors explained.

It works on structs, lists and tables as msgspec does. msgspec validates the values. Its errors leave out the names in a
table and the possible choices, which are added here.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeGuard, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct


class UnknownSetting(Exception):
    """An unknown name, or a value in place of a group of settings."""


@cache
def setting_types(kind: type[Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields, without None."""
    hints = get_type_hints(kind)
    return {name: _without_none(hints[name]) for name in kind.__struct_fields__}


def type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the type at a path below a type, or None without such a path."""
    for part in path:
        kind = setting_types(kind).get(part) if is_struct(kind) else _value_type(kind)
    return kind


def setting_names(kind: type[Struct]) -> Iterator[tuple[str, ...]]:
    """Yield the path of every setting below a struct."""
    for name, inner in setting_types(kind).items():
        yield (name,)
        if is_struct(inner):
            yield from ((name, *rest) for rest in setting_names(inner))


def check_names(kind: Any, value: Any, at: str = "") -> None:
    """Raise UnknownSetting for the first name in a value that its type does not have."""
    if is_struct(kind):
        _check_group(kind, value, at)
    elif get_origin(kind) is dict:
        for name, part in _table(value, at).items():
            check_names(_value_type(kind), part, f"{at}.{name}")
    elif get_origin(kind) in (tuple, frozenset) and isinstance(value, list | tuple):
        for place, part in enumerate(value):
            check_names(get_args(kind)[0], part, f"{at}[{place}]")
    elif isinstance(value, Mapping) and (chosen := tagged_struct(kind, value)) is not None:
        tag = chosen.__struct_config__.tag_field
        check_names(chosen, {name: part for name, part in value.items() if name != tag}, at)


def is_struct(kind: Any) -> TypeGuard[type[Struct]]:
    """Whether a type is a group of settings."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def tagged_struct(kind: Any, value: Mapping[str, Any]) -> type[Struct] | None:
    """Return the struct that a value's tag selects."""
    for one in get_args(kind):
        if is_struct(one) and value.get(one.__struct_config__.tag_field or "") == one.__struct_config__.tag:
            return one
    return None


def _value_type(kind: Any) -> Any:
    return get_args(kind)[1] if get_origin(kind) is dict else None


def _check_group(kind: type[Struct], value: Any, at: str) -> None:
    known = setting_types(kind)
    before = f"{at}." if at else ""
    for name, part in _table(value, at).items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {before}{near[0]}?" if near else ""
            raise UnknownSetting(f"unknown setting {before}{name}{meant}")
        check_names(known[name], part, before + name)


def _table(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnknownSetting(f"{at} must be a table of settings, not one value")
    return value


def _without_none(kind: Any) -> Any:
    inner = [one for one in get_args(kind) if one is not type(None)]
    return inner[0] if type(None) in get_args(kind) and len(inner) == 1 else kind


class BadField(ValueError):
    """Raised while creating a group of settings: the value of one of its fields is invalid."""

    def __init__(self, field: str, reason: str) -> None:
        """Create the error for a field."""
        super().__init__(reason)
        self.field = field


_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<place>\d+)\]|(?P<some>\[\.\.\.\])")


def explain_error(error: msgspec.ValidationError, kind: Any, value: Any) -> tuple[str, str]:
    """Return the path of a value that does not fit its type below `kind`, beginning with a dot, and the reason."""
    text, _, path = str(error).partition(" - at `$")
    at = ""
    for step in _STEP.finditer(path.rstrip("`")):
        name, kind, value = _follow_step(step, kind, value)
        at += name
    if isinstance(error.__cause__, BadField):
        return f"{at}.{error.__cause__.field}", text
    found = choices(kind)
    return at, text if not found else _not_a_choice(found, text, value)


def choices(kind: Any) -> tuple[str, ...]:
    """Return the allowed values of an enumeration."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(one.value) for one in kind)
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _follow_step(step: re.Match[str], kind: Any, value: Any) -> tuple[str, Any, Any]:
    """Follow one step of a path. Returns its name, and the type and the value there."""
    if step["some"]:
        return _invalid_member(get_args(kind)[-1], value)
    if step["place"]:
        return step[0], get_args(kind)[0], value[int(step["place"])]
    name = step["name"]
    struct = kind if is_struct(kind) else tagged_struct(kind, value)
    inner = setting_types(struct).get(name) if struct is not None else _tag_type(kind)
    return step[0], inner, value.get(name)


def _tag_type(kind: Any) -> Any:
    return Literal[tuple(one.__struct_config__.tag for one in get_args(kind))]


def _invalid_member(kind: Any, table: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Find the invalid member of a table: msgspec reports only that there is one."""
    for name, value in table.items():
        try:
            msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            return f".{name}", kind, value
    return "[...]", None, None


def _not_a_choice(found: tuple[str, ...], text: str, value: Any) -> str:
    listed = ", ".join(found)
    if not isinstance(value, str):
        return f"{text}; it is one of {listed}"
    near = difflib.get_close_matches(value.lower(), found, 1)
    return f"{value!r} is not one of {listed}" + (f"; did you mean {near[0]}?" if near else "")
