"""Steps of one's own: whether those that are used are there, and are given what they ask for."""

from collections.abc import Iterator

from accord.workflows.checks.names import meant
from accord.workflows.checks.subject import Problem, Subject
from accord.workflows.custom import FILES, expanded
from accord.workflows.findings import BadDocument


def known(subject: Subject) -> Iterator[Problem]:
    """What a step uses is there."""
    for step, where, *_ in subject.written:
        if step.use is not None and step.use not in subject.custom:
            fix = meant(step.use, subject.custom, f"add it to `steps`, or to {FILES[-1]}")
            yield Problem(
                "UNKNOWN_CUSTOM_STEP", (*where, "use"), f"There is no step of your own called {step.use}", fix
            )


def params(subject: Subject) -> Iterator[Problem]:
    """A step of one's own is given what it asks for, and nothing else."""
    for step, where, *_ in subject.written:
        custom = subject.custom.get(step.use or "")
        if custom is None:
            continue
        asked = {one.name: one for one in custom.params}
        for name in step.with_.keys() - asked.keys():
            fix = meant(name, asked, "it takes " + (", ".join(asked) or "nothing"))
            yield Problem("BAD_PARAMS", (*where, "with", name), f"{step.use} does not take `{name}`", fix)
        for name, one in asked.items():
            if one.required and one.default is None and name not in step.with_ and getattr(step, name, None) is None:
                message = f"{step.use} needs `{name}`"
                yield Problem("BAD_PARAMS", (*where, "use"), message, f"add `with: {{{name}: ...}}`")


def filled(subject: Subject) -> Iterator[Problem]:
    """A step of one's own is a step once its parameters are filled in."""
    for step, where, *_ in subject.written:
        try:
            expanded(step, subject.custom)
        except BadDocument as error:
            for finding in error.findings:
                if finding.code not in ("UNKNOWN_CUSTOM_STEP", "BAD_PARAMS"):
                    yield Problem(finding.code, (*where, "use"), f"{step.use}: {finding.message}", finding.fix)


CUSTOM_STEP_CHECKS = (known, params, filled)
