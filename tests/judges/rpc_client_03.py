"""The official 0.3 SDK's JSON-RPC client against a server; run by an interpreter that has it.

The server's URL is the only argument, and it refuses every stream. One JSON object comes out: what the client made of
each refusal.
"""

# The checker sees the 1.x SDK, which shares the name of the one that this runs with.
# mypy: ignore-errors

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client.errors import A2AClientError, A2AClientJSONRPCError
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import Message, MessageSendParams, Part, Role, TaskIdParams, TextPart


async def refused(events: Any) -> list[Any]:
    """Return the code and the sentence of a refusal, or else what the client takes it for."""
    try:
        await anext(events)
    except A2AClientJSONRPCError as refusal:
        return [refusal.error.code, refusal.error.message]
    except A2AClientError as failure:
        return [type(failure).__name__, str(failure)]
    return []


async def talk(url: str) -> dict[str, Any]:
    """Ask for both kinds of stream."""
    message = Message(message_id="m", role=Role.user, parts=[Part(root=TextPart(text="hello"))])
    async with httpx.AsyncClient(timeout=20) as http:
        client = JsonRpcTransport(http, url=url)
        return {
            "stream": await refused(client.send_message_streaming(MessageSendParams(message=message))),
            "resubscribe": await refused(client.resubscribe(TaskIdParams(id="t"))),
        }


print(json.dumps(asyncio.run(talk(sys.argv[1]))))
