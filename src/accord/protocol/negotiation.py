"""The dialect of a request: a pure classification into a route or a rejection.

The rules are tried in order and the first match wins:

1. a dialect that the caller states
2. the mount path
3. the A2A version or a 1.0 method name
4. a method that only one dialect has
5. the shape of the parameters
6. the dialect in which the task was created
7. A2A 0.3 or, where that is disabled, a dialect that replaces it

The arguments are the only input. Only a binding turns a rejection into a status.
"""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from msgspec import Raw, Struct, defstruct, field
from msgspec.json import Decoder
from msgspec.structs import astuple

from accord.errors import AccordError, InvalidRequest, MethodNotFound, VersionNotSupported
from accord.protocol.dialects.gen import PARAMETERS
from accord.protocol.operations import DialectName, Operation, dialects_for, operation_for

V1, V03, VAULT, GEN, RELAY = DialectName

DIALECT_HEADER = "x-a2a-dialect"
VERSION_HEADER = "a2a-version"

ALL_DIALECTS = frozenset(DialectName)


class ProtocolVersion(Enum):
    """The protocol versions, major and minor, that this server supports (3.6: patch numbers do not count)."""

    V0_2 = "0.2"
    V0_3 = "0.3"
    V1_0 = "1.0"


MOUNTS: Mapping[str, DialectName] = {"/a2a": VAULT, "/jsonrpc": V03, "/gen": GEN}
"""Paths with a fixed dialect; on other paths the request determines it."""

DIALECT_VERSIONS: Mapping[DialectName, frozenset[ProtocolVersion]] = {
    V1: frozenset({ProtocolVersion.V1_0}),
    V03: frozenset({ProtocolVersion.V0_2, ProtocolVersion.V0_3}),
    RELAY: frozenset({ProtocolVersion.V0_2, ProtocolVersion.V0_3}),
}
"""The versions of each dialect that has any; a request for another version is refused (A2A 1.0, 3.6.2)."""

_PUSH = "tasks/pushNotificationConfig/"
METHOD_DIALECTS: Mapping[str, DialectName] = {
    "tasks/send": VAULT,
    "tasks/sendSubscribe": VAULT,
    _PUSH + "subscribe": GEN,
    _PUSH + "unsubscribe": GEN,
    "tasks/resubscribe": V03,
    _PUSH + "set": V03,
    "tasks/pushNotification/set": V03,
    "tasks/pushNotification/get": V03,
    "agent/getAuthenticatedExtendedCard": V03,
    "agent/authenticatedExtendedCard": GEN,
}
"""Methods that identify the caller's dialect."""

_BY_TASK = frozenset({"tasks/get", "tasks/cancel", "tasks/subscribe"})


class Inquiry(Struct, frozen=True, kw_only=True):
    """The data of a JSON-RPC request before its parameters are read."""

    method: str
    params: bytes = b"{}"
    path: str = "/"
    dialect: str | None = None
    version: str | None = None
    enabled: frozenset[DialectName] = ALL_DIALECTS


class DialectRoute(Struct, frozen=True, kw_only=True):
    """The dialect of the response and the requested operation.

    `ask_task` names a task whose own dialect is a better guess: look it up and call `settle`. With `by_member`, a
    caller of 0.3 leaves `kind` out and identifies results by member names.
    """

    dialect: DialectName
    operation: Operation
    method: str
    ask_task: str | None = None
    by_member: bool = False
    enabled: frozenset[DialectName] = ALL_DIALECTS

    def settle(self, origin: DialectName | None, last: DialectName | None = None) -> "DialectRoute":
        """Return the route for the dialect of the task or, failing that, the caller's last one."""
        for dialect in (origin, last, self.dialect):
            if dialect in self.enabled and (operation := operation_for(self.method, dialect)):
                return DialectRoute(dialect=dialect, operation=operation, method=self.method, enabled=self.enabled)
        return self


class Rejection(Struct, frozen=True):
    """The error of a request without a route, and the dialect of the response."""

    error: AccordError
    dialect: DialectName


