"""Values of templates in a run: the input, variables, results of steps, the item of a map.

Nothing else is looked up, and no value becomes part of a command's text: `argv` makes arguments of values, and `shell`
makes variables of the environment. The language between the braces is `expressions`. The runner makes a `Values` for
each step.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from accord.agents.command_safety import UnsafeCommand, Value, Word, check_arguments, option_value
from accord.agents.safe_regexes import BadRegex, compile_regex, escape_text
from accord.workflows.expressions import (
    ROOTS,
    BadExpression,
    Both,
    Constant,
    Expression,
    Filtered,
    FunctionCall,
    Name,
    Not,
    Placeholder,
    arguments,
    parse_expression,
    references,
    split_template,
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
from accord.workflows.shell_syntax import HOLE, Hole, ShellCommand, shell_command

__all__ = [
    "ROOTS",
    "BadExpression",
    "StepValue",
    "Unresolved",
    "UnsafeCommand",
    "Values",
    "check_argv",
    "check_command",
    "references",
]

_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
_UNSPEAKABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that no environment variable can contain."""

_REFERRED = re.compile(r"\b(?:STEP_[A-Z0-9_]+_OUTPUT|VAR_[A-Z0-9_]+|INPUT)\b")
_SHELL = re.compile(r"#! ?(?:/usr)?/bin/(?:env )?(?:sh|bash|dash)(?: -[eux]+)?")
"""The first lines of the commands that may have templates."""

_BRACES = re.compile(r"[{}]+")
_PREFIXES = {"steps": "STEP", "vars": "VAR", "inputs": "INPUT", "state": "STATE", "env": "ENV", "run": "RUN"}


class Unresolved(LookupError):
    """A template has no value."""

    def __str__(self) -> str:
        return str(self.args[0])


