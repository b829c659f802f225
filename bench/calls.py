"""Python calls of our own for a send, a streamed chunk and a workflow run: exact counts, the same on every machine.

`sys.setprofile` counts each call and each resumption of a function of the package, in all threads, from the first
message to the application until its response is complete. The application is warm: its third request is counted.
"""

import asyncio
import gc
import math
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import msgspec

import accord
from accord.agents.function import agent
from accord.engine.agent import Agent
from accord.engine.context import Context
from accord.server.application import Application
from accord.server.settings import Settings
from accord.storage.sqlite import driver
from accord.workflows.agent import WorkflowAgent
from accord.workflows.document import Document, Step, Swarm, Workflow
from bench.memory import ROOT
from bench.report import Table, Target
from bench.setting import SQLITE, Setting

PACKAGE = str(Path(accord.__file__).parent)
CALLS, MODULES = "calls", "modules"
SEND, CHUNK, RUN = "blocking send", "streamed chunk", "workflow run of two steps"

WARM, COUNTED = 2, 12
"""Requests before those that are counted. The smallest count is the one that no timer of the server has joined."""

MORE_CHUNKS = 64

_numbers = count(1)

TARGETS = (
    Target(SEND, CALLS, at_most=300),
    Target(SEND, MODULES, at_most=35),
    Target(CHUNK, CALLS, at_most=22),
    Target(RUN, CALLS, at_most=1_100),
    Target(RUN, MODULES, at_most=60),
)

NOTES = (
    "Calls of functions of the package, each resumption of a coroutine included, and the modules that they are in."
    " One JSON-RPC request to an application in this process, over a SQLite file whose disk is taken for a quick one:"
    " `SendMessage` to an agent that yields one chunk, `SendMessage` to a workflow of two shell steps. A streamed chunk"
    f" is what {MORE_CHUNKS} more of them add to `SendStreamingMessage`, yielded one after the other, divided by them.",
)


@agent(name="Chunks", description="Yields as many chunks as it is asked for.")
async def chunks(ctx: Context) -> AsyncIterator[str]:
    for number in range(int(ctx.text)):
        yield f"chunk {number} "


def workflow() -> WorkflowAgent:
    """Return a workflow of two commands, of which the second uses the output of the first."""
    first = Step(name="a", type="deterministic", command="echo first")
    second = Step(name="b", type="deterministic", command="echo got {{steps.a.output}}", depends_on=("a",))
    flow = Workflow(name="main", steps=(first, second))
    document = Document(version="1.0", name="Flow", swarm=Swarm(pattern="dag"), workflows=(flow,))
    return WorkflowAgent(document, directory=ROOT, env={})


# --- counting ---------------------------------------------------------------------------------------------------------


class Counted:
    """The calls of functions of the package, by their code."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls[frame.f_code] += 1

    @property
    def modules(self) -> set[str]:
        return {code.co_filename for code in self.calls}

    def by_function(self) -> Iterator[str]:
        """Yield each function with its number of calls."""
        for code, number in self.calls.most_common():
            yield f"{number:5} {code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno} {code.co_qualname}"


@contextmanager
def profiling() -> Iterator[Counted]:
    """Count in this thread and in those that are started in the block."""
    counted, before = Counted(), sys.getprofile()
    threading.setprofile(counted)
    sys.setprofile(counted)
    try:
        yield counted
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def fewest(counted: Counted, ask: Callable[[], Awaitable[None]]) -> Counted:
    """Return the calls of a request to a warm application."""
    found = []
    for number in range(WARM + COUNTED):
        gc.collect()
        counted.calls = Counter()
        counted.is_on = number >= WARM
        gc.disable()
        try:
            await ask()
        finally:
            counted.is_on = False
            gc.enable()
        if number >= WARM:
            one = Counted()
            one.calls = counted.calls
            found.append(one)
    return min(found, key=lambda one: one.calls.total())


# --- requests ---------------------------------------------------------------------------------------------------------


async def ask(app: Application, path: str, method: str, text: str) -> None:
    """Send a message in one JSON-RPC request and read the whole response."""
    message = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
    headers = [
        (b"host", b"localhost:8000"),
        (b"content-type", b"application/json"),
        (b"a2a-version", b"1.0"),
        (b"content-length", b"%d" % len(body)),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
    }
    incoming: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[bytes] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not incoming:
            await gone.wait()
            return {"type": "http.disconnect"}
        return incoming.pop()

    async def send(event: Any) -> None:
        sent.append(event.get("body", b""))

    await app(scope, receive, send)
    answer = b"".join(sent)
    assert b"COMPLETED" in answer, answer


@asynccontextmanager
async def serving(address: str, agents: Sequence[Agent]) -> AsyncIterator[Application]:
    app = Application(agents, Settings(store=address))
    async with app:
        yield app


async def measured(address: str) -> tuple[dict[str, Counted], dict[str, dict[str, float]]]:
    """Return what was called for each row, and the figures of the table."""
    with profiling() as counted, patch.object(driver, "QUICK_SECONDS", math.inf):
        async with serving(address, [chunks, workflow()]) as app:
            send = await fewest(counted, partial(ask, app, "/", "SendMessage", "1"))
            few = await fewest(counted, partial(ask, app, "/", "SendStreamingMessage", "1"))
            many = await fewest(counted, partial(ask, app, "/", "SendStreamingMessage", str(1 + MORE_CHUNKS)))
            run = await fewest(counted, partial(ask, app, "/agents/flow", "SendMessage", "go"))
    chunk = Counted()
    chunk.calls = many.calls - few.calls
    each = {SEND: send, CHUNK: chunk, RUN: run}
    figures = {name: {CALLS: float(one.calls.total()), MODULES: float(len(one.modules))} for name, one in each.items()}
    figures[CHUNK] = {CALLS: chunk.calls.total() / MORE_CHUNKS}
    return each, figures


def run(setting: Setting) -> list[Table]:
    _, figures = asyncio.run(measured(setting.database(SQLITE)))
    return [Table("Calls of our own", "what is asked", (CALLS, MODULES), figures, TARGETS, NOTES)]
