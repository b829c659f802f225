"""Texts with `{{...}}` in them, taken apart: what stands between the templates, and what each of them says.

Nothing is evaluated here. `values` puts texts together again, `checks` and `planning` ask what they mention. Braces
that are no template are written `{{"{{"}}`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from accord.workflows.expressions import BadExpression, Node, mentions, parse, renamed, rendered

ROOTS = ("input", "inputs", "vars", "steps", "item", "index", "state", "env", "run")
"""What paths begin with; another first name is that of a variable, or of a map's item."""

_TEMPLATE = re.compile(r"""\{\{((?:"[^"]*"|'[^']*'|\}(?!\})|[^}"'])*)\}\}""")


class Template(NamedTuple):
    """One `{{...}}`: as it is written, and what it says."""

    source: str
    node: Node


class Reference(NamedTuple):
    """Something that a text needs a value for.

    `start` is where its template begins. `is_optional` if a default stands in where there is no value.
    """

    path: tuple[str, ...]
    source: str
    start: int
    is_optional: bool

    @property
    def step(self) -> str | None:
        """The step that it is about, if it is about one."""
        return self.path[1] if self.path[0] == "steps" and len(self.path) > 1 else None


@lru_cache(maxsize=4096)
def split(text: str) -> tuple[str | Template, ...]:
    """Return the pieces of a text, in their order; raises BadExpression."""
    pieces: list[str | Template] = []
    end = 0
    while (begin := text.find("{{", end)) >= 0:
        found = _TEMPLATE.match(text, begin)
        if found is None:
            raise BadExpression(
                f'`{text[begin : begin + 40]}` has no end; braces that are no template are written {{{{"{{{{"}}}}'
            )
        pieces += [text[end:begin], Template(found[0], parse(found[1]))]
        end = found.end()
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece != "")


def references(text: str) -> tuple[Reference, ...]:
    """Return everything that the templates of a text need a value for; raises BadExpression."""
    found, start = [], 0
    for piece in split(text):
        if isinstance(piece, Template):
            found += [Reference(path, piece.source, start, is_optional) for path, is_optional in mentions(piece.node)]
            start += len(piece.source)
        else:
            start += len(piece)
    return tuple(found)


def condition_references(condition: str) -> tuple[Reference, ...]:
    """Return everything that the condition of an `if` needs a value for; raises BadExpression."""
    return tuple(Reference(path, condition, 0, is_optional) for path, is_optional in mentions(parse(condition)))


def renamed_in(text: str, names: Mapping[str, str | None]) -> str:
    """Return a text whose templates speak of steps by other names; of a step without one they say nothing."""
    return "".join(
        piece if isinstance(piece, str) else f"{{{{{rendered(renamed(piece.node, names))}}}}}" for piece in split(text)
    )


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value that is made of lists, tables and structs, in their order."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += reversed(one.values())
        elif isinstance(one, list | tuple):
            left += reversed(one)
        elif isinstance(one, Struct):
            left += [part for part in reversed(astuple(one)) if part]
