"""Temporal workflows: the agent type, its options, and the data of workflows.

Each task is one workflow, with the task's id as its own. Nothing of Temporal is imported before an agent is made
(`agent`). The answer so far is read from the task, so that any execution can continue after another.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from accord.agents.messages import answer_id, conversation_history, prompt
from accord.agents.turns import external_context, with_context_id
from accord.api import TEXT, Context, Failed, Rejected, parts_of, text_of
from accord.api.agent_types import JSON, AgentArguments, AgentType, Options, Seconds, needs
from accord.model import Artifact, Message, Part, Role

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

    from accord.agents.temporal.agent import TemporalAgent


__all__ = ["AGENT_TYPE", "TemporalOptions", "workflow_agent"]

log = logging.getLogger("accord.temporal")


class TemporalOptions(Options, frozen=True, kw_only=True):
    """Options of a workflow; docs/agents/temporal.md explains each."""

    SECRET = frozenset({"api_key"})

    workflow: str
    task_queue: str
    address: str = "localhost:7233"
    namespace: str = "default"
    api_key: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    input: Literal["auto", "text", "data", "message", "conversation"] = "auto"
    signal: str = "message"
    status: str | None = None
    progress_query: str | None = None
    heartbeats: bool = False
    execution_timeout: Seconds | None = None
    grace_seconds: Seconds = 30.0
    poll_seconds: Seconds = 15.0
    progress_seconds: Seconds = 1.0
    watched: Annotated[int, Meta(ge=0)] = 100


# --- input ------------------------------------------------------------------------------------------------------------

ANSWER = timedelta(seconds=10)
"""Maximum time for one answer of Temporal."""

MODES: Mapping[str, tuple[str, ...]] = {
    "auto": ("*/*",),
    "conversation": ("*/*",),
    "message": ("*/*",),
    "text": (TEXT, JSON),
    "data": (JSON,),
}
"""Form of a workflow's input -> media types that callers may send."""


def workflow_value(ctx: Context, message: Message, how: str) -> Any:
    """Return a message as a workflow's input: one JSON value."""
    return _GIVEN[how](with_context_id(message, external_context(ctx)))


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


async def workflow_input(ctx: Context, message: Message, how: str) -> Any:
    """Return a workflow's first input: its message, and for `conversation` the history."""
    value = workflow_value(ctx, message, how)
    if how != "conversation":
        return value
    earlier = [message for message in await conversation_history(ctx) if message not in ctx.history]
    return {
        "contextId": external_context(ctx),
        "taskId": ctx.task_id,
        "message": value,
        "history": [{"role": _ROLES[message.role], "text": prompt(message.parts)} for message in earlier],
    }


_ROLES = {Role.USER: "user", Role.AGENT: "agent"}


# --- answer and result ------------------------------------------------------------------------------------------------


async def extend_answer(ctx: Context, answer: Any) -> bool:
    """Append the new text of an answer so far, a text or a list of pieces; return whether there was any.

    An answer that does not start with the earlier text replaces it.
    """
    pieces = [answer] if isinstance(answer, str) else answer
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        if answer is not None:
            log.warning("temporal.progress_no_text", extra={"task_id": ctx.task_id, "type": type(answer).__name__})
        return False
    return await _append_new(ctx, pieces)


async def complete_answer(ctx: Context, parts: Sequence[Part]) -> None:
    """Complete an answer: append the new part of a text, or replace the answer with other content."""
    artifact = _answer_so_far(ctx)
    if artifact is None or not all(part.text is not None for part in parts):
        await ctx.artifact(parts, id=_artifact_id(artifact, ctx))
        return
    if parts:  # a workflow without a result has already streamed its answer
        await _append_new(ctx, [text_of(parts)])
    await ctx.finish(artifact.artifact_id)


async def _append_new(ctx: Context, pieces: Sequence[str]) -> bool:
    artifact = _answer_so_far(ctx)
    text = "" if artifact is None else text_of(artifact.parts)
    whole = "".join(pieces)
    if whole == text:
        return False
    if not whole.startswith(text):
        await ctx.artifact(whole, id=_artifact_id(artifact, ctx), last_chunk=False)
        return True
    length, at = len(text), 0
    for piece in pieces:
        new = piece[max(0, length - at) :]
        at += len(piece)
        if new:
            await ctx.artifact(new, id=_artifact_id(artifact, ctx), append=True, last_chunk=False)
    return True


def _answer_so_far(ctx: Context) -> Artifact | None:
    """Return the answer's artifact. A workflow has only one, regardless of the message that started an execution."""
    return next((artifact for artifact in ctx.task.artifacts if artifact.artifact_id.startswith("answer-")), None)


def _artifact_id(artifact: Artifact | None, ctx: Context) -> str:
    return answer_id(ctx) if artifact is None else artifact.artifact_id


async def report_result(ctx: Context, handle: "WorkflowHandle[Any, Any]") -> None:
    """Write the result of a workflow that has ended; raises Failed if it failed."""
    from temporalio.client import WorkflowFailureError

    try:
        result = await handle.result(rpc_timeout=ANSWER)
    except WorkflowFailureError as error:
        log.info("temporal.failed", extra={"task_id": ctx.task_id}, exc_info=error)
        raise Failed(failure_reason(error.cause)) from error
    if isinstance(result, dict) and isinstance(result.get("parts"), list):
        await _count(ctx, result.get("usage"))
        result = _parts(result["parts"])
    await complete_answer(ctx, parts_of(result))


def _parts(values: list[Any]) -> tuple[Part, ...]:
    try:
        return msgspec.convert(values, tuple[Part, ...])
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


def failure_reason(error: BaseException) -> str:
    """Return the reason of a failed workflow, from its activity or child workflow if that failed."""
    from temporalio import exceptions

    match error:
        case exceptions.ActivityError() | exceptions.ChildWorkflowError() if error.cause is not None:
            return failure_reason(error.cause)
        case exceptions.TimeoutError():
            return "The workflow took too long"
        case exceptions.CancelledError():
            return "The workflow was cancelled"
        case exceptions.TerminatedError():
            return f"The workflow was terminated: {error.message}"
        case exceptions.FailureError():
            return f"The workflow failed: {error.message}"
    return "The workflow failed"


# --- the agent type ---------------------------------------------------------------------------------------------------


def make(given: AgentArguments, connect: "Callable[[], Awaitable[Client]] | None" = None) -> "TemporalAgent":
    """Return the agent of a workflow, with the client that `connect` returns or one made from its options."""
    with needs("temporalio", "temporal"):
        import temporalio.client  # noqa: F401

        from accord.agents.temporal.agent import TemporalAgent

    return TemporalAgent(given, connect)


def workflow_agent(
    workflow: str,
    task_queue: str,
    *,
    name: str | None = None,
    connect: "Callable[[], Awaitable[Client]] | None" = None,
    **options: Any,
) -> "TemporalAgent":
    """Return a workflow as an agent, for programs. A custom client may encrypt, trace and authenticate."""
    converted = msgspec.convert({"workflow": workflow, "task_queue": task_queue, **options}, TemporalOptions)
    return make(AgentArguments(options=converted, name=name), connect)


AGENT_TYPE = AgentType(name="temporal", options=TemporalOptions, make=make)
