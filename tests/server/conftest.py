"""Applications to test with: agents, how they are served in this process, and how they are asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from accord import Context, agent
from accord.http.asgi import App
from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan

CARD = "/.well-known/agent-card.json"
V1 = {"A2A-Version": "1.0"}
SECRET = "a shared secret of the tests"
HEADER = {"type": "header", "name": "X-Secret", "secrets": [{"owner": "alice", "secret": SECRET}]}
KNOWN = {"X-Secret": SECRET}
"""What alice sends to a server that asks for that header."""


@agent(name="Echo", description="Says back what it is told", skills=["echo"])
async def echo(ctx: Context) -> AsyncIterator[str]:
    for word in ctx.text.split():
        yield word + " "


@agent(name="Trip Planner", description="Plans trips", skills=["plan"], extended_skills=["book"])
async def planner(ctx: Context) -> str:
    return f"a trip to {ctx.text}"


@asynccontextmanager
async def serving(*agents: Any, **settings: Any) -> AsyncIterator[Application]:
    """Serve agents as a server would."""
    app = to_a2a(*(agents or (echo,)), **settings)
    async with lifespan(app):
        yield app


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def said(text: str, message_id: str = "m", **more: Any) -> dict[str, Any]:
    """A message of A2A 1.0."""
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}


async def get(app: App, path: str, **more: Any) -> Response:
    return await call(
        app, method="GET", path=path, headers={"Host": "accord.example"} | more.pop("headers", {}), **more
    )


async def card_at(app: App, path: str = "", **more: Any) -> dict[str, Any]:
    """The card below a path, in A2A 1.0's own form."""
    answer = await get(app, path + CARD, query="dialect=v1", **more)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def urls(card: dict[str, Any]) -> list[str]:
    """Where a card says that the agent is, each place once."""
    return list(dict.fromkeys(interface["url"] for interface in card["supportedInterfaces"]))


async def send(app: App, text: str, path: str = "/", **headers: str) -> dict[str, Any]:
    """Send a text and return the task."""
    answer = await call(app, rpc("SendMessage", message=said(text)), path=path, headers=V1 | headers)
    assert answer.status == 200, answer.body
    task: dict[str, Any] = answer.json()["result"]["task"]
    return task


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])
