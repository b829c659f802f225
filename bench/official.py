"""The official SDK's side of the benchmarks: its stores and its request handler, in this process, with its defaults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, RequestHandler
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import a2a_pb2
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import create_async_engine

REFUSALS = (OperationalError, PoolTimeout)
"""What its SQL store raises when too many write at once: a locked file, or no connection in time."""

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
CARD = a2a_pb2.AgentCard(
    name="Bench",
    description="Measures",
    version="1.0.0",
    supported_interfaces=[{"url": "http://localhost/", "protocol_binding": "JSONRPC", "protocol_version": "1.0"}],
    capabilities={"streaming": True},
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[{"id": "bench", "name": "Bench", "description": "Measures", "tags": ["bench"]}],
)

_numbers = count(1)


@asynccontextmanager
async def task_store(address: str) -> AsyncIterator[TaskStore]:
    """Open the SDK's store on a database of its own, or its store in memory."""
    if ":memory:" in address:
        yield InMemoryTaskStore()
        return
    scheme, _, rest = address.partition("://")
    engine = create_async_engine(f"{DRIVERS[scheme]}://{rest}")
    try:
        store = DatabaseTaskStore(engine)
        await store.initialize()
        yield store
    finally:
        await engine.dispose()


@asynccontextmanager
async def handler(address: str, executor: AgentExecutor) -> AsyncIterator[RequestHandler]:
    """Serve an agent with the SDK's request handler."""
    async with task_store(address) as store:
        made = DefaultRequestHandler(executor, store, CARD)
        try:
            yield made
        finally:
            await made.aclose()


def context() -> ServerCallContext:
    return ServerCallContext()


def new_task() -> a2a_pb2.Task:
    """Return a task that is not there yet."""
    task = a2a_pb2.Task(id=f"t-{next(_numbers):09}", status=a2a_pb2.TaskStatus(state=a2a_pb2.TASK_STATE_WORKING))
    task.context_id = f"c-{task.id}"
    task.status.timestamp.GetCurrentTime()
    task.history.add(message_id=f"m-{task.id}", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="Begin")])
    return task


def saying(text: str) -> a2a_pb2.SendMessageRequest:
    """Return a request that nobody has made before."""
    message = a2a_pb2.Message(message_id=f"m-{next(_numbers)}", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=text)])
    return a2a_pb2.SendMessageRequest(message=message)


class Chunks(AgentExecutor):
    """An agent that says as many chunks of a text as a number says, or else what it was told, as one artifact."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        asked = context.get_user_input()
        chunks = [self._text] * int(asked) if self._text is not None and asked.isdigit() else [asked]
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        for number, text in enumerate(chunks):
            await updater.add_artifact([a2a_pb2.Part(text=text)], artifact_id="answer", append=number > 0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("Nobody cancels here")
