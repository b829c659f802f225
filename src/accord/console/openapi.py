"""OpenAPI 3.1 documents of APIs, made from their routes.

Descriptions are the docstrings of the handlers and structures. A2A's HTTP+JSON binding has a document of its own
(`http.openapi`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from accord.console import CONSOLE
from accord.console.routing import UNPROCESSABLE, ApiReply, ApiRequest, ApiRoute, ApiSection, route
from accord.model.schemas import components


class Problem(Struct, frozen=True, kw_only=True):
    """A field and its problem."""

    field: str
    problem: str


class Refused(Struct, frozen=True, kw_only=True):
    """The reason of a refusal, with each invalid field or the name that is taken."""

    detail: str
    findings: list[Problem] | UnsetType = UNSET
    human_readable_id: str | UnsetType = UNSET


_PART = re.compile(r"\(\?P<(\w+)>([^()]*)\)")


def describe(title: str, version: str, base: str, routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes below `base`."""
    kinds = [kind for described in routes for kind in (described.body, described.query, described.result)]
    kinds = [*filter(None, kinds), Refused]
    schemas, named = components(kinds, "#/components/schemas/{name}")
    _open(schemas)
    _open(named)
    schema_of = dict(zip(kinds, schemas, strict=True))
    # Structures of query parameters are described as parameters.
    queries = {kind: schema_of[kind]["$ref"].rpartition("/")[2] for kind in (each.query for each in routes) if kind}
    parameters = {kind: named[name] for kind, name in queries.items()}
    paths: dict[str, dict[str, Any]] = {}
    for described in routes:
        # An optional slash at the end is included.
        path = _PART.sub(r"{\1}", described.pattern.replace("/?", "/")).removeprefix(base)
        operation = _operation(described, path, schema_of, parameters.get(described.query, {}))
        paths.setdefault(path, {})[described.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": {name: named[name] for name in named if name not in queries.values()}},
    }


def _open(schema: Any) -> None:
    """Allow any member in objects without stated members: generators take such objects for empty ones."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.keys().isdisjoint(("properties", "additionalProperties")):
            schema["additionalProperties"] = True
        schema = schema.values()
    elif not isinstance(schema, list | tuple):
        return
    for inner in schema:
        _open(inner)


def _operation(
    described: ApiRoute, path: str, schema_of: Mapping[Any, dict[str, Any]], query: Mapping[str, Any]
) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        return {} if kind is None else {"content": {"application/json": {"schema": schema_of[kind]}}}

    summary = (described.handler.__doc__ or "").partition("\n")[0]
    responses = {str(described.status): {"description": summary} | content(described.result)}
    if described.body or described.query:
        responses[str(UNPROCESSABLE)] = {"description": "The request is not valid."} | content(Refused)
    if not described.is_open:
        responses["401"] = {"description": "Credentials are missing or not valid."} | content(Refused)
    responses["default"] = {"description": "The request is refused."} | content(Refused)
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{pattern}$"}}
        for name, pattern in _PART.findall(described.pattern)
    ]
    in_query = [
        {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": schema}
        for name, schema in query.get("properties", {}).items()
    ]
    # The id is unique for each route, although one handler may serve several.
    words = re.findall(r"[a-z]+", path.replace("{", " by ").lower())
    operation = {
        "operationId": "_".join([described.method.lower(), *words]),
        "summary": summary,
        "parameters": [*in_path, *in_query],
        "responses": responses,
    }
    return operation | ({"requestBody": {"required": True} | content(described.body)} if described.body else {})


class OpenApiEndpoint(ApiSection):
    """The endpoint of the OpenAPI document."""

    def __init__(self, routes: Sequence[ApiRoute], version: str) -> None:
        """Describe `routes`, and this one."""
        self._documented = routes
        self._version = version

    @route("GET", f"{CONSOLE}openapi.json", is_open=True, result=dict[str, Any])
    async def described(self, _request: ApiRequest) -> ApiReply:
        """Describe this API."""
        return ApiReply(200, document=self.document)

    @cached_property
    def document(self) -> bytes:
        """The document, as OpenAPI 3.1."""
        routes = [*self._documented, *self.routes()]
        return msgspec.json.encode(describe("Accord console", self._version, CONSOLE.rstrip("/"), routes))
