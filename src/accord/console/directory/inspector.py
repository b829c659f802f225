"""`/api/inspect`: a request exactly as somebody wrote it, and what came back, frame by frame, as it came.

To an agent here it goes through the agent's own addresses, as whoever asks: nobody gains or loses rights by it. To a
server elsewhere it goes only for those who run this one, and only where webhooks could go. What is shown holds no
credentials; requests to begin with are `templates`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.bindings.streams import HEADERS, KEEP_ALIVE_SECONDS
from accord.console.directory import templates
from accord.console.directory.exchanges import End, Exchange, Head, Said, happening, inside, outside, scope_of
from accord.console.house import House
from accord.console.routing import Asked, Reply, Route, time_of
from accord.console.views import TemplateList, View
from accord.errors import InvalidParams, PermissionDenied, TaskNotFound
from accord.protocol import codec, sse
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import KEEP_ALIVE, Decoder, Frame, FrameTooLarge

MAX_BYTES = 1024 * 1024
"""How much of an answer is shown: more is nothing that a person reads."""

MAX_FRAMES = 1000
MAX_SECONDS = 60.0
"""How long somebody looks on: a stream that has not ended by then is followed elsewhere."""

MAX_ABOUT = 200
"""Characters of what a request was about, in the audit log."""

ADMIN = "admin"
"""The role of those who run a server, if they are not of one tenant of it."""

CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
"""Headers that say who somebody is."""

NOT_SHOWN = "(not shown)"

_FRAMING = frozenset({"host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "trailer"})
"""What a request's own carrier says."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")


