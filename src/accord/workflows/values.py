"""What stands for `{{...}}` in a run: the input, variables, what steps have said, the item of a map.

Nothing is looked up anywhere else, and no value ever becomes part of a command's text: `shell` gives values to a
command as variables of its environment. The language between the braces is `expressions`; who runs steps makes a
`Values` for each.
"""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from accord.agents.regexes import BadRegex, compiled, escaped
from accord.workflows.expressions import (
    BadExpression,
    Both,
    Call,
    Constant,
    Filtered,
    Name,
    Node,
    Not,
    arguments,
    parse,
)
from accord.workflows.functions import (
    FILTERS,
    FUNCTIONS,
    StepValue,
    Unsuitable,
    as_text,
    from_json,
    is_true,
    number,
)
from accord.workflows.quoting import HOLE, Hole, UnsafeCommand, filled
from accord.workflows.templates import ROOTS, Template, references, split

__all__ = [
    "ROOTS",
    "BadExpression",
    "StepValue",
    "Unresolved",
    "UnsafeCommand",
    "Values",
    "check_command",
    "references",
]

_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
_UNSPEAKABLE = re.compile("[\0\ud800-\udfff]")
"""What no variable of an environment can hold."""

_REFERRED = re.compile(r"\b(?:STEP_[A-Z0-9_]+_OUTPUT|VAR_[A-Z0-9_]+|INPUT)\b")
_SHELL = re.compile(r"[/ ](?:sh|bash|dash|ash|ksh|mksh|zsh)(?:\s|$)")
_PREFIXES = {"steps": "STEP", "vars": "VAR", "inputs": "INPUT", "state": "STATE", "env": "ENV", "run": "RUN"}


class Unresolved(LookupError):
    """A template says something that has no value."""

    def __str__(self) -> str:
        return str(self.args[0])


