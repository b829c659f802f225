"""Scripted agents: a list of moves, made one after the other for every task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from accord.engine.agent import Crash, Profile
from accord.engine.context import Context, Failed, Rejected
from accord.model import AgentSkill, Message

Does = Callable[[Context], Awaitable[Any]]


class Move(NamedTuple):
    """Something that an agent does; one that `waits` ends the run, which is begun again when there is an answer."""

    name: str
    does: Does
    waits: bool = False


# --- what it says -----------------------------------------------------------------------------------------------------


def say(content: Any) -> Move:
    """Report progress with some words."""
    return Move("say", lambda ctx: ctx.status(content))


def artifact(content: Any, *, id: str | None = None, name: str | None = None) -> Move:
    """Make an artifact, of a text, data, parts or anything else that agents give."""
    return Move("artifact", lambda ctx: ctx.artifact(content, id=id, name=name))


def stream(*chunks: Any, id: str = "result") -> Move:
    """Make an artifact piece by piece."""

    async def streams(ctx: Context) -> None:
        for place, chunk in enumerate(chunks):
            await ctx.artifact(chunk, id=id, append=place > 0, last_chunk=place == len(chunks) - 1)

    return Move("stream", streams)


def complete(content: Any = None) -> Move:
    """End the task well, with a last word; a script that comes to its end does so without one."""
    return Move("complete", lambda ctx: ctx.complete(content))


def fail(reason: str) -> Move:
    """Fail the task, for a reason that its caller sees."""
    return Move("fail", lambda _: _raised(Failed(reason)), waits=True)


def reject(reason: str) -> Move:
    """Refuse the task, for a reason that its caller sees."""
    return Move("reject", lambda _: _raised(Rejected(reason)), waits=True)


def crash(error: Exception | None = None) -> Move:
    """Raise what no agent should, of which its caller sees nothing."""
    return Move("crash", lambda _: _raised(error or RuntimeError("A script says so")), waits=True)


# --- what it waits for ------------------------------------------------------------------------------------------------


def ask(question: Any) -> Move:
    """Ask the caller, and go on with the answer."""
    return Move("ask", lambda ctx: ctx.ask(question), waits=True)


def require_auth(text: Any) -> Move:
    """Ask the caller for credentials, and go on with the answer."""
    return Move("require_auth", lambda ctx: ctx.require_auth(text), waits=True)


def wait_for(key: str, *, seconds: float | None = None) -> Move:
    """Wait for what somebody hands in under a key: `Running.hand_in`, or a webhook."""
    return Move("wait_for", lambda ctx: ctx.wait(key, seconds), waits=True)


def sleep(seconds: float) -> Move:
    """Wait; a clock that tests move makes that short."""
    return Move("sleep", lambda ctx: ctx.sleep(seconds), waits=True)


def hang() -> Move:
    """Hold the run until it is cancelled, or its time is over."""

    async def hangs(_: Context) -> None:
        await asyncio.Event().wait()

    return Move("hang", hangs, waits=True)


# --- what it does -----------------------------------------------------------------------------------------------------


def step(name: str, does: Callable[..., Any], *args: Any) -> Move:
    """Do something once, as a step of the task whose result is kept."""
    return Move("step", lambda ctx: ctx.step(name, does, *args), waits=True)  # it is one already


def call(agent: str, text: str) -> Move:
    """Have another agent of the same server do something."""
    return Move("call", lambda ctx: ctx.call(agent, text), waits=True)


def do(does: Does) -> Move:
    """Do anything with the context, once."""
    return Move("do", does)


async def _raised(error: Exception) -> None:
    raise error


class ScriptedAgent:
    """An agent that makes moves; `heard` is every message that a run of it was begun with, or was answered with."""

    def __init__(self, profile: Profile, moves: tuple[Move, ...]) -> None:
        """Make these moves for every task."""
        self.profile = profile
        self.heard: list[Message] = []
        self._moves = moves

    async def run(self, ctx: Context) -> None:
        """Make all moves, those before the last answer by remembering them."""
        known = {message.message_id for message in self.heard}
        self.heard += [one for one in (*ctx.history, ctx.message) if _is_new(one, known)]
        for place, move in enumerate(self._moves):
            if move.waits:
                await move.does(ctx)
            else:
                await ctx.step(f"{place} {move.name}", _done, move.does, ctx)


def scripted(*moves: Move, name: str = "scripted", **profile: Any) -> ScriptedAgent:
    """Return an agent that makes moves; `profile` is what else is to be said of it (`engine.agent.Profile`)."""
    skill = AgentSkill(id=name, name=name, description="Does what a test says", tags=("testing",))
    stated = {"description": "Does what a test says", "skills": (skill,), "crash": Crash.RESUME, **profile}
    return ScriptedAgent(Profile(name=name, **stated), moves)


async def _done(does: Does, ctx: Context) -> None:
    await does(ctx)  # what comes of it is nobody's, and need not be something that can be kept


def _is_new(message: Message, known: set[str]) -> bool:
    if message.role.value != "ROLE_USER" or message.message_id in known:
        return False
    known.add(message.message_id)
    return True
