"""Servers to compare with, each a process: `python -m bench.servers bare|a2a-sdk|fasta2a PORT [DATABASE]`.

The bare one is what a plain ASGI application costs under uvicorn: it parses the JSON and answers a fixed task, or says
fixed events. The others serve an agent that repeats what it is told, or says as many chunks as it is told to.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from bench.words import TEXT

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = (b"content-type", b"application/json")
CARD = json.dumps({"name": "Bare", "description": "x" * 1200}).encode()


async def bare(scope: Message, receive: Receive, send: Send) -> None:
    """Answer without doing anything."""
    if scope["type"] != "http":
        return
    if scope["method"] == "GET":
        await _whole(send, CARD)
        return
    asked = json.loads((await receive())["body"])
    text = asked["params"]["message"]["parts"][0]["text"]
    if asked["method"] == "SendStreamingMessage":
        await _events(send, int(text))
        return
    artifact = {"artifactId": "answer-1", "parts": [{"text": text}]}
    task = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}
    await _whole(send, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"task": task}}).encode())


async def _whole(send: Send, body: bytes) -> None:
    headers = [JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _events(send: Send, count: int) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    update = {"taskId": "t-1", "artifact": {"artifactId": "answer-1", "parts": [{"text": TEXT}]}, "append": True}
    for number in range(count):
        data = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"artifactUpdate": update}})
        frame = f"id: {number}\ndata: {data}\n\n".encode()
        await send({"type": "http.response.body", "body": frame, "more_body": True})
        await asyncio.sleep(0)  # as every agent that waits for something lets others have a turn
    await send({"type": "http.response.body", "body": b""})


def official(database: str) -> Any:
    """Return the official SDK's server over its own store."""
    from contextlib import asynccontextmanager

    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from starlette.applications import Starlette

    from bench import official as sdk

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with sdk.handler(database, sdk.Chunks(TEXT)) as handler:
            app.router.routes.extend(create_jsonrpc_routes(handler, "/"))
            yield

    return Starlette(routes=create_agent_card_routes(sdk.CARD), lifespan=lifespan)


def fasta2a(_database: str) -> Any:
    """Return fasta2a's server, which keeps tasks in memory and answers a send before the agent has."""
    from contextlib import asynccontextmanager

    from fasta2a import FastA2A, Worker
    from fasta2a.broker import InMemoryBroker
    from fasta2a.storage import InMemoryStorage

    storage: Any = InMemoryStorage()
    broker = InMemoryBroker()

    class Chunks(Worker[Any]):
        async def run_task(self, params: Any) -> None:
            task_id, context_id = params["id"], params["context_id"]
            text = params["message"]["parts"][0]["text"]
            await self.storage.update_task(task_id, state="working")
            said = [TEXT] * int(text) if text.isdigit() else [text]
            for number, chunk in enumerate(said):
                artifact: Any = {"artifact_id": "answer", "parts": [{"text": chunk}]}
                await self.publish_artifact(task_id, context_id, artifact, append=number > 0, last_chunk=False)
            whole: Any = {"artifact_id": "answer", "parts": [{"text": "".join(said)}]}
            await self.storage.update_task(task_id, state="completed", new_artifacts=[whole])

        async def cancel_task(self, params: Any) -> None:
            raise NotImplementedError("Nobody cancels here")

        def build_message_history(self, history: list[Any]) -> list[Any]:
            return history

        def build_artifacts(self, result: Any) -> list[Any]:
            return [result]

    worker = Chunks(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, worker.run():
            yield

    return FastA2A(storage=storage, broker=broker, lifespan=lifespan)


def main() -> None:
    kind, port, *rest = sys.argv[1:]
    app: Any = bare if kind == "bare" else {"a2a-sdk": official, "fasta2a": fasta2a}[kind](rest[0])
    lifespan: Any = "off" if kind == "bare" else "on"
    uvicorn.run(app, port=int(port), log_level="warning", access_log=False, lifespan=lifespan)


if __name__ == "__main__":
    main()