def negotiate(inquiry: Inquiry) -> DialectRoute | Rejection:
    """Choose the dialect of a JSON-RPC request."""
    try:
        version = parse_version(inquiry.version, inquiry.enabled)
        dialect, ask_task, by_member = _choose(inquiry, version)
    except AccordError as error:
        version_of_method = "1.0" if inquiry.method[:1].isupper() else None
        return Rejection(error, answer_dialect(inquiry.path, inquiry.dialect, version_of_method))
    if dialect not in inquiry.enabled:
        return Rejection(not_enabled(dialect, inquiry.enabled), dialect)
    operation = operation_for(inquiry.method, dialect)
    if operation is None:
        return Rejection(_no_method(inquiry.method, dialect), dialect)
    return DialectRoute(
        dialect=dialect,
        operation=operation,
        method=inquiry.method,
        ask_task=ask_task,
        by_member=by_member,
        enabled=inquiry.enabled,
    )


def answer_dialect(path: str, dialect: str | None, version: str | None) -> DialectName:
    """Choose the dialect to refuse an invalid body in: by stated dialect, mount path and version alone."""
    try:
        if dialect:
            return parse_dialect(dialect)
        if mounted := MOUNTS.get(path.rstrip("/")):
            return mounted
        return V1 if parse_version(version) is ProtocolVersion.V1_0 else V03
    except AccordError:
        return V03


@lru_cache(maxsize=64)
def parse_version(text: str | None, dialects: frozenset[DialectName] = ALL_DIALECTS) -> ProtocolVersion | None:
    """Read an `A2A-Version`, or None if it is missing or empty; a version outside of `dialects` is refused."""
    if text is None or not text.strip():
        return None
    major, _, rest = text.strip().partition(".")
    short = f"{major}.{rest.partition('.')[0]}"
    supported = frozenset[ProtocolVersion]().union(*(DIALECT_VERSIONS.get(dialect, ()) for dialect in dialects))
    for version in supported:
        if version.value == short:
            return version
    names = ", ".join(version.value for version in ProtocolVersion if version in supported) or "none"
    raise VersionNotSupported(
        f"A2A version {text.strip()[:20]!r} is not supported here; supported: {names}", metadata={"supported": names}
    )


def check_version(text: str | None, dialect: DialectName) -> None:
    """Refuse an `A2A-Version` that is not the dialect's; if missing or empty, the address determines the version."""
    if text:
        parse_version(text, frozenset({dialect}))


def _choose(inquiry: Inquiry, version: ProtocolVersion | None) -> tuple[DialectName, str | None, bool]:
    """Return the dialect, the task whose dialect is a better guess, and whether results are identified by members."""
    if inquiry.dialect:
        return parse_dialect(inquiry.dialect), None, False
    if mounted := MOUNTS.get(inquiry.path.rstrip("/")):
        return mounted, None, False
    if version is ProtocolVersion.V1_0 or inquiry.method[:1].isupper():
        return V1, None, False
    look = _look(inquiry.params)
    if own_dialect := METHOD_DIALECTS.get(inquiry.method):
        if own_dialect is GEN and version in DIALECT_VERSIONS[V03] and operation_for(inquiry.method, V03):
            return V03, None, False  # 0.2's name of the extended card, by a caller that states its version
        return _google_01(inquiry.method, look) or _replacement(own_dialect, inquiry, look), None, False
    by_shape = _shape(look)
    if by_shape and (by_shape in inquiry.enabled or look.message is None or look.message.kind is None):
        return by_shape, None, False
    task_id = look.id if look.id is not None else look.camel_id
    ask_task = task_id if inquiry.method in _BY_TASK and isinstance(task_id, str) else None
    return _replacement(V03, inquiry, look), ask_task, look.message is not None


def _replacement(dialect: DialectName, inquiry: Inquiry, look: "_ParamsLook") -> DialectName:
    """Return the dialect, or a replacement for a disabled 0.3: others have its methods, but not its messages."""
    if dialect is not V03 or V03 in inquiry.enabled or look.message is not None:
        return dialect
    others = (other for other in DialectName if other in inquiry.enabled and operation_for(inquiry.method, other))
    return next(others, dialect)


def parse_dialect(name: str) -> DialectName:
    """Read the name of a dialect; an unknown one is refused."""
    try:
        return DialectName(name.strip().lower())
    except ValueError:
        names = ", ".join(dialect.value for dialect in DialectName)
        raise InvalidRequest(f"Unknown dialect {name.strip()[:20]!r}; known are {names}") from None


def not_enabled(dialect: DialectName, enabled: frozenset[DialectName]) -> VersionNotSupported:
    """Return the error for a dialect that is not enabled."""
    names = ", ".join(other.value for other in DialectName if other in enabled)
    return VersionNotSupported(f"Dialect {dialect.value} is not enabled here; enabled: {names}")