class Values(Struct, frozen=True, kw_only=True):
    """Everything that templates may speak of.

    `run` has its `id`, and in `events` the addresses that events can be posted to.
    `item` and `index` are those of a map, whose `as` is in `name`; `around` are the items of the maps around that one,
    by their names. `needs` are the steps that the one at hand waits for, which is what `failed()` and `succeeded()`
    without a name are about.
    """

    input: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, StepValue] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    item: Any = None
    index: int | None = None
    name: str = "item"
    around: Mapping[str, Any] = field(default_factory=dict)

    def text(self, template: str) -> str:
        """Return a text with the values of its templates in their places; raises Unresolved."""
        return "".join(piece if isinstance(piece, str) else as_text(self._worth(piece)) for piece in split(template))

    def pattern(self, template: str) -> str:
        """Return a regular expression in which the values of templates stand for themselves; raises Unresolved."""
        pieces = split(template)
        return "".join(piece if isinstance(piece, str) else escaped(as_text(self._worth(piece))) for piece in pieces)

    def value(self, template: str) -> Any:
        """Return the value of a text that is one lone template, with its type; any other text as `text` does."""
        pieces = split(template.strip())
        if len(pieces) == 1 and isinstance(pieces[0], Template):
            return self._worth(pieces[0])
        return self.text(template)

    def tree(self, given: Any) -> Any:
        """Return a value of a document in which all texts have the values of their templates; raises Unresolved."""
        match given:
            case str():
                return self.value(given)
            case Mapping():
                return {name: self.tree(part) for name, part in given.items()}
            case list() | tuple():
                return [self.tree(part) for part in given]
        return given

    def holds(self, condition: str) -> bool:
        """Whether the condition of an `if` is true; raises Unresolved."""
        return is_true(self._worth(Template(condition, parse(condition))))

    def shell(self, command: str) -> tuple[str, dict[str, str]]:
        """Return a command that refers to variables wherever it had templates, and these variables.

        A variable that the command itself refers to (`$STEP_PLAN_OUTPUT`) is among them too. What no variable can hold
        is replaced by U+FFFD. Raises Unresolved, and UnsafeCommand for a template in a place where a value could be
        taken for something else.
        """
        _check_script(command)
        variables = self._referred(command)
        holes: list[Hole] = []
        names = frozenset({self.name, *self.around})
        text = ""
        for piece in split(command):
            if isinstance(piece, str):
                text += piece
                continue
            text += HOLE
            value = _UNSPEAKABLE.sub("\ufffd", as_text(self._worth(piece)))
            name = _unused(variable_of(piece.node), value, variables)
            variables[name] = value
            holes.append(Hole(name, piece.source, _is_trusted(piece.node, names)))
        return filled(text, holes), variables

    # --- what an expression is worth ----------------------------------------------------------------------------------

    def _worth(self, template: Template) -> Any:
        try:
            return self._evaluated(template.node)
        except Unsuitable as error:
            raise Unresolved(f"{template.source}: {error}") from None

    def _evaluated(self, node: Node) -> Any:
        match node:
            case Constant(value):
                return value
            case Name(path):
                return self._looked_up(path)
            case Not(inner):
                return not is_true(self._evaluated(inner))
            case Filtered(inner, name, given):
                return FILTERS[name].does(self._filtered(inner, name), *map(self._evaluated, given))
            case Call(function, given):
                return self._called(function, given)
            case Both("and", left, right):
                return is_true(self._evaluated(left)) and is_true(self._evaluated(right))
            case Both("or", left, right):
                return is_true(self._evaluated(left)) or is_true(self._evaluated(right))
            case Both(sign, left, right):
                return _COMPARED[sign](self._evaluated(left), self._evaluated(right))

    def _filtered(self, inner: Node, name: str) -> Any:
        try:
            return self._evaluated(inner)
        except Unresolved:
            if name != "default":
                raise
            return None

    def _called(self, function: str, given: tuple[Node, ...]) -> Any:
        values, names = arguments(function, given)
        if FUNCTIONS[function].plain == 0 and not names:
            names = self.needs
        return FUNCTIONS[function].does(*map(self._evaluated, values), *map(self._step, names))

    def _step(self, name: str) -> StepValue:
        if name not in self.steps:
            raise Unresolved(f"step {name!r} has not ended, or there is none of that name")
        return self.steps[name]

    def _looked_up(self, path: tuple[str, ...]) -> Any:
        root, rest = path[0], path[1:]
        if root == "steps" and rest:
            return self._of_step(path)
        if self.index is not None and root in ("item", self.name):
            return _below(self.item, rest, path)
        if root == "index" and not rest and self.index is not None:
            return self.index
        if root in self.around:
            return _below(self.around[root], rest, path)
        if root == "input" and not rest:
            return self.input
        if root in ("inputs", "vars", "state", "env", "run") and rest:
            return _below(getattr(self, root), rest, path)
        return _below(self.vars, path, path)

    def _of_step(self, path: tuple[str, ...]) -> Any:
        step, rest = self._step(path[1]), path[2:]
        if rest[:1] == ("json",):
            return _below(from_json(step.output), rest[1:], path)
        known = {"output": step.output, "status": step.status, "exit_code": step.exit_code, "exitCode": step.exit_code}
        return _below(known, rest or ("output",), path)

    def _referred(self, command: str) -> dict[str, str]:
        """Return the variables that a command refers to by their names, as a script in any language does."""
        words = set(_REFERRED.findall(command))
        known: dict[str, str] = {}
        if any(word.startswith("STEP_") for word in words):
            known = {output_variable(name): step.output for name, step in self.steps.items()}
        if any(word.startswith("VAR_") for word in words):
            known |= {variable_of(Name(("vars", name))): as_text(value) for name, value in self.vars.items()}
        known["INPUT"] = self.input
        return {name: _UNSPEAKABLE.sub("\ufffd", known[name]) for name in sorted(words & known.keys())}


