"""Workflows as a kind of agent: what `accord serve flow.yaml` and the settings of a server make of a file.

A document, or what the builder has built, is recognised as well. It only reads and puts together; what is wrong with a
file is said with its place.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import field

from accord.agents.kinds import Given, Kind, Options, comes_from, restated
from accord.agents.load import FILES

if TYPE_CHECKING:
    from accord.workflows.document import Document

BUILT = ("accord.workflows.builder:Builder", "accord.workflows.document:Document")


class WorkflowOptions(Options, frozen=True, kw_only=True):
    """A workflow file: `vars` are fixed for all of its runs, and its paths begin in `directory`, or where it is."""

    vars: dict[str, Any] = field(default_factory=dict)
    directory: str | None = None


def _recognises(thing: Any) -> bool:
    return thing.suffix in FILES if isinstance(thing, Path) else comes_from(thing, *BUILT)


def _make(given: Given) -> Any:
    from accord.workflows.agent import WorkflowAgent
    from accord.workflows.findings import BadDocument

    options: WorkflowOptions = given.options
    base = given.target.parent if isinstance(given.target, Path) else Path.cwd()
    directory = base.absolute() if options.directory is None else base.absolute() / Path(options.directory).expanduser()
    try:
        document, text = _document(given.target, directory, given.env)
        agent = WorkflowAgent(document, name=given.name, directory=directory, env=given.env, vars=options.vars)
        agent.text = text
    except BadDocument as error:
        raise ValueError(f"it cannot be served\n{error}") from error
    agent.profile = restated(agent.profile, given)
    return agent


def _document(target: Any, directory: Path, env: Mapping[str, str]) -> "tuple[Document, str | None]":
    """Return the document that something is, and its text if it is a file, with which nothing may be wrong."""
    from accord.workflows.checks import check_source
    from accord.workflows.document import Document
    from accord.workflows.findings import BadDocument
    from accord.workflows.reading import open_source

    if not isinstance(target, Path):
        return (target if isinstance(target, Document) else cast("Document", target.to_config())), None
    source = open_source(target)
    wrong = [one for one in check_source(source, env, directory) if one.severity == "error"]
    if wrong:
        raise BadDocument(wrong)
    return source.document, source.text


KIND = Kind(name="workflow", make=_make, options=WorkflowOptions, recognises=_recognises)
