"""What workflows are given of a message, and what callers are told of what workflows give.

Pure conversion, apart from saying the result; when a workflow is asked is `agent`'s business, above.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from accord.agents.content import answer_id, prompt
from accord.agents.kinds import JSON
from accord.core.agent import TEXT
from accord.core.context import Context, Failed, Rejected
from accord.model import Message, Part

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

ANSWER = timedelta(seconds=10)
"""How long Temporal may take for one answer."""

MODES: Mapping[str, tuple[str, ...]] = {
    "auto": ("*/*",),
    "message": ("*/*",),
    "text": (TEXT, JSON),
    "data": (JSON,),
}
"""What a workflow is given -> what callers may send."""

log = logging.getLogger("accord.temporal")


def given_of(message: Message, how: str) -> Any:
    """Return a message as a workflow is given it: one JSON value."""
    return _GIVEN[how](message)


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


_GIVEN: Mapping[str, Callable[[Message], Any]] = {"auto": _auto, "data": _data, "message": _message, "text": _text}


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
    await ctx.artifact(given, id=answer_id(ctx))


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