class Values(Struct, frozen=True, kw_only=True):
    """The values that templates may read.

    `run` has its `id`, and in `events` the addresses for posting events. `item` and `index` are those of a map, whose
    `as` is in `name`. `around` has the items of the enclosing maps by name. `needs` are the dependencies of the current
    step, which `failed()` and `succeeded()` without arguments mean.
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
        """Return a text with its templates evaluated; raises Unresolved."""
        return "".join(
            piece if isinstance(piece, str) else as_text(self._fill(piece)) for piece in split_template(template)
        )

    def pattern(self, template: str) -> str:
        """Return a regular expression with the values of templates escaped; raises Unresolved."""
        pieces = split_template(template)
        return "".join(piece if isinstance(piece, str) else escape_text(as_text(self._fill(piece))) for piece in pieces)

    def value(self, template: str) -> Any:
        """Return the value of a text that is one template, with its type. Any other text is evaluated as by `text`."""
        pieces = split_template(template.strip())
        if len(pieces) == 1 and isinstance(pieces[0], Placeholder):
            return self._fill(pieces[0])
        return self.text(template)

    def tree(self, given: Any) -> Any:
        """Return a value of a document with all templates evaluated; raises Unresolved."""
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
        return is_true(self._fill(Placeholder(condition, parse_expression(condition))))

    def shell(self, command: str, *, options: bool = False) -> tuple[str, dict[str, str]]:
        """Return a command with references to variables in place of templates, and these variables.

        Variables that the command itself refers to (`$STEP_PLAN_OUTPUT`) are included. Characters that no variable can
        contain are replaced by U+FFFD. Raises Unresolved. Raises UnsafeCommand for a template where its value could be
        misread, and for a value that would be an option, unless `options` allows it.
        """
        variables = self._named_variables(command)
        text, templates = _with_holes(command)
        holes: list[Hole] = []
        values: list[str] = []
        for template in templates:
            values.append(self._argument_text(template))
            name = _unused(variable_of(template.node), values[-1], variables)
            variables[name] = values[-1]
            holes.append(Hole(name, template.source, _constant(template)))
        shell_command = _read_shell(text, holes, options=options)
        for words in () if options else shell_command.commands:
            _refuse_option(words, values)
        return shell_command.text, variables

    def argv(self, argv: Sequence[str], *, options: bool = False, interpreter: bool = False) -> tuple[str, ...]:
        """Return the program and arguments of a step; raises Unresolved, and UnsafeCommand like `check_argv`.

        A value that would be an option is refused unless `options` allows it. Characters that no argument can contain
        are replaced by U+FFFD.
        """
        words, templates = _words_of(argv)
        check_arguments(words, options=options, interpreter=interpreter)
        values = [self._argument_text(template) for template in templates]
        if not options:
            _refuse_option(words, values)
        return tuple(_UNSPEAKABLE.sub("\ufffd", self.text(text)) for text in argv)

    def _argument_text(self, template: Placeholder) -> str:
        return _UNSPEAKABLE.sub("\ufffd", as_text(self._fill(template)))

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def _fill(self, template: Placeholder) -> Any:
        try:
            return self._evaluate(template.node)
        except Unsuitable as error:
            raise Unresolved(f"{template.source}: {error}") from None

    def _evaluate(self, node: Expression) -> Any:
        match node:
            case Constant(value):
                return value
            case Name(path):
                return self._look_up(path)
            case Not(inner):
                return not is_true(self._evaluate(inner))
            case Filtered(inner, name, given):
                return FILTERS[name].does(self._filter_input(inner, name), *map(self._evaluate, given))
            case FunctionCall(function, given):
                return self._call(function, given)
            case Both("and", left, right):
                return is_true(self._evaluate(left)) and is_true(self._evaluate(right))
            case Both("or", left, right):
                return is_true(self._evaluate(left)) or is_true(self._evaluate(right))
            case Both(sign, left, right):
                return _COMPARED[sign](self._evaluate(left), self._evaluate(right))

    def _filter_input(self, inner: Expression, name: str) -> Any:
        try:
            return self._evaluate(inner)
        except Unresolved:
            if name != "default":
                raise
            return None

    def _call(self, function: str, given: tuple[Expression, ...]) -> Any:
        values, names = arguments(function, given)
        if FUNCTIONS[function].plain == 0 and not names:
            names = self.needs
        return FUNCTIONS[function].does(*map(self._evaluate, values), *map(self._step, names))

    def _step(self, name: str) -> StepValue:
        if name not in self.steps:
            raise Unresolved(f"step {name!r} has not ended, or there is none of that name")
        return self.steps[name]

    def _look_up(self, path: tuple[str, ...]) -> Any:
        root, rest = path[0], path[1:]
        if root == "steps" and rest:
            return self._look_up_step(path)
        if self.index is not None and root in ("item", self.name):
            return _member_at(self.item, rest, path)
        if root == "index" and not rest and self.index is not None:
            return self.index
        if root in self.around:
            return _member_at(self.around[root], rest, path)
        if root == "input" and not rest:
            return self.input
        if root in ("inputs", "vars", "state", "env", "run") and rest:
            return _member_at(getattr(self, root), rest, path)
        return _member_at(self.vars, path, path)

    def _look_up_step(self, path: tuple[str, ...]) -> Any:
        step, rest = self._step(path[1]), path[2:]
        if rest[:1] == ("json",):
            return _member_at(from_json(step.output), rest[1:], path)
        values = {
            "output": step.output,
            "status": step.status,
            "exit_code": step.exit_code,
            "exitCode": step.exit_code,
        }
        return _member_at(values, rest or ("output",), path)

    def _named_variables(self, command: str) -> dict[str, str]:
        """Return the variables that a command refers to by name, as a script in any language does."""
        words = set(_REFERRED.findall(command))
        available: dict[str, str] = {}
        if any(word.startswith("STEP_") for word in words):
            available = {output_variable(name): step.output for name, step in self.steps.items()}
        if any(word.startswith("VAR_") for word in words):
            available |= {variable_of(Name(("vars", name))): as_text(value) for name, value in self.vars.items()}
        available["INPUT"] = self.input
        return {name: _UNSPEAKABLE.sub("\ufffd", available[name]) for name in sorted(words & available.keys())}


@lru_cache(maxsize=4096)
def check_command(command: str, *, options: bool = False) -> None:
    """Raise UnsafeCommand or BadExpression if a shell command cannot run, regardless of its values."""
    text, templates = _with_holes(command)
    holes = [Hole(variable_of(template.node), template.source, _constant(template)) for template in templates]
    _read_shell(text, holes, options=options)


def check_argv(argv: Sequence[str], *, options: bool = False, interpreter: bool = False) -> None:
    """Raise UnsafeCommand or BadExpression if an `argv` cannot run, regardless of its values."""
    check_arguments(_words_of(argv)[0], options=options, interpreter=interpreter)


def _with_holes(command: str) -> tuple[str, list[Placeholder]]:
    """Return the text of a command with holes, and the templates for them. Constant braces are text."""
    if HOLE in command:
        raise UnsafeCommand("a command cannot have a NUL", "remove it")
    text, templates = "", []
    for piece in split_template(command):
        if isinstance(piece, str):
            text += piece
        elif _BRACES.fullmatch(constant := _constant(piece) or ""):
            text += constant
        else:
            text += HOLE
            templates.append(piece)
    return text, templates


def _words_of(argv: Sequence[str]) -> tuple[list[Word], list[Placeholder]]:
    """Return the words of an `argv`, and the templates of its values."""
    words: list[Word] = []
    templates: list[Placeholder] = []
    for text in argv:
        word: list[str | Value] = []
        for piece in split_template(text):
            constant = piece if isinstance(piece, str) else _constant(piece)
            if constant is not None:
                word.append(constant)
            elif isinstance(piece, Placeholder):
                word.append(Value(piece.source, len(templates)))
                templates.append(piece)
        words.append(tuple(word))
    return words, templates


def _read_shell(text: str, holes: Sequence[Hole], *, options: bool) -> ShellCommand:
    """Return a command with references in its holes. A command without holes is unchanged."""
    if not holes:
        return ShellCommand(text, ())
    first, newline, rest = text.partition("\n") if text.startswith("#!") else ("", "", text)
    if first and not _SHELL.fullmatch(first):
        raise UnsafeCommand(
            f"templates are not read in commands for `{first}`",
            "read values from the environment, such as STEP_NAME_OUTPUT or VAR_NAME",
        )
    shell = shell_command(rest, holes, options=options)
    return shell._replace(text=first + newline + shell.text)


def _refuse_option(words: Sequence[Word], values: Sequence[str]) -> None:
    """Raise if a value begins with `-` where the program would read an option."""
    value = option_value(words, values)
    if value is not None:
        fix = "write `--` before it if the program takes that, or say `allowOptions: true`"
        raise UnsafeCommand(f"{value.source} begins with `-`, and the program would read it as an option ({fix})", fix)


def _constant(template: Placeholder) -> str | None:
    """Return the text of a template that has no variable part, as in custom steps; otherwise None."""
    return Values().text(template.source) if _is_constant(template.node) else None


def _is_constant(node: Expression) -> bool:
    match node:
        case Constant():
            return True
        case Filtered(inner, _, given):
            return all(map(_is_constant, (inner, *given)))
        case FunctionCall("text", given):
            return all(map(_is_constant, given))
    return False


def output_variable(step: str) -> str:
    """Return the variable with the output of a step in a command."""
    return variable_of(Name(("steps", step, "output")))


def variable_of(node: Expression) -> str:
    """Return the variable with a value in a command: STEP_PLAN_OUTPUT for `steps.plan.output`."""
    match node:
        case Name((root, *rest)):
            prefix = _PREFIXES.get(root) if rest else None
            parts = [prefix, *rest] if prefix else [root if root in ROOTS else f"VAR_{root}", *rest]
            return _NO_NAME.sub("_", "_".join(parts)).upper()
        case Filtered(inner, name, _):
            return f"{variable_of(inner)}_{_NO_NAME.sub('_', name).upper()}"
        case FunctionCall(function, _):
            return _NO_NAME.sub("_", function).upper()
    return "VALUE"


def _unused(name: str, value: str, taken: Mapping[str, str]) -> str:
    """Return a variable that has this value already, or none yet. Two names may have the same spelling."""
    number_, candidate = 1, name
    while taken.get(candidate, value) != value:
        number_ += 1
        candidate = f"{name}_{number_}"
    return candidate


def _member_at(value: Any, rest: tuple[str, ...], path: tuple[str, ...]) -> Any:
    for part in rest:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise Unresolved(f"{'.'.join(path)} has no value: there is no {part!r}")
    return value


# --- comparison -------------------------------------------------------------------------------------------------------


def _same(left: Any, right: Any) -> bool:
    """Whether two values are equal.

    Blanks around strings are ignored, and "3" equals 3, because commands print strings.
    """
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
        return compile_regex(as_text(right)).search(as_text(left))
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
