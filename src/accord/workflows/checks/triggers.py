"""What begins runs: webhooks that can be told apart and say something, schedules that give what a run needs."""

import re
from collections.abc import Iterator

import msgspec

from accord.workflows.checks.subject import Check, Problem, Subject
from accord.workflows.document import Schedule
from accord.workflows.expressions import BadExpression
from accord.workflows.templates import references

PATH = re.compile(r"/?[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*/?")
"""What a path is made of without anything that an address would have to write otherwise."""

OF_A_CALL = ("body", "headers")
"""What the input of a webhook may speak of."""


def webhooks(subject: Subject) -> Iterator[Problem]:
    """Webhooks have a path of their own, and make their input of what they are sent."""
    seen: set[str] = set()
    kinds: dict[str, str] = {}
    for at, hook in enumerate(subject.document.on.webhook if subject.document.on else ()):
        where, path = ("on", "webhook", at), hook.path.strip("/")
        if not PATH.fullmatch(hook.path):
            fix = "write letters, digits and - . _ ~, with / in between"
            yield Problem("BAD_VALUE", (*where, "path"), f"{hook.path!r} is no path", fix)
        elif path in seen:
            yield Problem("DUPLICATE_NAME", (*where, "path"), f"Another webhook has the path {path}", "rename one")
        seen.add(path)
        if hook.signature != "timestamp" and hook.secret is None:
            message = f"signature: {hook.signature} has no effect without `secret`"
            yield Problem("BAD_VALUE", (*where, "signature"), message, "add `secret`, the name of a credential")
        if hook.secret is not None and kinds.setdefault(hook.secret, hook.signature) != hook.signature:
            # What Standard Webhooks sign, id, time and body in one text, is a signed body to the other kind.
            message = f"Another webhook takes signatures of another kind with the secret {hook.secret}"
            yield Problem("BAD_VALUE", (*where, "secret"), message, "give each webhook a secret of its own")
        if hook.input is not None:
            yield from _spoken_of((*where, "input"), hook.input)


def _spoken_of(where: tuple[str | int, ...], text: str) -> Iterator[Problem]:
    try:
        found = references(text)
    except BadExpression as error:
        yield Problem("BAD_TEMPLATE", where, str(error), "see docs/workflows/values.md for what can be written")
        return
    for one in found:
        if one.path[0] not in OF_A_CALL:
            message = f"{one.source}: a webhook knows only what it is sent"
            yield Problem("UNKNOWN_REFERENCE", where, message, "write {{body}}, {{body.a.b}} or {{headers.x-name}}")


def schedules(subject: Subject) -> Iterator[Problem]:
    """Schedules give values, and all that a run needs."""
    document = subject.document
    needed = {name for name, one in document.inputs.items() if one.required and one.default is None}
    for at, one in enumerate(document.on.schedule if document.on else ()):
        where = ("on", "schedule", at)
        if one.input is not None and "{{" in one.input:
            fix = "write the text itself: there is nothing yet that it could speak of"
            yield Problem("UNKNOWN_REFERENCE", (*where, "input"), "The input of a schedule is no template", fix)
        for name in sorted(needed - one.vars.keys() - _in_text(one)):
            message = f"The runs of this schedule lack the input {name}"
            yield Problem("MISSING_INPUT", where, message, f"add `vars: {{{name}: ...}}` to it, or give it a default")


def _in_text(one: Schedule) -> set[str]:
    """Return the inputs that are in a schedule's input, which may be a table in JSON."""
    try:
        said = msgspec.json.decode(one.input or "")
    except msgspec.DecodeError:
        return set()
    return set(said) if isinstance(said, dict) else set()


TRIGGER_CHECKS: tuple[Check, ...] = (webhooks, schedules)
