"""What has to be known of a conversation is in the store: on both engines, and for another node as well."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from accord.agents.process import ProcessAgent
from accord.engine.agent import AgentEnvironment
from accord.model import CancelRequest, Task, TaskState
from accord.service.host import Host
from tests.agents.process.conftest import Making, lives, text, until, words
from tests.engine.conftest import ALICE, BOB, Hosting, hosting, postgres, saying, state

__all__ = ["hosting", "postgres"]


@asynccontextmanager
async def living(agent: ProcessAgent, host: Host) -> AsyncIterator[None]:
    """The agent, started on a node."""
    await agent.start(AgentEnvironment(store=host.node.store, url="", wake=host.default.wake))
    try:
        yield
    finally:
        await agent.stop()


async def test_sessions_resume_on_another_node_for_their_owner_only(
    hosting: Hosting, making: Making, binary: Callable[[str], str]
) -> None:
    agents = [making(preset="codex", path=binary("codex"), name="coder") for _ in range(2)]
    first, second = [await hosting(agent) for agent in agents]
    async with living(agents[0], first), living(agents[1], second):
        await first.default.send(saying("one", context_id="c"), ALICE)
        await first.stop(0)
        again = await second.default.send(saying("two", context_id="c"), ALICE)
        other = await second.default.send(saying("three", context_id="c"), BOB)
        assert isinstance(again, Task)
        assert isinstance(other, Task)
        assert (text(again), text(other)) == ("you said one | two", "you said three")


async def test_a_cancel_on_another_node_ends_a_suspended_process(hosting: Hosting, making: Making) -> None:
    agents = [making(command=words("asks"), mode="pty", name="asks") for _ in range(2)]
    first, second = [await hosting(agent) for agent in agents]
    async with living(agents[0], first), living(agents[1], second):
        asked = await first.default.send(saying("delete it"), ALICE)
        assert isinstance(asked, Task)
        assert state(asked) is TaskState.INPUT_REQUIRED
        held = [agent._resources.parked._parked for agent in agents if agent._resources is not None]
        [kept] = [kept for one in held for kept in one.values()]
        await second.default.cancel(CancelRequest(id=asked.id), ALICE)
        await until(lambda: not lives(kept.live.process.pid) and not any(held))
