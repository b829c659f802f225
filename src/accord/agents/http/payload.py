"""Options of HTTP agents, and the body of their requests.

Names, defaults and precedence are those of a2a-adapter's n8n adapter, so that its settings can be reused. A mapper
overrides everything else. Next comes a text that is a JSON object, if `parse_json_input` is set. Otherwise the text is
put into one field.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct, field

from accord.agents.messages import OCTETS, file_parts, media_kind
from accord.api import text_of
from accord.api.agent_types import Options, Seconds
from accord.model import Part
from accord.outbound import MAX_BYTES
from accord.protocol import urls


class HttpOptions(Options, frozen=True, kw_only=True):
    """A flow: its URL, its requests and its way of answering.

    In the mode `callback`, the flow only acknowledges a message and reports to its `callbackUrl`; the task is suspended
    meanwhile. `timeout` limits one answer of the flow, or the time between two pieces of a stream. `task_timeout`
    limits the whole task.
    """

    url: str | None = None
    webhook_url: str | None = None
    """Alias of `url`."""

    mode: Literal["answer", "callback"] = "answer"
    timeout: Seconds | None = 30.0
    task_timeout: Seconds | None = None
    headers: dict[str, str] = field(default_factory=dict)
    max_retries: Annotated[int, Meta(ge=0)] = 2
    backoff: Annotated[float, Meta(ge=0)] = 0.25
    max_bytes: Annotated[int, Meta(ge=1)] = MAX_BYTES

    payload_template: dict[str, Any] = field(default_factory=dict)
    message_field: str = "message"
    default_inputs: dict[str, Any] = field(default_factory=dict)
    input_mapper: str | None = None
    parse_json_input: bool = False
    """Use a text that is a JSON object as the flow's input. Off by default, unlike in a2a-adapter.

    A caller's text that happens to be JSON must not become the flow's input unless the operator allows it.
    """

    multimodal_mode: bool = False
    file_field: str = "files"
    image_field: str = "images"
    encode_files_base64: bool = True

    callback_field: str = "callbackUrl"
    callback_url: str | None = None
    """URL where the flow reaches this server's `/api/callbacks`, if it differs from the server's own address."""

    sla_seconds: Annotated[float, Meta(gt=0)] = 1800.0
    """Maximum time without a report before the task is given up as unknown, in seconds, as for remote agents."""

    @property
    def address(self) -> str:
        """URL of the flow."""
        if bool(self.url) == bool(self.webhook_url):
            raise ValueError("url: An HTTP agent needs the address of its webhook, as url or as webhook_url")
        address = self.url or self.webhook_url or ""
        if not urls.is_http_url(address):
            raise ValueError("url: The address of a webhook begins with http:// or https://, and has a host")
        return address

    def __repr__(self) -> str:
        return f"HttpOptions(url={(self.url or self.webhook_url or '').partition('?')[0]!r})"  # the rest may be secret


PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]+)\s*\}\}")

NAMES = frozenset({"text", "message", "data", "files", "images", "contextId", "taskId", "messageId", "callbackUrl"})
"""Names that a template may have in double braces; `text` and `message` are the same."""

Mapper = Callable[[str, str | None], Mapping[str, Any]]
"""Makes the payload from a caller's text and the conversation's id."""


class FlowMessage(Struct, frozen=True, kw_only=True):
    """A caller's message with the ids of its conversation and task."""

    parts: tuple[Part, ...]
    context_id: str
    task_id: str
    message_id: str
    callback_url: str | None = None

    @property
    def text(self) -> str:
        """Text of the message."""
        return text_of(self.parts)

    @property
    def data(self) -> Any:
        """First data of the message, or None."""
        return next((part.data for part in self.parts if part.data is not UNSET), None)


class RequestBody(Struct, frozen=True):
    """A request's body and its media type."""

    content: bytes
    media_type: str


def check_template(template: Any) -> None:
    """Raise ValueError for a template with an unknown placeholder."""
    unknown = sorted({name for name in _placeholders(template) if name not in NAMES})
    if unknown:
        raise ValueError(f"payload_template: There is no {{{{{unknown[0]}}}}}; there are {', '.join(sorted(NAMES))}")


def build_body(options: HttpOptions, said: FlowMessage, mapper: Mapper | None = None) -> RequestBody:
    """Return the body: JSON, or a multipart form if files are not sent as base64."""
    payload = _payload(options, said, mapper)
    if file_parts(said.parts) and options.multimodal_mode and not options.encode_files_base64:
        return _form(payload, _grouped(options, said.parts))
    return RequestBody(msgspec.json.encode(payload), "application/json")


