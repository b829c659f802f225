"""The OpenAPI description of the HTTP+JSON binding, and JSON Schemas of all structures.

The operations are rows of `protocol.operations`. Name and authentication are from the agent's card. Structures have the
specification's names. Their schemas describe the written form, which is also the form to send: members for other
dialects and the tolerance of readers are left out.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from accord import model
from accord.http import cards
from accord.http.asgi import CachedDocument, Receive, Scope, Send, respond, respond_with_document
from accord.model import AgentCard, SendRequest
from accord.model.base import A2AModel
from accord.model.schemas import DRAFT_2020, components, first_paragraph
from accord.protocol import codec
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.dialects.v1 import StreamResponse
from accord.protocol.negotiation import ALL_DIALECTS, DIALECT_VERSIONS
from accord.protocol.operations import TABLE, DialectName, Operation, OperationRow, RestRoute

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
        return self._served(schema_document(name, base + path), SCHEMA_TYPE)

    def _served(self, described: Any, media_type: str = "application/json") -> CachedDocument:
        anyone = [(b"access-control-allow-origin", b"*")]
        return CachedDocument.of(codec.encode(described), self._modified, anyone, media_type)


def _index(base: str) -> dict[str, Any]:
    listed = [
        {"name": name, "description": schema["description"], "url": base + _schema_path(name)}
        for name, schema in a2a_schemas().items()
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
    schemas = a2a_schemas(_COMPONENTS)
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


# --- structures -----------------------------------------------------------------------------------------------------


class SendMessageResponse(A2AModel):
    """The result of a send: the task it created, or a message alone."""

    task: model.Task | None = None
    message: model.Message | None = None


class RpcStatus(A2AModel):
    """An error as `google.rpc.Status`; one of its details is always an ErrorInfo."""

    code: int
    status: str
    message: str
    details: tuple[dict[str, Any], ...]


class ErrorResponse(A2AModel):
    """The body of an HTTP+JSON error response."""

    error: RpcStatus


NAMES: dict[type, str] = {
    model.Task: "Task",
    model.TaskStatus: "TaskStatus",
    model.TaskState: "TaskState",
    model.Message: "Message",
    model.Role: "Role",
    model.Part: "Part",
    model.Artifact: "Artifact",
    model.StatusUpdate: "TaskStatusUpdateEvent",
    model.ArtifactUpdate: "TaskArtifactUpdateEvent",
    StreamResponse: "StreamResponse",
    model.SendRequest: "SendMessageRequest",
    model.SendConfiguration: "SendMessageConfiguration",
    SendMessageResponse: "SendMessageResponse",
    model.GetRequest: "GetTaskRequest",
    model.TaskFilter: "ListTasksRequest",
    model.TaskPage: "ListTasksResponse",
    model.CancelRequest: "CancelTaskRequest",
    model.SubscribeRequest: "SubscribeToTaskRequest",
    model.PushConfig: "TaskPushNotificationConfig",
    model.Authentication: "AuthenticationInfo",
    model.PushGetRequest: "GetTaskPushNotificationConfigRequest",
    model.PushListRequest: "ListTaskPushNotificationConfigsRequest",
    model.PushPage: "ListTaskPushNotificationConfigsResponse",
    model.PushDeleteRequest: "DeleteTaskPushNotificationConfigRequest",
    model.CardRequest: "GetExtendedAgentCardRequest",
    model.AgentCard: "AgentCard",
    model.AgentInterface: "AgentInterface",
    model.AgentProvider: "AgentProvider",
    model.AgentCapabilities: "AgentCapabilities",
    model.AgentExtension: "AgentExtension",
    model.AgentSkill: "AgentSkill",
    model.CardSignature: "AgentCardSignature",
    model.SecurityScheme: "SecurityScheme",
    model.ApiKeyScheme: "APIKeySecurityScheme",
    model.HttpAuthScheme: "HTTPAuthSecurityScheme",
    model.OAuth2Scheme: "OAuth2SecurityScheme",
    model.OpenIdConnectScheme: "OpenIdConnectSecurityScheme",
    model.MutualTlsScheme: "MutualTlsSecurityScheme",
    model.OAuthFlows: "OAuthFlows",
    model.AuthorizationCodeFlow: "AuthorizationCodeOAuthFlow",
    model.ClientCredentialsFlow: "ClientCredentialsOAuthFlow",
    model.ImplicitFlow: "ImplicitOAuthFlow",
    model.PasswordFlow: "PasswordOAuthFlow",
    model.DeviceCodeFlow: "DeviceCodeOAuthFlow",
    model.SecurityRequirement: "SecurityRequirement",
    model.Scopes: "StringList",
    ErrorResponse: "ErrorResponse",
    RpcStatus: "Status",
}
"""The model's types and their A2A 1.0 names; the last two are named by AIP-193, which A2A follows (11.6)."""

