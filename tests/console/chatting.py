"""Agents to chat with, and how one chats: what is said, and the chunks that are answered."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from accord import Context, agent
from accord.testing import Response, stream
from tests.console.conftest import Asking

Chunk = dict[str, Any]


def said(text: str, id: str = "u-1", *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of a user."""
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}, *parts], **more}


class Gate:
    """Agents that say something, wait until they may go on, and say the rest."""

    def __init__(self) -> None:
        self.opened, self.reached = asyncio.Event(), asyncio.Event()
        self.runs = 0

        @agent(name="Gated", description="Waits in the middle")
        async def gated(ctx: Context) -> AsyncIterator[str]:
            self.runs += 1
            yield "one "
            yield "two "
            self.reached.set()
            await self.opened.wait()
            yield "three"

        self.agent = gated


class Chatting:
    """Somebody who chats."""

    def __init__(self, asking: Asking, by: str = "alice") -> None:
        self.asking = asking
        self.by = by

    async def say(self, chat: str, message: dict[str, Any], query: str = "", **body: Any) -> list[Chunk]:
        """Say something and read the whole answer."""
        answer = await self.asking("POST", "/chat", {"id": chat, "message": message, **body}, by=self.by, query=query)
        assert answer.status == 200, answer.body
        return chunks_of(answer)

    async def again(self, chat: str, **body: Any) -> list[Chunk]:
        """Have an answer given again."""
        answer = await self.asking("POST", "/chat", {"id": chat, "trigger": "regenerate-message", **body}, by=self.by)
        assert answer.status == 200, answer.body
        return chunks_of(answer)

    @asynccontextmanager
    async def saying(self, chat: str, message: dict[str, Any], **body: Any) -> AsyncIterator[Response]:
        """Say something, and read the answer as it comes; leaving the block closes the page."""
        sent = {"id": chat, "message": message, **body}
        headers = self.asking.headers(self.by)
        async with stream(self.asking.app, sent, path="/api/chat", headers=headers, bound=30) as answer:
            assert answer.status == 200, await answer.read()
            yield answer

    @asynccontextmanager
    async def resuming(self, chat: str) -> AsyncIterator[Response]:
        """Read the answer that is coming."""
        headers = self.asking.headers(self.by)
        where = f"/api/chat/{chat}/stream"
        async with stream(self.asking.app, method="GET", path=where, headers=headers, bound=30) as answer:
            yield answer

    async def history(self, chat: str) -> list[dict[str, Any]]:
        """What was said in a chat."""
        found: list[dict[str, Any]] = (await self.asking.get(f"/chats/{chat}", by=self.by))["messages"]
        return found


def chunks_of(answer: Response) -> list[Chunk]:
    """The chunks of a whole answer."""
    frames = [frame.data for frame in answer.frames()]
    assert frames[-1] == b"[DONE]"
    return [json.loads(data) for data in frames[:-1]]


async def coming(answer: Response) -> AsyncGenerator[Chunk, None]:
    """The chunks of an answer as they come."""
    async for frame in answer.events():
        if frame.data == b"[DONE]":
            return
        yield json.loads(frame.data)


def types(chunks: list[Chunk]) -> list[str]:
    """What kinds of chunks there are, in their order."""
    return [chunk["type"] for chunk in chunks]


def only(chunks: list[Chunk], kind: str) -> list[Chunk]:
    """The chunks of one kind."""
    return [chunk for chunk in chunks if chunk["type"] == kind]


def text_of(chunks: list[Chunk]) -> str:
    """All text of an answer."""
    return "".join(chunk["delta"] for chunk in only(chunks, "text-delta"))


def texts(message: dict[str, Any]) -> str:
    """All text of a message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")