class Inspection(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request as it is to be sent: to an agent here, at a path below its own, or to a `url` elsewhere."""

    agent: str | None = None
    url: str | None = None
    method: Annotated[str, Meta(pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$")] = "POST"
    path: Annotated[str, Meta(max_length=4096)] = "/"
    headers: dict[str, str] = {}
    body: str | None = None


class Wanted(Struct, frozen=True, kw_only=True):
    """For which agent, and in which dialect, requests are wanted."""

    agent: str | None = None
    dialect: DialectName | None = None


class HeadTold(View, frozen=True, kw_only=True):
    """How an answer begins, after so many milliseconds."""

    status: int
    headers: list[tuple[str, str]]
    elapsed_ms: int


class FrameTold(View, frozen=True, kw_only=True):
    """A server-sent event, so many milliseconds after the one before, or after the request."""

    n: int
    at: str | None
    gap_ms: int
    id: str | None
    event: str | None
    data: str


class BodyTold(View, frozen=True, kw_only=True):
    """The body of an answer that is no stream."""

    text: str


class EndTold(View, frozen=True, kw_only=True):
    """How an answer ended: `truncated` is what cut it short, `problem` why there is none."""

    bytes: int
    frames: int
    elapsed_ms: int
    truncated: str | None
    problem: str | None


_TOLD = {HeadTold: "head", FrameTold: "frame", BodyTold: "body", EndTold: "end"}

_inspection = msgspec.json.Decoder(Inspection)


class InspectorApi:
    """The handlers."""

    def __init__(self, house: House) -> None:
        """Answer about `house`."""
        self._house = house

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (
            Route("GET", "/api/inspect/templates", self._templates, finds=Wanted, gives=TemplateList),
            Route("POST", "/api/inspect", self._inspect, noted="Inspect", takes=Inspection),
        )

    async def _templates(self, asked: Asked) -> Reply:
        """List requests to begin with."""
        wanted, spoken = asked.found(Wanted), self._house.served.dialects
        if wanted.agent is not None:
            self._check_agent(wanted.agent, asked.known)
        dialects = spoken if wanted.dialect is None else spoken & {wanted.dialect}
        return Reply(body=TemplateList(items=templates.templates(dialects), task_id=templates.TASK_ID))

    async def _inspect(self, asked: Asked) -> Reply:
        """Send a request, and tell what comes back as server-sent events: head, frame or body, end."""
        wish = codec.decode(asked.body, _inspection)
        _check(wish)
        exchange = self._here(wish, asked) if wish.agent is not None else self._elsewhere(wish, asked.known)
        about = wish.agent or "/".join(re.split("[/?]", wish.url or "")[:3])  # of an address only whose it is
        return Reply(stream=self._told(exchange), headers=HEADERS, about=about[:MAX_ABOUT])

    # --- to whom it goes ----------------------------------------------------------------------------------------------

    def _here(self, wish: Inspection, asked: Asked) -> Exchange:
        assert wish.agent is not None
        self._check_agent(wish.agent, asked.known)
        body = (wish.body or "").encode()
        sent = [*_own(wish).items(), ("content-length", str(len(body)))]
        site = self._house.served.site_as(wish.agent, asked.known)
        return inside(site, scope_of(wish.method, wish.path, sent, asked.scope), body)

    def _elsewhere(self, wish: Inspection, caller: Caller) -> Exchange:
        if caller.roles is not None and not (ADMIN in caller.roles and caller.is_of_server):
            raise PermissionDenied("Only those who run this server may look into others through it")
        url = wish.url or ""
        body = None if wish.body is None else wish.body.encode()
        return outside(self._house.served.outbound(url), wish.method, url, _own(wish), body)

    def _check_agent(self, slug: str, caller: Caller) -> None:
        agent, sight = self._house.agents.get(slug), self._house.sight
        shown = (Operation.SEND, Operation.LIST)
        if agent is None or not any(sight.may(caller, agent.profile.name, operation) for operation in shown):
            raise TaskNotFound("There is no such agent")

    # --- what comes back ----------------------------------------------------------------------------------------------

    async def _told(self, exchange: Exchange) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        answer = Answering(began=loop.time(), began_ms=self._house.now_ms())
        until = answer.began + MAX_SECONDS
        async with happening(exchange) as said:
            while not answer.is_over:
                wait = min(KEEP_ALIVE_SECONDS, until - loop.time())
                try:
                    async with asyncio.timeout(max(0.0, wait)):
                        news = await said.get()
                except TimeoutError:
                    if loop.time() < until:
                        yield KEEP_ALIVE
                        continue
                    answer.cut("time")
                    news = Said(loop.time(), End())
                for told in answer.hear(news):
                    yield sse.encode(Frame(event=_TOLD[type(told)], data=codec.encode(told)))


Told = HeadTold | FrameTold | BodyTold | EndTold


class Answering:
    """An answer as far as it has come, and what is told of it; it does no I/O and has no clock."""

    def __init__(self, *, began: float, began_ms: int) -> None:
        """Count from when the request was sent, on the loop's clock and on that of the day."""
        self.began = self._last = began
        self._began_ms = began_ms
        self._frames: Decoder | None = None
        self._body = bytearray()
        self._bytes = self._count = 0
        self._truncated: str | None = None
        self._problem: str | None = None
        self.is_over = False

    def cut(self, by: str) -> None:
        """Hear no more, because of a limit."""
        self._truncated = by

    def hear(self, said: Said) -> Iterator[Told]:
        """Yield what is to be told of what came."""
        match said.what:
            case Head() as head:
                is_stream = ("content-type", "text/event-stream") in (
                    (name, value.partition(";")[0].strip().lower()) for name, value in head.headers
                )
                self._frames = Decoder(max_bytes=MAX_BYTES) if is_stream else None
                yield HeadTold(status=head.status, headers=redacted(head.headers), elapsed_ms=self._ms(said.at))
            case bytes() as piece:
                room = MAX_BYTES - self._bytes
                self._bytes += min(len(piece), room)
                yield from self._take(piece[:room], said.at)
                if len(piece) > room:
                    self.cut("size")
            case End(problem):
                self._problem = problem
                self.is_over = True
        if self._truncated is not None:
            self.is_over = True
        if self.is_over:
            yield from self._end(said.at)

    def _take(self, piece: bytes, at: float) -> Iterator[Told]:
        if self._frames is None:
            self._body += piece
            return
        try:
            frames = self._frames.feed(piece)
        except FrameTooLarge as error:
            frames = error.frames
            self.cut("size")
        for frame in frames:
            if self._count == MAX_FRAMES:
                self.cut("frames")
                return
            self._count += 1
            yield self._frame(frame, at)
            self._last = at

    def _frame(self, frame: Frame, at: float) -> FrameTold:
        return FrameTold(
            n=self._count,
            at=time_of(self._began_ms + self._ms(at)),
            gap_ms=round((at - self._last) * 1000),
            id=frame.id,
            event=frame.event,
            data=frame.data.decode(errors="replace"),
        )

    def _end(self, at: float) -> Iterator[Told]:
        if self._frames is None and self._body:
            yield BodyTold(text=self._body.decode(errors="replace"))
        yield EndTold(
            bytes=self._bytes,
            frames=self._count,
            elapsed_ms=self._ms(at),
            truncated=self._truncated,
            problem=self._problem,
        )

    def _ms(self, at: float) -> int:
        return round((at - self.began) * 1000)


def redacted(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers without what says who somebody is."""
    return [(name, NOT_SHOWN if name.lower() in CREDENTIALS else value) for name, value in headers]


def _own(wish: Inspection) -> dict[str, str]:
    """Return the headers that are somebody's own to write."""
    return {name: value for name, value in wish.headers.items() if name.lower() not in _FRAMING}


def _check(wish: Inspection) -> None:
    if (wish.agent is None) == (wish.url is None):
        raise InvalidParams("A request goes to an agent here or to a URL elsewhere: name one of them")
    if wish.agent is not None and not _TARGET.fullmatch(wish.path):
        raise codec.invalid_field("path", "It begins with a slash, and what is no letter, digit or sign is encoded")
    for name, value in wish.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise codec.invalid_field(f"headers.{name[:40]}", "It is no header that HTTP could carry")
        if wish.agent is not None and name.lower() in CREDENTIALS:
            text = "What is sent to an agent here is sent by you, as you are signed in: leave out other credentials"
            raise codec.invalid_field(f"headers.{name}", text)
