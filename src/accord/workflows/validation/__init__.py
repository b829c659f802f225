"""Validate a document without running it: errors, warnings and advice.

Each check is a function over a `Subject`. `decoder` has checked the form of the file before.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.agents.command_environment import document_variables
from accord.client.credentials import KeyManagementError, Keys
from accord.workflows import planner
from accord.workflows.agent import WorkflowAgent
from accord.workflows.document import Document
from accord.workflows.findings import BadDocument, CheckProblem, DocumentFinding, TextPosition, make_finding
from accord.workflows.source import Source
from accord.workflows.validation.agents import ADVICE_CHECKS, AGENT_CHECKS
from accord.workflows.validation.references import ORDER_CHECKS, REFERENCE_CHECKS
from accord.workflows.validation.steps import CUSTOM_STEP_CHECKS, STEP_CHECKS, TIME_CHECKS
from accord.workflows.validation.subject import NAME_CHECKS, PATH_CHECKS, TRIGGER_CHECKS, Check, Subject

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
    place: Callable[[CheckProblem], TextPosition] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[DocumentFinding]:
    """Return the findings of a document, in the order of its text.

    `base` is the base of its relative paths. `place` returns the position of a problem, if the document has a text.
    `env` is the environment of the server.
    """
    known = document_variables(os.environ if env is None else env)
    subject = Subject(document, base, known, planner.load_custom_steps(base))
    findings = []
    for problem in (problem for one in CHECKS for problem in one(subject)):
        at = TextPosition(f"<{document.name}>") if place is None else place(problem)
        findings.append(make_finding(problem.code, problem.message, problem.fix, at))
    return sorted(dict.fromkeys(findings), key=lambda one: (one.file, one.line, one.column))


def check_source(
    source: Source, env: Mapping[str, str] | None = None, base: Path | None = None
) -> list[DocumentFinding]:
    """Return the findings of a document from a file, with lines and columns.

    Its paths are relative to the file, or to `base`.
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
) -> list[DocumentFinding]:
    """Return the findings of a document. Without an error, they include the errors of making its agent.

    `accord workflow validate`, `accord run` and `accord serve` all call this, so that they refuse the same documents.
    `vars` are additional variables of its runs.
    """
    if isinstance(given, Source):
        document, file = given.document, given.file
        base = Path(file).resolve().parent if base is None else base
        findings = check_source(given, env, base)
    else:
        document, file, base = given, f"<{given.name}>", Path.cwd() if base is None else base
        findings = check(document, base, env=env)
    if any(finding.severity == "error" for finding in findings):
        return findings
    try:
        WorkflowAgent(document, directory=base, env=os.environ if env is None else env, vars=vars, keys=keys)
    except BadDocument as error:
        findings += (one if one.line else replace(one, file=file) for one in error.findings)
    except (KeyManagementError, ValueError) as error:
        findings.append(
            make_finding("BAD_AGENT", str(error), "correct the agent or the step that it names", TextPosition(file))
        )
    return findings


__all__ = ["CHECKS", "check", "check_source", "validate"]
