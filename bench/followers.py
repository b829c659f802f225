"""Followers of streams over real connections, who go on elsewhere when a server dies, and note every event they see.

It is a client with nothing in it but what the protocol asks for: `Last-Event-ID` is all that is needed to go on.
"""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter

PAUSE_SECONDS = 0.5
"""How long somebody waits who found nobody to ask."""

SILENCE_SECONDS = 40.0
"""After so long without a byte, two of the server's own signs of life, a connection is given up."""

ENDED = (b'"TASK_STATE_COMPLETED"', b'"TASK_STATE_FAILED"', b'"TASK_STATE_CANCELED"', b'"TASK_STATE_REJECTED"')

_NUMBER = re.compile(rb"^id: (\d+)", re.MULTILINE)
_TASK = re.compile(rb'"(?:taskId|id)":"([0-9a-f-]{36})"')
_WORD = re.compile(rb'"text":"(\d+) "')

_SEND = (
    b'{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":'
    b'{"messageId":"%b","role":"ROLE_USER","parts":[{"text":"%b"}]}}}'
)
_GO_ON = b'{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"%b"}}'
_HEAD = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
    b"Last-Event-ID: %d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
)


class Follower:
    """One task, from the message that begins it to its end."""

    def __init__(self, name: str, text: str) -> None:
        self._message = _SEND % (name.encode(), text.encode())
        self.task: bytes | None = None
        self.numbers: list[int] = []
        self.words: list[int] = []
        self.breaks = 0
        self.refusals: list[bytes] = []
        self.longest = 0.0
        """The longest time between two events, in seconds."""

        self.first: float | None = None
        self.end: bytes | None = None
        self._last_at = 0.0

    @property
    def last(self) -> int:
        """The number of the last event seen."""
        return self.numbers[-1] if self.numbers else 0

    async def follow(self, ask: Callable[[], int]) -> None:
        """Ask for the task, and go on at another server, which `ask` names by its port, until it has ended."""
        begun = self._last_at = perf_counter()
        while self.end is None:
            try:
                await self._read(ask())
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE_SECONDS)
            if self.end is None:
                self.breaks += 1
            if self.first is None and self.numbers:
                self.first = self._last_at - begun

    async def _read(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        body = self._message if self.task is None else _GO_ON % self.task
        try:
            writer.write(_HEAD % (self.last, len(body), body))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SILENCE_SECONDS)
            if b" 200 " not in head[:16] or b"text/event-stream" not in head:
                self.refusals.append(await asyncio.wait_for(reader.read(500), SILENCE_SECONDS))
                await asyncio.sleep(PAUSE_SECONDS)
                return
            while self.end is None:
                event = await asyncio.wait_for(reader.readuntil(b"\n\n"), SILENCE_SECONDS)
                self._note(event)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    def _note(self, event: bytes) -> None:
        number = _NUMBER.search(event)
        if number is None:
            return  # a sign of life
        now = perf_counter()
        self.longest, self._last_at = max(self.longest, now - self._last_at), now
        if (
            b'"result":{"task":' in event
        ):  # with which every stream begins: the task as it was after the last event seen
            if int(number[1]) != self.last:
                raise AssertionError(f"A stream that was to go on after {self.last} goes on after {number[1].decode()}")
            if self.task is None and (found := _TASK.search(event)):
                self.task = found[1]
        else:
            self.numbers.append(int(number[1]))
            self.words += map(int, _WORD.findall(event))
        self.end = next((state for state in ENDED if state in event), None)


class Turns:
    """Whom followers ask, in turn: those who are not known to be dead."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._dead: set[int] = set()
        self._next = 0

    def dead(self, port: int) -> None:
        self._dead.add(port)

    def back(self, port: int) -> None:
        self._dead.discard(port)

    def __call__(self) -> int:
        for _ in self._ports:
            self._next += 1
            port = self._ports[self._next % len(self._ports)]
            if port not in self._dead:
                break
        return port


async def follow_all(followers: list[Follower], ask: Callable[[], int], ramp_seconds: float) -> None:
    """Let all begin within some seconds, and wait for the end of each."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def at(number: int, follower: Follower) -> None:
        await asyncio.sleep(max(0.0, begun + ramp_seconds * number / len(followers) - loop.time()))
        await follower.follow(ask)

    await asyncio.gather(*(at(number, follower) for number, follower in enumerate(followers)))
