"""fasta2a's client, which is Pydantic AI's, against a server; run by an interpreter that has it.

One argument, a JSON object: the server's `url`. One JSON object comes out: what the client made of each answer.
It has no method that would tell it a task's id, so it reads the tasks whose ids come on its standard input.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

from fasta2a.client import A2AClient
from fasta2a.schema import Message


def saying(text: str) -> Message:
    """Return a message."""
    return Message(role="user", parts=[{"text": text}], message_id=str(uuid4()))


async def talk(url: str) -> dict[str, Any]:
    """Use every method of the client."""
    client = A2AClient(url, fetch_card=True)
    assert client.agent_card is not None
    sent = await client.send_message(saying("tck-artifact-text"))
    streamed = [event async for event in client.stream_message(saying("tck-stream-artifact-chunked"))]
    print(json.dumps({"ready": True}), flush=True)
    tasks = [(await client.get_task(line.strip()))["result"] for line in sys.stdin]
    missing = await client.get_task("nope")
    await client.http_client.aclose()
    return {
        "card": client.agent_card["name"],
        "sent": sent["result"],
        "streamed": [event["result"] for event in streamed],
        "read": [[task["status"]["state"], text_of(task)] for task in tasks],
        "missing": missing["error"]["code"],
    }


def text_of(task: Any) -> str:
    """Return everything that a task's artifacts say."""
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


print(json.dumps(asyncio.run(talk(**json.loads(sys.argv[1])))))
