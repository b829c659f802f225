"""Renders the subset of Helm's templates that our chart uses: a stand-in where there is no `helm` to be had.

It follows Go's text/template and sprig word for word in what it knows (trimming, truth, pipelines, includes) and
refuses everything else, a value that values.yaml does not have as well. `chart` puts files together as Helm does.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]  # it ships no types


class TemplateError(Exception):
    """What is not Go's template language, or not known here."""


# --- reading ----------------------------------------------------------------------------------------------------------

_ACTION = re.compile(r"\{\{(?P<left>- )?\s*(?P<body>(?:\"[^\"]*\"|/\*.*?\*/|[^}])*?)\s*(?P<right> -)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"]*")|(?P<number>-?\d+)|(?P<path>\$?(?:\.\w+)+|\$|\.)|(?P<name>\w+)|(?P<sign>[()|]))'
)


class Block(NamedTuple):
    """An action with a body: if, with, range or define; `others` are its else parts."""

    kind: str
    head: str
    body: list[Any]
    others: list["Block"]


def _pieces(text: str) -> Iterator[str | tuple[str]]:
    """Yield texts, and actions as tuples, with whitespace trimmed where an action says so."""
    at, trims = 0, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        if trims:
            before = before.lstrip()
        if match["left"]:
            before = before.rstrip()
        yield before
        if not match["body"].startswith("/*"):
            yield (match["body"],)
        at, trims = match.end(), bool(match["right"])
    rest = text[at:]
    if "{{" in rest or "}}" in rest:
        raise TemplateError(f"an action is not closed: {rest[:60]!r}")
    yield rest.lstrip() if trims else rest


def parse(text: str) -> list[Any]:
    """Return the nodes of a template: texts, expressions as tuples, blocks."""
    nodes, closed = _nodes(_pieces(text))
    if closed is not None:
        raise TemplateError(f"{closed} closes nothing")
    return nodes


def _nodes(pieces: Iterator[str | tuple[str]]) -> tuple[list[Any], str | None]:
    """Read up to what closes a block, and return that as well."""
    found: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str):
            found.append(piece)
            continue
        word, _, rest = piece[0].partition(" ")
        if word in ("if", "with", "range", "define"):
            found.append(_block(word, rest, pieces))
        elif word in ("else", "end"):
            return found, piece[0]
        else:
            found.append(piece)
    return found, None


def _block(kind: str, head: str, pieces: Iterator[str | tuple[str]]) -> Block:
    body, closed = _nodes(pieces)
    if closed is None:
        raise TemplateError(f"{kind} {head} is not closed")
    if closed == "end":
        return Block(kind, head, body, [])
    if closed.startswith("else if "):
        return Block(kind, head, body, [_block("if", closed.removeprefix("else if "), pieces)])
    otherwise, last = _nodes(pieces)
    if closed != "else" or last != "end":
        raise TemplateError(f"{kind} {head}: {closed} ... {last}")
    return Block(kind, head, body, [Block("else", "", otherwise, [])])


# --- rendering --------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=False, sort_keys=True, width=4096)
    return text.removesuffix("...\n").rstrip("\n")


def _indent(count: int, text: str) -> str:
    return "\n".join(" " * count + line for line in text.split("\n"))


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise TemplateError(message)
    return value


def _quote(value: Any) -> str:
    text = _shown(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(map(int, numbers)),
    "mul": lambda one, other: int(one) * int(other),
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "not": lambda value: not value,
    "eq": lambda one, other: one == other,
    "contains": lambda part, whole: part in whole,
    "default": lambda otherwise, value=None: value or otherwise,
    "indent": _indent,
    "nindent": lambda count, text: "\n" + _indent(count, text),
    "join": lambda separator, values: separator.join(map(_shown, values)),
    "printf": lambda form, *values: form % values,
    "quote": _quote,
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": _yaml,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda count, text: text[:count],
}
"""Go's and sprig's functions; the piped value is the last argument."""


