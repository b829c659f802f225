"""One call of a model over HTTP: its answer piece by piece, and what went wrong as a sentence that a caller may read.

A call is repeated only while nothing of its answer has come. It knows no tasks; what is sent and read is `apis`, the
connections are the client's own.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from accord.agents.chat.apis import APIS, Malformed, Piece
from accord.agents.chat.options import ChatOptions
from accord.client.links.answers import retry_after
from accord.client.retries import Retries
from accord.client.wire import Opened, Outgoing, TimedOut, Transport, Unreachable
from accord.engine.context import Failed
from accord.errors import AgentUnavailable
from accord.model import Message

PASSING = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses that may be gone a moment later; 529 is what some servers of models say when they have too much to do."""

UNTRUSTED = frozenset({401, 403})

MAX_SENTENCE = 300
"""Characters of what the server of a model says about an error."""

WHOLE = "application/json"
STREAMED = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"})
ACCEPTED = f"text/event-stream, application/x-ndjson, {WHOLE}"

UNSTATED = frozenset({"", "text/plain", "application/octet-stream"})
"""What servers say of a stream whose type they do not know."""

log = logging.getLogger("accord.agents.chat")

Sleep = Callable[[float], Awaitable[None]]


class NoAnswer(Exception):
    """What came is not even of a kind that the API sends: the page of a proxy, or of whoever else is at the address."""


class Call:
    """Calls one model."""

    def __init__(
        self, options: ChatOptions, transport: Transport, about: Mapping[str, str], sleep: Sleep = asyncio.sleep
    ) -> None:
        """Call the model of `options` over `transport`; `about` is what the log says of each call."""
        self._options = options
        self._api = APIS[options.api]
        self._transport = transport
        self._about = about
        self._sleep = sleep
        self._retries = Retries(attempts=options.retries)

    async def pieces(self, said: Sequence[Message]) -> AsyncGenerator[Piece, None]:
        """Yield the answer as it comes, or raise `Failed`; whoever leaves early closes the connection."""
        seconds = self._options.answer_seconds
        until = asyncio.get_running_loop().time() + seconds
        async with aclosing(self._tried(self._request(said))) as pieces:
            while True:
                try:
                    async with asyncio.timeout_at(until):  # while it is waited for, not while whoever waits is busy
                        piece = await anext(pieces, None)
                except TimeoutError as error:
                    self._note("not done in time", f"{seconds:g} seconds")
                    raise Failed(f"The model was not done after {seconds:g} seconds") from error
                if piece is None:
                    return
                yield piece

    async def _tried(self, request: Outgoing) -> AsyncGenerator[Piece, None]:
        """Yield an answer, of which nothing has come when it is asked for again."""
        attempt, has_begun = 0, False
        while True:
            try:
                async with aclosing(self._once(request)) as pieces:
                    async for piece in pieces:
                        has_begun = True
                        yield piece
                return
            except AgentUnavailable as error:
                delay = self._retries.delay(attempt, error)
                if has_begun or attempt >= self._retries.attempts or delay is None:
                    raise Failed(error.message) from error
            attempt += 1
            await self._sleep(delay)

    def _request(self, said: Sequence[Message]) -> Outgoing:
        options = self._options
        key = (("Authorization", f"Bearer {options.api_key}"),) if options.api_key else ()
        return Outgoing(
            method="POST",
            url=self._api.address(options.base_url),
            headers=(("Content-Type", "application/json"), ("Accept", ACCEPTED), *key, *options.headers.items()),
            body=msgspec.json.encode(self._api.request(options, said)),
            seconds=options.start_seconds,
            streams=True,
        )

    async def _once(self, request: Outgoing) -> AsyncGenerator[Piece, None]:
        """Send a request and yield its answer; raises AgentUnavailable for what may be gone a moment later."""
        try:
            opened = await self._transport.open(request)
            if opened.status != 200:
                raise self._refusal(opened, await opened.read())
            async with aclosing(self._read(opened)) as pieces:
                async for piece in pieces:
                    if piece.error is not None:
                        raise Failed(f"The model failed: {self._shown(piece.error)}")
                    yield piece
        except TimedOut as error:
            self._note("no answer in time", error.reason)
            raise Failed("The model does not answer in time") from error
        except Unreachable as error:
            self._note("unreachable", error.reason)
            raise AgentUnavailable("The model cannot be reached, or its answer broke off") from error
        except NoAnswer as error:
            self._note("another kind of answer", f"{error}: is base_url the address of the API?")
            raise Failed(f"The model's server answered with {error}, which is no answer of its API") from error
        except Malformed as error:
            self._note("malformed answer", str(error))
            raise Failed("The model's server answered with something that is not understood") from error

    async def _read(self, opened: Opened) -> AsyncGenerator[Piece, None]:
        form = opened.headers.get("content-type", "").partition(";")[0].strip().lower()
        if form == WHOLE:
            yield self._api.read(await opened.read())
            return
        if form not in STREAMED | UNSTATED:
            raise NoAnswer(form)
        reader, is_first = self._api.reader(), form in UNSTATED
        async with aclosing(opened.pieces()) as chunks:  # type: ignore[type-var]  # a generator in every transport
            async for chunk in chunks:
                if is_first and chunk.lstrip().startswith(b"<"):
                    raise NoAnswer("a page")
                is_first = False
                for piece in reader.feed(chunk):
                    yield piece
        if not reader.is_done:
            raise Unreachable("The stream ended before the answer did", was_sent=True)

    def _refusal(self, opened: Opened, body: bytes) -> Exception:
        """Return what an answer says that is none."""
        status = opened.status
        sentence = self._shown(self._sentence(body))
        self._note(f"HTTP {status}", sentence)
        if status in UNTRUSTED:
            return Failed("The model's server does not accept the agent's credentials")
        if status not in PASSING:
            return Failed(f"The model refuses the request (HTTP {status}){': ' + sentence if sentence else ''}")
        wanted = retry_after(opened.headers)
        later = f": it may be asked again in {wanted} seconds" if wanted else ""
        reason = "The model has too much to do" if status == 429 else f"The model's server fails (HTTP {status})"
        return AgentUnavailable(f"{reason}{later}", retry_after=wanted)

    def _sentence(self, body: bytes) -> str:
        try:
            return self._api.read(body).error or ""
        except Malformed:
            return ""

    def _shown(self, text: str) -> str:
        """Return a text of the server's that may be shown: not long, and without our secrets."""
        for secret in self._options.secrets:
            text = text.replace(secret, "***")
        return text[:MAX_SENTENCE]

    def _note(self, event: str, reason: str) -> None:
        extra = {**self._about, "model": self._options.model, "reason": self._shown(reason)}
        log.warning("model call: %s", event, extra=extra)
