"""A chat model as an agent: streamed answer, counted usage.

    [agents.helper]
    type = "chat"
    base_url = "http://localhost:11434/v1"
    model = "llama3.2"

It has no tools and asks no questions. A lost execution restarts. A call is retried only before the first piece of its
answer. `chat_apis` has the wire formats.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from accord.agents.chat_apis import APIS, AnswerPiece, ChatOptions, MalformedAnswer
from accord.agents.messages import append_answer, conversation_history, finish_answer
from accord.api import TEXT, AgentEnvironment, Context, Failed, Rejected
from accord.api.agent_types import JSON, AgentArguments, AgentType, profile
from accord.client.retries import Retries
from accord.errors import AgentUnavailable
from accord.model import Message
from accord.outbound import (
    HttpRequest,
    HttpTransport,
    OpenReply,
    TimedOut,
    Unreachable,
    open_transport,
    read_retry_after,
)

__all__ = ["AGENT_TYPE", "ChatAgent", "ChatOptions"]


TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that are retried; 529 is the "overloaded" status of some model servers."""

CREDENTIAL_STATUSES = frozenset({401, 403})

MAX_SENTENCE = 300
"""Maximum number of characters of a model server's error message."""

JSON_TYPE = "application/json"
STREAM_TYPES = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"})
ACCEPTED = f"text/event-stream, application/x-ndjson, {JSON_TYPE}"

UNKNOWN_TYPES = frozenset({"", "text/plain", "application/octet-stream"})
"""Media types that servers send for a stream of unstated type."""

log = logging.getLogger("accord.agents.chat")

Sleep = Callable[[float], Awaitable[None]]


class UnexpectedContentType(Exception):
    """The reply has a media type that the API never sends, such as the error page of a proxy."""


class ModelCall:
    """Client for one model."""

    def __init__(
        self, options: ChatOptions, transport: HttpTransport, log_extra: Mapping[str, str], sleep: Sleep = asyncio.sleep
    ) -> None:
        """Call the model of `options` over `transport`; `log_extra` is added to each log record."""
        self._options = options
        self._api = APIS[options.api]
        self._transport = transport
        self._log_extra = log_extra
        self._sleep = sleep
        self._retries = Retries(attempts=options.retries)

    async def pieces(self, messages: Sequence[Message]) -> AsyncGenerator[AnswerPiece, None]:
        """Yield the pieces of the answer, or raise `Failed`. Closing the generator closes the connection."""
        seconds = self._options.answer_seconds
        until = asyncio.get_running_loop().time() + seconds
        async with aclosing(self._retried(self._request(messages))) as pieces:
            while True:
                try:
                    async with asyncio.timeout_at(until):  # while this waits, not while its consumer is busy
                        piece = await anext(pieces, None)
                except TimeoutError as error:
                    self._log_failure("not done in time", f"{seconds:g} seconds")
                    raise Failed(f"The model was not done after {seconds:g} seconds") from error
                if piece is None:
                    return
                yield piece

    async def answer(self, ctx: Context, messages: Sequence[Message]) -> AnswerPiece:
        """Stream the answer into the task, and return it as one piece."""
        whole, parts = AnswerPiece(), list[AnswerPiece]()
        async with aclosing(self.pieces(messages)) as pieces:
            async for piece in pieces:
                for chunk in (piece.text, *piece.files):
                    await append_answer(ctx, chunk)
                parts.append(piece)
                if piece.input_tokens or piece.output_tokens:  # some servers count with every piece
                    whole = replace(whole, input_tokens=piece.input_tokens, output_tokens=piece.output_tokens)
                whole = replace(whole, ending=piece.ending or whole.ending)
        return replace(
            whole,
            text="".join(piece.text for piece in parts),
            refusal="".join(piece.refusal for piece in parts),
            files=tuple(file for piece in parts for file in piece.files),
            calls=tuple(call for piece in parts for call in piece.calls),
        )

    async def report_usage(self, ctx: Context, answer: AnswerPiece) -> None:
        """Report the tokens and the cost of an answer, if its server counts them."""
        tokens, answered = answer.input_tokens, answer.output_tokens
        if tokens or answered:
            cost = (tokens * self._options.input_price + answered * self._options.output_price) / MILLION
            await ctx.usage(input_tokens=tokens, output_tokens=answered, cost=cost, model=self._options.model)

    async def _retried(self, request: HttpRequest) -> AsyncGenerator[AnswerPiece, None]:
        """Yield an answer; retry until its first piece has arrived."""
        attempt, has_begun = 0, False
        while True:
            try:
                async with aclosing(self._attempt(request)) as pieces:
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

    def _request(self, messages: Sequence[Message]) -> HttpRequest:
        options = self._options
        key = (("Authorization", f"Bearer {options.api_key}"),) if options.api_key else ()
        return HttpRequest(
            method="POST",
            url=self._api.url(options.base_url),
            headers=(("Content-Type", "application/json"), ("Accept", ACCEPTED), *key, *options.headers.items()),
            body=msgspec.json.encode(self._api.request(options, messages)),
            seconds=options.start_seconds,
            streams=True,
        )

    async def _attempt(self, request: HttpRequest) -> AsyncGenerator[AnswerPiece, None]:
        """Send a request and yield its answer; raises AgentUnavailable for an error that may be temporary."""
        try:
            opened = await self._transport.open(request)
            if opened.status != 200:
                raise self._refusal(opened, await opened.read())
            async with aclosing(self._read(opened)) as pieces:
                async for piece in pieces:
                    if piece.error is not None:
                        raise Failed(f"The model failed: {self._redacted(piece.error)}")
                    yield piece
        except TimedOut as error:
            self._log_failure("no answer in time", error.reason)
            raise Failed("The model does not answer in time") from error
        except Unreachable as error:
            self._log_failure("unreachable", error.reason)
            raise AgentUnavailable("The model cannot be reached, or its answer broke off") from error
        except UnexpectedContentType as error:
            self._log_failure("another kind of answer", f"{error}: is base_url the address of the API?")
            raise Failed(f"The model server returned {error}, which is not a response of its API") from error
        except MalformedAnswer as error:
            self._log_failure("malformed answer", str(error))
            raise Failed("The model server returned a malformed response") from error

    async def _read(self, opened: OpenReply) -> AsyncGenerator[AnswerPiece, None]:
        form = opened.headers.get("content-type", "").partition(";")[0].strip().lower()
        if form == JSON_TYPE:
            yield self._api.read(await opened.read())
            return
        if form not in STREAM_TYPES | UNKNOWN_TYPES:
            raise UnexpectedContentType(form)
        reader, is_first = self._api.reader(), form in UNKNOWN_TYPES
        async with aclosing(opened.pieces()) as chunks:  # type: ignore[type-var]  # a generator in every transport
            async for chunk in chunks:
                if is_first and chunk.lstrip().startswith(b"<"):
                    raise UnexpectedContentType("a page")
                is_first = False
                for piece in reader.feed(chunk):
                    yield piece
        if not reader.is_done:
            raise Unreachable("The stream ended before the answer did", was_sent=True)

    def _refusal(self, opened: OpenReply, body: bytes) -> Exception:
        """Return the exception for a reply with an error status."""
        status = opened.status
        try:
            sentence = self._redacted(self._api.read(body).error or "")
        except MalformedAnswer:
            sentence = ""
        self._log_failure(f"HTTP {status}", sentence)
        if status in CREDENTIAL_STATUSES:
            return Failed("The model's server does not accept the agent's credentials")
        if status not in TRANSIENT_STATUSES:
            return Failed(f"The model refuses the request (HTTP {status}){': ' + sentence if sentence else ''}")
        retry_after = read_retry_after(opened.headers)
        hint = f": it may be asked again in {retry_after} seconds" if retry_after else ""
        reason = "The model has too much to do" if status == 429 else f"The model's server fails (HTTP {status})"
        return AgentUnavailable(f"{reason}{hint}", retry_after=retry_after)

    def _redacted(self, text: str) -> str:
        """Return a text from the server, shortened and without our secrets."""
        for secret in self._options.secrets:
            text = text.replace(secret, "***")
        return text[:MAX_SENTENCE]

    def _log_failure(self, event: str, reason: str) -> None:
        extra = {**self._log_extra, "model": self._options.model, "failure": event, "reason": self._redacted(reason)}
        log.warning("model.call_failed", extra=extra)