def _payload(options: HttpOptions, said: FlowMessage, mapper: Mapper | None) -> dict[str, Any]:
    values = _values(options, said)
    made: dict[str, Any] = _filled(options.payload_template, values) | options.default_inputs
    parsed = _parsed(said.text) if options.parse_json_input else None
    if mapper is not None:
        made |= dict(mapper(said.text, said.context_id))
    elif parsed is not None:
        made |= parsed
    else:
        _add_message(made, options, said)
    used = set(_placeholders(options.payload_template))
    if options.multimodal_mode and options.encode_files_base64:
        for name, key in (("files", options.file_field), ("images", options.image_field)):
            if values[name] and name not in used:
                made[key] = values[name]
    if said.callback_url is not None and "callbackUrl" not in used:
        made[options.callback_field] = said.callback_url
    return made


def _add_message(made: dict[str, Any], options: HttpOptions, said: FlowMessage) -> None:
    """Add the text, the data and the conversation's id, unless a template contains them."""
    used = set(_placeholders(options.payload_template))
    if not used & {"text", "message"}:
        made[options.message_field] = said.text
    if said.data is not None and "data" not in used:
        made.setdefault("data", said.data)
    if not options.payload_template:
        made.setdefault("metadata", {"context_id": said.context_id, "task_id": said.task_id})
    elif "contextId" not in used:
        made.setdefault("context_id", said.context_id)


def _values(options: HttpOptions, said: FlowMessage) -> dict[str, Any]:
    groups = _grouped(options, said.parts) if options.encode_files_base64 else {}
    return {
        "text": said.text,
        "message": said.text,
        "data": said.data,
        "files": [_file(part) for part in groups.get(options.file_field, ())],
        "images": [_file(part) for part in groups.get(options.image_field, ())],
        "contextId": said.context_id,
        "taskId": said.task_id,
        "messageId": said.message_id,
        "callbackUrl": said.callback_url,
    }


def _grouped(options: HttpOptions, parts: Iterable[Part]) -> dict[str, list[Part]]:
    """Return files by the name of their field."""
    found: dict[str, list[Part]] = {}
    for part in file_parts(parts):
        found.setdefault(options.image_field if media_kind(part) == "image" else options.file_field, []).append(part)
    return found


def _file(part: Part) -> dict[str, Any]:
    """Return a file as JSON; a link is passed on for the flow to fetch."""
    about = {"name": part.filename or "file", "mime_type": part.media_type or OCTETS}
    if part.url is not None:
        return about | {"uri": part.url}
    return about | {"data": base64.b64encode(part.raw or b"").decode()}


def _parsed(text: str) -> dict[str, Any] | None:
    """Return a text as a JSON object, or None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


# --- templates ----------------------------------------------------------------------------------------------------


def _placeholders(template: Any) -> Iterable[str]:
    if isinstance(template, str):
        yield from PLACEHOLDER.findall(template)
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _placeholders(value)
    elif isinstance(template, list | tuple):
        for value in template:
            yield from _placeholders(value)


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced; replacements are not expanded again."""
    if isinstance(template, str):
        whole = PLACEHOLDER.fullmatch(template)
        if whole is not None:
            return values[whole[1]]  # as a JSON value, not as text
        return PLACEHOLDER.sub(lambda found: _written(values[found[1]]), template)
    if isinstance(template, Mapping):
        return {name: _filled(value, values) for name, value in template.items()}
    if isinstance(template, list | tuple):
        return [_filled(value, values) for value in template]
    return template


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- forms --------------------------------------------------------------------------------------------------------


def _form(payload: Mapping[str, Any], files: Mapping[str, list[Part]]) -> RequestBody:
    """Return a multipart form (RFC 7578): a field for each key of the payload, and the files unencoded."""
    boundary = uuid4().hex
    pieces: list[bytes] = []
    for name, value in payload.items():
        pieces += (_head(boundary, name), _written(value).encode())
    for name, parts in files.items():
        for part in parts:
            if part.raw is None:
                pieces += (_head(boundary, f"{name}_uri"), (part.url or "").encode())
            else:
                pieces += (_head(boundary, name, part.filename or "file", part.media_type or OCTETS), part.raw)
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return RequestBody(b"".join(pieces).removeprefix(b"\r\n"), f"multipart/form-data; boundary={boundary}")


def _head(boundary: str, name: str, filename: str | None = None, media_type: str | None = None) -> bytes:
    lines = [f"\r\n--{boundary}", f'Content-Disposition: form-data; name="{_quoted(name)}"']
    if filename is not None:
        lines[-1] += f'; filename="{_quoted(filename)}"'
    if media_type is not None:
        lines.append(f"Content-Type: {_one_line(media_type)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _quoted(text: str) -> str:
    """Return a name as browsers encode it (WHATWG HTML, multipart/form-data encoding)."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")
