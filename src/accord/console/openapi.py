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
from accord.console.routing import UNPROCESSABLE, ApiReply, ApiRequest, ApiRoute
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
    kinds = [kind for route in routes for kind in (route.takes, route.finds, route.gives) if kind is not None]
    schemas, components = components_of([*kinds, Refused], _REF)
    _open(schemas)
    _open(components)
    schema_of = dict(zip(map(str, [*kinds, Refused]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = path_of(route).removeprefix(base)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, schema_of, components)
    for found in [route.finds for route in routes if route.finds is not None]:
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


def path_of(route: ApiRoute) -> str:
    """Return the path of a route in OpenAPI notation, with an optional slash included."""
    return _PART.sub(r"{\1}", route.pattern.replace("/?", "/"))


def _operation(route: ApiRoute, path: str, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    summary = (route.handler.__doc__ or "").partition("\n")[0]
    told: dict[str, Any] = {"description": summary}
    if route.gives is not None:
        told["content"] = _json(schema_of[str(route.gives)])
    refusals = [(UNPROCESSABLE, "What is wrong with the request.")] if route.takes or route.finds else []
    refusals += [] if route.is_open else [(401, "Who asks did not say who they are.")]
    why_not = _json(schema_of[str(Refused)])
    operation: dict[str, Any] = {
        "operationId": _identifier(route, path),
        "summary": summary,
        "parameters": [*_in_path(route), *_in_query(route, schema_of, components)],
        "responses": {str(route.status): told}
        | {str(status): {"description": reason, "content": why_not} for status, reason in refusals}
        | {"default": {"description": "Why not.", "content": why_not}},
    }
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(schema_of[str(route.takes)])}
    return operation


def _identifier(route: ApiRoute, path: str) -> str:
    """Return a unique id for each route, although one handler may serve several."""
    words = re.findall(r"[a-z]+", path.replace("{", " by ").lower())
    return "_".join([route.method.lower(), *words])


def _in_path(route: ApiRoute) -> Iterator[dict[str, Any]]:
    for name, pattern in _PART.findall(route.pattern):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{pattern}$"},
        }


def _in_query(route: ApiRoute, schema_of: dict[str, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if route.finds is None:
        return
    schema = components[_named(schema_of[str(route.finds)])]
    for name, stated in schema["properties"].items():
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": stated}


def _named(schema: dict[str, Any]) -> str:
    """Return the component name of a structure. If two share a name, both have longer ones."""
    reference: str = schema["$ref"]
    return reference.rpartition("/")[2]


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


TITLE = "Accord console"


class OpenApiEndpoint:
    """The endpoint of the OpenAPI document."""

    def __init__(self, routes: Sequence[ApiRoute], version: str) -> None:
        """Describe `routes`, and this one."""
        self._routes = routes
        self._version = version

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (ApiRoute("GET", f"{CONSOLE}openapi.json", self.described, is_open=True, gives=dict[str, Any]),)

    async def described(self, _asked: ApiRequest) -> ApiReply:
        """Describe this API."""
        return ApiReply(200, document=self.document)

    @cached_property
    def document(self) -> bytes:
        """The document, as OpenAPI 3.1."""
        found = describe(TITLE, self._version, CONSOLE.rstrip("/"), [*self._routes, *self.routes()])
        return msgspec.json.encode(found)
