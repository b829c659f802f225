"""Agents elsewhere to test with: one that does as the test says, and hosts whose agent it is."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accord.agents.remote import RemoteTerms
from accord.agents.remote.agent import RemoteAgent
from accord.agents.remote.connection import Connect
from accord.errors import TaskNotFound, UnsupportedOperation
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    CancelRequest,
    Event,
    GetRequest,
    Message,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.protocol.extensions import IDEMPOTENT_SEND
from accord.remote.tasks import RemoteTasks, WebhookKeys
from accord.service.host import Host
from tests.engine.conftest import Hosting, hosting, postgres

__all__ = ["hosting", "postgres"]

MANY = int(os.environ.get("ACCORD_MANY", "300"))
"""How many tasks are many."""

WEBHOOK = "https://accord.example/api/webhook/tasks"
PUSH = RemoteTerms(webhook=WEBHOOK)

Answer = Task | Message | Exception
Answers = Callable[[SendRequest], Answer]


def there(state: TaskState = TaskState.WORKING, *, id: str = "r-1", **fields: Any) -> Task:
    """A task as the agent elsewhere has it."""
    status = fields.pop("status", None) or TaskStatus(state=state, message=fields.pop("message", None))
    return Task(id=id, context_id=fields.pop("context_id", None), status=status, **fields)


class Scripted:
    """An agent that answers as the test says, and remembers what it was asked."""

    def __init__(
        self, *, push: bool = True, streaming: bool = False, knows_messages: bool = False, lists: bool = True
    ) -> None:
        extensions = (AgentExtension(uri=IDEMPOTENT_SEND),) if knows_messages else ()
        self.is_idempotent = knows_messages
        self.card = AgentCard(
            name="There",
            description="An agent elsewhere",
            version="3.2.1",
            supported_interfaces=(
                AgentInterface(url="https://there.example", protocol_binding="JSONRPC", protocol_version="1.0"),
            ),
            capabilities=AgentCapabilities(streaming=streaming, push_notifications=push, extensions=extensions),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(),
        )
        self.sent: list[SendRequest] = []
        self.tasks: dict[str, Task] = {}
        self.cancelled: list[str] = []
        self.asked: list[str] = []
        self.lists = lists
        self.answer: Answers = lambda _: there()
        self.before: Callable[[SendRequest], Coroutine[Any, Any, None]] | None = None
        self.refuses_get: Exception | None = None
        self.streams: list[list[Event | Exception]] = []
        self.following = 0

    async def send(self, request: SendRequest) -> Task | Message:
        self.sent.append(request)
        if self.before is not None:
            await self.before(request)
        answer = self.answer(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Task):
            self.tasks.setdefault(answer.id, answer)
        return answer

    async def stream(self, request: SendRequest) -> AsyncIterator[Event]:
        answer = await self.send(request)
        yield Event(seq=0, body=answer)
        if isinstance(answer, Task):
            async for event in self.subscribe(SubscribeRequest(id=answer.id)):
                yield event

    async def get(self, request: GetRequest) -> Task:
        self.asked.append(request.id)
        if self.refuses_get is not None:
            raise self.refuses_get
        if request.id not in self.tasks:
            raise TaskNotFound
        return self.tasks[request.id]

    async def list(self, request: TaskFilter) -> TaskPage:
        if not self.lists:
            raise UnsupportedOperation
        found = tuple(task for task in self.tasks.values() if task.context_id == request.context_id)
        return TaskPage(tasks=found, next_page_token="", page_size=len(found), total_size=len(found))

    async def cancel(self, request: CancelRequest) -> Task:
        self.cancelled.append(request.id)
        self.tasks[request.id] = there(TaskState.CANCELED, id=request.id)
        return self.tasks[request.id]

    async def subscribe(self, request: SubscribeRequest, *, after: int | None = None) -> AsyncIterator[Event]:
        self.following += 1
        try:
            for event in self.streams.pop(0) if self.streams else []:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.following -= 1

    @property
    def token(self) -> str:
        """The token that the last message brought."""
        configuration = self.sent[-1].configuration
        assert configuration is not None
        assert configuration.task_push_notification_config is not None
        assert configuration.task_push_notification_config.token is not None
        return configuration.task_push_notification_config.token


class Joined:
    """A host, its agent elsewhere, and what takes that agent's reports in."""

    def __init__(self, host: Host, remotes: RemoteTasks, peer: Scripted, agent: RemoteAgent) -> None:
        self.host, self.remotes, self.peer, self.agent = host, remotes, peer, agent
        self.service = host.default
        self.store = host.node.store


Joining = Callable[..., Coroutine[Any, Any, Joined]]


@pytest.fixture
async def joining(hosting: Hosting) -> AsyncIterator[Joining]:
    """A function that hosts an agent elsewhere; called twice it gives two nodes of one store."""
    joined: list[RemoteAgent] = []

    async def join(
        peer: Scripted | None = None,
        terms: RemoteTerms = PUSH,
        trust: WebhookKeys | None = None,
        connect: Connect | None = None,
        **more: Any,
    ) -> Joined:
        found = peer or Scripted()

        @asynccontextmanager
        async def reach() -> AsyncIterator[Scripted]:
            yield found

        way = connect or reach
        agent = RemoteAgent("https://there.example", name="there", terms=terms, trust=trust, connect=way)
        host = await hosting(agent, **more)
        remotes = RemoteTasks(host.node.task_store, trust={"there": agent.trust}, hooks=host.node.hooks)
        await agent.join(remotes)
        joined.append(agent)
        return Joined(host, remotes, found, agent)

    yield join
    for agent in joined:
        await agent.leave()
