"""The OpenAPI description of the HTTP+JSON binding, and JSON Schemas of all structures.

The operations are rows of `protocol.operations`, the structures those of `protocol.spec_schemas`. Name and
authentication are from the agent's card.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from accord.http import cards
from accord.http.asgi import CachedDocument, Receive, Scope, Send, respond, respond_with_document
from accord.model import AgentCard, SendRequest
from accord.protocol import codec, spec_schemas
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.negotiation import ALL_DIALECTS, DIALECT_VERSIONS
from accord.protocol.operations import TABLE, DialectName, Operation, OperationRow, RestRoute
from accord.protocol.spec_schemas import NAMES

OPENAPI_PATH, SCHEMAS_PATH = "/openapi.json", "/schemas"
SCHEMA_TYPE = "application/schema+json"
V1, V03 = DialectName.V1, DialectName.V03

MAX_VARIANTS = 128
"""Number of cached documents: all of them, for a few host names, which callers choose."""

_COMPONENTS = "#/components/schemas/{name}"
_ANSWERS = {
    Operation.SEND: "SendMessageResponse",
    Operation.STREAM: "StreamResponse",
    Operation.GET: "Task",
    Operation.LIST: "ListTasksResponse",
    Operation.CANCEL: "Task",
    Operation.SUBSCRIBE: "StreamResponse",
    Operation.PUSH_SET: "TaskPushNotificationConfig",
    Operation.PUSH_GET: "TaskPushNotificationConfig",
    Operation.PUSH_LIST: "ListTaskPushNotificationConfigsResponse",
    Operation.EXTENDED_CARD: "AgentCard",
}
"""The result of each operation in A2A 1.0. Others return an empty object."""

_OBJECT = {"type": "object"}
_RESUME_PARAMETERS = [
    {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The number of the last event seen: the stream goes on after it.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The same, for those who cannot set headers.",
        "schema": {"type": "integer", "minimum": 0},
    },
]
_IDEMPOTENCY_PARAMETERS = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The caller's name for what it sends: the same under the same key, sent again, is the same task.",
    "schema": {"type": "string", "minLength": 1},
}


class ApiDocuments:
    """An ASGI application that serves `/openapi.json`, `/schemas` and `/schemas/{Name}.json` below one path."""

    def __init__(
        self, card: AgentCard, *, enabled: frozenset[DialectName] = ALL_DIALECTS, modified: datetime | None = None
    ) -> None:
        """Describe the agent of `card` in the enabled dialects; `modified` (default: now) is its time of change."""
        self._card = card
        self._enabled = enabled
        self._modified = (modified or datetime.now(UTC)).astimezone(UTC)
        self._base = _base(card)
        self._document = lru_cache(MAX_VARIANTS)(self._write)

    @staticmethod
    def serves(path: str) -> bool:
        """Whether a path below the mount is one of these documents."""
        return path in (OPENAPI_PATH, SCHEMAS_PATH) or path.startswith(SCHEMAS_PATH + "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        root = scope.get("root_path", "").rstrip("/")
        asked = scope["path"].removeprefix(root), root, cards.request_origin(scope)
        document = await asyncio.to_thread(self._document, *asked)  # descriptions are read from source files
        if document is None:
            plain = [(b"content-type", b"text/plain; charset=utf-8")]
            text = b"There is no such document; /schemas lists those that there are\n"
            await respond(send, 404, text, plain, head=scope["method"] == "HEAD")
            return
        await respond_with_document(scope, send, document)

    def _write(self, path: str, root: str, origin: str | None) -> CachedDocument | None:
        """Return the document at a path below `root`, for a caller that used `origin`."""
        base = cards.url_at_origin(self._base, origin)
        if path == OPENAPI_PATH:
            return self._served(describe_api(self._card, self._enabled) | {"servers": [{"url": root or "/"}]})
        if path == SCHEMAS_PATH:
            return self._served(_index(base))
        name = path.removeprefix(SCHEMAS_PATH + "/").removesuffix(".json")
        if path != _schema_path(name) or name not in NAMES.values():
            return None
        return self._served(spec_schemas.document(name, base + path), SCHEMA_TYPE)

    def _served(self, described: Any, media_type: str = "application/json") -> CachedDocument:
        anyone = [(b"access-control-allow-origin", b"*")]
        return CachedDocument.of(codec.encode(described), self._modified, anyone, media_type)


def _index(base: str) -> dict[str, Any]:
    listed = [
        {"name": name, "description": schema["description"], "url": base + _schema_path(name)}
        for name, schema in spec_schemas.schemas().items()
    ]
    return {"schemas": listed}


def _schema_path(name: str) -> str:
    return f"{SCHEMAS_PATH}/{name}.json"


def _base(card: AgentCard) -> str:
    """Return the card's URL of the binding, without a trailing slash."""
    urls = [found.url for found in card.supported_interfaces if found.protocol_binding == "HTTP+JSON"]
    return urls[0].rstrip("/") if urls else ""


