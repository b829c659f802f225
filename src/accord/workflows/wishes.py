"""What a run is asked for, read from the message that begins it.

Callers give an input, the values of declared inputs and the name of a workflow, and nothing else: variables may stand
where a command's name is. Whoever begins runs here (another run, a schedule, a webhook, a command) says a whole `Wish`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from accord.auth.roles import SKILL_KEYS
from accord.engine.context import Context, Rejected
from accord.workflows.beginning import INNER
from accord.workflows.document import Document
from accord.workflows.origin import Wish


def wish_of(ctx: Context, document: Document) -> Wish:
    """Return what a run is asked for; raises Rejected."""
    said, metadata = ctx.data, ctx.message.metadata or {}
    if metadata.get(INNER) is True and _is_ours(ctx):
        return _converted(said)
    skill = _skill(metadata) or _skill(ctx.task.metadata or {})  # a task has the metadata of the request that began it
    if skill is not None and document.workflow(skill) is None:
        names = ", ".join(one.name for one in document.workflows) or "none"
        raise Rejected(f"There is no workflow {skill!r}: there are {names}")
    if not isinstance(said, dict):
        return Wish(input=ctx.text, workflow=skill)
    unknown = ", ".join(map(repr, sorted(said.keys() - document.inputs.keys())))
    if unknown:
        raise Rejected(f"There is no input {unknown}: there are {', '.join(document.inputs) or 'none'}")
    text = "".join(part.text or "" for part in ctx.message.parts)
    return Wish(input=text, inputs=said, workflow=skill)


def _skill(metadata: Mapping[str, Any]) -> str | None:
    """Return the workflow that somebody names."""
    return next((metadata[key] for key in SKILL_KEYS if isinstance(metadata.get(key), str)), None)


def _is_ours(ctx: Context) -> bool:
    """Whether a message came from here: by another run, or through no edge of the server, each of which says so."""
    return ctx.is_child or ctx.caller.origin is None


def _converted(said: object) -> Wish:
    try:
        return msgspec.convert(said, Wish)
    except msgspec.ValidationError as error:
        raise Rejected(str(error)) from error
