"""A small A2A server over raw sockets that fails on purpose, and remembers what it was asked and what it did.

It has one agent that says "one two three" in a task of six events. How far the task is, is the server's; who streams it
moves it on, and while nobody does it may go on by itself.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.protocol import lifecycle
from accord.protocol.cards import encode_card
from accord.protocol.dialects import DIALECTS
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation, operation_for
from accord.protocol.sse import Frame, encode

V1 = DialectName.V1
TEXT = "one two three"
AT = "2026-01-02T03:04:05.678Z"


def status(state: TaskState, text: str | None = None) -> TaskStatus:
    message = None if text is None else Message(message_id="s", role=Role.AGENT, parts=(Part(text=text),))
    return TaskStatus(state=state, message=message, timestamp=AT)


def chunk(text: str, *, append: bool = True) -> ArtifactUpdate:
    artifact = Artifact(artifact_id="a", parts=(Part(text=text),))
    return ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=artifact, append=append)


def turned(state: TaskState, text: str | None = None) -> StatusUpdate:
    return StatusUpdate(task_id="t-1", context_id="c-1", status=status(state, text))


LOG: tuple[EventBody, ...] = (
    turned(TaskState.WORKING),
    chunk("one ", append=False),
    chunk("two "),
    turned(TaskState.WORKING, "nearly there"),
    chunk("three"),
    turned(TaskState.COMPLETED),
)
"""The events of the task, numbered from 1."""


class Fault(NamedTuple):
    """What happens to a request instead of its answer: the connection breaks, or a status comes.

    `does_it` if the agent does what it was asked all the same.
    """

    does_it: bool = False
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


LOST = Fault(does_it=True)
DROPPED = Fault()


class Asked(NamedTuple):
    """One request."""

    operation: Operation
    params: dict[str, Any]
    headers: dict[str, str]


class Faulty:
    """The server: what its agent offers, how its streams are cut, and which requests fail."""

    def __init__(
        self,
        *,
        dialect: DialectName = V1,
        promises: bool = False,
        numbers: bool = False,
        streams: bool = True,
        subscribes: bool = True,
        lists: bool = True,
        snapshots: bool = True,
        log: tuple[EventBody, ...] = LOG,
    ) -> None:
        self.dialect = DIALECTS[dialect]
        self.promises = promises
        self.numbers = numbers or promises
        self.streams = streams
        self.subscribes = subscribes
        self.lists = lists
        self.snapshots = snapshots
        self.log = log
        self.cuts: list[int] = []
        """After how many frames each stream is cut; streams beyond the list are not."""
        self.missed = 0
        """How many events happen while nobody listens, after each cut."""
        self.faults: dict[Operation, list[Fault]] = {}
        self.asked: list[Asked] = []
        self.runs: list[str] = []
        """The messages that the agent has worked on."""
        self.position = 0
        self.port = 0
        self.scheme = "http"
        self.paths: list[str] = []
        self._said: list[Message] = []
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def operations(self) -> list[Operation]:
        return [one.operation for one in self.asked]

    def task(self, at: int | None = None) -> Task:
        """The task as it is, or as it was after an event."""
        begun = Task(id="t-1", context_id="c-1", status=status(TaskState.SUBMITTED), history=tuple(self._said))
        seen = self.log[: self.position if at is None else at]
        return lifecycle.fold(begun, [Event(seq=number, body=body) for number, body in enumerate(seen, 1)])

    def card(self) -> bytes:
        extensions = (AgentExtension(uri=IDEMPOTENT_SEND), AgentExtension(uri=NUMBERED_EVENTS))
        version = {V1: "1.0", DialectName.V03: "0.3"}[self.dialect.name]
        card = AgentCard(
            name="Faulty",
            description="Fails",
            version="1",
            supported_interfaces=(
                AgentInterface(url=f"{self.url}/rpc", protocol_binding="JSONRPC", protocol_version=version),
            ),
            capabilities=AgentCapabilities(streaming=self.streams, extensions=extensions if self.promises else ()),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(AgentSkill(id="s", name="S", description="", tags=()),),
        )
        return encode_card(card, frozenset({self.dialect.name}))

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                verb, path, _ = lines[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.paths.append(path)
                if verb == "GET":
                    found = path == "/.well-known/agent-card.json"
                    answer(writer, 200 if found else 404, self.card() if found else b"")
                elif not await self._call(json.loads(body), headers, writer):
                    return
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        """Answer a call; false if the connection has to break."""
        operation = operation_for(call["method"], self.dialect.name)
        assert operation is not None
        self.asked.append(Asked(operation, call["params"], headers))
        fault = self.faults[operation].pop(0) if self.faults.get(operation) else None
        if fault is not None and not fault.does_it:
            return fail(writer, fault)
        if operation is Operation.SEND or (operation is Operation.STREAM and self.streams):
            self._accept(call["params"]["message"])
        if fault is not None:
            return fail(writer, fault)
        if operation in (Operation.STREAM, Operation.SUBSCRIBE):
            return await self._stream(operation, call["id"], headers.get("last-event-id"), writer)
        return self._answer(operation, call, writer)

    def _accept(self, message: dict[str, Any]) -> None:
        if message["messageId"] in self.runs and self.promises:
            return
        self.runs.append(message["messageId"])
        self._said.append(
            Message(message_id=message["messageId"], role=Role.USER, parts=(Part(text="hi"),), task_id="t-1")
        )
        self.position = 0

    def _answer(self, operation: Operation, call: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        result: Any = None
        match operation:
            case Operation.GET:
                self.position = min(self.position + 1, len(self.log))  # it goes on between two looks
                result = self.task()
            case Operation.SEND:
                at_once = call["params"].get("configuration", {})
                if not (at_once.get("returnImmediately") or at_once.get("blocking") is False):
                    self.position = len(self.log)
                result = self.task()
            case Operation.LIST if self.lists:
                result = TaskPage(
                    tasks=(replace(self.task(), artifacts=()),) if self.runs else (),
                    next_page_token="",
                    page_size=1,
                    total_size=1,
                )
            case Operation.CANCEL:
                self.log = (*self.log[: self.position], turned(TaskState.CANCELED))
                self.position = len(self.log)
                result = self.task()
            case _:
                answer(writer, 200, refusal(call["id"], -32601, "Method not found"))
                return True
        encoded = self.dialect.encode_result(operation, result)
        answer(writer, 200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(call["id"]).encode(), encoded))
        return True

    # --- streams --------------------------------------------------------------------------------------------------

    async def _stream(self, operation: Operation, call_id: Any, last: str | None, writer: asyncio.StreamWriter) -> bool:
        if not self.streams or (operation is Operation.SUBSCRIBE and not self.subscribes):
            answer(writer, 200, refusal(call_id, -32004, "Not here"))
            return True
        after = int(last) if last and self.numbers else self.position
        if operation is Operation.SUBSCRIBE and after == len(self.log):
            answer(writer, 200, refusal(call_id, -32004, "The task has ended"))
            return True
        left = self.cuts.pop(0) if self.cuts else None
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        begins = self.snapshots or operation is Operation.STREAM
        bodies = [(after, self.task(after))] if begins else []
        for number, body in [*bodies, *enumerate(self.log[after:], after + 1)]:
            if left == 0:
                await writer.drain()
                self.position = min(self.position + self.missed, len(self.log))
                return False
            left = None if left is None else left - 1
            self.position = max(self.position, number)
            frame = self.dialect.encode_event(Event(seq=number, body=body))
            assert frame is not None
            data = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(call_id).encode(), frame.data)
            write_chunk(writer, encode(Frame(data=data, id=str(number) if self.numbers else None)))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    def stop(self) -> None:
        for writer in set(self._writers):
            writer.transport.abort()


def answer(writer: asyncio.StreamWriter, code: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode() + body)


def fail(writer: asyncio.StreamWriter, fault: Fault) -> bool:
    if fault.status is None:
        return False
    answer(writer, fault.status, b"", fault.headers)
    return True


def write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def refusal(call_id: Any, code: int, message: str) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}})


@asynccontextmanager
async def served(faulty: Faulty, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Faulty]:
    """Serve on a free port while the block runs."""
    server = await asyncio.start_server(faulty.serve, "127.0.0.1", faulty.port, ssl=tls)
    faulty.port = server.sockets[0].getsockname()[1]
    try:
        yield faulty
    finally:
        server.close()
        faulty.stop()
