"""What is open ends with the key or the session that it was opened with, in words of its own dialect."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord import Context, agent
from accord.auth import authentication
from accord.auth.api_keys import new_key
from accord.console import sessions
from accord.server.application import Application
from accord.storage.commands import authentication as apikeys
from accord.storage.commands.authentication import NewApiKey
from accord.testing import stream
from tests.console.browsers import HOST, Browser
from tests.server.conftest import V1, rpc, said, serving

V03 = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "x"}]}

STREAMS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "v1": ("/", V1, rpc("SendStreamingMessage", message=said("x"))),
    "v1 over HTTP+JSON": ("/message:stream", V1, {"message": said("x")}),
    "v03": ("/", {}, rpc("message/stream", message=V03)),
}


@agent(name="Silent", description="Says one thing, and then nothing")
async def silent(ctx: Context) -> AsyncIterator[str]:
    yield "wait"
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "CACHE_SECONDS", 0.0)


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    schemes = [{"type": "api-keys", "remember_seconds": 0}]
    async with serving(silent, auth={"schemes": schemes}, server={"grace_seconds": 0.1}) as application:
        yield application


async def key_of(app: Application) -> tuple[str, str]:
    made = new_key()
    await app.host.node.store.do(apikeys.create_api_key, NewApiKey(id=made.id, hash=made.hash, name="", owner="alice"))
    return made.key, made.id


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_ends_with_its_key(name: str, app: Application) -> None:
    path, headers, body = STREAMS[name]
    key, id = await key_of(app)
    sent = {"Content-Type": "application/json", "X-API-Key": key} | headers
    async with stream(app, json.dumps(body).encode(), path=path, headers=sent) as answer:
        assert answer.status == 200, await answer.read()
        events = answer.events()
        await anext(events)
        await app.host.node.store.do(apikeys.revoke_api_key, id)
        last = [event async for event in events][-1]
    assert b"has expired or was revoked" in last.data


async def test_the_feed_ends_with_its_key(app: Application) -> None:
    key, id = await key_of(app)
    async with stream(app, method="GET", path="/api/events", headers={"Host": HOST, "X-API-Key": key}) as answer:
        events = answer.events()
        assert (await anext(events)).event == "hello"
        await app.host.node.store.do(apikeys.revoke_api_key, id)
        assert [event async for event in events] == []


@pytest.mark.parametrize("how", ["signed out", "key revoked"])
async def test_the_feed_ends_with_its_session(how: str, app: Application) -> None:
    browser = Browser(app)
    key, id = await key_of(app)
    assert (await browser.sign_in(apiKey=key)).status == 200
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    sent = {"Host": HOST, "Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    async with stream(app, method="GET", path="/api/events", headers=sent) as answer:
        events = answer.events()
        assert (await anext(events)).event == "hello"
        if how == "signed out":
            assert (await browser("DELETE", "/api/session")).status == 204
        else:
            await app.host.node.store.do(apikeys.revoke_api_key, id)
        assert [event async for event in events] == []
