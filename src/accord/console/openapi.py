"""OpenAPI 3.1 documents of APIs, made from their routes.

Descriptions are the docstrings of the handlers and structures. A2A's HTTP+JSON binding has a document of its own
(`http.openapi`).
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from accord.console import CONSOLE
from accord.console.routing import UNPROCESSABLE, ApiReply, ApiRequest, ApiRoute, ApiSection, route
from accord.model.schemas import components as components_of


class Problem(Struct, frozen=True, kw_only=True):
    """A field and its problem."""

    field: str
    problem: str


class Refused(Struct, frozen=True, kw_only=True):
    """The reason of a refusal, with each invalid field or the name that is taken."""

    detail: str
    findings: list[Problem] | UnsetType = UNSET
    human_readable_id: str | UnsetType = UNSET


_REF = "#/components/schemas/{name}"
_PART = re.compile(r"\(\?P<(\w+)>([^()]*)\)")


def describe(title: str, version: str, base: str, routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes below `base`."""
    kinds = [kind for stated in routes for kind in (stated.body, stated.query, stated.result) if kind is not None]
    schemas, components = components_of([*kinds, Refused], _REF)
    _open(schemas)
    _open(components)
    schema_of = dict(zip(map(str, [*kinds, Refused]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for stated in routes:
        path = path_of(stated).removeprefix(base)
        paths.setdefault(path, {})[stated.method.lower()] = _operation(stated, path, schema_of, components)
    for found in [stated.query for stated in routes if stated.query is not None]:
        components.pop(_named(schema_of[str(found)]), None)  # they are parameters
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": components},
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


def path_of(stated: ApiRoute) -> str:
    """Return the path of a route in OpenAPI notation, with an optional slash included."""
    return _PART.sub(r"{\1}", stated.pattern.replace("/?", "/"))


def _operation(stated: ApiRoute, path: str, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    summary = (stated.handler.__doc__ or "").partition("\n")[0]
    told: dict[str, Any] = {"description": summary}
    if stated.result is not None:
        told["content"] = _json(schema_of[str(stated.result)])
    refusals = [(UNPROCESSABLE, "What is wrong with the request.")] if stated.body or stated.query else []
    refusals += [] if stated.is_open else [(401, "Who asks did not say who they are.")]
    why_not = _json(schema_of[str(Refused)])
    operation: dict[str, Any] = {
        "operationId": _identifier(stated, path),
        "summary": summary,
        "parameters": [*_in_path(stated), *_in_query(stated, schema_of, components)],
        "responses": {str(stated.status): told}
        | {str(status): {"description": reason, "content": why_not} for status, reason in refusals}
        | {"default": {"description": "Why not.", "content": why_not}},
    }
    if stated.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schema_of[str(stated.body)])}
    return operation


def _identifier(stated: ApiRoute, path: str) -> str:
    """Return a unique id for each route, although one handler may serve several."""
    words = re.findall(r"[a-z]+", path.replace("{", " by ").lower())
    return "_".join([stated.method.lower(), *words])


def _in_path(stated: ApiRoute) -> Iterator[dict[str, Any]]:
    for name, pattern in _PART.findall(stated.pattern):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{pattern}$"},
        }


def _in_query(stated: ApiRoute, schema_of: dict[str, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if stated.query is None:
        return
    schema = components[_named(schema_of[str(stated.query)])]
    for name, property in schema["properties"].items():
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": property}


def _named(schema: dict[str, Any]) -> str:
    """Return the component name of a structure. If two share a name, both have longer ones."""
    reference: str = schema["$ref"]
    return reference.rpartition("/")[2]


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


TITLE = "Accord console"


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
        found = describe(TITLE, self._version, CONSOLE.rstrip("/"), [*self._documented, *self.routes()])
        return msgspec.json.encode(found)
