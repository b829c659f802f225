"""Servers whose console is asked in this process: agents of each kind of behaviour, people of two tenants, the feed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from accord import Context, agent
from accord.engine.outcome import Failed
from accord.model import Part
from accord.protocol.sse import Frame
from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan, stream
from tests.databases import emptied, postgres
from tests.engine.doubles import until
from tests.registry.conftest import SCHEMES, SECRETS

__all__ = ["postgres"]

ENDED = {"completed", "failed", "canceled", "rejected"}
PNG = b"\x89PNG\r\n\x1a\nnot really"
HTML = "<script>alert(1)</script>"


@agent(name="Echo", description="Says back what it is told")
async def echo(ctx: Context) -> str:
    return ctx.text


@agent(name="Asker", description="Asks for a day, by a form")
async def asker(ctx: Context) -> str:
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    day = await ctx.ask("For which day?", metadata={"schema": schema})
    return f"Booked for {(day.data or {}).get('day') or day.text}"


@agent(name="Approver", description="Wants a yes")
async def approver(ctx: Context) -> str:
    return "sent" if await ctx.approve("Send it?") else "kept"


@agent(name="Reporter", description="Reports as often as it is told")
async def reporter(ctx: Context) -> str:
    for number in range(int(ctx.text)):
        await ctx.status(f"step {number}")
    return "done"


@agent(name="Maker", description="Makes files", output_modes=["*/*"])
async def maker(ctx: Context) -> None:
    await ctx.artifact([Part(raw=PNG, media_type="image/png", filename="a picture.png")], id="images/one")
    await ctx.artifact([Part(raw=HTML.encode(), media_type="text/html", filename="page.html")], id="page")
    await ctx.artifact([Part(text="words"), Part(data={"total": 3})], id="numbers")


@agent(name="Failing", description="Cannot do anything")
async def failing(ctx: Context) -> None:
    raise Failed("There is no paper left")


@agent(name="Leader", description="Has others do it")
async def leader(ctx: Context) -> str:
    return (await ctx.call("Asker", "for me")).text


AGENTS = (echo, asker, approver, reporter, maker, failing, leader)


class Asking:
    """A server, asked in this process."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(
        self, method: str, path: str, body: Any = None, *, by: str = "alice", query: str = "", **headers: str
    ) -> Response:
        """Ask as somebody."""
        data = b"" if body is None else json.dumps(body).encode()
        sent = self.headers(by) | headers
        return await call(self.app, data, method=method, path=f"/api{path}", query=query, headers=sent, bound=30)

    def headers(self, by: str) -> dict[str, str]:
        """What a request of somebody says."""
        known = {"X-Secret": SECRETS[by]} if by else {}
        return {"Host": "localhost:8000", "Content-Type": "application/json"} | known

    async def get(self, path: str, status: int = 200, **more: Any) -> Any:
        """Ask for something, and return it."""
        answer = await self("GET", path, **more)
        assert answer.status == status, answer.body
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        """Ask for something to be done, and return what came of it."""
        answer = await self("POST", path, body, **more)
        assert answer.status == status, answer.body
        return answer.json()

    async def begin(self, agent: str, text: str = "hello", **more: Any) -> str:
        """Begin a task, and return its id."""
        by = {"by": more.pop("by")} if "by" in more else {}
        made: str = (await self.post("/tasks", {"agent": agent, "text": text, **more}, 201, **by))["id"]
        return made

    async def reaches(self, task_id: str, *states: str, by: str = "alice") -> dict[str, Any]:
        """Wait until a task is in a state, and return it; without any, until it has ended."""
        wanted, seen = set(states) or ENDED, {}

        async def is_there() -> bool:
            nonlocal seen
            seen = await self.get(f"/tasks/{task_id}", by=by)
            return seen["status"] in wanted

        await until(is_there)
        return seen

    async def done(self, agent: str, text: str = "hello", **more: Any) -> dict[str, Any]:
        """Begin a task and wait for its end."""
        by = more.get("by", "alice")
        return await self.reaches(await self.begin(agent, text, **more), by=by)

    @asynccontextmanager
    async def listening(
        self, *, by: str = "alice", after: int | None = None, last: int | None = None, topics: str = ""
    ) -> AsyncIterator["Ear"]:
        """Listen to the feed."""
        asked = {"after": after, "topics": topics or None}
        query = "&".join(f"{name}={value}" for name, value in asked.items() if value is not None)
        headers = self.headers(by) | ({} if last is None else {"Last-Event-ID": str(last)})
        async with stream(self.app, method="GET", path="/api/events", query=query, headers=headers, bound=30) as answer:
            assert answer.status == 200, await answer.read()
            ear = Ear(answer)
            await ear.hears("hello")
            yield ear


class Ear:
    """Somebody who listens: what was told so far, and what comes."""

    def __init__(self, answer: Response) -> None:
        self.answer = answer
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.last = 0
        self._frames = answer.events()

    async def hears(self, kind: str, **members: Any) -> dict[str, Any]:
        """Wait for an event with these members, and return it."""
        while True:
            found, body = self._take(await anext(self._frames))
            if found == kind and members.items() <= body.items():
                return body

    async def rest(self) -> None:
        """Read what has come already."""
        frames = self.answer.frames()
        while len(self.heard) < len(frames):
            self._take(await anext(self._frames))

    def _take(self, frame: Frame) -> tuple[str, dict[str, Any]]:
        assert frame.event is not None
        self.last = int(frame.id or 0)
        self.heard.append((frame.event, json.loads(frame.data)))
        return self.heard[-1]

    def states(self, task_id: str) -> list[tuple[int, str, str | None]]:
        """What was heard of a task, as (number, state, what was said), each once."""
        rows = [body for kind, body in self.heard if kind == "task" and body["id"] == task_id]
        return list(dict.fromkeys((row["seq"], row["status"], row["statusMessage"]) for row in rows))


@asynccontextmanager
async def serving(store: str = "sqlite://:memory:", *agents: Any, **settings: Any) -> AsyncIterator[Asking]:
    """Serve agents to people of two tenants."""
    app = to_a2a(*(agents or AGENTS), store=store, **{"auth": {"schemes": SCHEMES}} | settings)
    async with lifespan(app, bound=30):
        yield Asking(app)


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "postgres":
        return await emptied(request.getfixturevalue("postgres"))
    return f"sqlite:///{tmp_path}/accord.db"


@pytest.fixture
async def server(address: str) -> AsyncIterator[Asking]:
    """A server over each kind of store."""
    async with serving(address) as asking:
        yield asking


@pytest.fixture
async def quick() -> AsyncIterator[Asking]:
    """A server for what does not depend on the store."""
    async with serving() as asking:
        yield asking
