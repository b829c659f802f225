"""Field tables: the structs, parameters and pages that dialects spell differently.

A dialect states the names of fields on the wire. Shapes to decode are made from the model's own fields, so that a field
of the model is added in one place.
The parameters of an HTTP request are its body, query and path as one object, with numbers and booleans converted from
text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import GenericAlias
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import quote

from msgspec import Raw, Struct, defstruct, field, structs, to_builtins
from msgspec.json import Decoder

from accord import model
from accord.model import TaskState
from accord.model.requests import FILTER_TIMES
from accord.protocol import codec
from accord.protocol.codec import invalid_field, read_time
from accord.protocol.operations import ROWS, Operation, RestRoute

T = TypeVar("T")


EVENT_MEMBERS: Mapping[type, bytes] = {
    model.Task: b"task",
    model.Message: b"message",
    model.StatusUpdate: b"statusUpdate",
    model.ArtifactUpdate: b"artifactUpdate",
}
"""The name of a result or event where it is the only member of an object."""


def camel_case(name: str) -> str:
    """Return a name in camelCase, as protobuf derives it."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def rename_members(value: Any, renamed: Callable[[str], str], free: frozenset[str]) -> Any:
    """Return plain data with other names of members, except inside `free` data. A member that has that name wins."""
    if isinstance(value, list):
        return [rename_members(item, renamed, free) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        new: item if name in free else rename_members(item, renamed, free)
        for name, item in value.items()
        if (new := renamed(name)) == name or new not in value
    }


class AnyId(Struct, kw_only=True):
    """The members that may contain a task's id; an empty one counts as missing."""

    id: str | None = None
    task_id: str | None = field(default=None, name="task_id")
    camel_id: str | None = field(default=None, name="taskId")

    def task(self, name: str) -> str:
        """Return the task's id, or refuse its absence under the `name` that the dialect uses."""
        task_id = self.id or self.own_task()
        if not task_id:
            raise invalid_field(name, "Required field is missing")
        return task_id

    def own_task(self) -> str | None:
        """Return the task's id where `id` is the id of another object."""
        return self.task_id or self.camel_id or None


def shape_like(
    kind: type[Struct],
    *,
    required: Iterable[str] = (),
    without: Iterable[str] = (),
    rename: Literal["camel"] | None = "camel",
    **types: Any,
) -> Any:
    """Return a struct to decode another spelling of a struct of the model: the same fields, each of which may be null.

    `types` are those of fields that differ from the model's, or that it does not have; in brackets, that of a list's
    items. Fields are optional unless `required`.
    """
    types = {
        name: GenericAlias(list, tuple(stated)) if isinstance(stated, list) else stated
        for name, stated in types.items()
    }
    fields = {field.name: field.type for field in structs.fields(kind) if field.name not in without} | types
    needed = [(name, fields.pop(name)) for name in required]
    optional = [(name, stated | None, None) for name, stated in fields.items()]
    return defstruct(f"{kind.__name__}In", [*needed, *optional], rename=rename)


def fill(kind: Callable[..., T], wire: Struct, **stated: Any) -> T:
    """Return a struct of the model with the fields that a decoded one has, except null; `stated` replaces fields."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]  # of every struct
    fields = {name: getattr(wire, name, None) for name in names if name not in stated}
    return kind(**{name: value for name, value in fields.items() if value is not None}, **stated)


class FilterParams:
    """The parameters of listing tasks in a dialect: the fields of `TaskFilter` under the dialect's names.

    A new filter of the model is a parameter of every dialect. Any parameter may be null.
    """

    def __init__(
        self,
        read_state: Callable[[str, str], TaskState],
        *,
        rename: Literal["camel"] | None = "camel",
        without: tuple[str, ...] = ("tenant",),
        absent: tuple[str | None, ...] = (None,),
    ) -> None:
        """Read parameters in camelCase or, without `rename`, snake_case; values that are `absent` count as missing."""
        shape = shape_like(model.TaskFilter, rename=rename, without=without, status=str)
        self._names = dict(zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True))
        self._decoder: Decoder[Any] = Decoder(shape)
        self._read_state = read_state
        self._absent = absent

    @property
    def names(self) -> Iterable[str]:
        """The names of the parameters."""
        return self._names.values()

    def read(self, params: bytes) -> model.TaskFilter:
        """Read the parameters."""
        wire = codec.decode(params, self._decoder)
        values = {name: value for name in self._names if (value := getattr(wire, name)) not in self._absent}
        for name in FILTER_TIMES.keys() & values.keys():
            values[name] = read_time(values[name], self._names[name])
        if "status" in values:
            values["status"] = self._read_state(values["status"], "status")
        return model.TaskFilter(**values)

    def write(self, request: model.TaskFilter, state_name: Callable[[TaskState], str]) -> dict[str, Any]:
        """Write the parameters that differ from their defaults."""
        written: dict[str, Any] = to_builtins(structs.replace(request, tenant=None))
        if request.status is not None:
            written["status"] = state_name(request.status)
        camel = structs.fields(model.TaskFilter)
        return {self._names[field.name]: written[field.encode_name] for field in camel if field.encode_name in written}


def write_fields(value: Struct, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a struct by their names on the wire, without those that are None."""
    return {wire: found for wire, name in names.items() if (found := getattr(value, name)) is not None}


def address_of_version(card: model.AgentCard, version: str) -> str | None:
    """Return the address where an agent serves a version, or the likeliest one."""
    interfaces = card.supported_interfaces
    wanted = [interface for interface in interfaces if interface.protocol_version == version]
    likely = [interface for interface in interfaces if interface.protocol_binding == "JSONRPC"]
    return next((interface.url for interface in (*wanted, *likely, *interfaces)), None)


