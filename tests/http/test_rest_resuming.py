"""HTTP+JSON over a real socket, with the engine behind it: a stream that was cut is taken up where it ended."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from accord import Context, agent
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.engine.webhook_delivery import Exchange, WebhookDelivery
from accord.http.asgi import App
from accord.http.rest import RestBinding
from accord.model import PushConfig, PushFormat
from accord.protocol.sse import Decoder, Frame
from accord.service.host import Host
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.blobs import LargeParts, open_blobs

BOUND_SECONDS = 60


@agent(description="Says what it hears, word by word; works until it is cancelled when told to wait.")
async def parrot(ctx: Context) -> AsyncIterator[str]:
    for word in ctx.text.split():
        yield word
    if ctx.text == "wait":
        await asyncio.Event().wait()


class Nowhere:
    """A sender that delivers nothing to nobody."""

    def check(self, config: PushConfig) -> None: ...

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        return Exchange()


@asynccontextmanager
async def listening(app: App) -> AsyncIterator[str]:
    """Serve an application on a port of its own; the socket listens at once, so nobody has to wait for it."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        hub = Hub()
        store = await stack.enter_async_context(open_store(f"sqlite:///{tmp_path}/accord.db", hub.heard))
        await schema.upgrade_schema(store)
        task_store = TaskStore(store, await LargeParts.open(store, open_blobs("table:", store, {})))
        host = Host(task_store, hub, [parrot], sender=Nowhere())
        await host.start()
        stack.push_async_callback(host.stop, 0)
        yield await stack.enter_async_context(listening(RestBinding(host.default)))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=BOUND_SECONDS) as client:
        yield client


async def frames(answer: httpx.Response) -> AsyncIterator[Frame]:
    decoder = Decoder()
    async for piece in answer.aiter_bytes():
        for frame in decoder.feed(piece):
            yield frame


@pytest.mark.proves("HTTP_JSON-SSE-001", "3-39", "4-48")
@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_stream_that_was_cut_is_taken_up_where_it_ended(
    url: str, http: httpx.AsyncClient, prefix: str, verb: str
) -> None:
    parts = {"content" if prefix else "parts": [{"text": "wait"}]}
    sent = {"message": {"messageId": "m", "role": "ROLE_USER"} | parts}
    seen: list[Frame] = []
    async with asyncio.timeout(BOUND_SECONDS):
        async with http.stream("POST", f"{url}{prefix}/message:stream", json=sent) as answer:
            async for frame in frames(answer):
                seen.append(frame)
                if b"artifactUpdate" in frame.data:
                    break
        task_id, last = json.loads(seen[0].data)["task"]["id"], str(seen[-1].id)
        assert [int(frame.id or -1) for frame in seen] == list(range(len(seen)))
        cancelled = await http.post(f"{url}{prefix}/tasks/{task_id}:cancel")
        assert cancelled.status_code == 200
        again = f"{url}{prefix}/tasks/{task_id}:subscribe"
        assert (await http.request(verb, again)).status_code == 400, "an ended task has nothing more to tell"
        for headers, query in (({"Last-Event-ID": last}, {}), ({}, {"after": last})):
            async with http.stream(verb, again, headers=headers, params=query) as answer:
                assert answer.status_code == 200
                rest = [frame async for frame in frames(answer)]
            first, *missed = rest
            assert first.id == last, "the task as it was when the stream was cut comes first"
            assert json.loads(first.data)["task"]["artifacts"]
            assert [int(frame.id or -1) for frame in missed] == list(range(len(seen), len(seen) + len(missed)))
            assert json.loads(missed[-1].data)["statusUpdate"]["status"]["state"].startswith("TASK_STATE_CANCEL")
