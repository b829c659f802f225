"""What is wrong with a value, said for whoever wrote it: which setting it is, what it may be, and the nearest of these.

It only reads msgspec's refusals, which leave out the names in a table and the choices there are; refusing is msgspec's.
"""

import difflib
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import msgspec

from accord.config.names import by_tag, fields, is_struct


class BadField(ValueError):
    """Raised where a group of settings is made: the value of one of its fields cannot be used."""

    def __init__(self, field: str, reason: str) -> None:
        """Say which, and why."""
        super().__init__(reason)
        self.field = field


_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<place>\d+)\]|(?P<some>\[\.\.\.\])")


def explained(error: msgspec.ValidationError, kind: Any, value: Any) -> tuple[str, str]:
    """Return the path of a value that does not fit its type below `kind`, beginning with a dot, and why it does not."""
    text, _, path = str(error).partition(" - at `$")
    at = ""
    for step in _STEP.finditer(path.rstrip("`")):
        name, kind, value = _into(step, kind, value)
        at += name
    if isinstance(error.__cause__, BadField):
        return f"{at}.{error.__cause__.field}", text
    found = choices(kind)
    return at, text if not found else _none_of(found, text, value)


def choices(kind: Any) -> tuple[str, ...]:
    """Return what a value may be, if that is a few words."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(one.value) for one in kind)
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _into(step: re.Match[str], kind: Any, value: Any) -> tuple[str, Any, Any]:
    """Follow one step of a path: return what it is called, and the type and the value there."""
    if step["some"]:
        return _into_table(get_args(kind)[-1], value)
    if step["place"]:
        return step[0], get_args(kind)[0], value[int(step["place"])]
    name = step["name"]
    struct = kind if is_struct(kind) else by_tag(kind, value)
    inner = fields(struct).get(name) if struct is not None else _tags(kind)
    return step[0], inner, value.get(name)


def _tags(kind: Any) -> Any:
    """Return the type of what tells which of several structs a value is."""
    return Literal[tuple(one.__struct_config__.tag for one in get_args(kind))]


def _into_table(kind: Any, table: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Find the member of a table that does not fit: msgspec says only that there is one."""
    for name, value in table.items():
        try:
            msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            return f".{name}", kind, value
    return "[...]", None, None


def _none_of(found: tuple[str, ...], text: str, value: Any) -> str:
    listed = ", ".join(found)
    if not isinstance(value, str):
        return f"{text}; it is one of {listed}"
    near = difflib.get_close_matches(value.lower(), found, 1)
    return f"{value!r} is none of {listed}" + (f"; did you mean {near[0]}?" if near else "")
