"""A server in a process of its own, whose event loop is watched: `python -m tests.server.watched FOLDER [AGENT]`.

Python tells its auditors of everything that may block: files, names that are looked up, sleeps, processes. What the
loop's thread does of that while requests are answered is printed as JSON; what is done once, when it starts, is not.
"""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from accord import Client, Context, agent
from accord.model import Part, PushConfig, TaskState
from accord.server.application import Application, to_a2a
from accord.testing import catching
from tests.engine.doubles import until

BLOCKING = frozenset({
    "open",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.scandir",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "sqlite3.connect",
    "subprocess.Popen",
    "urllib.Request",
})  # fmt: skip

IMPORTING = "<frozen importlib"
"""A module that is first needed now is read now, once."""


class Watch:
    """Notes what the thread of a loop does that may block."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._thread: int | None = None
        sys.addaudithook(self._hear)

    @contextmanager
    def looking(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in BLOCKING or threading.get_ident() != self._thread:
            return
        stack = list(_frames(sys._getframe(1)))
        if any(place.startswith(IMPORTING) for place in stack):
            return
        match event, arguments:
            case "socket.connect", (socket.socket() as found, *_) if found.gettimeout() == 0:
                return  # which is how asyncio begins to connect
        ours = [place for place in stack if "/accord/" in place or place.startswith(__file__)]
        self.seen.append(f"{event} {arguments[:1]!r} in {' < '.join(ours[:4] or stack[:8])}")


def _frames(frame: FrameType | None) -> Iterator[str]:
    """Where we are and who called; reading the source, as a traceback does, would be heard of as well."""
    while frame is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back


@agent(name="Echo", description="Says it word by word, and makes a large file", output_modes=["*/*"])
async def echo(ctx: Context) -> AsyncIterator[str]:
    for word in ctx.text.split():
        yield f"{word} "
    await ctx.artifact([Part(raw=b"x" * 300_000, media_type="application/octet-stream", filename="x.bin")], id="large")


@agent(name="Asks", description="Wants a word")
async def asks(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')}"


@agent(name="Blocking", description="Does what nobody should")
async def blocking(ctx: Context) -> str:
    await asyncio.to_thread(Path(__file__).read_text)  # which blocks nobody
    socket.getaddrinfo("localhost", None)
    return Path(__file__).read_text(encoding="utf-8")[:1]  # noqa: ASYNC240  # that it is noticed is what is tested


AGENTS = {"good": [echo, asks], "bad": [blocking]}


def application(folder: Path, agents: list[Any]) -> Application:
    return to_a2a(
        *agents,
        store=f"sqlite:///{folder}/tasks.db",
        blobs=f"dir://{folder}/blobs",
        push={"allow_private": True},
        server={"capabilities": ["streaming", "push", "extended-card"]},
    )


async def talks(url: str, hook: str) -> None:
    """Ask for everything that there is."""
    async with Client.connect(url) as client:
        assert (await client.send_text("hello you")).status is TaskState.COMPLETED
        assert [piece async for piece in client.stream_text("and again")]
        task = await client.start("with a webhook", push=PushConfig(url=hook, token="t"))
        assert (await task).status is TaskState.COMPLETED
        assert (await client.task(task.id).refresh()).artifacts
    async with Client.connect(f"{url}/agents/asks") as client:
        asked = await client.send_text("paint")
        assert asked.is_question
        answered = await client.task(asked.task_id or "").reply("red")
        assert (await answered).text == "red"
        left = await client.start("paint")
        await left.cancel()


async def looks(url: str) -> None:
    """Open the pages, and what they ask for."""
    import httpx

    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for path in (
            "/.well-known/agent-card.json",
            "/openapi.json",
            "/console/",
            "/metrics",
            "/healthz",
            "/api/tasks",
        ):
            for _ in range(2):
                answer = await http.get(path, headers={"Accept": "*/*"})
                assert answer.status_code in (200, 404), (path, answer.text)
        listed = (await http.get("/api/tasks")).json()["items"]
        for row in listed:
            assert (await http.get(f"/api/tasks/{row['id']}")).status_code == 200
            await http.get(f"/api/tasks/{row['id']}/files/large/0")


async def main(folder: Path, which: str) -> None:
    watch = Watch()
    config = uvicorn.Config(application(folder, AGENTS[which]), port=0, log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())

    async def has_started() -> bool:
        return server.started

    await until(has_started)
    url = f"http://localhost:{server.servers[0].sockets[0].getsockname()[1]}"
    async with catching() as webhook:
        hook = webhook.url.replace("127.0.0.1", "localhost")
        with watch.looking():
            if which == "bad":
                async with Client.connect(url) as client:
                    await client.send_text("x")
            else:
                await talks(url, hook)
                await webhook.until(lambda: any(b"COMPLETED" in one.body for one in webhook.taken))
                await looks(url)
    server.should_exit = True
    await serving
    print(json.dumps(watch.seen))


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(Path(sys.argv[1]), sys.argv[2]), 60))
