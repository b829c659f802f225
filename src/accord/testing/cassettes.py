"""Recorded conversations with a remote agent, played back without it."""

import base64
import difflib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct
from multidict import CIMultiDict

from accord.client.connection import CARDS
from accord.outbound import HttpRequest, HttpTransport, OpenReply, open_transport
from accord.protocol.extensions import ROUTE

FORMAT = "accord cassette 1"
HIDDEN = "***"
NEW = "<new>"
"""Replaces an identifier that the client generates, and a route, whose server id is random."""

KEPT_HEADERS = frozenset({"a2a-extensions", "a2a-version", "accept", "content-type", "etag", "last-event-id"})
"""Headers that are recorded. Others may be secrets, and headers are not compared."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SECRET = re.compile(r"token|secret|password|credentials|authorization|api_?key|signature|assertion", re.IGNORECASE)
_FORM = "application/x-www-form-urlencoded"


class UnknownRequest(AssertionError):
    """A request that was not recorded."""


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """A request without secrets, with `<new>` for identifiers that the client generated."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: Any = None

    def compared(self) -> str:
        """Return the text by which requests are compared."""
        stated = {"method": self.method, "url": self.url, "body": self.body}
        return json.dumps(stated, indent=2, sort_keys=True, ensure_ascii=False)


class RecordedResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer without secrets: its body, or the chunks of a stream."""

    status: int
    headers: dict[str, str] = {}
    body: Any = None
    pieces: list[str] | None = None


class RecordedExchange(Struct, frozen=True, kw_only=True):
    """A request and its answer."""

    request: RecordedRequest
    reply: RecordedResponse


class CassetteFile(Struct, frozen=True, kw_only=True):
    """The content of a cassette file."""

    format: str = FORMAT
    exchanges: list[RecordedExchange] = []


# --- recording --------------------------------------------------------------------------------------------------------


class RecordingTransport:
    """A transport that records the exchanges of another one."""

    def __init__(self, path: Path, transport: HttpTransport) -> None:
        self._path = path
        self._transport = transport
        self._exchanges: list[RecordedExchange] = []
        self._ids: set[str] = set()

    async def open(self, request: HttpRequest) -> "RecordingAnswer":
        """Send a request, and record the parts of its answer that are read."""
        sent = recorded_request(request, self._ids)
        return RecordingAnswer(await self._transport.open(request), sent, self._exchanges, self._ids)

    async def close(self) -> None:
        """Write the file."""
        await self._transport.close()
        text = msgspec.json.format(msgspec.json.encode(CassetteFile(exchanges=self._exchanges)), indent=2)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(text + b"\n")


class RecordingAnswer:
    """An answer that is recorded while it is read."""

    def __init__(
        self, opened: OpenReply, request: RecordedRequest, exchanges: list[RecordedExchange], ids: set[str]
    ) -> None:
        """Add the exchange to `exchanges` once `opened` was read or closed. Its identifiers are added to `ids`."""
        self.status, self.headers = opened.status, opened.headers
        self._opened = opened
        self._request = request
        self._exchanges: list[RecordedExchange] | None = exchanges
        self._ids = ids

    async def read(self) -> bytes:
        """Read the whole body."""
        body = await self._opened.read()
        told = _decoded(body, self.headers.get("content-type", ""))
        self._ids |= _ids_in(b"" if told is None else _encoded(told))
        self._note(body=told)
        return body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives. The recorded chunks end at line breaks, so that each is text."""
        found: list[str] = []
        rest = b""
        try:
            async for piece in self._opened.pieces():
                whole, newline, left = (rest + piece).rpartition(b"\n")
                rest = left
                if newline:
                    found.append(_without_secrets((whole + newline).decode(errors="replace")))
                    self._ids |= _ids_in(found[-1].encode())
                yield piece
        finally:
            if rest:
                found.append(_without_secrets(rest.decode(errors="replace")))
            self._note(pieces=found)

    async def close(self) -> None:
        """Release the connection."""
        await self._opened.close()
        self._note()

    def _note(self, **told: Any) -> None:
        exchanges, self._exchanges = self._exchanges, None
        if exchanges is not None:
            reply = RecordedResponse(status=self.status, headers=_headers(self.headers.items()), **told)
            exchanges.append(RecordedExchange(request=self._request, reply=reply))


# --- playing ----------------------------------------------------------------------------------------------------------


