"""Places: whether directories that are worked in are there, and are named once."""

import os
import re
from collections.abc import Iterator

from accord.workflows.checks.names import meant
from accord.workflows.checks.subject import Problem, Subject, Where
from accord.workflows.defaults import placed

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def once(subject: Subject) -> Iterator[Problem]:
    """Nobody is told two places."""
    for where, cwd, workdir in _stated(subject):
        if cwd is not None and workdir is not None:
            message = "`cwd` and `workdir` both say where"
            yield Problem("CONFLICT", (*where, "workdir"), message, "remove one of them", at_key=True)


def named(subject: Subject) -> Iterator[Problem]:
    """Places that are named are among the paths."""
    known = [one.name for one in subject.document.paths]
    for where, _, workdir in _stated(subject):
        if workdir is not None and workdir not in known:
            fix = meant(workdir, known, "add it to `paths`, or write `cwd`")
            yield Problem("UNKNOWN_WORKDIR", (*where, "workdir"), f"There is no path called {workdir}", fix)


def there(subject: Subject) -> Iterator[Problem]:
    """Places are there, unless a worktree may make them."""
    for at, path in enumerate(subject.document.paths):
        where: Where = ("paths", at, "path")
        unset = [name for name in map("".join, _VARIABLE.findall(path.path)) if name not in subject.env]
        for name in unset:
            yield Problem("UNSET_VARIABLE", where, f"The variable {name} is not set", f"set {name} before it is run")
        place = placed(path.path, subject.base, subject.env)
        if path.required and not unset and not place.is_dir():
            fix = "make it, or say `required: false`"
            what = f" ({path.description})" if path.description else ""
            yield Problem("NO_DIRECTORY", where, f"There is no directory {place}{what}", fix)
    makes_some = any(subject.kind_of(step) == "worktree" for step, *_ in subject.steps)
    for owner, cwd, _ in () if makes_some else _stated(subject):
        if cwd is not None and "{{" not in cwd and not (subject.base / os.path.expanduser(cwd)).is_dir():
            message = f"There is no directory {cwd}"
            yield Problem("NO_DIRECTORY", (*owner, "cwd"), message, "make it; its path begins where this file is")


def _stated(subject: Subject) -> Iterator[tuple[Where, str | None, str | None]]:
    for at, agent in enumerate(subject.document.agents):
        yield ("agents", at), agent.cwd, agent.workdir
    for step, where, *_ in subject.steps:
        yield where, step.cwd, step.workdir


PATH_CHECKS = (once, named, there)
