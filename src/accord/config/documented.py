"""What settings mean, as it is written beside them: the string below a field, and the first line of a group.

It reads the source of the structs, so that a setting and its meaning cannot part; a test fails for a setting without
one. Only what prints references and schemas asks for it: no server does.
"""

import ast
from collections.abc import Mapping
from functools import cache
from inspect import getsource
from textwrap import dedent

from msgspec import Struct


@cache
def meanings(kind: type[Struct]) -> Mapping[str, str]:
    """Return what the fields of a struct mean, each in one line; those of a base count where its own say nothing."""
    inherited = [one for one in reversed(kind.__mro__) if issubclass(one, Struct) and one is not Struct]
    return {name: said for one in inherited for name, said in _written(one).items()}


def purpose(kind: type) -> str:
    """Return what a group of settings is for, in one line."""
    return _line((kind.__doc__ or "").partition("\n\n")[0])


def _written(kind: type[Struct]) -> dict[str, str]:
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
