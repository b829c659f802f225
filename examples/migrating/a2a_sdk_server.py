"""A server of the official SDK, as one has it before: `python -m examples.migrating.a2a_sdk_server`."""

import os

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore
from a2a.types import AgentCard
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from examples.quickstarts.a2a_sdk_agent import executor

PORT = int(os.environ.get("PORT", "9000"))

card = AgentCard(
    name="booking",
    description="Books a table",
    version="1.0.0",
    supported_interfaces=[
        {"url": f"http://localhost:{PORT}/", "protocol_binding": "JSONRPC", "protocol_version": "1.0"}
    ],
    capabilities={"streaming": True},
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[{"id": "booking", "name": "booking", "description": "Books a table", "tags": ["booking"]}],
)
store = DatabaseTaskStore(create_async_engine("sqlite+aiosqlite:///tasks.db"))
handler = DefaultRequestHandler(executor, store, card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])

if __name__ == "__main__":
    uvicorn.run(app, host="localhost", port=PORT)
