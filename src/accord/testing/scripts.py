"""Scripted agents: a list of moves, made in the same order in each task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from accord.engine.agent import Crash, Profile
from accord.engine.context import Context
from accord.engine.outcome import Failed, Rejected
from accord.model import AgentSkill, Message

Does = Callable[[Context], Awaitable[Any]]


class Move(NamedTuple):
    """A move of an agent. A move that `waits` suspends the execution, which restarts when the answer arrives."""

    name: str
    does: Does
    waits: bool = False


# --- output -----------------------------------------------------------------------------------------------------------


def say(content: Any) -> Move:
    """Report progress with a text."""
    return Move("say", lambda ctx: ctx.status(content))


def artifact(content: Any, *, id: str | None = None, name: str | None = None) -> Move:
    """Create an artifact from a text, data, parts or any other agent output."""
    return Move("artifact", lambda ctx: ctx.artifact(content, id=id, name=name))


def stream(*chunks: Any, id: str = "result") -> Move:
    """Create an artifact in chunks."""

    async def streams(ctx: Context) -> None:
        for place, chunk in enumerate(chunks):
            await ctx.artifact(chunk, id=id, append=place > 0, last_chunk=place == len(chunks) - 1)

    return Move("stream", streams)


def complete(content: Any = None) -> Move:
    """Complete the task with a final message. A script that reaches its end completes without one."""
    return Move("complete", lambda ctx: ctx.complete(content))


def fail(reason: str) -> Move:
    """Fail the task, with a reason that its caller sees."""
    return Move("fail", lambda _: _raised(Failed(reason)), waits=True)


def reject(reason: str) -> Move:
    """Reject the task, with a reason that its caller sees."""
    return Move("reject", lambda _: _raised(Rejected(reason)), waits=True)


def crash(error: Exception | None = None) -> Move:
    """Raise an unexpected exception, of which the caller sees nothing."""
    return Move("crash", lambda _: _raised(error or RuntimeError("A script says so")), waits=True)


# --- waiting ----------------------------------------------------------------------------------------------------------


def ask(question: Any) -> Move:
    """Ask the caller, and continue with the answer."""
    return Move("ask", lambda ctx: ctx.ask(question), waits=True)


def require_auth(text: Any) -> Move:
    """Ask the caller for credentials, and continue with the answer."""
    return Move("require_auth", lambda ctx: ctx.require_auth(text), waits=True)


def wait_for(key: str, *, seconds: float | None = None) -> Move:
    """Wait for a signal under a key, sent by `Running.hand_in` or a webhook."""
    return Move("wait_for", lambda ctx: ctx.wait(key, seconds), waits=True)


def sleep(seconds: float) -> Move:
    """Wait. A movable clock shortens the wait."""
    return Move("sleep", lambda ctx: ctx.sleep(seconds), waits=True)


def hang() -> Move:
    """Block the execution until it is canceled or its timeout expires."""

    async def hangs(_: Context) -> None:
        await asyncio.Event().wait()

    return Move("hang", hangs, waits=True)


# --- actions ----------------------------------------------------------------------------------------------------------


def step(name: str, does: Callable[..., Any], *args: Any) -> Move:
    """Run a function once, as a step of the task with a stored result."""
    return Move("step", lambda ctx: ctx.step(name, does, *args), waits=True)  # it is a step already


def call(agent: str, text: str) -> Move:
    """Call another agent of the same server."""
    return Move("call", lambda ctx: ctx.call(agent, text), waits=True)


def do(does: Does) -> Move:
    """Run any function with the context, once."""
    return Move("do", does)


async def _raised(error: Exception) -> None:
    raise error


class ScriptedAgent:
    """An agent that makes moves. `heard` is every message that started or resumed one of its executions."""

    def __init__(self, profile: Profile, moves: tuple[Move, ...]) -> None:
        self.profile = profile
        self.heard: list[Message] = []
        self._moves = moves

    async def run(self, ctx: Context) -> None:
        """Make all moves. Moves before the last answer are replayed from their stored results."""
        known = {message.message_id for message in self.heard}
        self.heard += [one for one in (*ctx.history, ctx.message) if _is_new(one, known)]
        for place, move in enumerate(self._moves):
            if move.waits:
                await move.does(ctx)
            else:
                await ctx.step(f"{place} {move.name}", _done, move.does, ctx)


def scripted(*moves: Move, name: str = "scripted", **profile: Any) -> ScriptedAgent:
    """Return a scripted agent. `profile` are further fields of its `engine.agent.Profile`."""
    skill = AgentSkill(id=name, name=name, description="Does what a test says", tags=("testing",))
    stated = {"description": "Does what a test says", "skills": (skill,), "crash": Crash.RESUME, **profile}
    return ScriptedAgent(Profile(name=name, **stated), moves)


async def _done(does: Does, ctx: Context) -> None:
    await does(ctx)  # its result is discarded, because it may not be storable


def _is_new(message: Message, known: set[str]) -> bool:
    if message.role.value != "ROLE_USER" or message.message_id in known:
        return False
    known.add(message.message_id)
    return True
