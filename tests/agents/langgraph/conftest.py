"""Graphs as agents, hosted over each kind of store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accord.a2a import Caller
from accord.agents.langgraph import AGENT_TYPE, GraphOptions
from accord.agents.langgraph.agent import GraphAgent
from accord.api.agent_types import AgentArguments
from accord.engine.agent import AgentEnvironment
from accord.engine.messages import parts_of
from accord.model import Event, GetRequest, Message, Role, SendConfiguration, SendRequest, Task, TaskState
from accord.protocol import lifecycle
from accord.service.host import Host
from accord.service.service import Service
from accord.storage.store import Store
from tests.engine.conftest import ALICE, Hosting, hosting, postgres

__all__ = ["hosting", "postgres"]

_numbers = iter(range(10**9))


def graph_agent(graph: Any, name: str = "graph", **options: Any) -> GraphAgent:
    """Return a graph as an agent."""
    made = AGENT_TYPE.make(AgentArguments(options=GraphOptions(**options), name=name, target=graph))
    assert isinstance(made, GraphAgent)
    return made


class Talk:
    """One agent, as one caller sees it."""

    def __init__(self, host: Host, caller: Caller = ALICE) -> None:
        self.host = host
        self.service: Service = host.default
        self.store: Store = host.node.store
        self._caller = caller

    async def send(self, *content: Any, at_once: bool = False, **ids: Any) -> Task:
        """Say something and return the task."""
        task = await self.service.send(self.request(*content, at_once=at_once, **ids), self._caller)
        assert isinstance(task, Task)
        return task

    async def events(self, *content: Any, **ids: Any) -> list[Event]:
        """Say something and return everything that comes of it."""
        return [event async for event in self.service.stream(self.request(*content, **ids), self._caller)]

    async def get(self, task: Task) -> Task:
        """Return a task as it is now."""
        return await self.service.get(GetRequest(id=task.id), self._caller)

    async def reaches(self, task: Task, state: TaskState) -> Task:
        """Wait until a task is in a state."""
        while (now := await self.get(task)).status.state is not state:
            assert now.status.state not in lifecycle.TERMINAL, now.status
            await asyncio.sleep(0.02)
        return now

    @staticmethod
    def request(*content: Any, at_once: bool = False, **ids: Any) -> SendRequest:
        """Return a request to say something."""
        parts = tuple(part for one in content for part in parts_of(one))
        message = Message(message_id=f"m-{next(_numbers)}", role=Role.USER, parts=parts, **ids)
        return SendRequest(message=message, configuration=SendConfiguration(return_immediately=at_once))


Talking = Callable[..., Awaitable[Talk]]


@pytest.fixture
def talking(hosting: Hosting) -> Talking:
    """A function that hosts a graph; called twice it gives two nodes of one store."""

    async def talk(graph: Any, caller: Caller = ALICE, **options: Any) -> Talk:
        agent = graph_agent(graph, **options)
        host = await hosting(agent)
        await agent.start(AgentEnvironment(store=host.node.store, url="http://localhost", wake=host.default.wake))
        return Talk(host, caller)

    return talk
