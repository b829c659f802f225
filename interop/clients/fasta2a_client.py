"""fasta2a's client, which is Pydantic AI's, against a server that asks for no credentials.

Arguments: the server's `url`, and that of another, `locked`, which asks for some.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from fasta2a.client import A2AClient
from fasta2a.schema import Message

from interop.clients import telling
from interop.outcome import Operation, same


def saying(text: str) -> Message:
    """Return a message."""
    return Message(role="user", parts=[{"text": text}], message_id=str(uuid4()))


def text_of(task: Any) -> str:
    """Return everything that a task's artifacts say."""
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


class Talk:
    """A conversation."""

    def __init__(self, url: str) -> None:
        """Talk to a server."""
        self.client = A2AClient(url, fetch_card=True)

    async def card_is_read(self) -> None:
        """The card has the agent's name."""
        card: Any = self.client.agent_card
        same(card["name"], "Conformance")

    async def send(self) -> None:
        """A text becomes a task that the client understands."""
        sent: Any = await self.client.send_message(saying("tck-artifact-text"))
        same(sent["result"]["task"]["status"]["state"], "completed")

    async def stream(self) -> None:
        """A task is seen as it becomes."""
        events: Any = [event async for event in self.client.stream_message(saying("tck-stream-artifact-chunked"))]
        same(events[-1]["result"]["status_update"]["status"]["state"], "completed")

    async def get(self) -> None:
        """Tasks are read."""
        for word, made in (
            ("tck-artifact-text", "Generated text content"),
            ("tck-stream-artifact-chunked", "chunk-1 chunk-2"),
        ):
            sent: Any = await self.client.send_message(saying(word))
            read: Any = (await self.client.get_task(sent["result"]["task"]["id"]))["result"]
            same([read["status"]["state"], text_of(read)], ["completed", made])

    async def errors(self) -> None:
        """A task that is not there has its code."""
        missing: Any = await self.client.get_task("nope")
        same(missing["error"]["code"], -32001)


async def card_of(locked: str) -> None:
    """A card that asks for credentials can be read, which is where bringing some would begin."""
    client = A2AClient(locked, fetch_card=True)
    await client.http_client.aclose()


@asynccontextmanager
async def talking(url: str, locked: str) -> AsyncIterator[telling.Steps]:
    """Give every method of the client."""
    here = Talk(url)
    yield {
        Operation.CARD: here.card_is_read,
        Operation.SEND: here.send,
        Operation.STREAM: here.stream,
        Operation.GET: here.get,
        Operation.ERRORS: here.errors,
        Operation.AUTH: lambda: card_of(locked),
    }
    await here.client.http_client.aclose()


if __name__ == "__main__":
    telling.run(talking)
