"""Access to the parts inside a model value: list all, or replace each.

Stores keep large parts separately, and bindings replace some by URLs. This module only locates parts.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from accord.model.message import Artifact, Message, Part
from accord.model.task import ArtifactUpdate, MessageUpdate, StatusUpdate, Task, TaskStatus

Holder = TypeVar("Holder", bound=Part | Message | Artifact | Task | StatusUpdate | ArtifactUpdate | MessageUpdate)

_FIELDS: dict[type, tuple[str, ...]] = {
    Task: ("status", "artifacts", "history"),
    TaskStatus: ("message",),
    Message: ("parts",),
    Artifact: ("parts",),
    StatusUpdate: ("status",),
    ArtifactUpdate: ("artifact",),
    MessageUpdate: ("message",),
}
"""Type -> its fields that contain parts."""


def parts_of(value: Any) -> Sequence[Part]:
    """Return every part inside a value. Called for each stored event."""
    return _PARTS[type(value)](value)


def _parts_of_task(task: Task) -> list[Part]:
    found = list(_parts_of_status(task))
    for message in task.history:
        found += message.parts
    for artifact in task.artifacts:
        found += artifact.parts
    return found


def _parts_of_status(value: Task | StatusUpdate) -> Sequence[Part]:
    return () if value.status.message is None else value.status.message.parts


_PARTS: dict[type, Callable[[Any], Sequence[Part]]] = {
    Task: _parts_of_task,
    Part: lambda part: (part,),
    Message: attrgetter("parts"),
    Artifact: attrgetter("parts"),
    StatusUpdate: _parts_of_status,
    ArtifactUpdate: attrgetter("artifact.parts"),
    MessageUpdate: attrgetter("message.parts"),
}
"""Type -> function that returns its parts."""


def with_parts(value: Holder, change: Callable[[Part], Part]) -> Holder:
    """Return a value with every part changed; an unchanged value is returned itself."""
    return cast(Holder, _changed(value, change))


def _changed(value: Any, change: Callable[[Part], Part]) -> Any:
    if value is None:
        return None
    if isinstance(value, Part):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(_changed(item, change) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    changed = {}
    for field in _FIELDS[type(value)]:
        old = getattr(value, field)
        if (new := _changed(old, change)) is not old:
            changed[field] = new
    return replace(value, **changed) if changed else value
