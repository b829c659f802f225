"""What workflows are given of a message, and what callers are told of what workflows give.

Pure conversion, apart from saying the result; when a workflow is asked is `agent`'s business, above.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from accord.agents.content import conversation, prompt
from accord.agents.contexts import in_context, outer_context
from accord.agents.kinds import JSON
from accord.agents.temporal import progress
from accord.engine.agent import TEXT
from accord.engine.context import Context, Failed, Rejected
from accord.engine.messages import parts_of
from accord.model import Message, Part, Role

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

ANSWER = timedelta(seconds=10)
"""How long Temporal may take for one answer."""

MODES: Mapping[str, tuple[str, ...]] = {
    "auto": ("*/*",),
    "conversation": ("*/*",),
    "message": ("*/*",),
    "text": (TEXT, JSON),
    "data": (JSON,),
}
"""What a workflow is given -> what callers may send."""

log = logging.getLogger("accord.temporal")


def given_of(ctx: Context, message: Message, how: str) -> Any:
    """Return a message as a workflow is given it: one JSON value."""
    return _GIVEN[how](in_context(message, outer_context(ctx)))


def _message(message: Message) -> Any:
    return msgspec.to_builtins(message)


def _text(message: Message) -> Any:
    return prompt(message.parts)


def _data(message: Message) -> Any:
    for part in message.parts:
        if part.data is not msgspec.UNSET:
            return part.data
    raise Rejected("This agent takes data: send it in a data part")


def _auto(message: Message) -> Any:
    parts = message.parts
    if all(part.text is not None for part in parts):
        return _text(message)
    if len(parts) == 1 and parts[0].data is not msgspec.UNSET:
        return parts[0].data
    return _message(message)


_GIVEN: Mapping[str, Callable[[Message], Any]] = {
    "auto": _auto,
    "conversation": _message,
    "data": _data,
    "message": _message,
    "text": _text,
}


async def input_of(ctx: Context, message: Message, how: str) -> Any:
    """Return what a workflow begins with: its message, with what was said before if it is to know that."""
    given = given_of(ctx, message, how)
    if how != "conversation":
        return given
    before = [said for said in await conversation(ctx) if said not in ctx.history]
    return {
        "contextId": outer_context(ctx),
        "taskId": ctx.task_id,
        "message": given,
        "history": [{"role": _ROLES[said.role], "text": prompt(said.parts)} for said in before],
    }


_ROLES = {Role.USER: "user", Role.AGENT: "agent"}


async def finish(ctx: Context, handle: "WorkflowHandle[Any, Any]") -> None:
    """Say what a workflow that has ended gave, or why it gave nothing."""
    from temporalio.client import WorkflowFailureError

    try:
        given = await handle.result(rpc_timeout=ANSWER)
    except WorkflowFailureError as error:
        log.info("workflow failed", extra={"task_id": ctx.task_id}, exc_info=error)
        raise Failed(reason(error.cause)) from error
    if isinstance(given, dict) and isinstance(given.get("parts"), list):
        await _count(ctx, given.get("usage"))
        given = _parts(given["parts"])
    await progress.conclude(ctx, parts_of(given))


def _parts(given: list[Any]) -> tuple[Part, ...]:
    try:
        return msgspec.convert(given, tuple[Part, ...])
    except msgspec.ValidationError as error:
        raise Failed(f"The workflow answered with parts that are none: {error}") from error


async def _count(ctx: Context, usage: Any) -> None:
    if isinstance(usage, dict):
        await ctx.usage(
            input_tokens=usage.get("inputTokens", 0),
            output_tokens=usage.get("outputTokens", 0),
            cost=usage.get("cost", 0.0),
            model=usage.get("model"),
            key="workflow",
        )


def reason(error: BaseException) -> str:
    """Return why a workflow failed: what its activity or child said, if it was one of those."""
    from temporalio import exceptions

    match error:
        case exceptions.ActivityError() | exceptions.ChildWorkflowError() if error.cause is not None:
            return reason(error.cause)
        case exceptions.TimeoutError():
            return "The workflow took too long"
        case exceptions.CancelledError():
            return "The workflow was cancelled"
        case exceptions.TerminatedError():
            return f"The workflow was terminated: {error.message}"
        case exceptions.FailureError():
            return f"The workflow failed: {error.message}"
    return "The workflow failed"
