"""The answer of a workflow as it grows: what there is of it is looked at now and then, and what is new is said.

What was said before is read from the task, so that any run can go on after another. When to look is `agent`'s to say,
and how the answer ends `content`'s, both above.
"""

import logging
from collections.abc import Sequence
from typing import Any

from accord.agents.content import answer_id
from accord.engine.context import Context
from accord.engine.messages import text_of
from accord.model import Artifact, Part

log = logging.getLogger("accord.temporal")


async def tell(ctx: Context, said: Any) -> bool:
    """Say what is new in an answer so far, which is a text or a list of its pieces; whether anything is.

    An answer that does not begin with what was said takes its place.
    """
    pieces = [said] if isinstance(said, str) else said
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        if said is not None:
            log.warning("progress is no text", extra={"task_id": ctx.task_id, "type": type(said).__name__})
        return False
    return await _add(ctx, pieces)


async def conclude(ctx: Context, parts: Sequence[Part]) -> None:
    """Say the rest of an answer: of a text what is new, anything else in place of what was said."""
    begun = _begun(ctx)
    if begun is None or not all(part.text is not None for part in parts):
        await ctx.artifact(parts, id=_id(begun, ctx))
        return
    if parts:  # a workflow that gives nothing has said it all
        await _add(ctx, [text_of(parts)])
    await ctx.finish(begun.artifact_id)


async def _add(ctx: Context, pieces: Sequence[str]) -> bool:
    begun = _begun(ctx)
    said = "" if begun is None else text_of(begun.parts)
    whole = "".join(pieces)
    if whole == said:
        return False
    if not whole.startswith(said):
        await ctx.artifact(whole, id=_id(begun, ctx), last_chunk=False)
        return True
    known, at = len(said), 0
    for piece in pieces:
        new = piece[max(0, known - at) :]
        at += len(piece)
        if new:
            await ctx.artifact(new, id=_id(begun, ctx), append=True, last_chunk=False)
    return True


def _begun(ctx: Context) -> Artifact | None:
    """Return what there is of the answer: a workflow has one, whichever message it was that began a run."""
    return next((one for one in ctx.task.artifacts if one.artifact_id.startswith("answer-")), None)


def _id(begun: Artifact | None, ctx: Context) -> str:
    return answer_id(ctx) if begun is None else begun.artifact_id
