"""Chat APIs of model servers: options, requests and streamed answers.

    OpenAI   POST /chat/completions   events, each with a piece of a choice, the last ones with a reason and the usage
    Ollama   POST /api/chat           lines of JSON, each with a piece of a message, the last one with both

This module reads and writes values and bytes, and sends nothing. It also reads servers that answer with one whole
value.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from accord.agents.messages import LineBuffer, base64_of, media_kind, openai_content, prompt, readable_text
from accord.api import Rejected
from accord.api.agent_types import Options, Seconds
from accord.model import Message, Part, Role
from accord.protocol.sse import Decoder, FrameTooLarge

Count = Annotated[int, Meta(ge=0)]
Price = Annotated[float, Meta(ge=0)]


class ChatOptions(Options, frozen=True, kw_only=True):
    """A model and its server; `base_url` has the form that OpenAI's libraries use.

    `extra` contains further members of each request, as the API names them. Each request includes up to `history`
    earlier messages. `input_price` and `output_price` are per million tokens, and determine the cost.
    """

    SECRET = frozenset({"api_key", "headers"})

    model: str
    base_url: str = "http://localhost:11434/v1"
    api: Literal["openai", "ollama"] = "openai"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    system_prompt: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    keep_alive: str | int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    history: Count = 100
    input_price: Price = 0.0
    output_price: Price = 0.0
    retries: Count = 3
    start_seconds: Seconds = 300.0
    """Maximum time until the answer starts, in seconds. A server may have to load the model first."""
    silent_seconds: Seconds = 120.0
    """Maximum time between two pieces of the answer, in seconds."""
    answer_seconds: Seconds = 1800.0
    """Maximum time for the whole answer with all retries, in seconds. The longest answer of a slow machine fits."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.keep_alive is not None and self.api != "ollama":
            raise ValueError('`keep_alive` is of Ollama\'s own API: set api = "ollama"')

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return tuple(secret for secret in (self.api_key, *self.headers.values()) if secret)


MAX_PIECE = 16 * 1024 * 1024
"""Maximum size of one piece of an answer, in bytes; a picture fits."""

DONE = b"[DONE]"

_ROLES = {Role.USER: "user", Role.AGENT: "assistant"}

T = TypeVar("T")

Split = Callable[[bytes], Iterable[bytes]]
"""Returns the values that a chunk of bytes completes."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A piece of a tool call: its index `at`, its name, and a part of its arguments as JSON."""

    at: int
    name: str = ""
    arguments: str = ""


class AnswerPiece(Struct, frozen=True, kw_only=True):
    """One piece of an answer.

    `ending` is the model's finish reason. `calls` is used by agents that offer tools.
    """

    text: str = ""
    refusal: str = ""
    files: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    ending: str | None = None
    error: str | None = None


class MalformedAnswer(ValueError):
    """The reply does not have the format of the API."""


class ChatStreamReader:
    """Reads a streamed answer from chunks of bytes, split at any place."""

    def __init__(self, split: Split, read: Callable[[bytes], AnswerPiece]) -> None:
        """Split bytes into values with `split`, and parse each with `read`."""
        self.is_done = False
        self._split = split
        self._read = read

    def feed(self, chunk: bytes) -> Iterator[AnswerPiece]:
        """Yield the pieces that a chunk completes."""
        for value in self._split(chunk):
            if value.strip() == DONE:
                self.is_done = True
                continue
            piece = self._read(value)
            self.is_done = self.is_done or piece.ending is not None
            yield piece


# --- OpenAI -----------------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _ToolCall(Struct):
    index: int | None = None
    function: _Function | None = None


