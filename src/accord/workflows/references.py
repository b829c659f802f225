"""References of templates: the texts of a step that have them, and whether their values exist by then.

Plans and validation judge references alike. A plan knows the values of its run, validation the positions in a file.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from msgspec import Struct

from accord.workflows.document import Step
from accord.workflows.expressions import ROOTS, Reference, condition_references, references, texts_in
from accord.workflows.functions import closest

TEXTS = ("task", "command", "cwd", "branch", "base_branch", "path", "url", "input", "over", "event")
TABLES = ("env", "set", "headers", "vars", "with_")
"""The members of a step that may have templates, besides `argv`, `if`, `until` and its verification."""

LATER = frozenset({"steps", "state", "env", "run", "item", "index"})
"""Roots of values that are known only during a run, or must not be stored with a plan."""

OF_A_STEP = ("output", "status", "json", "exit_code", "exitCode")

THIS_STEP = "step"
NO_THIS_STEP = 'name the step: {{steps.NAME.output}}; write braces that are only text as {{"{{"}}'
"""How texts of agent-relay name the current step, and what to write instead."""

Edges = Mapping[str, Iterable[str]]
"""The direct dependencies of each step and barrier."""


def reachable(edges: Edges, start: str) -> set[str]:
    """Return all direct and indirect dependencies of a step."""
    names: set[str] = set()
    ahead = list(edges.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in names:
            names.add(name)
            ahead += edges.get(name, ())
    return names


def find_cycle(edges: Edges) -> list[str]:
    """Return steps of which each waits for the next, and the last for the first; empty if there are none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(reversed(error.args[1][1:]))
    return []


def in_order(edges: Edges) -> Iterator[str]:
    """Yield steps after their dependencies. There must be no cycle."""
    return (name for name in TopologicalSorter(edges).static_order() if name in edges)


# --- texts ------------------------------------------------------------------------------------------------------------


