"""Steps of one's own: `use: NAME` becomes the step that a document, or a file beside it, has below `steps`.

A parameter takes the place of `{{NAME}}` in that step as a value, never as more text: in a command it is quoted like
any other. `planning` calls it before anything else, so that nobody else knows that there are such steps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.workflows.document import CustomStep, Step
from accord.workflows.expressions import Both, Call, Constant, Filtered, Name, Node, Not, rendered
from accord.workflows.findings import BadDocument, Finding, found
from accord.workflows.functions import as_text, nearest
from accord.workflows.reading import read_step, read_steps, tree_of
from accord.workflows.templates import Template, split
from accord.workflows.text import text_of

FILES = (".relay/steps.yaml", ".accord/steps.yaml")
"""Where steps of one's own are, beside a document; the last one counts, and the document's own most."""

MAX_DEPTH = 8
"""How many steps of one's own may use each other."""


def beside(base: Path) -> dict[str, CustomStep]:
    """Return the steps of one's own that are beside a document; raises BadDocument."""
    steps: dict[str, CustomStep] = {}
    for name in FILES:
        if (path := base / name).is_file():
            steps |= read_steps(text_of(path), str(path))
    return steps


def expanded(step: Step, steps: Mapping[str, CustomStep], depth: int = 0) -> Step:
    """Return a step with what it uses in its place; raises BadDocument."""
    if step.use is None:
        return step
    if step.use not in steps:
        fix = f"there is none{nearest(step.use, steps)}" if steps else "write one below `steps`"
        raise bad_document("UNKNOWN_CUSTOM_STEP", f"step {step.name!r} uses {step.use!r}", fix)
    if depth == MAX_DEPTH:
        raise bad_document(
            "UNKNOWN_CUSTOM_STEP", f"step {step.name!r} uses {step.use!r}, which uses itself", "end the circle"
        )
    own = steps[step.use]
    given = _parameters(step, own)
    said = {key: value for key, value in tree_of(step).items() if key not in ("use", "with")}
    return expanded(read_step({**_filled(own.step, given), **said}), steps, depth + 1)


def _parameters(step: Step, own: CustomStep) -> dict[str, Any]:
    names = [param.name for param in own.params]
    problems: list[Finding] = []
    for name in step.with_:
        if name not in names:
            fix = f"there is no such parameter{nearest(name, names)}" if names else "it has no parameters"
            problems.append(found("BAD_PARAMS", f"step {step.name!r} gives {step.use!r} the parameter {name!r}", fix))
    given = {param.name: step.with_.get(param.name, getattr(step, param.name, None)) for param in own.params}
    for param in own.params:
        if param.required and param.default is None and given[param.name] is None:
            what = f" ({param.description})" if param.description else ""
            message = f"step {step.name!r} does not give {step.use!r} its {param.name!r}{what}"
            problems.append(found("BAD_PARAMS", message, "add it to `with`"))
    if problems:
        raise BadDocument(problems)
    return {param.name: param.default if given[param.name] is None else given[param.name] for param in own.params}


def bad_document(code: str, message: str, fix: str) -> BadDocument:
    """Return the error for one finding without a position."""
    return BadDocument([found(code, message, fix)])


# --- parameters in texts ----------------------------------------------------------------------------------------------


def _filled(tree: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _filled(value, given) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_filled(value, given) for value in tree]
    if not isinstance(tree, str) or "{{" not in tree:
        return tree
    pieces = split(tree)
    match pieces:
        case (Template(node=Name((name,))),) if name in given:
            return "" if given[name] is None else given[name]
    return "".join(
        piece if isinstance(piece, str) else f"{{{{{rendered(_replaced(piece.node, given))}}}}}" for piece in pieces
    )


def _replaced(node: Node, given: Mapping[str, Any]) -> Node:
    match node:
        case Name((name, *rest)) if name in given:
            return _value(given[name], rest)
        case Call(function, arguments):
            return Call(function, tuple(_replaced(part, given) for part in arguments))
        case Filtered(inner, name, arguments):
            return Filtered(_replaced(inner, given), name, tuple(_replaced(part, given) for part in arguments))
        case Not(inner):
            return Not(_replaced(inner, given))
        case Both(sign, left, right):
            return Both(sign, _replaced(left, given), _replaced(right, given))
    return node


def _value(value: Any, rest: list[str]) -> Node:
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        parts: list[Node] = []
        for piece in split(value):
            parts += [piece.node] if isinstance(piece, Template) else _constants(piece)
        return parts[0] if len(parts) == 1 else Call("text", tuple(parts)) if parts else Constant("")
    return Constant(value if isinstance(value, bool | int | float) or value is None else as_text(value))


def _constants(text: str) -> list[Node]:
    """Return a text as constants none of which has both kinds of quotes, which no constant can have."""
    pieces = [piece for part in text.split('"') for piece in (part, '"')][:-1]
    return [Constant(piece) for piece in pieces if piece]