def _no_method(method: str, dialect: DialectName) -> MethodNotFound:
    others = ", ".join(sorted(other.value for other in dialects_for(method)))
    hint = f"; it belongs to {others}" if others else ""
    return MethodNotFound(f"Method {method[:60]!r} does not exist in dialect {dialect.value}{hint}")


# --- the shape of parameters ------------------------------------------------------------------------------------------


_ABSENT = Raw(b"")


class _Part(Struct, frozen=True):
    kind: Any = None
    type: Any = None
    text: Any = None
    content: Raw = _ABSENT
    mime_type: Raw = _ABSENT


_NO_PART = _Part()


class _Parts(Struct, frozen=True, array_like=True):
    """The first parts of a message. They are as distinctive as all, and no objects are created for later ones."""

    part_0: _Part = _NO_PART
    part_1: _Part = _NO_PART
    part_2: _Part = _NO_PART
    part_3: _Part = _NO_PART
    part_4: _Part = _NO_PART
    part_5: _Part = _NO_PART
    part_6: _Part = _NO_PART
    part_7: _Part = _NO_PART


class _Message(Struct):
    id: Any = None
    role: Any = None
    kind: Any = None
    parts: _Parts = _Parts()
    context_id: Raw = _ABSENT
    message_id: Raw = _ABSENT
    task_id: Raw = _ABSENT

    @property
    def first_parts(self) -> list[_Part]:
        """The first parts that are present."""
        return [part for part in astuple(self.parts) if part is not _NO_PART]


class _ParamsLook(Struct):
    """The members of the parameters that distinguish dialects; all others are skipped unread."""

    id: Any = None
    camel_id: Any = field(default=None, name="taskId")
    webhook_url: Raw = field(default=_ABSENT, name="webhookUrl")
    message: _Message | None = None


# The generic dialect's own parameters, those in snake case, count with any value (B-00).
_look_type: Any = defstruct("_Look", [(name, Raw, _ABSENT) for name in sorted(PARAMETERS)], bases=(_ParamsLook,))
_look_decoder: Decoder[_ParamsLook] = Decoder(_look_type)
_NO_MESSAGE = _Message()
_NOTHING: _ParamsLook = _look_type()
_SNAKE_CASE = {
    shape: tuple(name for name in shape.__struct_encode_fields__ if "_" in name)
    for shape in (_look_type, _Message, _Part)
}
_VAULT_ROLES = ("assistant", "system", "tool")


def _look(params: bytes) -> _ParamsLook:
    """Read the members that distinguish dialects; invalid parameters distinguish none, and the dialect refuses them."""
    try:
        look: _ParamsLook = _look_decoder.decode(params)
        return look
    except (ValueError, RecursionError):
        return _NOTHING


def _google_01(method: str, look: _ParamsLook) -> DialectName | None:
    """Return `relay` for Google's A2A 0.1, which shares two method names with AgentVault's profile (B-07)."""
    if look.message is None:
        return None
    if method == "tasks/sendSubscribe":
        return RELAY
    texts = any(part.text is not None for part in look.message.first_parts)
    return RELAY if method == "tasks/send" and texts else None


def _shape(look: _ParamsLook) -> DialectName | None:
    """Return the dialect by the names of the parameters, then by the form of the message's parts.

    The generic dialect and AgentVault's profile both write `content`: it means the latter only with one of its roles.
    """
    message = look.message or _NO_MESSAGE
    parts = message.first_parts
    undeclared = [part for part in parts if part.kind is None]
    if _is_snake_case(look) or _is_snake_case(message) or any(map(_is_snake_case, undeclared)):
        return GEN
    if look.webhook_url is not _ABSENT:
        return VAULT
    contents = any(part.content is not _ABSENT for part in undeclared)
    typed = [part for part in undeclared if part.type is not None]
    if (contents or typed) and message.role in _VAULT_ROLES:
        return VAULT
    if contents:
        return GEN
    if typed:
        texts = any(part.text is not None for part in typed)
        return RELAY if texts or message.id is None else GEN
    return V03 if message.kind is not None or len(undeclared) < len(parts) else None


def _is_snake_case(look: _ParamsLook | _Message | _Part) -> bool:
    return any(getattr(look, name) is not _ABSENT for name in _SNAKE_CASE[type(look)])
