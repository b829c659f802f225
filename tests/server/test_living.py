"""Agents that hold something: started before any of their tasks runs, stopped after the last has been handed over."""

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from accord.engine.agent import AgentEnvironment, Living, Profile
from accord.engine.context import Context
from accord.model import TaskState
from accord.server.agents import redescribe
from accord.testing import running, text_in
from tests.server.conftest import serving


class Pool:
    """An agent with something to hold, which notes what happens to it."""

    def __init__(self, name: str = "pool", error: Exception | None = None) -> None:
        self.profile = Profile(name=name)
        self.noted: list[str] = []
        self.node: AgentEnvironment | None = None
        self._error = error

    async def start(self, node: AgentEnvironment) -> None:
        self.noted.append("start")
        if self._error is not None:
            raise self._error
        self.node = node

    async def stop(self) -> None:
        self.noted.append("stop")
        self.node = None

    async def run(self, ctx: Context) -> None:
        assert self.node is not None
        self.noted.append("run")
        try:
            if ctx.text == "wait":
                await ctx.artifact(await ctx.wait("bell"))
            elif ctx.text == "work":
                await asyncio.Event().wait()
            else:
                await ctx.artifact(self.node.url)
        finally:
            self.noted.append("leave")


async def test_it_is_started_first_and_stopped_last() -> None:
    pool = Pool()
    async with running(pool) as a2a:
        assert pool.noted == ["start"]
        assert text_in(await a2a.send("hi")) == a2a.app.url
        working = await a2a.send_text("work", at_once=True)
        await a2a.reaches(working, TaskState.WORKING)
        assert pool.noted == ["start", "run", "leave", "run"]
    assert pool.noted == ["start", "run", "leave", "run", "leave", "stop"]


async def test_signals_reach_suspended_agents_through_the_node() -> None:
    pool = Pool()
    async with running(pool) as a2a:
        waiting = await a2a.send_text("wait", at_once=True)
        assert pool.node is not None
        assert await pool.node.wake("", waiting.id, "bell", "ring")
        assert text_in(await a2a.reaches(waiting, TaskState.COMPLETED)) == "ring"
        assert not await pool.node.wake("", waiting.id, "bell", "again")


async def test_under_another_name_it_lives_all_the_same_and_once() -> None:
    pool = Pool()
    others = [redescribe(pool, partial(replace, name=name)) for name in ("other", "third")]
    assert all(isinstance(other, Living) for other in others)
    async with running(pool, *others):
        pass
    assert pool.noted == ["start", "stop"]
    assert not isinstance(redescribe(Still(), partial(replace, name="other")), Living)


class Still:
    profile = Profile(name="still")

    async def run(self, ctx: Context) -> None:
        pass


@pytest.mark.parametrize("error", [OSError("no broker"), ValueError("no broker"), ImportError("no broker")])
async def test_failed_agents_are_named_and_others_stopped(error: Any) -> None:
    first, second = Pool("first"), Pool("second", error)
    with pytest.raises(RuntimeError, match="The agent second cannot start: no broker"):
        async with serving(first, second):
            raise AssertionError("it was served")
    assert first.noted == ["start", "stop"]
    assert second.noted == ["start"]
