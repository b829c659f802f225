"""Workflows as a kind of agent: what `accord serve flow.yaml` and the settings of a server make of a file.

A document, or what the builder has built, is recognised as well. It only reads and puts together; what is wrong with a
file is said with its place.
"""

from pathlib import Path
from typing import Any

from msgspec import field

from accord.agents.kinds import Given, Kind, Options, comes_from, restated
from accord.agents.load import FILES

BUILT = ("accord.workflows.builder:Builder", "accord.workflows.document:Document")


class WorkflowOptions(Options, frozen=True, kw_only=True):
    """A workflow file: `vars` are fixed for all of its runs, and its paths begin in `directory`, or where it is."""

    vars: dict[str, Any] = field(default_factory=dict)
    directory: str | None = None


def _recognises(thing: Any) -> bool:
    return thing.suffix in FILES if isinstance(thing, Path) else comes_from(thing, *BUILT)


def _make(given: Given) -> Any:
    from accord.workflows.agent import WorkflowAgent
    from accord.workflows.document import Document
    from accord.workflows.reading import load

    options: WorkflowOptions = given.options
    target = given.target
    is_file = isinstance(target, Path)
    document: Document = load(target) if is_file else target if isinstance(target, Document) else target.to_config()
    base = target.parent if is_file else Path.cwd()
    directory = base if options.directory is None else base / Path(options.directory).expanduser()
    agent = WorkflowAgent(document, name=given.name, directory=directory.absolute(), env=given.env, vars=options.vars)
    agent.profile = restated(agent.profile, given)
    return agent


KIND = Kind(name="workflow", make=_make, options=WorkflowOptions, recognises=_recognises)
