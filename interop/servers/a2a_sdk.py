"""The official SDK's server of A2A 1.0, over all three of its transports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import httpx
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCard, Part
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette

from interop.servers import agent


class Parrot(AgentExecutor):
    """The agent as an executor."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer a message."""
        assert context.message is not None
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = context.get_user_input()
        await updater.start_work()
        if text == "hold":
            await asyncio.Event().wait()
        if text == "ask":
            await updater.requires_input(updater.new_agent_message([Part(text=agent.QUESTION)]))
            return
        said = agent.pieces(text)
        for at, piece in enumerate(said):
            last = at == len(said) - 1
            await updater.add_artifact([Part(text=piece)], artifact_id="answer", append=at > 0, last_chunk=last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """End a task."""
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(url: str, grpc_address: str) -> AgentCard:
    """Return a card with an address for each transport."""
    addresses = {"JSONRPC": f"{url}/jsonrpc", "HTTP+JSON": f"{url}/rest", "GRPC": grpc_address}
    return AgentCard(
        name=agent.NAME,
        description=agent.DESCRIPTION,
        version="1.0.0",
        supported_interfaces=[
            {"url": address, "protocol_binding": binding, "protocol_version": "1.0"}
            for binding, address in addresses.items()
        ],
        capabilities={"streaming": True, "push_notifications": True, "extended_agent_card": True},
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[{"id": "repeat", "name": "Repeat", "description": "Repeats", "tags": ["text"]}],
    )


def application(url: str) -> Starlette:
    """Return the server: its routes, and gRPC beside them while it runs."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        server = grpc.aio.server()
        card = card_of(url, f"localhost:{server.add_insecure_port('127.0.0.1:0')}")
        async with httpx.AsyncClient() as http:
            configs = InMemoryPushNotificationConfigStore()
            sender = BasePushNotificationSender(http, configs)
            handler: Any = DefaultRequestHandler(
                Parrot(),
                InMemoryTaskStore(),
                card,
                push_config_store=configs,
                push_sender=sender,
                extended_agent_card=card,
            )
            app.router.routes.extend(create_agent_card_routes(card))
            app.router.routes.extend(create_jsonrpc_routes(handler, "/jsonrpc"))
            app.router.routes.extend(create_rest_routes(handler, path_prefix="/rest"))
            add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
            await server.start()
            yield
            await server.stop(None)
            await handler.aclose()

    return Starlette(lifespan=lifespan)


if __name__ == "__main__":
    listener, url = agent.listening()
    agent.serve(application(url), listener, url)
