"""The official SDK's server of A2A 0.3, over all three of its transports."""

# The checker sees the 1.x SDK, which shares the name of the one that this runs with.
# mypy: ignore-errors

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import httpx
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TextPart
from a2a.utils import new_task
from starlette.applications import Starlette
from starlette.routing import Mount

from interop.servers import agent


def text_part(text: str) -> Part:
    """Return a part."""
    return Part(root=TextPart(text=text))


class Parrot(AgentExecutor):
    """The agent as an executor."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer a message."""
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = context.get_user_input()
        await updater.start_work()
        if text == "hold":
            await asyncio.Event().wait()
        if text == "ask":
            await updater.requires_input(updater.new_agent_message([text_part(agent.QUESTION)]), final=True)
            return
        said = agent.pieces(text)
        for at, piece in enumerate(said):
            last = at == len(said) - 1
            await updater.add_artifact([text_part(piece)], artifact_id="answer", append=at > 0, last_chunk=last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """End a task."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(url: str, grpc_address: str) -> AgentCard:
    """Return a card with an address for each transport."""
    return AgentCard(
        name=agent.NAME,
        description=agent.DESCRIPTION,
        version="1.0.0",
        url=f"{url}/jsonrpc",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(url=f"{url}/jsonrpc", transport="JSONRPC"),
            AgentInterface(url=f"{url}/rest", transport="HTTP+JSON"),
            AgentInterface(url=grpc_address, transport="GRPC"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="repeat", name="Repeat", description="Repeats", tags=["text"])],
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
                Parrot(), InMemoryTaskStore(), push_config_store=configs, push_sender=sender
            )
            rpc = A2AStarletteApplication(card, handler, extended_agent_card=card)
            app.router.routes.extend(rpc.routes(rpc_url="/jsonrpc"))
            rest = A2ARESTFastAPIApplication(card, handler, extended_agent_card=card)
            app.router.routes.append(Mount("/rest", app=rest.build()))
            add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
            await server.start()
            yield
            await server.stop(None)

    return Starlette(lifespan=lifespan)


if __name__ == "__main__":
    listener, url = agent.listening()
    agent.serve(application(url), listener, url)
