"""The expression language of `if:` and of `{{...}}` templates.

A text is parsed into a tree that lists the values it mentions, and `values` evaluates it. There are no loops, no
assignments and no calls except those of `functions`.

    expression  = term {("and" | "or") term}          "and" binds closer, "not" closer still
    term        = operand [("==" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "matches") operand]
    operand     = (path | "text" | number | true | false | null | function(..) | (expression)) {"|" filter[(..)]}
    path        = name {.name | [0] | ["a name"]}

Braces that are not a template are written `{{"{{"}}`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct
from msgspec.structs import astuple

from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.workflows.functions import FILTERS, FUNCTIONS, FunctionSignature, nearest

MAX_LENGTH = 8_192
MAX_DEPTH = 40
"""Limits of an expression. They are far above the needs of a person, and bound the cost of a hostile expression."""

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "contains", "matches")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"[^"]*"|'[^']*')
      | (?P<number>-?\d+(?:\.\d+)?(?![\w-]))
      | (?P<path>[A-Za-z_][\w-]*(?:\.[\w-]+|\[(?:\d+|"[^"]*"|'[^']*')\])*)
      | (?P<sign>==|!=|<=|>=|&&|\|\||\{\{|\}\}|[<>!(),|])
    )""",
    re.VERBOSE,
)
_SEGMENT = re.compile(r"""\[(?:(\d+)|"([^"]*)"|'([^']*)')\]|\.?([\w-]+)""")
_PLAIN = re.compile(r"[\w-]+")
_SPELLED = {"&&": "and", "||": "or", "!": "not", "{{": "(", "}}": ")"}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "contains", "matches"}


class BadExpression(ValueError):
    """A template or a condition is not valid. The message contains the text and the reason."""


class Constant(Struct, frozen=True):
    """A literal value."""

    value: Any


class Name(Struct, frozen=True):
    """A path to a value: `steps.plan.output`."""

    path: tuple[str, ...]


class FunctionCall(Struct, frozen=True):
    """A function call. Functions about steps take names, not values."""

    function: str
    given: tuple["Expression", ...]


class Filtered(Struct, frozen=True):
    """A value with a filter."""

    inner: "Expression"
    filter: str
    given: tuple["Expression", ...]


class Not(Struct, frozen=True):
    """The negation of a condition."""

    inner: "Expression"


class Both(Struct, frozen=True):
    """Two operands and an operator: a comparison, `and` or `or`."""

    sign: str
    left: "Expression"
    right: "Expression"


Expression = Constant | Name | FunctionCall | Filtered | Not | Both


