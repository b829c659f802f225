"""The official SDK's server with its SQL store: `python -m tests.guides.probed.a2a_sdk_server`.

With `EVERYTHING` in the environment it is given what the SDK ships besides: versioned tasks, a log of events that
streams are read from, and a check of webhooks' addresses.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    DatabaseTaskStore,
    InMemoryPushNotificationConfigStore,
    TaskUpdater,
)
from a2a.types import AgentCard, Part
from a2a.utils.push_url_validator import validate_push_notification_url
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from tests.guides.probed.counting import pieces

PORT = int(os.environ["PORT"])


class Counting(AgentExecutor):
    """Counts up."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        said = False
        async for piece in pieces(context.get_user_input()):
            await updater.add_artifact([Part(text=piece)], artifact_id="answer", append=said)
            said = True
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="counting",
    description="Counts up",
    version="1.0.0",
    supported_interfaces=[
        {"url": f"http://localhost:{PORT}/", "protocol_binding": "JSONRPC", "protocol_version": "1.0"}
    ],
    capabilities={"streaming": True, "push_notifications": True},
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[{"id": "count", "name": "count", "description": "Counts up", "tags": ["count"]}],
)
engine = create_async_engine("sqlite+aiosqlite:///tasks.db")
store: Any = DatabaseTaskStore(engine)
more: dict[str, Any] = {}
if "EVERYTHING" in os.environ:
    store = VersionedDatabaseTaskStore(engine)
    more = {"event_stream": DatabaseTaskEventStream(engine), "push_url_validator": validate_push_notification_url}
configs = InMemoryPushNotificationConfigStore()
sender = BasePushNotificationSender(httpx.AsyncClient(), configs)
handler: Any = DefaultRequestHandler(Counting(), store, card, push_config_store=configs, push_sender=sender, **more)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    await store.initialize()
    yield


routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
app = Starlette(routes=routes, lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, host="localhost", port=PORT, log_level="warning")
