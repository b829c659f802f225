"""From a thing, or the name of one, to an agent.

What is an agent already is taken as it is; anything else is made one by the kind that recognises it. Which kinds there
are is `agents.kinds`; what settings say about an agent is read in `app`.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeGuard

import msgspec

from accord.agents import kinds
from accord.agents.kinds import KINDS, Given, Kind
from accord.agents.naming import NotThere, members, named
from accord.engine.agent import Agent, Profile

NOTHING: Mapping[str, str] = MappingProxyType({})

FILES = frozenset({".yaml", ".yml"})
"""How the names of files end that are things by themselves."""


class NotAnAgent(ValueError):
    """There is nothing of that name, or it is no agent, or cannot be made one."""


def load(spec: str, env: Mapping[str, str] = NOTHING) -> Agent:
    """Return the agent that `module:name`, `file.py:name` or a file names."""
    return as_agent(thing(spec), spec, env)


def thing(spec: str) -> Any:
    """Return what a name names; if a framework is missing that we serve, what brings it is said.

    A file that is no Python is a thing by itself, for the kind that recognises it.
    """
    if ":" not in spec and Path(spec).suffix in FILES:
        if not Path(spec).is_file():
            raise NotAnAgent(f"There is no file {spec}")
        return Path(spec)
    try:
        return named(spec) if ":" in spec or not spec.endswith(".py") else _only_path(spec)
    except NotThere as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        found = kinds.framework(missing or "")
        brought = "" if found is None else f": pip install 'accord[{found.extra}]'"
        raise NotAnAgent(f"{error}{brought}") from error


def _only_path(file: str) -> NoReturn:
    """Refuse a Python file without a name, and say which agents are in it."""
    found = [f"{file}:{name}" for name, value in members(file).items() if is_agent(value)]
    which = f"which of {', '.join(found)}" if len(found) > 1 else found[0] if found else f"{file}:name"
    raise NotThere(f"{file} alone names nothing: write {which}")


def as_agent(found: Any, name: str | None = None, env: Mapping[str, str] = NOTHING, **options: Any) -> Agent:
    """Return an agent as it is, and anything that an agent type recognizes as one of that type.

    `options` are those of the type, as in `[agents.NAME]`: `as_agent(graph, extended_skills=["book"])`. `name` is the
    name of the thing in errors.
    """
    name = name or str(getattr(found, "__name__", type(found).__name__))
    if is_agent(found):
        if options:
            raise NotAnAgent(f"{name}: it is an agent already: state {', '.join(options)} where it is made")
        return found
    kind = recognised(found, name)
    try:
        return make(kind, Given(options=msgspec.convert(options, kind.options), target=found, env=env))
    except (NotAnAgent, msgspec.ValidationError) as error:
        raise NotAnAgent(f"{name}: {error}") from error


def is_agent(found: Any) -> TypeGuard[Agent]:
    """Whether something is an agent already."""
    return isinstance(getattr(found, "profile", None), Profile)


def recognised(found: Any, name: str) -> Kind:
    """Return the kind of agent that something can be made."""
    kind = KINDS.load("function") if inspect.isroutine(found) else kinds.kind_of(found)  # which looks at all of them
    if kind is None:
        what = f"the class {found.__name__}" if inspect.isclass(found) else type(found).__name__
        raise NotAnAgent(f"{name} is no agent but {what}: {kinds.remedy(found) or 'decorate a function with @agent'}")
    return kind


def make(kind: Kind, given: Given) -> Agent:
    """Return an agent of a kind, unless its framework is not installed or it cannot work with what it is given."""
    try:
        return kind.make(given)
    except (ImportError, ValueError) as error:
        raise NotAnAgent(str(error)) from error
