"""Models behind an address: a scripted server of them in a thread, whose model `echo` echoes, and so on."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accord.agents.chat import AGENT_TYPE, ChatOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.chat.server import Asked, Scene, Stage, says, serving
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject

ADDRESS = "models.url"
HAS = frozenset({"echo", "stream", "held", "remember", "slow", "fail", "file", "usage"})


def playing(scratch: Path) -> Scene:
    """Do what the model is called after."""

    async def scene(stage: Stage, asked: Asked) -> None:
        match asked.body["model"]:
            case "echo":
                await says("you said ", asked.last)(stage, asked)
            case "stream":
                await says("one ", "two ", "three ")(stage, asked)
            case "remember":
                await says(" ".join(str(said["content"]) for said in asked.body["messages"]))(stage, asked)
            case "usage":
                await says("done")(stage, asked)
            case _:
                await stage.head()
                await behave(stage, asked)

    async def behave(stage: Stage, asked: Asked) -> None:
        match asked.body["model"]:
            case "held":
                await stage.word("one ")
                await marks.held(scratch)
                await stage.word("two ")
            case "slow":
                await marks.work(scratch)
            case "fail":
                await stage.value({"error": {"message": "no such city"}})
            case "file":
                given = asked.body["messages"][-1]["content"][-1]["file"]["file_data"].partition(",")[2]
                made = base64.b64encode(base64.b64decode(given) + b"!").decode()
                url = f"data:application/octet-stream;base64,{made}"
                await stage.word("", images=[{"type": "image_url", "image_url": {"url": url}}])
        await stage.end()

    return scene


@contextmanager
def beside(scratch: Path) -> Iterator[None]:
    """Serve the models in a thread, and leave their address in the scratch folder."""
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async with serving() as models:
            models.otherwise = playing(scratch)
            (scratch / ADDRESS).write_text(models.url)
            ready.set()
            await stop.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(marks.BOUND_SECONDS)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(marks.BOUND_SECONDS)


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    options = ChatOptions(model=behaviour, base_url=(scratch / ADDRESS).read_text())
    return AGENT_TYPE.make(AgentArguments(options=options, name="subject"))


SUBJECT = Subject(kind="chat", make=make, has=HAS, crash=Crash.RESTART, beside=beside)