@lru_cache(maxsize=4096)
def check_command(command: str, items: frozenset[str] = frozenset(), doubtful: frozenset[str] = frozenset()) -> None:
    """Raise UnsafeCommand or BadExpression if a command could not be run, whatever the values are.

    `items` is what the items of the maps are called that the command belongs to; `doubtful` are variables of which the
    document's author does not know what they say.
    """
    _check_script(command)
    pieces = split(command)
    templates = [piece for piece in pieces if isinstance(piece, Template)]
    holes = [Hole(variable_of(one.node), one.source, _is_trusted(one.node, items, doubtful)) for one in templates]
    filled("".join(piece if isinstance(piece, str) else HOLE for piece in pieces), holes)


def _check_script(command: str) -> None:
    """Refuse a command that is not for a shell, and has templates: only for a shell is it known how to quote."""
    if HOLE in command:
        raise UnsafeCommand("a command cannot have a NUL")
    first = command.partition("\n")[0]
    if command.startswith("#!") and not _SHELL.search(first) and "{{" in command:
        raise UnsafeCommand(
            f"{first} is no shell: read values from the environment, such as STEP_NAME_OUTPUT or VAR_NAME"
        )


def _is_trusted(node: Node, items: frozenset[str], doubtful: frozenset[str] = frozenset()) -> bool:
    """Whether a value is the author's own, and may even be the name of a command."""
    match node:
        case Constant():
            return True
        case Name(path):
            name = path[1] if path[0] == "vars" and len(path) > 1 else path[0]
            return name not in doubtful and (path[0] == "vars" or path[0] not in (*ROOTS, *items))
        case Filtered(inner, _, given):
            return all(_is_trusted(part, items, doubtful) for part in (inner, *given))
    return False


def output_variable(step: str) -> str:
    """Return the variable that a command finds the output of a step in."""
    return variable_of(Name(("steps", step, "output")))


def variable_of(node: Node) -> str:
    """Return the variable that a command finds a value in: STEP_PLAN_OUTPUT for `steps.plan.output`."""
    match node:
        case Name((root, *rest)):
            prefix = _PREFIXES.get(root) if rest else None
            parts = [prefix, *rest] if prefix else [root if root in ROOTS else f"VAR_{root}", *rest]
            return _NO_NAME.sub("_", "_".join(parts)).upper()
        case Filtered(inner, name, _):
            return f"{variable_of(inner)}_{_NO_NAME.sub('_', name).upper()}"
        case Call(function, _):
            return _NO_NAME.sub("_", function).upper()
    return "VALUE"


def _unused(name: str, value: str, taken: Mapping[str, str]) -> str:
    """Return a variable that has this value already, or none yet: two names may be spelled alike."""
    number_, candidate = 1, name
    while taken.get(candidate, value) != value:
        number_ += 1
        candidate = f"{name}_{number_}"
    return candidate


def _below(value: Any, rest: tuple[str, ...], path: tuple[str, ...]) -> Any:
    for part in rest:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise Unresolved(f"{'.'.join(path)} has no value: there is no {part!r}")
    return value


# --- comparing --------------------------------------------------------------------------------------------------------


def _same(left: Any, right: Any) -> bool:
    """Whether two values are the same: blanks around texts do not count, and "3" is 3, as commands say it."""
    left, right = (value.strip() if isinstance(value, str) else value for value in (left, right))
    if isinstance(left, str) != isinstance(right, str):
        return as_text(left) == as_text(right) or _same_number(left, right)
    return bool(left == right)


def _same_number(left: Any, right: Any) -> bool:
    try:
        return number(left) == number(right)
    except Unsuitable:
        return False


def _by_size(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: compare(number(left), number(right))


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping):
        return as_text(right) in left
    if isinstance(left, list | tuple):
        return any(_same(part, right) for part in left)
    return as_text(right) in as_text(left)


def _matches(left: Any, right: Any) -> bool:
    try:
        return compiled(as_text(right)).search(as_text(left))
    except BadRegex as error:
        raise Unsuitable(str(error)) from None


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<": _by_size(operator.lt),
    "<=": _by_size(operator.le),
    ">": _by_size(operator.gt),
    ">=": _by_size(operator.ge),
    "contains": _contains,
    "matches": _matches,
}