class PathMention(NamedTuple):
    """A path that an expression reads; `is_optional` if a default replaces a missing value."""

    path: tuple[str, ...]
    is_optional: bool = False


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parse an expression; raises BadExpression."""
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"an expression of {len(text)} characters is too long: {MAX_LENGTH} at most")
    return _ExpressionReader(text).whole()


def mentions(node: Expression, is_optional: bool = False) -> Iterator[PathMention]:
    """Yield every path that an expression reads. A function about steps reads their status."""
    match node:
        case Name(path):
            yield PathMention(path, is_optional)
        case FunctionCall(function, given):
            values, steps = arguments(function, given)
            for part in values:
                yield from mentions(part, is_optional)
            for name in steps:
                yield PathMention(("steps", name, "status"), is_optional)
        case Filtered(inner, name, given):
            yield from mentions(inner, is_optional or name == "default")
            for part in given:
                yield from mentions(part, is_optional)
        case Not(inner):
            yield from mentions(inner, is_optional)
        case Both(_, left, right):
            yield from mentions(left, is_optional)
            yield from mentions(right, is_optional)


def heeds_failure(condition: str) -> bool:
    """Whether a condition is about failures, so that it is evaluated even after a failed dependency."""
    return _heeds(parse_expression(condition))


def arguments(function: str, given: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], tuple[str, ...]]:
    """Return the value arguments and the steps of a function: `build`, "build" and `steps.build` are the same step."""
    plain = FUNCTIONS[function].plain
    if plain is None:
        return given, ()
    return given[:plain], tuple(_step_named(function, node) for node in given[plain:])


def _step_named(function: str, node: Expression) -> str:
    match node:
        case Constant(str(name)) | Name((name,)) | Name(("steps", name)):
            return name
    raise BadExpression(f"{function} is about steps: it is written {FUNCTIONS[function].usage}")


def rendered(node: Expression) -> str:
    """Return an expression as text; the inverse of `parse_expression`."""
    match node:
        case Constant(value):
            return _constant(value)
        case Name(path):
            return path[0] + "".join(f".{part}" if _PLAIN.fullmatch(part) else f'["{part}"]' for part in path[1:])
        case FunctionCall(function, given):
            return f"{function}({', '.join(map(rendered, given))})"
        case Filtered(inner, name, given):
            text = f"({rendered(inner)})" if isinstance(inner, Both | Not) else rendered(inner)
            return f"{text} | {name}" + (f"({', '.join(map(rendered, given))})" if given else "")
        case Not(inner):
            return f"not ({rendered(inner)})"
        case Both(sign, left, right):
            return " ".join((_enclosed(left), sign, _enclosed(right)))


def renamed(node: Expression, names: Mapping[str, str | None]) -> Expression:
    """Return an expression with other names of steps. The output of a step without a new name is an empty string."""
    match node:
        case Name(("steps", name, *rest)) if name in names:
            other = names[name]
            return Constant("") if other is None else Name(("steps", other, *rest))
        case FunctionCall(function, given):
            values, steps = arguments(function, given)
            others = [names.get(name, name) for name in steps]
            if None in others:
                return Constant("")
            return FunctionCall(function, (*(renamed(part, names) for part in values), *map(Constant, others)))
        case Filtered(inner, name, given):
            return Filtered(renamed(inner, names), name, tuple(renamed(part, names) for part in given))
        case Not(inner):
            return Not(renamed(inner, names))
        case Both(sign, left, right):
            return Both(sign, renamed(left, names), renamed(right, names))
    return node


def _enclosed(node: Expression) -> str:
    return f"({rendered(node)})" if isinstance(node, Both | Not) else rendered(node)


def _constant(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return next((name for name, value_of in _CONSTANTS.items() if value is value_of), str(value))


def path_of(text: str) -> tuple[str, ...]:
    """Return the names in a path."""
    return tuple("".join(groups) for groups in _SEGMENT.findall(text))


def _heeds(node: Expression, is_denied: bool = False) -> bool:
    """Whether an expression is about failures. The negation of `succeeded` is, `succeeded` itself is not."""
    match node:
        case Name(path):
            return path[0] == "steps" and path[-1] == "status"
        case FunctionCall(function, _):
            return FUNCTIONS[function].heeds_failure or (is_denied and function == "succeeded")
        case Filtered(inner, _, _):
            return _heeds(inner, is_denied)
        case Not(inner):
            return _heeds(inner, not is_denied)
        case Both(_, left, right):
            return _heeds(left, is_denied) or _heeds(right, is_denied)
    return False


class _ExpressionReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize()
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        """Parse the whole text."""
        node = self._either()
        if self._at < len(self._tokens):
            self._fail(f"{self._next!r} is not expected there")
        return node

    def _tokenize(self) -> list[tuple[str, str]]:
        tokens, end = [], 0
        while end < len(self._text.rstrip()):
            match = _TOKEN.match(self._text, end)
            if match is None:
                self._fail(f"{self._text[end:].strip()[:20]!r} cannot be read")
            tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            end = match.end()
        return [(kind, _SPELLED.get(token, token) if kind == "sign" else token) for kind, token in tokens]

    @property
    def _next(self) -> str | None:
        """The next sign or keyword; None at the end, or before a possible value."""
        if self._at == len(self._tokens):
            return None
        kind, token = self._tokens[self._at]
        return token if kind == "sign" or token in _WORDS else None

    def _either(self) -> Expression:
        return self._chain("or", lambda: self._chain("and", self._term))

    def _chain(self, sign: str, part: Callable[[], Expression]) -> Expression:
        node = part()
        while self._next == sign:
            self._at += 1
            node = Both(sign, node, part())
        return node

    def _term(self) -> Expression:
        if self._next == "not":
            self._at += 1
            return Not(self._deeper(self._term))
        left = self._operand()
        sign = self._next
        if sign not in COMPARISONS:
            return left
        self._at += 1
        right = self._operand()
        if sign == "matches" and isinstance(right, Constant):
            self._check_pattern(right.value)
        return Both(sign, left, right)

    def _operand(self) -> Expression:
        node = self._plain()
        while self._next == "|":
            self._at += 1
            name = self._word("a filter")
            given = self._arguments() if self._next == "(" else ()
            self._check("filter", name, FILTERS, len(given))
            node = Filtered(node, name, given)
        return node

    def _plain(self) -> Expression:
        if self._next == "(":
            self._at += 1
            node = self._deeper(self._either)
            self._expect(")")
            return node
        if self._next is not None or self._at == len(self._tokens):
            self._fail("a value is missing " + (f"before {self._next!r}" if self._next else "at its end"))
        kind, token = self._tokens[self._at]
        self._at += 1
        if kind == "text":
            return self._quoted(token[1:-1])
        if kind == "number":
            return Constant(float(token) if "." in token else int(token))
        if self._next == "(":
            given = self._arguments()
            self._check("function", token, FUNCTIONS, len(given))
            arguments(token, given)
            return FunctionCall(token, given)
        return Constant(_CONSTANTS[token]) if token in _CONSTANTS else Name(path_of(token))

    def _arguments(self) -> tuple[Expression, ...]:
        self._at += 1
        given: list[Expression] = []
        while self._next != ")":
            if given:
                self._expect(",")
            given.append(self._deeper(self._either))
        self._at += 1
        return tuple(given)

    def _word(self, what: str) -> str:
        if self._at == len(self._tokens) or self._tokens[self._at][0] != "path":
            self._fail(f"{what} is missing after '|'")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _deeper(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("it is nested too deeply")
        node = part()
        self._depth -= 1
        return node

    def _expect(self, sign: str) -> None:
        if self._next != sign:
            self._fail(f"{sign!r} is missing")
        self._at += 1

    def _quoted(self, text: str) -> Expression:
        if "{{" in text and "}}" in text:
            self._fail(f"there is a template within quotes: leave the quotes of {text!r} out")
        return Constant(text)

    def _check(self, what: str, name: str, table: dict[str, FunctionSignature], given: int) -> None:
        if name not in table:
            self._fail(f"there is no {what} {name!r}{nearest(name, table)}")
        if not table[name].least <= given <= table[name].most:
            self._fail(f"{name} is written {table[name].usage}")

    def _check_pattern(self, pattern: Any) -> None:
        try:
            compile_regex(str(pattern))
        except BadRegex as error:
            self._fail(str(error))

    def _fail(self, problem: str) -> NoReturn:
        raise BadExpression(f"in `{self._text.strip()}`: {problem}")


ROOTS = ("input", "inputs", "vars", "steps", "item", "index", "state", "env", "run")
"""The first names of paths. Any other first name is a variable or the item of a map."""

_TEMPLATE = re.compile(r"""\{\{((?:"[^"]*"|'[^']*'|\}(?!\})|[^}"'])*)\}\}""")


class Placeholder(NamedTuple):
    """One `{{...}}`: its source and its expression."""

    source: str
    node: Expression


class Reference(NamedTuple):
    """A value that a text needs.

    `start` is the position of its template. `is_optional` if a default replaces a missing value.
    """

    path: tuple[str, ...]
    source: str
    start: int
    is_optional: bool

    @property
    def step(self) -> str | None:
        """The step that it reads, if it reads one."""
        return self.path[1] if self.path[0] == "steps" and len(self.path) > 1 else None


@lru_cache(maxsize=4096)
def split_template(text: str) -> tuple[str | Placeholder, ...]:
    """Return the pieces of a text in order; raises BadExpression."""
    pieces: list[str | Placeholder] = []
    end = 0
    while (begin := text.find("{{", end)) >= 0:
        match = _TEMPLATE.match(text, begin)
        if match is None:
            raise BadExpression(
                f'`{text[begin : begin + 40]}` has no end; braces that are no template are written {{{{"{{{{"}}}}'
            )
        pieces += [text[end:begin], Placeholder(match[0], parse_expression(match[1]))]
        end = match.end()
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece != "")


def references(text: str) -> tuple[Reference, ...]:
    """Return the values that the templates of a text need; raises BadExpression."""
    reads, start = [], 0
    for piece in split_template(text):
        if isinstance(piece, Placeholder):
            reads += [Reference(path, piece.source, start, is_optional) for path, is_optional in mentions(piece.node)]
            start += len(piece.source)
        else:
            start += len(piece)
    return tuple(reads)


def condition_references(condition: str) -> tuple[Reference, ...]:
    """Return the values that the condition of an `if` needs; raises BadExpression."""
    return tuple(
        Reference(path, condition, 0, is_optional) for path, is_optional in mentions(parse_expression(condition))
    )


def renamed_in(text: str, names: Mapping[str, str | None]) -> str:
    """Return a text whose templates use other names of steps. A step without a new name has an empty output."""
    return "".join(
        piece if isinstance(piece, str) else f"{{{{{rendered(renamed(piece.node, names))}}}}}"
        for piece in split_template(text)
    )


def texts_in(value: Any) -> Iterator[str]:
    """Yield every string in a value of lists, mappings and structs, in order."""
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
