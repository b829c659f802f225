"""Field tables: the structs, parameters and pages that several dialects spell differently.

A dialect states the names of fields on the wire. Shapes to decode are made from the model's own fields, so that a field
of the model is added in one place.
"""

from collections.abc import Callable, Iterable, Mapping
from types import GenericAlias
from typing import Any, Literal, TypeVar

from msgspec import Struct, defstruct, field, structs, to_builtins
from msgspec.json import Decoder

from accord import model
from accord.model import TaskState
from accord.model.requests import FILTER_TIMES
from accord.protocol import codec
from accord.protocol.codec import invalid_field, read_time

T = TypeVar("T")


class AnyId(Struct, kw_only=True):
    """The members that may contain a task's id; an empty one counts as missing."""

    id: str | None = None
    task_id: str | None = field(default=None, name="task_id")
    camel_id: str | None = field(default=None, name="taskId")

    def task(self, name: str) -> str:
        """Return the task's id, or refuse its absence under the `name` that the dialect uses."""
        found = self.id or self.own_task()
        if not found:
            raise invalid_field(name, "Required field is missing")
        return found

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
    found = {name: getattr(wire, name, None) for name in names if name not in stated}
    return kind(**{name: value for name, value in found.items() if value is not None}, **stated)


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
        stated = {name: value for name in self._names if (value := getattr(wire, name)) not in self._absent}
        for name in FILTER_TIMES.keys() & stated.keys():
            stated[name] = read_time(stated[name], self._names[name])
        if "status" in stated:
            stated["status"] = self._read_state(stated["status"], "status")
        return model.TaskFilter(**stated)

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
