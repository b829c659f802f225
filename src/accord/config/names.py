"""What settings are called: the names below a struct, and the nearest one to a name that is none.

It knows structs, lists and tables as msgspec does, and no value but their shape; whether a value fits is msgspec's.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeGuard, get_args, get_origin, get_type_hints

from msgspec import Struct


class Unknown(Exception):
    """A name that no setting has, or a value in the place of a group of settings."""


@cache
def fields(kind: type[Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields, without the None that some may be."""
    hints = get_type_hints(kind)
    return {name: _stated(hints[name]) for name in kind.__struct_fields__}


def kind_of(kind: Any, path: Sequence[str]) -> Any:
    """Return the type at a path below a type, or None if there is none."""
    for part in path:
        kind = fields(kind).get(part) if is_struct(kind) else _values(kind)
    return kind


def names(kind: type[Struct]) -> Iterator[tuple[str, ...]]:
    """Yield the path of every setting below a struct."""
    for name, inner in fields(kind).items():
        yield (name,)
        if is_struct(inner):
            yield from ((name, *rest) for rest in names(inner))


def check(kind: Any, value: Any, at: str = "") -> None:
    """Raise Unknown for the first name in a value that its type does not have."""
    if is_struct(kind):
        _check_group(kind, value, at)
    elif get_origin(kind) is dict:
        for name, part in _table(value, at).items():
            check(_values(kind), part, f"{at}.{name}")
    elif get_origin(kind) in (tuple, frozenset) and isinstance(value, list | tuple):
        for place, part in enumerate(value):
            check(get_args(kind)[0], part, f"{at}[{place}]")
    elif isinstance(value, Mapping) and (chosen := by_tag(kind, value)) is not None:
        tag = chosen.__struct_config__.tag_field
        check(chosen, {name: part for name, part in value.items() if name != tag}, at)


def is_struct(kind: Any) -> TypeGuard[type[Struct]]:
    """Whether a type is a group of settings."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def by_tag(kind: Any, value: Mapping[str, Any]) -> type[Struct] | None:
    """Return the one of several structs that a value says to be."""
    for one in get_args(kind):
        if is_struct(one) and value.get(one.__struct_config__.tag_field or "") == one.__struct_config__.tag:
            return one
    return None


def _values(kind: Any) -> Any:
    return get_args(kind)[1] if get_origin(kind) is dict else None


def _check_group(kind: type[Struct], value: Any, at: str) -> None:
    known = fields(kind)
    before = f"{at}." if at else ""
    for name, part in _table(value, at).items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {before}{near[0]}?" if near else ""
            raise Unknown(f"there is no setting called {before}{name}{meant}")
        check(known[name], part, before + name)


def _table(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unknown(f"{at} is a table of settings, not one value")
    return value


def _stated(kind: Any) -> Any:
    inner = [one for one in get_args(kind) if one is not type(None)]
    return inner[0] if type(None) in get_args(kind) and len(inner) == 1 else kind