# --- OpenAPI --------------------------------------------------------------------------------------------------------


class OperationAddress(NamedTuple):
    """One operation at one address of one version."""

    row: OperationRow
    route: RestRoute
    prefix: str
    dialect: DialectName
    name: str

    @property
    def path(self) -> str:
        """The whole path."""
        return self.prefix + self.route.path

    @property
    def in_path(self) -> list[str]:
        """The names of the path's parameters."""
        return [piece.partition("}")[0] for piece in self.route.path.split("{")[1:]]


def describe_api(card: AgentCard, enabled: frozenset[DialectName] = ALL_DIALECTS) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an agent's HTTP+JSON binding; its addresses are relative to the card's."""
    schemas = spec_schemas.schemas(_COMPONENTS)
    paths: dict[str, dict[str, Any]] = {}
    for address in _addresses(enabled):
        paths.setdefault(address.path, {})[address.route.verb.lower()] = _operation(address, schemas)
    secured = DIALECTS[V03].encode_card(card)  # 0.3 adopted OpenAPI's own form of them
    document = {
        "openapi": "3.1.0",
        "info": {"title": card.name, "description": card.description, "version": card.version},
        "servers": [{"url": urlsplit(_base(card)).path or "/"}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _schemes(secured.get("securitySchemes", {}))},
    }
    return document | ({"security": secured["security"]} if secured.get("security") else {})


def _addresses(enabled: frozenset[DialectName]) -> Iterator[OperationAddress]:
    for row in TABLE:
        routes = [(V1, "", "", row.rest), (V03, "/v1", "_0_3", row.rest_v03), (V03, "", "_0_2", row.rest_v02)]
        for dialect, prefix, version, found in routes:
            for route in found if dialect in enabled else ():
                verb = f"_{route.verb.lower()}" if len(found) > 1 else ""
                yield OperationAddress(row, route, prefix, dialect, row.operation.value + version + verb)


def _operation(address: OperationAddress, schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    row = address.row
    versions = " and ".join(version.value for version in DIALECT_VERSIONS[address.dialect])
    operation: dict[str, Any] = {
        "operationId": address.name,
        "summary": (row.request.__doc__ or "").partition("\n")[0],
        "tags": [f"A2A {versions}"],
        "parameters": [*_parameters(address, schemas[NAMES[row.request]])],
        "responses": {"200": _answer(address), "default": _error(address)},
    }
    if address.dialect is not V1:
        operation["deprecated"] = True
    if address.route.verb == "POST":
        operation["requestBody"] = _body(address, schemas[NAMES[row.request]])
    return operation


def _parameters(address: OperationAddress, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in address.in_path:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if address.route.verb != "POST":
        for name, schema in request["properties"].items():
            if name not in address.in_path and (name != "tenant" or address.dialect is V1):
                yield {"name": name, "in": "query", "schema": schema}
    if address.row.streams:
        yield from _RESUME_PARAMETERS
    if address.row.request is SendRequest:
        yield _IDEMPOTENCY_PARAMETERS
    spoken = [version.value for version in DIALECT_VERSIONS[address.dialect]]
    yield {"name": "A2A-Version", "in": "header", "schema": {"type": "string", "examples": spoken}}


def _body(address: OperationAddress, request: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a request's body without its path parameters; bodies of 0.3 are not described."""
    members = {name: value for name, value in request["properties"].items() if name not in address.in_path}
    required = [name for name in request.get("required", ()) if name in members]
    schema: dict[str, Any] = _OBJECT
    if address.dialect is V1:
        schema = _OBJECT | {"properties": members} | ({"required": required} if required else {})
    return {"required": bool(required), "content": _content(address, schema)}


def _answer(address: OperationAddress) -> dict[str, Any]:
    name = _ANSWERS.get(address.row.operation) if address.dialect is V1 else None
    schema = {"$ref": _COMPONENTS.format(name=name)} if name else _OBJECT
    if address.row.streams:
        about = "Server-sent events, each numbered by its id; the data of each is such an object."
        return {"description": about, "content": {"text/event-stream": {"schema": schema}}}
    return {"description": "What was asked for.", "content": _content(address, schema)}


def _error(address: OperationAddress) -> dict[str, Any]:
    schema = {"$ref": _COMPONENTS.format(name="ErrorResponse")} if address.dialect is V1 else _OBJECT
    return {"description": "Why not.", "content": _content(address, schema)}


def _content(address: OperationAddress, schema: dict[str, Any]) -> dict[str, Any]:
    return {name: {"schema": schema} for name in REST_DIALECTS[address.dialect].media_types}


def _schemes(schemes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return security schemes for OpenAPI 3.1, which does not have the address of OAuth metadata."""
    return {
        name: {key: value for key, value in scheme.items() if key != "oauth2MetadataUrl"}
        for name, scheme in schemes.items()
    }