_NOT_A2A = {
    "TaskPushNotificationConfig": ("payloadFormat", "events"),
    "DeleteTaskPushNotificationConfigRequest": ("url",),
    "AgentCard": ("profile",),
    "AgentSkill": ("inputSchema", "outputSchema"),
}
"""Members of the model for other dialects."""

_NEEDS = {"GetTaskPushNotificationConfigRequest": ("id",), "DeleteTaskPushNotificationConfigRequest": ("id",)}
"""Members that A2A 1.0 requires and the model leaves optional for other dialects."""

_EXACTLY_ONE = {
    "Part": ("text", "raw", "url", "data"),
    "SendMessageResponse": ("task", "message"),
    "StreamResponse": ("task", "message", "statusUpdate", "artifactUpdate"),
    "SecurityScheme": (
        "apiKeySecurityScheme",
        "httpAuthSecurityScheme",
        "oauth2SecurityScheme",
        "openIdConnectSecurityScheme",
        "mtlsSecurityScheme",
    ),
    "OAuthFlows": ("authorizationCode", "clientCredentials", "implicit", "password", "deviceCode"),
}
"""Structures with exactly one of several members: a protobuf oneof, which types alone cannot express."""


def a2a_schemas(reference: str = "#/$defs/{name}") -> dict[str, dict[str, Any]]:
    """Return the schema of every structure by name; `reference` is the format of their references."""
    referring, found = components(NAMES, "{name}")
    names = {schema["$ref"]: name for schema, name in zip(referring, NAMES.values(), strict=True)}
    return {name: _complete(name, found[own], names, reference) for own, name in names.items()}


def schema_document(name: str, identifier: str) -> dict[str, Any]:
    """Return the schema of one structure as a self-contained document."""
    every = a2a_schemas()
    needed = sorted(_reached(name, every))
    whole = {"$schema": DRAFT_2020, "$id": identifier} | every[name]
    return whole | {"$defs": {other: every[other] for other in needed}} if needed else whole


def _complete(name: str, stated: dict[str, Any], names: dict[str, str], reference: str) -> dict[str, Any]:
    members = {
        member: _plain(schema, names, reference)
        for member, schema in stated.get("properties", {}).items()
        if member not in _NOT_A2A.get(name, ())
    }
    schema = stated | {"title": name, "description": first_paragraph(stated["description"])}
    if members:
        schema["properties"] = members
    if required := [*stated.get("required", ()), *_NEEDS.get(name, ())]:
        schema["required"] = required
    else:
        schema.pop("required", None)
    if name in _EXACTLY_ONE:
        schema["oneOf"] = [{"required": [member]} for member in _EXACTLY_ONE[name]]
    return schema


def _plain(node: Any, names: dict[str, str], reference: str) -> Any:
    """Return a part of a schema with A2A's names, and without the null of optional members."""
    if isinstance(node, list):
        return [_plain(item, names, reference) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": reference.format(name=names[node["$ref"]])}
    if "anyOf" in node:
        (only,) = (choice for choice in node["anyOf"] if choice != {"type": "null"})
        return _plain(only, names, reference)
    return {key: _plain(value, names, reference) for key, value in node.items()}


def _reached(name: str, every: dict[str, dict[str, Any]]) -> set[str]:
    """Return the names of the structures that a structure refers to, directly or indirectly."""
    found: set[str] = set()
    left = [name]
    while left:
        new = set(_references(every[left.pop()])) - found
        found |= new
        left += new
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)
