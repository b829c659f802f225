"""The agent for public conformance kits: a message names the behavior to show."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from accord.agents import function
from accord.engine.context import Context
from accord.engine.outcome import Failed, Rejected
from accord.model import Message, Part

Behaviour = Callable[[Context], Awaitable[None]]


def saying(text: str) -> Behaviour:
    """Return a behavior that completes the task with a message."""

    async def says(ctx: Context) -> None:
        await ctx.complete(text)

    return says


def making(content: Any) -> Behaviour:
    """Return a behavior that creates one artifact and completes the task."""

    async def makes(ctx: Context) -> None:
        await ctx.artifact(content)

    return makes


async def nothing(ctx: Context) -> None:
    """Complete the task without output."""


async def chunks(ctx: Context) -> None:
    """Create an artifact in chunks."""
    await ctx.artifact("chunk-1 ", last_chunk=False)
    await ctx.artifact("chunk-2", append=True)


async def take_long(ctx: Context) -> None:
    """Work longer than a kit waits for an event, then create an artifact."""
    await ctx.sleep(2 * streaming_timeout())
    await ctx.artifact("Took long")


async def never_end(ctx: Context) -> None:
    """Suspend until the task is canceled, without holding a slot."""
    await ctx.wait("the end")


async def ask(ctx: Context) -> None:
    """Ask, and behave as the answer names.

    The question is empty, so that the history has only the caller's messages.
    """
    answer = await ctx.ask(None)
    await behaviour_of(answer.message, otherwise=complete)(ctx)


async def ask_until_done(ctx: Context) -> None:
    """Ask until the answer is `done`."""
    while not (await ctx.ask(None)).text.strip().lower().startswith("done"):
        pass
    await ctx.complete("Done")


async def ask_slowly(ctx: Context) -> None:
    """Work for a moment, so that the task can be canceled and subscribed to, then ask repeatedly."""
    while True:
        await ctx.sleep(streaming_timeout())
        await ctx.ask("What else?")


async def require_auth(ctx: Context) -> None:
    """Ask for credentials, and behave as the answer names."""
    answer = await ctx.require_auth("Credentials are needed")
    await behaviour_of(answer.message, otherwise=complete)(ctx)


async def reject(ctx: Context) -> None:
    """Reject the task."""
    raise Rejected("rejected")


async def fail(ctx: Context) -> None:
    """Fail the task."""
    raise Failed("Failed on request")


complete = saying("Hello from TCK")
make_text = making("Generated text content")
make_file = making(Part(raw=b"Generated file content", filename="output.txt", media_type="text/plain"))
make_link = making(Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain"))
make_data = making({"key": "value", "count": 42})
answer_alone = saying("Direct message response")

BEHAVIOURS: dict[str, Behaviour] = {
    # a2a-tck 1.0: at the start of a message's id
    "tck-complete-task": complete,
    "tck-artifact-text": make_text,
    "tck-artifact-file": make_file,
    "tck-artifact-file-url": make_link,
    "tck-artifact-data": make_data,
    "tck-message-response": answer_alone,
    "tck-input-required": ask,
    "tck-reject-task": reject,
    "tck-stream-001": make_text,
    "tck-stream-002": nothing,
    "tck-stream-003": make_text,
    "tck-stream-ordering-001": make_text,
    "tck-stream-artifact-text": make_text,
    "tck-stream-artifact-file": make_file,
    "tck-stream-artifact-chunked": chunks,
    # a2a-tck 0.3 as well
    "test-resubscribe-message-id": take_long,
    # ACTS, which has most of the above too: at the start of a message's first text
    "tck-long-running": take_long,
    "tck-multi-turn": ask_until_done,
    "tck-cancel": never_end,
    "tck-task-failure": fail,
    "tck-auth-required": require_auth,
    "tck-stream-basic": make_text,
    "tck-stream-chunked": chunks,
}
"""Name -> behavior of the agent. The longest name wins."""


def behaviour_of(message: Message, otherwise: Behaviour) -> Behaviour:
    """Return the behavior named at the start of a message's id or else of its first text."""
    text = next((part.text for part in message.parts if part.text is not None), "")
    for said in (message.message_id, text.lstrip()):
        if names := [name for name in BEHAVIOURS if said.startswith(name)]:
            return BEHAVIOURS[max(names, key=len)]
    return otherwise


def streaming_timeout() -> float:
    """Return how long the kits wait for an event, in seconds. They read the same variable."""
    return float(os.environ.get("TCK_STREAMING_TIMEOUT", "2"))


def _agent(name: str, otherwise: Behaviour) -> function.FunctionAgent:
    async def behave(ctx: Context) -> None:
        await behaviour_of(ctx.message, otherwise)(ctx)

    return function.agent(
        name=name,
        description="Does what a conformance kit asks of it.",
        skills=["Conformance"],
        answers_message=lambda message: behaviour_of(message, otherwise) is answer_alone,
        takes_repeats=True,  # the kits use an id for one behavior, not for one message
    )(behave)


agent = _agent("Conformance", otherwise=complete)
agent_slow = _agent("Slow conformance", otherwise=ask_slowly)
