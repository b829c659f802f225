"""Hosts to test with: agents over each kind of store, and the ways to talk to them."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accord.a2a import Caller
from accord.engine.agent import Agent
from accord.engine.node import Limits
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.model import Event, Message, Part, Role, SendConfiguration, SendRequest, StatusUpdate, Task, TaskState
from accord.service.host import Host
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.blobs import LargeParts, open_blobs
from accord.storage.store import Store
from tests.bounds import BOUND_SECONDS, bounded
from tests.databases import emptied, postgres

__all__ = ["BOUND_SECONDS", "bounded", "postgres"]

ALICE, BOB = Caller(tenant="acme", owner="alice", origin="v1"), Caller(tenant="acme", owner="bob", origin="v1")
QUICK = Limits(lease_seconds=3.0, poll_seconds=0.2)
"""Leases short enough to wait for, long enough for a busy machine."""

Hosting = Callable[..., Coroutine[Any, Any, Host]]


@pytest.fixture(params=["sqlite", "postgres"])
async def hosting(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Hosting]:
    """A function that hosts agents; called twice it gives two nodes of one store."""
    if request.param == "postgres":
        url = await emptied(request.getfixturevalue("postgres"))
    else:
        url = f"sqlite:///{tmp_path}/accord.db"
    async with AsyncExitStack() as stack:

        async def host(
            *agents: Agent, limits: Limits = QUICK, wrap: Callable[[Store], Store] | None = None, **more: Any
        ) -> Host:
            hub = Hub()
            store = await stack.enter_async_context(open_store(url, hub.heard))
            await schema.upgrade_schema(store)
            store = wrap(store) if wrap else store
            parts = await LargeParts.open(store, open_blobs("table:", store, {}))
            task_store = TaskStore(store, parts, more.pop("seals", None))
            made = Host(task_store, hub, agents, limits=limits, **more)
            await made.start()
            stack.push_async_callback(made.stop, 0)
            return made

        yield host


def saying(text: str, message_id: str | None = None, **fields: Any) -> SendRequest:
    """A request to send a text; without an id each is another message."""
    settings = {name: fields.pop(name) for name in ("configuration", "metadata") if name in fields}
    parts = fields.pop("parts", (Part(text=text),))
    identifier = message_id or f"m-{next(_numbers)}"
    return SendRequest(message=Message(message_id=identifier, role=Role.USER, parts=parts, **fields), **settings)


_numbers = iter(range(10**9))

AT_ONCE = SendConfiguration(return_immediately=True)


def text(task: Task | Message) -> str:
    """Everything that an answer says."""
    if isinstance(task, Message):
        return "".join(part.text or "" for part in task.parts)
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def state(task: Task | Message) -> TaskState:
    assert isinstance(task, Task)
    return task.status.state


def said(task: Task | Message) -> str:
    """What the status says."""
    assert isinstance(task, Task)
    assert task.status.message is not None
    return text(task.status.message)


def states(events: list[Event]) -> list[TaskState]:
    """The states that a stream went through."""
    bodies = [event.body for event in events]
    return [body.status.state for body in bodies if isinstance(body, StatusUpdate | Task)]


async def all_of(stream: AsyncIterator[Event]) -> list[Event]:
    """Read a stream to its end."""
    return [event async for event in stream]