class PlaybackTransport:
    """A transport that answers from a file: each exchange once, equal ones in their order."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: record it with record=True, or --accord-record")
        tape = msgspec.json.decode(path.read_bytes(), type=CassetteFile)
        if tape.format != FORMAT:
            raise ValueError(f"{path} is no cassette of this version, but {tape.format}")
        self._path = path
        self.unplayed = tape.exchanges
        """Recorded exchanges that were not requested yet."""
        self._ids: set[str] = set()

    async def open(self, request: HttpRequest) -> "PlaybackAnswer":
        """Return the recorded answer, or raise UnknownRequest."""
        sent = recorded_request(request, self._ids)
        for place, one in enumerate(self.unplayed):
            if one.request.compared() == sent.compared():
                del self.unplayed[place]
                return PlaybackAnswer(one.reply, self._ids)
        raise UnknownRequest(self._nearest(sent))

    def _nearest(self, sent: RecordedRequest) -> str:
        wanted = sent.compared()
        said = f"{sent.method} {sent.url} is not in {self._path}"
        if not self.unplayed:
            return f"{said}: all that was recorded has been played\n{wanted}"
        known = [one.request.compared() for one in self.unplayed]
        near = max(known, key=lambda text: difflib.SequenceMatcher(None, text, wanted).ratio())
        shown = difflib.unified_diff(near.splitlines(), wanted.splitlines(), "recorded", "sent", lineterm="")
        return "\n".join([f"{said}; the nearest of {len(known)} is:", *shown])

    async def close(self) -> None:
        """Do nothing, because no connection exists."""


class PlaybackAnswer:
    """A recorded answer."""

    def __init__(self, reply: RecordedResponse, ids: set[str]) -> None:
        """Return a recorded answer. Its identifiers are added to `ids` when they are read, as during recording."""
        self.status = reply.status
        self.headers: Mapping[str, str] = CIMultiDict(reply.headers)
        body = [] if reply.body is None else [_encoded(reply.body)]
        self._pieces = body if reply.pieces is None else [piece.encode() for piece in reply.pieces]
        self._ids = ids

    async def read(self) -> bytes:
        """Return the whole body."""
        body = b"".join(self._pieces)
        self._ids |= _ids_in(body)
        return body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in the chunks that were received."""
        for piece in self._pieces:
            self._ids |= _ids_in(piece)
            yield piece

    async def close(self) -> None:
        """Do nothing."""


@asynccontextmanager
async def cassette(
    path: str | Path, *, record: bool = False, transport: str | HttpTransport = "aiohttp"
) -> AsyncIterator["RecordingTransport | PlaybackTransport"]:
    """Yield a transport that plays a file, or with `record` records it over another `transport`.

    The card cache is cleared, so that cards are requested and recorded.
    """
    CARDS.clear()
    tape = RecordingTransport(Path(path), open_transport(transport)) if record else PlaybackTransport(Path(path))
    try:
        yield tape
    finally:
        CARDS.clear()
        await tape.close()


# --- recorded form ----------------------------------------------------------------------------------------------------


def recorded_request(request: HttpRequest, known: set[str]) -> RecordedRequest:
    """Return a request in its recorded form. `known` are identifiers that came from the agent."""
    headers = _headers(request.headers)
    body = _decoded(request.body or b"", headers.get("content-type", ""))
    return RecordedRequest(
        method=request.method, url=_renewed(_url(request.url), known), headers=headers, body=_renewed(body, known)
    )


def _renewed(value: Any, known: set[str]) -> Any:
    def renewed(name: str, one: Any) -> Any:
        if name == ROUTE:
            return NEW
        return _ID.sub(lambda found: found[0] if found[0] in known else NEW, one) if isinstance(one, str) else one

    return _mapped(renewed, value)


def _mapped(change: Callable[[str, Any], Any], value: Any, name: str = "") -> Any:
    """Return a JSON value with `change(name, value)` of each member. An item of a list has no name."""
    value = change(name, value)
    if isinstance(value, dict):
        return {key: _mapped(change, one, key) for key, one in value.items()}
    return [_mapped(change, one) for one in value] if isinstance(value, list) else value


def _ids_in(data: bytes) -> set[str]:
    return {found[0] for found in _ID.finditer(data.decode(errors="replace"))}


def _headers(stated: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in stated if name.lower() in KEPT_HEADERS}


def _url(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query=_query(parts.query)))


def _query(text: str) -> str:
    given = parse_qsl(text, keep_blank_values=True)
    return urlencode([(name, HIDDEN if _SECRET.search(name) else value) for name, value in given])


def _decoded(body: bytes, kind: str) -> Any:
    """Return a body in its recorded form: JSON, text, or bytes in base64."""
    if not body:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    if kind.startswith(_FORM):
        return {"text": _query(text)}
    try:
        return {"json": _scrubbed(json.loads(text))}
    except ValueError:
        return {"text": _without_secrets(text)}


def _encoded(body: dict[str, Any]) -> bytes:
    if "base64" in body:
        return base64.b64decode(body["base64"])
    return str(body["text"]).encode() if "text" in body else json.dumps(body["json"]).encode()


def _scrubbed(value: Any) -> Any:
    """Return a JSON value with the values of secret names masked."""
    return _mapped(lambda name, one: HIDDEN if isinstance(one, str) and one and _SECRET.search(name) else one, value)


def _without_secrets(text: str) -> str:
    """Return lines, such as events of a stream, with the secrets in their JSON masked."""
    return "".join(_line(line) for line in text.splitlines(keepends=True))


def _line(line: str) -> str:
    name, colon, rest = line.partition(":")
    if name != "data" or not colon or not _SECRET.search(rest):
        return line
    try:
        return f"data: {json.dumps(_scrubbed(json.loads(rest)))}\n"
    except ValueError:
        return line
