"""The reader of A2A before 1.0: decoded structs, and their conversion to the model.

The structs cover JSON-RPC, protobuf JSON and mixtures of both, tolerant where deployed peers differ. A member that only
other dialects define may have any type here. The requirements of a dialect are settings of its `V03Reader`.
"""

import base64
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from accord import model
from accord.errors import InvalidParams
from accord.model import Role, TaskState
from accord.model.base import NonEmpty
from accord.protocol.codec import convert, invalid_field, read_time
from accord.protocol.parts import AnyFile, AnyPart, from_base64, read_parts
from accord.protocol.states import from_any

WRAPPED = "data_part_compat"
"""Part metadata: `true` where data is `{"value": ...}` only because 0.3 requires an object. The official SDK's mark."""


Wire = TypeVar("Wire")
Value = TypeVar("Value")
MISSING = "Required field is missing"


def text_or_none(value: Any) -> str | None:
    """Return a value if it is text, else None."""
    return value if isinstance(value, str) else None


class V03FileIn(AnyFile, rename="camel", gc=False):
    """The file of a part; two of its members are protobuf JSON's."""

    file_with_bytes: Any = None
    file_with_uri: Any = None


class V03PartIn(AnyPart, gc=False):
    """A part: `text`, `file`, `data`, `metadata` and either `kind` or `type` are its own."""

    kind: Any = None
    type: Any = None
    file: V03FileIn | None = None
    url: Any = None
    raw: Any = None
    name: Any = None
    filename: Any = None
    media_type: Any = field(default=None, name="mediaType")
    mime_type: Any = None
    schema: Any = None


class V03MessageIn(Struct, rename="camel", gc=False):
    """A message; in protobuf JSON its parts are `content`."""

    role: str = ""
    message_id: str | None = None
    parts: list[V03PartIn] | None = None
    content: Any = None
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class V03ContentIn(Struct):
    """The member of a message that only protobuf JSON has."""

    content: list[V03PartIn] | None = None


class V03StatusIn(Struct, gc=False):
    """A task's status."""

    state: str | None = None
    message: V03MessageIn | None = None
    timestamp: str | None = None


class V03ArtifactIn(Struct, rename="camel", gc=False):
    """An artifact."""

    artifact_id: NonEmpty
    parts: list[V03PartIn] | None = None
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None


class V03BodyIn(V03MessageIn):
    """A task, a message or an update: the content of results and streams."""

    kind: str | None = None
    id: str | None = None
    status: V03StatusIn | str | None = None
    artifacts: list[V03ArtifactIn] | None = None
    history: list[V03MessageIn] | None = None
    artifact: V03ArtifactIn | None = None
    append: bool | None = None
    last_chunk: bool | None = None


class V03AnswerIn(V03BodyIn):
    """A body, or an object with one as its member, as in protobuf JSON and 1.0."""

    task: V03BodyIn | None = None
    message: V03BodyIn | None = None
    msg: V03BodyIn | None = None
    status_update: V03BodyIn | None = None
    artifact_update: V03BodyIn | None = None


_SHARED = ("kind", "contextId", "metadata")
KIND_MEMBERS: dict[str, frozenset[str]] = {
    "task": frozenset({*_SHARED, "id", "status", "artifacts", "history"}),
    "message": frozenset({*_SHARED, "role", "messageId", "parts", "taskId", "extensions", "referenceTaskIds"}),
    "status-update": frozenset({*_SHARED, "taskId", "status"}),
    "artifact-update": frozenset({*_SHARED, "taskId", "artifact", "append", "lastChunk"}),
}
"""The members of each kind of body."""