class _ApiMessage(Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    images: list[Any] | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _ApiMessage | None = None
    message: _ApiMessage | None = None
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


def _openai_url(base_url: str) -> str:
    return f"{base_url.rstrip('/')}/chat/completions"


def _openai_request(options: ChatOptions, history: Sequence[Message]) -> dict[str, Any]:
    messages = [
        # Models accept files from callers only.
        {
            "role": _ROLES[message.role],
            "content": (openai_content if message.role is Role.USER else prompt)(message.parts),
        }
        for message in history
    ]
    body: dict[str, Any] = {
        "model": options.model,
        "messages": _with_system(options, messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    limits = _without_none(temperature=options.temperature, max_tokens=options.max_output_tokens)
    return _merged(body | limits, options.extra)


def _openai_splitter() -> Split:
    decoder = Decoder(max_bytes=MAX_PIECE)

    def events(chunk: bytes) -> list[bytes]:
        try:
            return [frame.data for frame in decoder.feed(chunk) if frame.data]
        except FrameTooLarge as error:
            raise MalformedAnswer(str(error)) from error

    return events


def _openai_piece(value: bytes) -> AnswerPiece:
    answer = _decoded(value, _Completion)
    choice = answer.choices[0] if answer.choices else _Choice()
    message, usage = choice.delta or choice.message or _ApiMessage(), answer.usage or _Usage()
    return AnswerPiece(
        text=_text(message.content),
        refusal=message.refusal or "",
        files=tuple(_picture(image) for image in message.images or ()),
        calls=tuple(_call(call, at) for at, call in enumerate(message.tool_calls or ())),
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        ending=choice.finish_reason,
        error=_error(answer.error),
    )


# --- Ollama -----------------------------------------------------------------------------------------------------------


class _Line(Struct):
    message: _ApiMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


def _ollama_url(base_url: str) -> str:
    """Return the URL of requests, also if the base URL is that of Ollama's OpenAI API."""
    return f"{base_url.rstrip('/').removesuffix('/v1').removesuffix('/api')}/api/chat"


def _ollama_request(options: ChatOptions, history: Sequence[Message]) -> dict[str, Any]:
    settings = _without_none(temperature=options.temperature, num_predict=options.max_output_tokens)
    body: dict[str, Any] = {
        "model": options.model,
        "messages": _with_system(options, [_ollama_message(message) for message in history]),
        "stream": True,
    }
    return _merged(body | _without_none(options=settings or None, keep_alive=options.keep_alive), options.extra)


def _ollama_piece(value: bytes) -> AnswerPiece:
    line = _decoded(value, _Line)
    message = line.message or _ApiMessage()
    return AnswerPiece(
        text=_text(message.content),
        files=tuple(_picture(image) for image in message.images or ()),
        input_tokens=line.prompt_eval_count or 0,
        output_tokens=line.eval_count or 0,
        ending=(line.done_reason or "stop") if line.done else None,
        error=_error(line.error),
    )


def _ollama_splitter() -> Split:
    buffer = LineBuffer()

    def lines(chunk: bytes) -> list[bytes]:
        if len(buffer.rest) + len(chunk) > MAX_PIECE:
            raise MalformedAnswer(f"a line exceeds the limit of {MAX_PIECE} bytes")
        return buffer.feed(chunk)

    return lines


def _ollama_message(source: Message) -> dict[str, Any]:
    pictures = [part for part in source.parts if part.raw is not None and media_kind(part) == "image"]
    others = [part for part in source.parts if part not in pictures]
    for part in others:
        if source.role is Role.USER and part.raw is not None and readable_text(part) is None:
            raise Rejected(f"The model takes text and pictures, and no {part.media_type or 'files of unknown type'}")
    message: dict[str, Any] = {"role": _ROLES[source.role], "content": prompt(others)}
    return message | _without_none(images=[base64_of(part) for part in pictures] or None)


class ModelApi(Struct, frozen=True):
    """One chat API: the URL and body of requests, and the splitter and parser of streamed answers."""

    url: Callable[[str], str]
    request: Callable[[ChatOptions, Sequence[Message]], dict[str, Any]]
    splitter: Callable[[], Split]
    read: Callable[[bytes], AnswerPiece]

    def reader(self) -> ChatStreamReader:
        """Return a reader for one streamed answer."""
        return ChatStreamReader(self.splitter(), self.read)


APIS: dict[str, ModelApi] = {
    "openai": ModelApi(_openai_url, _openai_request, _openai_splitter, _openai_piece),
    "ollama": ModelApi(_ollama_url, _ollama_request, _ollama_splitter, _ollama_piece),
}
"""Name in settings -> API."""


# --- both -------------------------------------------------------------------------------------------------------------


def _decoded(value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswer(str(error)) from error


def _with_system(options: ChatOptions, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "system", "content": options.system_prompt}, *messages] if options.system_prompt else messages


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _merged(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return a request with the API's own members added; objects of the same name are merged."""
    groups = {
        name: body[name] | extra[name]
        for name in body.keys() & extra.keys()
        if isinstance(body[name], dict) and isinstance(extra[name], dict)
    }
    return body | extra | groups


def _error(error: Any) -> str | None:
    """Return the error message from a text or an object with a `message`, or None."""
    if error is None:
        return None
    reason = error.get("message") if isinstance(error, dict) else error
    return reason if isinstance(reason, str) and reason else "no reason was given"


def _text(content: str | list[dict[str, Any]] | None) -> str:
    """Return a text, which some servers send as a list of pieces."""
    if isinstance(content, list):
        return "".join(str(piece.get("text") or "") for piece in content)
    return content or ""


def _call(call: _ToolCall, at: int) -> ToolCall:
    """Return a tool call. Some servers send its arguments as a JSON object instead of text."""
    function = call.function or _Function()
    raw = function.arguments if function.arguments is not None else ""
    arguments = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
    return ToolCall(at=at if call.index is None else call.index, name=function.name or "", arguments=arguments)


def _picture(image: Any) -> Part:
    """Return a picture that a model made: `{"image_url": {"url": ...}}`, or its bytes as base64."""
    holder = image.get("image_url") if isinstance(image, dict) else {"url": image}
    url = holder.get("url") if isinstance(holder, dict) else None
    if not isinstance(url, str):
        raise MalformedAnswer("a picture has neither address nor bytes")
    if url.startswith(("http://", "https://")):
        return Part(url=url, media_type="image/png")
    head, _, data = url.rpartition(",")
    kind = head.removeprefix("data:").partition(";")[0] or "image/png"
    try:
        return Part(raw=base64.b64decode(data, validate=True), media_type=kind)
    except ValueError as error:
        raise MalformedAnswer("a picture is not valid base64") from error
