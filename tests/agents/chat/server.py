"""A server of models on loopback that speaks both chat APIs, does what a test scripts, and remembers what it was asked.

Without a script it echoes: word by word, with a usage of 7 and 5 tokens.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

STREAMS = {"/v1/chat/completions": "text/event-stream", "/api/chat": "application/x-ndjson"}


class Asked(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def last(self) -> str:
        """The text that was said last."""
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(piece.get("text", "") for piece in content)

    @property
    def is_openai(self) -> bool:
        return self.path.endswith("completions")


Scene = Callable[["Stage", Asked], Coroutine[Any, Any, None]]


class Stage:
    """One answer while it is written."""

    def __init__(self, writer: asyncio.StreamWriter, asked: Asked) -> None:
        self._writer = writer
        self._asked = asked

    async def head(self, status: int = 200, **headers: str) -> None:
        lines = {"content-type": STREAMS[self._asked.path], "connection": "close"}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.raw(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode())

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def value(self, value: Any) -> None:
        """One value as the API streams it."""
        text = json.dumps(value)
        await self.raw((f"data: {text}\n\n" if self._asked.is_openai else f"{text}\n").encode())

    async def word(self, text: str, **more: Any) -> None:
        said = {"role": "assistant", "content": text, **more}
        if self._asked.is_openai:
            await self.value({"choices": [{"index": 0, "delta": said, "finish_reason": None}], "usage": None})
        else:
            await self.value({"model": "m", "message": said, "done": False})

    async def end(self, reason: str = "stop", inputs: int = 7, outputs: int = 5) -> None:
        if self._asked.is_openai:
            await self.value({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            await self.value({"choices": [], "usage": {"prompt_tokens": inputs, "completion_tokens": outputs}})
            await self.raw(b"data: [DONE]\n\n")
        else:
            last = {"done": True, "done_reason": reason, "prompt_eval_count": inputs, "eval_count": outputs}
            await self.value({"message": {"role": "assistant", "content": ""}, **last})

    async def whole(self, status: int, value: Any, **headers: str) -> None:
        await self.head(status, content_type="application/json", **headers)
        await self.raw(json.dumps(value).encode())


async def echoes(stage: Stage, asked: Asked) -> None:
    await stage.head()
    for word in f"you said {asked.last}".split(" "):
        await stage.word(f"{word} ")
    await stage.end()


class Models:
    """The server; `scenes` are played one for each request, then `otherwise`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.scenes: list[Scene] = []
        self.otherwise: Scene = echoes
        self.left = asyncio.Event()
        """Set when a client hangs up."""
        self.url = ""

    def plays(self, *scenes: Scene) -> None:
        self.scenes.extend(scenes)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await _read(reader)
        self.asked.append(asked)
        scene = self.scenes.pop(0) if self.scenes else self.otherwise
        playing = asyncio.create_task(scene(Stage(writer, asked), asked))
        leaving = asyncio.create_task(reader.read())
        try:
            await asyncio.wait([playing, leaving], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                self.left.set()
        finally:
            for task in (playing, leaving):
                task.cancel()
            await asyncio.gather(playing, leaving, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    body = await reader.readexactly(int(headers["content-length"]))
    return Asked(first.split(" ")[1], headers, json.loads(body))


@asynccontextmanager
async def serving() -> AsyncIterator[Models]:
    models = Models()
    server = await asyncio.start_server(models._serve, "127.0.0.1", 0)
    models.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield models


def says(*words: str, reason: str = "stop") -> Scene:
    """An answer of these words."""

    async def scene(stage: Stage, asked: Asked) -> None:
        await stage.head()
        for word in words:
            await stage.word(word)
        await stage.end(reason)

    return scene


def refuses(status: int, value: Any = None, **headers: str) -> Scene:
    async def scene(stage: Stage, asked: Asked) -> None:
        await stage.whole(status, value or {}, **headers)

    return scene


def breaks_after(words: Iterable[str], *, raw: bytes = b"") -> Scene:
    """An answer that ends in the middle."""

    async def scene(stage: Stage, asked: Asked) -> None:
        await stage.head()
        for word in words:
            await stage.word(word)
        await stage.raw(raw)

    return scene


def hangs_after(*words: str, begins: bool = True) -> Scene:
    """An answer that never ends, or, without a beginning, never comes."""

    async def scene(stage: Stage, asked: Asked) -> None:
        if begins:
            await stage.head()
        for word in words:
            await stage.word(word)
        await asyncio.Event().wait()

    return scene