INPUT_MODES = {"openai": (TEXT, JSON, "*/*"), "ollama": (TEXT, JSON, "text/*", "image/*")}
"""API -> media types of its requests. Which of them a model accepts, only its server can determine."""

CUT_OFF, WITHHELD = "length", "content_filter"
"""Finish reasons that are reported to the caller."""

MILLION = 1_000_000


class ChatAgent:
    """A model server and one of its models."""

    def __init__(self, given: AgentArguments, *, sleep: Sleep = asyncio.sleep) -> None:
        options: ChatOptions = given.options
        self.profile = profile(
            given,
            name=options.model,
            description=f"Talks as the model {options.model}.",
            input_modes=INPUT_MODES[options.api],
            output_modes=(TEXT, "image/*"),
        )
        self._options = options
        self._transport = open_transport("aiohttp", silent_seconds=options.silent_seconds)
        self._sleep = sleep

    async def start(self, node: AgentEnvironment) -> None:
        """Do nothing; connections are opened on demand."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def run(self, ctx: Context) -> None:
        """Answer the latest message, with the earlier messages as history."""
        messages = await conversation_history(ctx, self._options.history + 1)
        call = ModelCall(self._options, self._transport, {"task_id": ctx.task_id}, self._sleep)
        answer = await call.answer(ctx, messages)
        await finish_answer(ctx)
        await call.report_usage(ctx, answer)
        has_content = bool(answer.text or answer.files)
        if answer.ending == WITHHELD:
            raise Failed("The provider of the model withholds the rest of the answer")
        if answer.refusal and not has_content:
            raise Rejected(answer.refusal)
        if not has_content:
            raise Failed("The model returned no answer")
        if answer.ending == CUT_OFF:
            await ctx.status("The answer is cut off: it has reached the longest that it may be")


AGENT_TYPE = AgentType(name="chat", options=ChatOptions, make=ChatAgent)