class TemplatedText(NamedTuple):
    """A text with templates and its place; `is_own` if it is evaluated after the end of its step."""

    path: tuple[str, ...]
    text: str
    is_condition: bool = False
    is_own: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether it is an address, a header or an event, which no run may change."""
        return self.path[0] in ("url", "headers", "event")

    def references(self) -> tuple[Reference, ...]:
        """Return the values that it needs; raises BadExpression."""
        return (condition_references if self.is_condition else references)(self.text)


def step_texts(step: Step, *, is_loop: bool = False) -> Iterator[TemplatedText]:
    """Yield all texts of a step that may have templates. A loop may read its own last round."""
    if step.if_ is not None:
        yield TemplatedText(("if",), step.if_, is_condition=True)
    is_own = is_loop and step.max_iterations is not None
    for name in (*TEXTS, "argv", "until"):
        value = getattr(step, name)
        for text in (value,) if isinstance(value, str) else texts_in(value) if value else ():
            path = "baseBranch" if name == "base_branch" else name
            yield TemplatedText((path,), text, is_loop and name == "until", is_own)
    for name in TABLES:
        for key, value in getattr(step, name).items():
            for text in texts_in(value):
                yield TemplatedText((name.rstrip("_"), key), text, is_own=name == "set")
    if step.verification is not None:
        yield TemplatedText(("verification", "value"), step.verification.value, is_own=True)
        for text in step.verification.argv or ():
            yield TemplatedText(("verification", "argv"), text, is_own=True)


# --- values -----------------------------------------------------------------------------------------------------------


class Scope(Struct, frozen=True, kw_only=True):
    """The values that a text may read."""

    known: Mapping[str, Collection[str]]
    """Names by root: `inputs`, `vars`, `env`, `state`, and the events of `run`."""

    edges: Edges
    names: Collection[str]
    """The steps and barriers, and their order."""

    step: str | None = None
    own: str | None = None
    """The step of the text, and its name within a map. The output of a workflow has none."""

    items: frozenset[str] = frozenset()
    """Names of the items of all enclosing maps."""

    is_ordered: bool = True
    """Whether the order is known: some patterns add to it."""

    undeclared: str = "UNKNOWN_REFERENCE"
    """The code for an unknown variable."""

    def problem(self, text: TemplatedText, reference: Reference) -> tuple[str, str, str] | None:
        """Return code, message and fix for a reference without a value, or None."""
        root, source = reference.path[0], reference.source
        if text.is_fixed and (root in LATER or root in self.items):
            fix = "write ${NAME} for a variable of the environment" if root == "env" else "use `vars` or `inputs`"
            return "NOT_FIXED", f"{source} is known only during a run", fix
        if reference.step is not None:
            return self._step_problem(text, reference, reference.step)
        if reference.is_optional:
            return None
        if root in ("item", "index") or root in self.items:
            fix = "use `type: map`, or another value"
            return None if self.items else ("UNKNOWN_REFERENCE", f"{source}: only the step of a map has `{root}`", fix)
        return self._value_problem(root, reference.path[1:], source)

    def _step_problem(self, text: TemplatedText, reference: Reference, name: str) -> tuple[str, str, str] | None:
        source, is_itself = reference.source, text.path[0] == "set" and name == self.own
        if name not in self.names and not is_itself:
            fix = unknown_name_fix(name, self.names, "name a step of the same workflow")
            return "UNKNOWN_REFERENCE", f"{source}: there is no step {name}", fix
        if len(reference.path) > 2 and reference.path[2] not in OF_A_STEP:
            fix = f"write one of {', '.join(OF_A_STEP[:4])}"
            return "UNKNOWN_REFERENCE", f"{source}: a step has no `{reference.path[2]}`", fix
        if self.step is None or is_itself or (text.is_own and name == self.step) or not self.is_ordered:
            return None
        if name in self.edges[self.step] or name in reachable(self.edges, self.step):
            return None
        fix = f"add {name} to `dependsOn`" if name != self.step else "a step cannot read its own output"
        return "NOT_UPSTREAM", f"{source}: {name} need not have ended when {self.step} begins", fix

    def _value_problem(self, root: str, rest: tuple[str, ...], source: str) -> tuple[str, str, str] | None:
        if root == "run" and rest:
            fix = run_lacks(rest, self.known["run"])
        elif root in ROOTS and not rest:
            fix = None if root == "input" else f"write {{{{{root}.NAME}}}}"
        else:
            return self._name_problem(root, rest, source)
        return None if fix is None else ("UNKNOWN_REFERENCE", f"{source} has no value", fix)

    def _name_problem(self, root: str, rest: tuple[str, ...], source: str) -> tuple[str, str, str] | None:
        known = self.known
        table, name = (root, rest[0]) if root in known and rest else ("vars", root)
        if name in known[table]:
            return None
        if root == THIS_STEP and rest:
            return "UNKNOWN_REFERENCE", f"{source}: no value is called `step`", NO_THIS_STEP
        match table:
            case "env":
                fix = f"set {name} in the environment, which no workflow sees if settings refer to it"
                return "MISSING_ENV", f"The variable {name} is not set", fix
            case "inputs":
                fix = unknown_name_fix(name, known["inputs"], f"add {name} to `inputs`")
                return "UNKNOWN_REFERENCE", f"{source}: there is no input {name}", fix
            case "state":
                fix = (
                    f"no step says `set: {{{name}: ..}}`; if another workflow does: {{{{state.{name} | default('')}}}}"
                )
                return "UNKNOWN_REFERENCE", f"{source} has no value", fix
        fix = unknown_name_fix(name, known["vars"], f"add {name} to `vars`, or run it with --var {name}=...")
        return self.undeclared, f"{source}: nothing in the file says what {name} is", fix


def unknown_name_fix(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the fix for an unknown name."""
    near = closest(name, known)
    return f"did you mean {near}?" if near else otherwise


def is_variable_reference(reference: Reference) -> bool:
    """Whether a reference reads a variable."""
    root, *rest = reference.path
    return (root == "vars" and bool(rest)) or (root not in ROOTS and not (root == THIS_STEP and rest))


def events_of(steps: Iterable[Step]) -> frozenset[str]:
    """Return the events that steps wait for."""
    return frozenset(event for step in steps if (event := step.innermost.event) is not None)


def run_lacks(rest: tuple[str, ...], events: Collection[str]) -> str | None:
    """Return the fix for an unknown value of a run, or None if the value exists."""
    if rest[0] == "id" and len(rest) == 1:
        return None
    if rest[0] != "events" or len(rest) != 2:
        return "a run has an `id`, and `events.NAME` for what its steps wait for"
    if rest[1] in events:
        return None
    fix = unknown_name_fix(rest[1], events, f"add `type: wait`, `event: {rest[1]}`")
    return f"no step waits for it: {fix}"