class Renderer:
    """Templates that know each other, and what they are rendered with."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        """Render with `.Values`, `.Chart` and `.Release` as in `root`."""
        self._root = root
        self._defined: dict[str, list[Any]] = {}

    def define(self, text: str) -> None:
        """Take over what a file of helpers defines."""
        if self.render(text).strip():
            raise TemplateError("helpers print nothing by themselves")

    def render(self, text: str) -> str:
        """Return what a template comes to."""
        return self._nodes(parse(text), self._root)

    def _nodes(self, nodes: list[Any], dot: Any) -> str:
        return "".join(self._node(node, dot) for node in nodes)

    def _node(self, node: Any, dot: Any) -> str:
        if isinstance(node, str):
            return node
        if isinstance(node, Block):
            return self._block(node, dot)
        return _shown(self._value(node[0], dot))

    def _block(self, block: Block, dot: Any) -> str:
        if block.kind == "else":
            return self._nodes(block.body, dot)
        if block.kind == "define":
            self._defined[block.head.strip('"')] = block.body
            return ""
        value = self._value(block.head, dot)
        if not value:
            return "".join(self._block(other, dot) for other in block.others)
        if block.kind == "range":
            if isinstance(value, Mapping):
                raise TemplateError("ranging over a map is not known here")
            return "".join(self._nodes(block.body, one) for one in value)
        return self._nodes(block.body, value if block.kind == "with" else dot)

    def _value(self, text: str, dot: Any) -> Any:
        tokens = list(_tokens(text))
        value = self._pipeline(tokens, dot)
        if tokens:
            raise TemplateError(f"{text}: {tokens[0]} is too much")
        return value

    def _pipeline(self, tokens: list[str], dot: Any) -> Any:
        value = self._command(tokens, dot, ())
        while tokens and tokens[0] == "|":
            tokens.pop(0)
            value = self._command(tokens, dot, (value,))
        return value

    def _command(self, tokens: list[str], dot: Any, piped: tuple[Any, ...]) -> Any:
        name = tokens[0] if tokens and re.fullmatch(r"[a-z]\w*", tokens[0]) else None
        if name is None or name in ("true", "false"):
            if piped:
                raise TemplateError(f"{tokens}: a value takes no argument")
            return self._term(tokens, dot)
        tokens.pop(0)
        arguments = []
        while tokens and tokens[0] not in ("|", ")"):
            arguments.append(self._term(tokens, dot))
        if name == "include":
            template, inner = (*arguments, *piped)
            return self._nodes(self._defined[template], inner)
        if name not in FUNCTIONS:
            raise TemplateError(f"{name} is not known here")
        return FUNCTIONS[name](*arguments, *piped)

    def _term(self, tokens: list[str], dot: Any) -> Any:
        if not tokens:
            raise TemplateError("something is missing")
        token = tokens.pop(0)
        if token == "(":
            value = self._pipeline(tokens, dot)
            if not tokens or tokens.pop(0) != ")":
                raise TemplateError("a parenthesis is not closed")
            return value
        if token.startswith('"'):
            return token[1:-1]
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if token in ("true", "false"):
            return token == "true"
        if token[0] in ".$":
            return self._field(token, dot)
        raise TemplateError(f"{token} is no value")

    def _field(self, path: str, dot: Any) -> Any:
        """Follow a path; what is not there is nothing, but among the values it is a mistake."""
        value = self._root if path.startswith("$") else dot
        is_root = value is self._root
        for name in filter(None, path.removeprefix("$").split(".")):
            if not isinstance(value, Mapping):
                raise TemplateError(f"{path}: there is nothing called {name} in {value!r}")
            if is_root and name not in value:
                raise TemplateError(f"{path} is no value of the chart")
            value = value.get(name)
        return value


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"{text[at:]!r} is not known here")
        yield match[0].strip()
        at = match.end()
