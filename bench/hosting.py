"""Our side of the benchmarks: stores and hosts that are opened like a server opens them, and what is said to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from accord.a2a import Caller
from accord.engine.agent import Agent
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.model import Artifact, ArtifactUpdate, Message, Part, Role, SendRequest, Task, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.service.host import Host
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.blobs import LargeParts, open_blobs
from accord.storage.commands.task_lifecycle import AcceptRequest, JobOptions
from accord.storage.commands.tasks import TaskCreation
from accord.storage.store import Store

TENANT = "bench"
CALLER = Caller(tenant=TENANT, owner="bench", origin="v1")
AGENT = "bench"
AT = 1_700_000_000_000
"""When what is measured happens; no measurement depends on it."""

_numbers = count(1)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    """Open a store and make its tables."""
    async with open_store(address) as store:
        await schema.upgrade_schema(store)
        yield store


@asynccontextmanager
async def hosted(address: str, *agents: Agent) -> AsyncIterator[Host]:
    """Host agents over a store."""
    hub = Hub()
    async with open_store(address, hub.heard) as store:
        await schema.upgrade_schema(store)
        task_store = TaskStore(store, await LargeParts.open(store, open_blobs("table:", store, {})))
        host = Host(task_store, hub, agents)
        await host.start()
        try:
            yield host
        finally:
            await host.stop()


def saying(text: str, *, task_id: str | None = None, context_id: str | None = None) -> SendRequest:
    """Return a request that nobody has made before."""
    message = Message(
        message_id=f"m-{next(_numbers)}",
        role=Role.USER,
        parts=(Part(text=text),),
        task_id=task_id,
        context_id=context_id,
    )
    return SendRequest(message=message)


def new_task(state: TaskState = TaskState.SUBMITTED) -> TaskCreation:
    """Return a task that is not there yet."""
    task_id = f"t-{next(_numbers):09}"
    said = Message(message_id=f"m-{task_id}", role=Role.USER, parts=(Part(text="Begin"),), task_id=task_id)
    status = TaskStatus(state=state, timestamp=timestamp_ms(AT))
    task = Task(id=task_id, context_id=f"c-{task_id}", status=status, history=(said,))
    return TaskCreation(task=task, agent=AGENT, owner=CALLER.owner, at=AT)


def accepting(new: TaskCreation, node: str | None = None) -> AcceptRequest:
    """Return a message that makes a task, which a node takes at once or nobody does yet."""
    return AcceptRequest(new=new, message_id=new.task.history[0].message_id, work=JobOptions(queue=AGENT, node=node))


def chunk(task: Task, text: str) -> ArtifactUpdate:
    """Return an event that adds to the task's one artifact."""
    artifact = Artifact(artifact_id="answer", parts=(Part(text=text),))
    return ArtifactUpdate(task_id=task.id, context_id=task.context_id or "", artifact=artifact, append=True)
