"""Servers to authenticate to, on real sockets: ours with any of its schemes, and a token endpoint."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

import pytest
import uvicorn
from aiohttp import web

from accord.client.auth import AuthDriver, ClientAuth
from accord.client.exchange import HttpExchange
from accord.model import AgentCard
from accord.outbound import HttpReply, HttpRequest, HttpSession
from accord.protocol.cards import decode_card
from accord.server.application import to_a2a
from tests.auth.issuer import Issuer, key
from tests.server.conftest import echo, rpc, said

AUDIENCE = "accord"
IN_A_CENTURY = 4_000_000_000


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on a port of its own, and return its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not serving.done(), "it did not start"
            await asyncio.sleep(0)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


class Agent:
    """Our own server, with an agent, behind its own schemes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transport = HttpSession()

    async def card(self, dialect: str = "v1") -> AgentCard:
        """Its card in one dialect."""
        url = f"{self.url}/.well-known/agent-card.json?dialect={dialect}"
        reply = await HttpExchange(self.transport).fetch(HttpRequest(method="GET", url=url))
        assert reply.status == 200, reply.body
        return decode_card(reply.body)

    async def ask(self, auth: ClientAuth | AuthDriver | None, path: str = "/") -> int:
        """Send a message, and return the HTTP status of the answer."""
        return (await self.said(auth, path)).status

    async def said(self, auth: ClientAuth | AuthDriver | None, path: str = "/") -> HttpReply:
        body = json.dumps(rpc("SendMessage", message=said("hi"))).encode()
        headers = (("Content-Type", "application/json"), ("A2A-Version", "1.0"))
        request = HttpRequest(method="POST", url=self.url + path, headers=headers, body=body)
        return await HttpExchange(self.transport, auth).fetch(request)


@asynccontextmanager
async def serving(*schemes: dict[str, Any], **settings: Any) -> AsyncIterator[Agent]:
    """Serve an agent that asks for one of these schemes."""
    app = to_a2a(echo, auth={"schemes": list(schemes)}, **settings)
    async with listening(app) as url:
        agent = Agent(url)
        try:
            yield agent
        finally:
            await agent.transport.close()


class TokenEndpoint:
    """An issuer of tokens over HTTP: it knows one client, counts who asks, and can be told to misbehave."""

    def __init__(self) -> None:
        self.issuer = Issuer(key())
        self.client = "an id:with+odd/chars", "a secret & more=%41"
        self.takes = {"post", "basic"}
        self.lasts: Any = 3600
        self.ends: list[int] = []
        self.asked: list[dict[str, str]] = []
        self.discovered = 0
        self.answers: list[web.Response] = []
        self.held: asyncio.Event | None = None
        self.arrived = asyncio.Event()
        self.serial = 0
        self.url = ""

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def discovery_url(self) -> str:
        return f"{self.url}/.well-known/openid-configuration"

    def scheme(self, **more: Any) -> dict[str, Any]:
        """How our server is told to believe its tokens."""
        return {"type": "jwt", "issuer": self.url, "audience": [AUDIENCE], "remember_seconds": 0} | more

    async def token(self, request: web.Request) -> web.Response:
        """Give a token, as RFC 6749 has it."""
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        way, stated = "post", (form.pop("client_id", ""), form.pop("client_secret", ""))
        if header := request.headers.get("Authorization"):
            name, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
            way, stated = "basic", (unquote_plus(name), unquote_plus(secret))
        self.asked.append(form | {"way": way})
        self.arrived.set()
        if self.held is not None:
            await self.held.wait()
        if self.answers:
            return self.answers.pop(0)
        if way not in self.takes or stated != self.client:
            return web.json_response({"error": "invalid_client", "error_description": "who is that?"}, status=401)
        self.serial += 1
        ends = self.ends.pop(0) if self.ends else IN_A_CENTURY
        claims = {"iss": self.url, "aud": AUDIENCE, "iat": None, "nbf": None, "exp": ends, "jti": str(self.serial)}
        granted = {"access_token": self.issuer.token(claims), "token_type": "Bearer", "expires_in": self.lasts}
        return web.json_response({name: value for name, value in granted.items() if value is not None})

    async def discovery(self, request: web.Request) -> web.Response:
        self.discovered += 1
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": self.token_url,
                "token_endpoint_auth_methods_supported": [f"client_secret_{way}" for way in sorted(self.takes)],
            }
        )

    async def keys(self, request: web.Request) -> web.Response:
        return web.json_response({"keys": [one.as_dict(private=False) for one in self.issuer.keys]})


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    """A token endpoint on a real socket."""
    found = TokenEndpoint()
    app = web.Application()
    app.router.add_post("/token", found.token)
    app.router.add_get("/.well-known/openid-configuration", found.discovery)
    app.router.add_get("/keys", found.keys)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()
