"""a2a-adapter's `serve_agent` around a function."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from a2a_adapter import CallableAdapter, serve_agent

from interop.servers import agent


async def parrot(inputs: dict[str, Any]) -> AsyncIterator[str]:
    """Answer a message; a function has no way to ask, so `ask` is repeated like any other word."""
    if inputs["message"] == "hold":
        await asyncio.Event().wait()
    for piece in agent.pieces(inputs["message"]):
        yield piece


if __name__ == "__main__":
    listener, url = agent.listening()
    print(json.dumps({"url": url}), flush=True)
    serve_agent(
        CallableAdapter(parrot, streaming=True, name=agent.NAME, description=agent.DESCRIPTION),
        host="localhost",
        port=listener.getsockname()[1],
        log_level="warning",
        fd=listener.fileno(),
        timeout_graceful_shutdown=1,
    )
