"""All checks, one after the other, and what they say with its place."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.agents.command_environment import document_variables
from accord.client.keys import KeyManagementError, Keys
from accord.workflows import custom
from accord.workflows.agent import WorkflowAgent
from accord.workflows.checks.agents import AGENT_CHECKS
from accord.workflows.checks.amounts import TIME_CHECKS
from accord.workflows.checks.habits import ADVICE_CHECKS
from accord.workflows.checks.mentions import REFERENCE_CHECKS
from accord.workflows.checks.names import NAME_CHECKS
from accord.workflows.checks.order import ORDER_CHECKS
from accord.workflows.checks.places import PATH_CHECKS
from accord.workflows.checks.steps import STEP_CHECKS
from accord.workflows.checks.subject import Check, Problem, Subject
from accord.workflows.checks.triggers import TRIGGER_CHECKS
from accord.workflows.checks.using import CUSTOM_STEP_CHECKS
from accord.workflows.document import Document
from accord.workflows.findings import BadDocument, Finding, Place, found
from accord.workflows.reading import Source

CHECKS: tuple[Check, ...] = (
    *NAME_CHECKS,
    *AGENT_CHECKS,
    *STEP_CHECKS,
    *CUSTOM_STEP_CHECKS,
    *ORDER_CHECKS,
    *REFERENCE_CHECKS,
    *PATH_CHECKS,
    *TIME_CHECKS,
    *TRIGGER_CHECKS,
    *ADVICE_CHECKS,
)


def check(
    document: Document,
    base: Path,
    place: Callable[[Problem], Place] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return what there is to say about a document, in the order of its text.

    `base` is where its relative paths begin; `place` says where a problem stands in the text, if there is one;
    `env` is the environment that the server of a run would have.
    """
    known = document_variables(os.environ if env is None else env)
    subject = Subject(document, base, known, custom.beside(base))
    findings = []
    for problem in (problem for one in CHECKS for problem in one(subject)):
        at = Place(f"<{document.name}>") if place is None else place(problem)
        findings.append(found(problem.code, problem.message, problem.fix, at))
    return sorted(dict.fromkeys(findings), key=lambda one: (one.file, one.line, one.column))


def check_source(source: Source, env: Mapping[str, str] | None = None, base: Path | None = None) -> list[Finding]:
    """Return what there is to say about a document that was read from a file, with lines and columns.

    Its paths begin where the file is, or at `base`.
    """
    base = Path(source.file).resolve().parent if base is None else base
    return check(source.document, base, lambda one: source.place(one.where, key=one.at_key, start=one.start), env)


def validate(
    given: Source | Document,
    base: Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    vars: Mapping[str, Any] | None = None,
    keys: Keys | None = None,
) -> list[Finding]:
    """Return the findings of a document: those of the checks, or else what keeps it from becoming an agent.

    `accord workflow validate`, `accord run` and `accord serve` all call this, so that they refuse the same documents.
    `vars` are the variables that its runs have besides its own.
    """
    if isinstance(given, Source):
        document, file = given.document, given.file
        base = Path(file).resolve().parent if base is None else base
        findings = check_source(given, env, base)
    else:
        document, file, base = given, f"<{given.name}>", Path.cwd() if base is None else base
        findings = check(document, base, env=env)
    if any(one.severity == "error" for one in findings):
        return findings
    try:
        WorkflowAgent(document, directory=base, env=os.environ if env is None else env, vars=vars, keys=keys)
    except BadDocument as error:
        findings += (one if one.line else replace(one, file=file) for one in error.findings)
    except (KeyManagementError, ValueError) as error:
        findings.append(found("BAD_AGENT", str(error), "correct the agent or the step that it names", Place(file)))
    return findings
