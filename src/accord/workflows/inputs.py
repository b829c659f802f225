"""Inputs and variables of a run: given values, defaults and types.

A given value is never a template, only the document's own variables are. All values are known before a run starts and
are part of its plan.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from accord.workflows.document import Document, Input
from accord.workflows.expressions import ROOTS, BadExpression, references, texts_in
from accord.workflows.findings import DocumentFinding, make_finding
from accord.workflows.values import Unresolved, Values

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, dict),
}


_STAND_INS: Mapping[str, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": [], "object": {}}
"""Type of an input -> a valid value of it."""


def outlined(document: Document, given: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return values for planning a document before any run, and the names of values that only a run has.

    A required input that is not given gets a valid stand-in. Stand-ins, the input of the run, and variables made of
    them are pending: only a run has their values.
    """
    stand_ins = {
        name: one.enum[0] if one.enum else _STAND_INS[one.type]
        for name, one in document.inputs.items()
        if one.required and one.default is None and name not in given
    }
    pending = {"input", *(f"inputs.{name}" for name in stand_ins)}
    made = {f"vars.{name}": _values_read(value) for name, value in document.vars.items() if name not in given}
    while more := {name for name, values in made.items() if name not in pending and values & pending}:
        pending |= more
    return {**stand_ins, **given}, frozenset(pending)


def inputs_of(document: Document, given: Mapping[str, Any], text: str) -> tuple[dict[str, Any], list[DocumentFinding]]:
    """Return a document's inputs and findings. A value is given by name, in the run's JSON input, or is the default."""
    values: dict[str, Any] = {}
    problems: list[DocumentFinding] = []
    in_text = _json_object(text) if document.inputs else {}
    for name, one in document.inputs.items():
        if name in given:
            value = _converted(one, given[name])
        elif name in in_text:
            value = in_text[name]
        elif one.required and one.default is None:
            fix = f"give {name} by its name, or as a key of an input that is JSON"
            problems.append(make_finding("MISSING_INPUT", f"the input {name!r} is needed", fix))
            continue
        else:
            values[name] = one.default
            continue
        if not _TYPES[one.type](value):
            problems.append(
                make_finding("BAD_INPUT", f"the input {name!r} is {value!r}", f"give a value of the type {one.type}")
            )
        elif one.enum and value not in one.enum:
            allowed = ", ".join(map(str, one.enum))
            problems.append(make_finding("BAD_INPUT", f"the input {name!r} is {value!r}", f"give one of {allowed}"))
        values[name] = value
    return values, problems


def vars_of(
    document: Document,
    given: Mapping[str, Any],
    text: str,
    inputs: Mapping[str, Any],
    *,
    pending: Collection[str] = (),
) -> tuple[dict[str, Any], list[DocumentFinding]]:
    """Return a run's variables: the given ones, and the document's with their templates evaluated.

    A pending variable that cannot be made of stand-ins is an empty string.
    """
    done: dict[str, Any] = {name: value for name, value in given.items() if name not in document.inputs}
    left = {name: value for name, value in document.vars.items() if name not in done}
    problems: list[DocumentFinding] = []
    while left:
        ready = {name: value for name, value in left.items() if not _needs_variable(value, left)}
        if not ready:
            names = ", ".join(sorted(left))
            problems.append(make_finding("CYCLE", f"the variables {names} need each other", "give one of them a value"))
            break
        values = Values(input=text, inputs=inputs, vars=done)
        for name, value in ready.items():
            try:
                done[name] = _evaluated(values, value)
            except (BadExpression, Unresolved) as error:
                if f"vars.{name}" in pending and isinstance(error, Unresolved):
                    done[name] = ""
                else:
                    problems.append(make_finding("UNKNOWN_REFERENCE", f"vars.{name}: {error}", _fix(value)))
            del left[name]
    return done, problems


def _json_object(text: str) -> dict[str, Any]:
    try:
        table = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _converted(one: Input, value: Any) -> Any:
    """Return a value in the type of its input. Values on a command line are strings."""
    if one.type == "string" or not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _needs_variable(value: Any, left: Mapping[str, Any]) -> bool:
    values = _values_read(value)
    return any(f"vars.{name}" in values for name in left)


def _values_read(value: Any) -> set[str]:
    try:
        return {value_name(reference.path) for text in texts_in(value) for reference in references(text)}
    except BadExpression:
        return set()


def value_name(path: tuple[str, ...]) -> str:
    """Return the value that a path starts with: `input`, `inputs.NAME` or `vars.NAME`, also for a bare name."""
    return ".".join(path[:2]) if path[0] in ROOTS else f"vars.{path[0]}"


def _evaluated(values: Values, value: Any) -> Any:
    if isinstance(value, str):
        return values.value(value)
    if isinstance(value, dict):
        return {key: _evaluated(values, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_evaluated(values, part) for part in value]
    return value


def _fix(value: Any) -> str:
    if any("env." in text for text in texts_in(value)):
        return "write {{env.NAME}} where it is used: variables are kept with the run, and secrets should not be"
    return "variables may speak of input, inputs and other variables"
