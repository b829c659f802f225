"""The AI SDK's own packages in Node, against a server that chats: versions 5 to 7, and `a2a-ai-provider` on top.

The first three speak to the console's chat and not A2A; the provider calls an agent over A2A as a language model. What
they are given to do is in `web/conformance`.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from interop.outcome import BOUND_SECONDS, NOTHING_FOR_IT, Operation, Outcome, Wrong, attempted, same
from interop.processes import Servers
from interop.rows import Shorts, all_but
from tests.environments import ROOT

CONFORMANCE = ROOT / "web" / "conformance"

Found = dict[str, Any]
Work = Callable[[str], Awaitable[None]]


async def node(script: str, *arguments: str, once_begun: Callable[[], Awaitable[None]] | None = None) -> Found:
    """Run a script of the conformance folder and return what it prints; do something once an answer has begun."""
    command = shutil.which("node") or str(Path(sys.executable).parent / "node")
    where = CONFORMANCE / script
    assert (where.parent / "node_modules").is_dir(), (
        "`make test` installs what the scripts need: so does `make interop`"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(command, str(where), *arguments, stdout=pipe, stderr=pipe)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            if once_begun and b"begun" in await process.stderr.readline():
                await once_begun()
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    found: Found = json.loads(out)
    return found


def said(text: str, **more: Any) -> dict[str, Any]:
    """Return a message of a user."""
    return {"id": uuid4().hex, "role": "user", "parts": [{"type": "text", "text": text}], **more}


def text_of(message: Found) -> str:
    """Return everything that a message says."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def task_in(message: Found) -> Found:
    """Return the task that a message shows."""
    (part,) = [part for part in message["parts"] if part["type"] == "data-task"]
    data: Found = part["data"]
    same(part["id"], data["taskId"])
    return data


class Chats:
    """What a version of the SDK does in chats."""

    def __init__(self, folder: str) -> None:
        """Do it with the version that is installed in a folder."""
        self._script = f"{folder}/run.mjs"

    async def ask(self, url: str, chat: str, message: Found, **body: Any) -> Found:
        """Send a message as `useChat` would, and return the chunks and what they fold into."""
        return await node(self._script, "send", url, chat, json.dumps(body), json.dumps([message]))

    async def send(self, url: str) -> None:
        """A task is acknowledged and goes on by itself."""
        found = await self.ask(url, uuid4().hex, said("wait"), agent="waits", mode="task")
        same([found["error"], found["chunks"][-1]["type"]], [None, "finish"])
        same(task_in(found["message"])["artifactType"], "task")

    async def stream(self, url: str) -> None:
        """An answer comes in pieces and is read as it was stored."""
        chat = uuid4().hex
        found = await self.ask(url, chat, said("good morning"), agent="streams")
        kinds = [chunk["type"] for chunk in found["chunks"]]
        same([found["error"], kinds[0], kinds[-1], kinds.count("text-delta") > 1], [None, "start", "finish", True])
        async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
            stored = (await http.get(f"{url}/api/chats/{chat}")).json()["messages"]
        same([stored[1]["id"], text_of(stored[1])], [found["message"]["id"], text_of(found["message"])])
        same(text_of(found["message"]).strip(), "You said: good morning")

    async def resume(self, url: str) -> None:
        """A running answer is joined by its chat's id; where none runs, there is none to join."""
        chat = uuid4().hex
        same((await node(self._script, "resume", url, chat))["idle"], True)
        async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
            body = {"id": chat, "message": said("wait"), "agent": "waits"}
            async with http.stream("POST", f"{url}/api/chat", json=body) as answer:
                lines = answer.aiter_lines()
                first = [line async for line in _until_data(lines)][-1]

                async def stop() -> None:
                    await http.post(f"{url}/api/chat/{chat}/stop", json={})

                found = await node(self._script, "resume", url, chat, once_begun=stop)
        started = json.loads(first.removeprefix("data: "))
        same([found["idle"], found["chunks"][0]["messageId"]], [False, started["messageId"]])

    async def answer(self, url: str) -> None:
        """A question ends the answer, and the next message answers it."""
        chat = uuid4().hex
        asked = await self.ask(url, chat, said("book"), agent="asks")
        first = task_in(asked["message"])
        same([asked["error"], first["status"]], [None, "input-required"])
        found = await self.ask(url, chat, said("Friday"), agent="asks")
        same(task_in(found["message"])["taskId"], first["taskId"])
        same("Booked for Friday" in text_of(found["message"]), True)

    async def errors(self, url: str) -> None:
        """A failure is an error with its reason, and so is a refusal."""
        failed = await self.ask(url, uuid4().hex, said("print"), agent="fails")
        if "out of paper" not in failed["error"]:
            raise Wrong(f"it was told {failed['error']!r}")
        refused = await self.ask(url, uuid4().hex, said("hello"), agent="nobody")
        same([bool(refused["error"]), refused["chunks"]], [True, []])

    def works(self) -> Mapping[Operation, Work]:
        """Everything that it does."""
        return {
            Operation.SEND: self.send,
            Operation.STREAM: self.stream,
            Operation.RESUME: self.resume,
            Operation.INPUT: self.answer,
            Operation.ERRORS: self.errors,
        }


async def _until_data(lines: Any) -> Any:
    async for line in lines:
        yield line
        if line.startswith("data: "):
            return


async def _model(how: str, url: str) -> None:
    card = f"{url}/agents/streams/.well-known/agent-card.json"
    found = await node("provider/run.mjs", how, card, "good evening")
    same(found["text"].strip(), "You said: good evening")
    same(how == "generate" or found["pieces"] > 1, True)


def _provider() -> Mapping[Operation, Work]:
    """What the provider does: it reads the card before anything else."""
    return {
        Operation.CARD: lambda url: _model("generate", url),
        Operation.SEND: lambda url: _model("generate", url),
        Operation.STREAM: lambda url: _model("stream", url),
    }


class Chatter(NamedTuple):
    """A package, and what it speaks."""

    name: str
    folder: str
    package: str
    works: Mapping[Operation, Work]
    binding: str = "chat API"
    version: str = "UI message stream"
    shorts: Shorts = MappingProxyType({})

    def __str__(self) -> str:
        return self.name

    @property
    def release(self) -> str:
        """Which release is installed."""
        found: Found = json.loads(
            (CONFORMANCE / self.folder / "node_modules" / self.package / "package.json").read_text(encoding="utf-8")
        )
        return str(found["version"])

    async def outcomes(self, servers: Servers) -> dict[Operation, Outcome]:
        """Let it talk."""
        url = servers.ours("chats").url
        found = {operation: await attempted(work(url)) for operation, work in self.works.items()}
        return {operation: found.get(operation, NOTHING_FOR_IT) for operation in Operation}


_CHATS = all_but(Operation.SEND, Operation.STREAM, Operation.RESUME, Operation.INPUT, Operation.ERRORS)

CHATTERS = (
    *(Chatter(f"AI SDK {n}", f"v{n}", "ai", Chats(f"v{n}").works(), shorts=_CHATS) for n in (5, 6, 7)),
    Chatter(
        "a2a-ai-provider",
        "provider",
        "a2a-ai-provider",
        _provider(),
        "JSONRPC",
        "0.3",
        all_but(Operation.CARD, Operation.SEND, Operation.STREAM),
    ),
)
