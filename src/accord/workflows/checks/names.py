"""Names: whether they are unique, can be referred to, and stand for something."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from accord.workflows.checks.subject import Problem, Subject, Where
from accord.workflows.circles import runs_itself
from accord.workflows.keys import nearest
from accord.workflows.patterns import PATTERNS
from accord.workflows.values import output_variable

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""What templates and records can refer to."""

CHANNEL = re.compile(r"[a-z0-9][a-z0-9-]*")

_NO_NAME = re.compile(r"[^a-z0-9_]+")


def version(subject: Subject) -> Iterator[Problem]:
    """The file is of a version that is read here."""
    if re.fullmatch(r"1(\.\d+)*", subject.document.version) is None:
        yield Problem("BAD_VALUE", ("version",), f"Version {subject.document.version} is not known", 'write "1"')


def uniqueness(subject: Subject) -> Iterator[Problem]:
    """No two of a kind have the same name."""
    document = subject.document
    yield from _twice("agent", [(("agents", at), one.name) for at, one in enumerate(document.agents)])
    yield from _twice("workflow", [(("workflows", at), one.name) for at, one in enumerate(document.workflows)])
    yield from _twice("path", [(("paths", at), one.name) for at, one in enumerate(document.paths)])
    barriers: list[tuple[Where, str]] = [
        (("coordination", "barriers", at), one.name) for at, one in enumerate(document.coordination.barriers)
    ]
    yield from _twice("barrier", barriers)
    for workflow in document.workflows:
        steps = [(placed.where, placed.step.name) for placed in subject.of(workflow)]
        yield from _twice("step or barrier", [*barriers, *steps], skip=len(barriers))


def variables(subject: Subject) -> Iterator[Problem]:
    """No two steps are the same variable to a command."""
    for workflow in subject.document.workflows:
        seen: dict[str, str] = {}
        for placed in subject.of(workflow):
            name, variable = placed.step.name, output_variable(placed.step.name)
            if (other := seen.setdefault(variable, name)) != name:
                message = f"{name} and {other} are both {variable} to a command"
                yield Problem("DUPLICATE_NAME", (*placed.where, "name"), message, "call one of them otherwise")


def references(subject: Subject) -> Iterator[Problem]:
    """Steps and barriers have names that templates can say."""
    named = [(placed.where, placed.step.name) for placed in subject.steps]
    named += [
        (("coordination", "barriers", at), one.name) for at, one in enumerate(subject.document.coordination.barriers)
    ]
    for where, name in named:
        if NAME.fullmatch(name) is None:
            other = _NO_NAME.sub("-", name.lower()).strip("-") or "step"
            message = f'"{name}" has other characters than letters, digits, - and _'
            yield Problem("BAD_NAME", (*where, "name"), message, f"call it {other}")


def channels(subject: Subject) -> Iterator[Problem]:
    """Channels are called as agent-relay calls them."""
    document = subject.document
    stated: list[tuple[Where, str | None]] = [(("swarm", "channel"), document.swarm.channel)]
    if document.error_handling is not None:
        stated.append((("errorHandling", "notifyChannel"), document.error_handling.notify_channel))
    for number, agent in enumerate(document.agents):
        stated += [(("agents", number, "channels", at), channel) for at, channel in enumerate(agent.channels)]
    for where, name in stated:
        if name is not None and CHANNEL.fullmatch(name) is None:
            other = _NO_NAME.sub("-", name.lower()).replace("_", "-").strip("-") or "general"
            message = f'"{name}" is no name of a channel: lower-case letters, digits and hyphens'
            yield Problem("INVALID_CHANNEL_NAME", where, message, f"call it {other}")


def patterns(subject: Subject) -> Iterator[Problem]:
    """The pattern is one that there is."""
    name = subject.document.swarm.pattern
    if name is not None and name not in PATTERNS:
        fix = meant(name, PATTERNS, f"write one of {', '.join(PATTERNS)}")
        yield Problem("UNKNOWN_PATTERN", ("swarm", "pattern"), f"There is no pattern {name}", fix)


def profiles(subject: Subject) -> Iterator[Problem]:
    """Permissions are based on profiles that there are."""
    document, known = subject.document, subject.document.profiles
    stated: list[tuple[Where, str | None]] = [
        (("agents", at, "permissions", "profile"), agent.permissions.profile)
        for at, agent in enumerate(document.agents)
        if agent.permissions is not None
    ]
    stated += [
        ((*where, "permissions", "profile"), step.permissions.profile)
        for step, where, *_ in subject.steps
        if step.permissions is not None
    ]
    stated += [(("permission_profiles", name, "profile"), one.profile) for name, one in known.items()]
    if document.permissions.default is not None:
        stated.append((("permissions", "default"), document.permissions.default.profile))
    for where, name in stated:
        if name is not None and name not in known:
            fix = meant(name, known, "add it to `permission_profiles`")
            yield Problem("UNKNOWN_PROFILE", where, f"There is no profile {name}", fix)


def workflows(subject: Subject) -> Iterator[Problem]:
    """Steps run workflows that there are, and none that runs itself."""
    known = {workflow.name: workflow for workflow in subject.document.workflows}
    for step, where, workflow, *_ in subject.steps:
        if step.file is not None and "{{" not in step.file:
            file = subject.base / Path(step.file)
            if not file.is_file():
                message = f"There is no file {step.file}"
                yield Problem("UNKNOWN_WORKFLOW", (*where, "file"), message, "its path begins where this file is")
            elif runs_itself(file):
                message = f"The file {step.file} would run itself for ever"
                yield Problem("CYCLE", (*where, "file"), message, "name another file")
        if step.workflow is None or step.file is not None or "{{" in step.workflow:
            continue
        if step.workflow not in known:
            fix = meant(step.workflow, known, "name one of this file, or its `file`")
            yield Problem("UNKNOWN_WORKFLOW", (*where, "workflow"), f"There is no workflow {step.workflow}", fix)
        elif workflow.name in _run_by(subject, step.workflow):
            message = f"The workflow {workflow.name} would run itself for ever"
            yield Problem("CYCLE", (*where, "workflow"), message, "name another workflow")


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return what to do about a name that is none."""
    near = nearest(name, tuple(known))
    return f"did you mean {near}?" if near else otherwise


def _run_by(subject: Subject, name: str) -> set[str]:
    """Return the workflows that one runs, however indirectly, and itself."""
    calls: dict[str, set[str]] = {}
    for step, _, workflow, *_ in subject.steps:
        if step.workflow is not None and step.file is None:
            calls.setdefault(workflow.name, set()).add(step.workflow)
    reached, ahead = {name}, [name]
    while ahead:
        new = calls.get(ahead.pop(), set()) - reached
        reached |= new
        ahead += new
    return reached


def _twice(what: str, named: Iterable[tuple[Where, str]], skip: int = 0) -> Iterator[Problem]:
    seen: set[str] = set()
    for at, (where, name) in enumerate(named):
        if name in seen and at >= skip:
            message = f"There is another {what} called {name}"
            yield Problem("DUPLICATE_NAME", (*where, "name"), message, "call one of them otherwise")
        seen.add(name)


NAME_CHECKS = (version, uniqueness, variables, references, channels, patterns, profiles, workflows)
