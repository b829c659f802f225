"""JSON Schemas of the structures of A2A 1.0, generated from the model.

They have the specification's names and describe the written form, which is also the form to send. Members for other
dialects and the additional tolerance of readers are left out. `http.openapi` publishes them.
"""

from collections.abc import Iterator
from typing import Any

from accord import model
from accord.model.base import A2AModel
from accord.model.schemas import DRAFT_2020, components, first_paragraph
from accord.protocol.dialects.v1 import StreamResponse


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


def schemas(reference: str = "#/$defs/{name}") -> dict[str, dict[str, Any]]:
    """Return the schema of every structure by name; `reference` is the format of their references."""
    referring, found = components(NAMES, "{name}")
    names = {schema["$ref"]: name for schema, name in zip(referring, NAMES.values(), strict=True)}
    return {name: _complete(name, found[own], names, reference) for own, name in names.items()}


def document(name: str, identifier: str) -> dict[str, Any]:
    """Return the schema of one structure as a self-contained document."""
    every = schemas()
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
