"""The agent type `workflow`: makes an agent of a workflow file.

It also recognizes a `Document` and a `Builder`. Heavy modules are imported when such an agent is made.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import field

from accord.agents.loader import FILE_SUFFIXES
from accord.api.agent_types import AgentArguments, AgentType, Options, is_instance_of, with_options

if TYPE_CHECKING:
    from accord.workflows.document import Document
    from accord.workflows.source import Source


BUILT = ("accord.workflows.builder:Builder", "accord.workflows.document:Document")


class WorkflowOptions(Options, frozen=True, kw_only=True):
    """A workflow file; `vars` are fixed for all its runs, and `directory` is the base of its paths."""

    vars: dict[str, Any] = field(default_factory=dict)
    directory: str | None = None


def _recognizes(thing: Any) -> bool:
    return thing.suffix in FILE_SUFFIXES if isinstance(thing, Path) else is_instance_of(thing, *BUILT)


def _make(given: AgentArguments) -> Any:
    from accord.workflows.agent import WorkflowAgent
    from accord.workflows.findings import BadDocument
    from accord.workflows.validation import validate

    options: WorkflowOptions = given.options
    base = given.target.parent if isinstance(given.target, Path) else Path.cwd()
    directory = base.absolute() if options.directory is None else base.absolute() / Path(options.directory).expanduser()
    try:
        source, document = _load_target(given.target)
        findings = validate(source or document, directory, env=given.env, vars=options.vars)
        if wrong := [finding for finding in findings if finding.severity == "error"]:
            raise BadDocument(wrong)
        agent = WorkflowAgent(document, name=given.name, directory=directory, env=given.env, vars=options.vars)
        agent.text = None if source is None else source.text
    except BadDocument as error:
        raise ValueError(f"it cannot be served\n{error}") from error
    agent.profile = with_options(agent.profile, given)
    return agent


def _load_target(target: Any) -> "tuple[Source | None, Document]":
    from accord.workflows.document import Document
    from accord.workflows.source import load_source

    if not isinstance(target, Path):
        return None, target if isinstance(target, Document) else cast("Document", target.to_config())
    source = load_source(target)
    return source, source.document


AGENT_TYPE = AgentType(name="workflow", make=_make, options=WorkflowOptions, recognizes=_recognizes)