def page_shape(task: type[Struct], config: type[Struct], rename: Literal["camel"] | None = "camel") -> Any:
    """Return the struct to decode a page of tasks or of webhooks, each decoded as stated."""
    lists = {"tasks": task, "configs": config}
    counts = [(name, int | None, None) for name in ("page_size", "total_size")]
    items: list[Any] = [(name, GenericAlias(list, (kind,)), []) for name, kind in lists.items()]
    return defstruct("PageIn", [*items, ("next_page_token", str | None, None), *counts], rename=rename)


def task_page(tasks: tuple[model.Task, ...], token: str | None, size: int | None, total: int | None) -> model.TaskPage:
    """Return a page of tasks; if an agent states no total, there are no further tasks."""
    count = len(tasks)
    return model.TaskPage(
        tasks=tasks,
        next_page_token=token or "",
        page_size=count if size is None else size,
        total_size=count if total is None else total,
    )


def without_none(**members: Any) -> dict[str, Any]:
    """Return an object without the members that are None."""
    return {name: value for name, value in members.items() if value is not None}


def encode_without_none(**members: Any) -> bytes:
    """Write an object without the members that are None."""
    return codec.encode(without_none(**members))


# --- parameters of HTTP requests ------------------------------------------------------------------------------------

WITHOUT_BODY = frozenset(
    row.operation for row in ROWS.values() if any(route.verb in ("GET", "DELETE") for route in row.rest + row.rest_v03)
)
"""The operations whose parameters are in the query and the path."""


def _plain_type(kind: Any) -> Any:
    """Return a type without its constraints and without None."""
    while choices := get_args(kind):
        kind = choices[0]
    return kind


_PARAM_TYPES = {
    field.encode_name: _plain_type(field.type)
    for operation in WITHOUT_BODY
    for field in structs.fields(ROWS[operation].request)
}
"""The type of each parameter that may be in a query."""

_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_OBJECT = Decoder(dict[str, Any])
_MEMBERS = Decoder(dict[str, Raw])
_NAMED_IN_PATH = {
    "id": frozenset({"taskId", "task_id", "name", "parent", "pushNotificationConfigId"}),
    "taskId": frozenset({"task_id", "name", "parent"}),
}
"""Each path parameter -> aliases of the task or webhook it names. They are ignored when the path has it."""


def params_from_body(body: bytes, values: Mapping[str, str]) -> bytes:
    """Return a body with the path's values; no body is an empty object."""
    codec.check_form(body)
    if not values:
        return body or b"{}"
    members = codec.decode(body, _MEMBERS) if body else {}
    return _with_path(members, values)


def params_from_query(query: Iterable[tuple[str, str]], values: Mapping[str, str]) -> bytes:
    """Return a query with the path's values; a repeated name becomes a list (11.5)."""
    members: dict[str, Any] = {}
    for name, value in query:
        members.setdefault(name, []).append(value)
    return _with_path({name: found[0] if len(found) == 1 else found for name, found in members.items()}, values)


def _with_path(members: Mapping[str, Any], values: Mapping[str, str]) -> bytes:
    """Merge the path's values into the parameters, in which they take precedence."""
    if not members:
        return codec.encode(values)
    other = {alias for name in values for alias in _NAMED_IN_PATH.get(name, ())}
    return codec.encode({name: value for name, value in members.items() if name not in other} | dict(values))


def convert_query_values(operation: Operation, params: bytes) -> bytes:
    """Return the parameters, all in one object, with numbers and booleans converted from text.

    An empty text is left out. A2A 1.0's queries follow protobuf, which cannot distinguish it from an absent parameter.
    """
    codec.check_utf8(params)
    if operation not in WITHOUT_BODY:
        return params
    members = codec.decode(params, _OBJECT)
    return codec.encode({name: read for name, value in members.items() if (read := _convert_value(name, value)) != ""})


def _convert_value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _PARAM_TYPES.get(name) is int:
        if not _INTEGER.fullmatch(value):
            raise invalid_field(name, f"Expected an integer, got {value[:40]!r}")
        return int(value)
    if _PARAM_TYPES.get(name) is bool:
        if value.lower() not in _TRUTH:
            raise invalid_field(name, f"Expected true or false, got {value[:40]!r}")
        return _TRUTH[value.lower()]
    return value


# --- requests to addresses ----------------------------------------------------------------------------------------

_PATH_VALUE = re.compile(r"\{(\w+)\}")
_ATTRIBUTES = {"id": "id", "taskId": "task_id"}


def path_from_request(route: RestRoute, request: model.Request) -> str:
    """Return the path of a route with a request's values in it."""

    def value(found: re.Match[str]) -> str:
        path_value = getattr(request, _ATTRIBUTES[found[1]])
        if not path_value:
            raise invalid_field(found[1], "Required field is missing")
        return quote(path_value, safe="")

    return _PATH_VALUE.sub(value, route.path)


def query_from_params(route: RestRoute, params: bytes) -> list[tuple[str, str]]:
    """Return the query for the parameters outside the path of a route; the tenant is a prefix of the path."""
    path_names = _PATH_VALUE.findall(route.path)
    in_path = {"tenant", *path_names, *(alias for name in path_names for alias in _NAMED_IN_PATH[name])}
    members = codec.decode(params, _OBJECT)
    return [(name, _query_text(value)) for name, value in members.items() if name not in in_path and value is not None]


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