_ROLES = {"user": Role.USER, "agent": Role.AGENT, "ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT}
EMPTY_PARTS = (model.Part(text=""),)
"""The parts of an object without parts."""


def read_member(member: str, read: Callable[[Wire], Value], wire: Wire) -> Value:
    """Read a member of an object; errors contain the path of the field."""
    try:
        return read(wire)
    except InvalidParams as error:
        raise _under(member, error) from None


def read_list(member: str, read: Callable[[Wire], Value], wires: Sequence[Wire] | None) -> tuple[Value, ...]:
    """Read a list that is a member of an object."""
    values: list[Value] = []
    try:
        for wire in wires or ():
            values.append(read(wire))
    except InvalidParams as error:
        raise _under(f"{member}[{len(values)}]", error) from None
    return tuple(values)


def _under(path: str, error: InvalidParams) -> InvalidParams:
    ((field_, reason),) = error.violations
    return invalid_field(f"{path}.{field_}" if field_ else path, reason)


FOREIGN: dict[str, type] = {
    "url": str,
    "raw": str,
    "name": str,
    "filename": str,
    "media_type": str,
    "mime_type": str,
    "schema": dict,
}
"""Members of a part that only other dialects define, and their types there."""


_foreign = attrgetter(*FOREIGN)
_ABSENT = (None,) * len(FOREIGN)


def check_text_member(wire: Struct, name: str, where: str | None) -> None:
    """Refuse a member that is not text under its path `where`, or clear it without a path, as if unknown."""
    value = getattr(wire, name)
    if value is None or isinstance(value, str):
        return
    if where is not None:
        raise invalid_field(where, "Expected `str | null`")
    setattr(wire, name, None)


class V03Reader(Struct, frozen=True):
    """Converts wire objects to the model. Errors name the field relative to the object that is read."""

    ids_required: bool = True
    """Whether a message without an id is refused; if not, its id is empty and the service assigns one."""

    proto: bool = False
    """Whether absent means zero, and a data part without a discriminator is `{"data": {"data": {}}}`."""

    tag: str = "kind"
    """Name of a part's discriminator; its other spelling is read as well."""

    def message(self, wire: V03MessageIn) -> model.Message:
        """Read a message."""
        role = _ROLES.get(wire.role)
        if role is None:
            raise invalid_field("role", f"Unknown role {wire.role[:40]!r}" if wire.role else MISSING)
        if not wire.message_id and self.ids_required:
            raise invalid_field("messageId", MISSING)
        own = wire.parts is not None and not self.proto
        parts = self._parts(wire.parts, "parts") if own else self._either(wire)
        return model.Message(
            message_id=wire.message_id or "",
            role=role,
            parts=parts,
            context_id=wire.context_id or None,
            task_id=wire.task_id or None,
            metadata=wire.metadata,
            extensions=wire.extensions or (),
            reference_task_ids=wire.reference_task_ids or (),
        )

    def artifact(self, wire: V03ArtifactIn) -> model.Artifact:
        """Read an artifact."""
        return model.Artifact(
            artifact_id=wire.artifact_id,
            parts=self._parts(wire.parts, "parts"),
            name=wire.name,
            description=wire.description,
            metadata=wire.metadata,
            extensions=wire.extensions or (),
        )

    def task(self, wire: V03BodyIn) -> model.Task:
        """Read a task."""
        if not wire.id:
            raise invalid_field("id", MISSING)
        return model.Task(
            id=wire.id,
            status=read_member("status", self._status, wire.status),
            context_id=wire.context_id or None,
            artifacts=read_list("artifacts", self.artifact, wire.artifacts),
            history=read_list("history", self.message, wire.history),
            metadata=wire.metadata,
        )

    def answer(self, wire: V03AnswerIn) -> model.EventBody:
        """Read a body, alone or as a member; with a `kind` the members are ignored."""
        if wire.kind in KIND_MEMBERS:
            return self.body(wire)
        for inner, member, kind in (
            (wire.task, "task", "task"),
            (wire.message, "message", "message"),
            (wire.msg, "msg", "message"),
            (wire.status_update, "statusUpdate", "status-update"),
            (wire.artifact_update, "artifactUpdate", "artifact-update"),
        ):
            if inner is not None:
                inner.kind = kind
                return read_member(member, self.body, inner)
        return self.body(wire)

    def body(self, wire: V03BodyIn) -> model.EventBody:
        """Read a task, message or update: by its `kind`, else by its members."""
        match wire.kind or _guess(wire):
            case "message":
                return self.message(wire)
            case "status-update":
                return self._status_update(wire)
            case "artifact-update":
                return self._artifact_update(wire)
            case _:
                return self.task(wire)

    def _status_update(self, wire: V03BodyIn) -> model.StatusUpdate:
        if not wire.task_id:
            raise invalid_field("taskId", MISSING)
        return model.StatusUpdate(
            task_id=wire.task_id,
            context_id=wire.context_id or "",
            status=read_member("status", self._status, wire.status),
            metadata=wire.metadata,
        )

    def _artifact_update(self, wire: V03BodyIn) -> model.ArtifactUpdate:
        if not wire.task_id:
            raise invalid_field("taskId", MISSING)
        if wire.artifact is None:
            raise invalid_field("artifact", MISSING)
        return model.ArtifactUpdate(
            task_id=wire.task_id,
            context_id=wire.context_id or "",
            artifact=read_member("artifact", self.artifact, wire.artifact),
            append=wire.append or False,
            last_chunk=wire.last_chunk or False,
            metadata=wire.metadata,
        )

    def _status(self, wire: V03StatusIn | str | None) -> model.TaskStatus:
        if not isinstance(wire, V03StatusIn):
            raise invalid_field("", MISSING if wire is None else "Expected `object`, got `str`")
        if wire.state is None and not self.proto:
            raise invalid_field("state", MISSING)
        state = from_any(wire.state, "state") if wire.state else TaskState.UNKNOWN
        message = None if wire.message is None else read_member("message", self.message, wire.message)
        return model.TaskStatus(state=state, message=message, timestamp=read_time(wire.timestamp or None, "timestamp"))

    def _either(self, wire: V03MessageIn) -> tuple[model.Part, ...]:
        """Read the parts of a message with `content`, which only in protobuf JSON always contains parts."""
        if self.proto or isinstance(wire.content, list):
            content = convert({"content": wire.content}, V03ContentIn).content
            if wire.parts is None:
                return self._parts(content, "content")
        return self._parts(wire.parts, "parts")

    def _parts(self, wires: list[V03PartIn] | None, name: str) -> tuple[model.Part, ...]:
        if not wires:
            if wires is None:
                raise invalid_field("parts", MISSING)
            return EMPTY_PARTS  # 0.x allows it, and servers close an artifact this way; a send refuses it
        # Most messages are one text: created here, without a call and a loop for each.
        first = wires[0]
        is_text = first.text is not None and first.kind == "text" and first.type is None and first.media_type is None
        if is_text and len(wires) == 1:
            return (model.Part(text=first.text, metadata=first.metadata),)
        parts = read_list(name, self._known, wires)
        if self.proto:
            for wire in parts:
                _from_proto(wire)
        return _unwrapped(read_parts(parts, name))

    def _known(self, part: V03PartIn) -> V03PartIn:
        """Clear members that this dialect does not define and that do not have other dialects' types."""
        if type(part.kind) is str and part.type is None and part.file is None and _foreign(part) == _ABSENT:
            return part
        check_text_member(part, "kind", "kind" if self.tag == "kind" else None)
        check_text_member(part, "type", "type" if self.tag == "type" else None)
        if part.file is not None:
            check_text_member(part.file, "file_with_bytes", "file.fileWithBytes" if self.proto else None)
            check_text_member(part.file, "file_with_uri", "file.fileWithUri" if self.proto else None)
        for name, kind in FOREIGN.items():
            if not isinstance(getattr(part, name), kind):
                setattr(part, name, None)
        return part


def _unwrapped(parts: tuple[model.Part, ...]) -> tuple[model.Part, ...]:
    """Unwrap data that was wrapped only because 0.3 requires an object."""
    for part in parts:
        if part.metadata is not None and WRAPPED in part.metadata:
            return tuple(map(_unwrap, parts))
    return parts


def _unwrap(part: model.Part) -> model.Part:
    marks = part.metadata or {}
    if marks.get(WRAPPED) is not True or not isinstance(part.data, dict) or "value" not in part.data:
        return part
    metadata = {key: value for key, value in marks.items() if key != WRAPPED}
    return replace(part, data=part.data["value"], metadata=metadata or None)


def _from_proto(part: V03PartIn) -> None:
    """Remove the wrapping of protobuf JSON around the content of a part without a discriminator."""
    if isinstance(part.data, dict) and part.data.keys() <= {"data"} and not (part.kind or part.type):
        part.data = part.data.get("data", {})
    if part.file is not None and part.file.file_with_bytes is not None:
        part.file.file_with_bytes = _once(part.file.file_with_bytes, part.file.mime_type or "")


_BINARY = ("image/", "audio/", "video/", "application/pdf", "application/zip", "application/gzip")
"""Media types of files that are never base64 text themselves."""


_LEAST_SIZE = 24
"""The base64 of 18 bytes: no file of these types is smaller, so a shorter text proves nothing."""


def _once(encoded: str, media_type: str) -> str:
    """Undo the Python SDK 0.3's double base64, where the media type rules out that the file is base64 text itself."""
    if not media_type.startswith(_BINARY):
        return encoded
    try:
        inner = from_base64(encoded).decode("ascii")
        twice = len(inner) >= _LEAST_SIZE and base64.b64encode(from_base64(inner)).decode() == inner
    except ValueError:
        return encoded
    return inner if twice else encoded


def _guess(wire: V03BodyIn) -> str:
    if wire.artifact is not None:
        return "artifact-update"
    if wire.role:
        return "message"
    return "status-update" if wire.task_id and not wire.id else "task"
