"""What a dialect has no field for, kept under one key in the metadata of the object it belongs to.

AgentVault's profile and the generic dialect have fewer fields than the model, and no place for facts about a
part. Their peers carry metadata along unread, so the rest is safe there and a strict client sees nothing it does
not know. Which facts need it is each dialect's business; without them everything here writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.model import Message, Part, Task, TaskStatus, keys
from accord.model.base import Metadata
from accord.protocol.parts import AnyPart, read_parts

KEY = "a2a"
"""The metadata key. Whatever a user keeps there, or under another key that a dialect writes, is set aside in it."""

UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
"""Written where a dialect requires a time and none is known; read as none."""

FINER_ROLES = frozenset({"system", "tool"})
"""Roles that A2A has no name for; they travel as `metadata.role`."""


class PartExtras(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """What the dialect's part cannot say; `form` tells what it stands for where it is not what it looks like."""

    form: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: Metadata | None = None


class Extras(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """What the dialect's message, artifact, task or event cannot say.

    `role` is the A2A role behind a finer one, `status` marks the message that belongs to the task's status, `event` is
    the metadata of the event around an artifact, `parts` has a part's position as key, `saved` is what a user kept
    under keys that the dialect needed. `texts` has the length of each text that an artifact's one text was joined of.
    """

    message_id: str | None = None
    context_id: str | None = None
    role: str | None = None
    status: bool = False
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    name: str | None = None
    description: str | None = None
    form: str | None = None
    append: bool = False
    last_chunk: bool = False
    event: Metadata | None = None
    parts: dict[str, PartExtras] = {}
    texts: tuple[int, ...] = ()
    saved: Metadata | None = None


_NONE = Extras()
_NO_PART = PartExtras()
_NO_KEYS: Mapping[str, Any] = MappingProxyType({})


def pack(metadata: Metadata | None, extras: Extras, native: Mapping[str, Any] = _NO_KEYS) -> Metadata | None:
    """Return the metadata to write: the user's, the keys that the dialect itself defines, and the extras."""
    own = dict(metadata or {})
    saved = {key: own.pop(key) for key in (KEY, *native) if key in own}
    if saved or (metadata == {} and (native or extras != _NONE)):
        extras = replace(extras, saved=saved)
    own.update(native)
    if extras != _NONE:
        own[KEY] = msgspec.to_builtins(extras)
    return own if own or metadata is not None else None


def unpack(metadata: Metadata | None, native: Sequence[str] = ()) -> tuple[Metadata | None, Extras]:
    """Return the user's metadata and the extras of metadata that was read; `native` are keys already understood."""
    if metadata is None:
        return None, _NONE
    extras = _extras(metadata.get(KEY))
    gone = (*native, KEY) if extras is not None else native
    own = {key: value for key, value in metadata.items() if key not in gone}
    if extras is not None and extras.saved is not None:
        return own | extras.saved, extras
    return own if own or not metadata else None, extras or _NONE


def _extras(stated: Any) -> Extras | None:
    """Read extras; what does not look like ours is the user's own."""
    if not isinstance(stated, dict) or not stated:
        return None
    try:
        return msgspec.convert(stated, Extras)
    except (msgspec.ValidationError, RecursionError):
        return None


def without(metadata: Metadata | None, key: str) -> Metadata | None:
    """Return metadata that lacks a key which the dialect writes elsewhere."""
    return {name: value for name, value in (metadata or {}).items() if name != key} or None


# --- parts --------------------------------------------------------------------------------------------------------


def write_all(
    parts: Sequence[Part], write: Callable[[Part], tuple[dict[str, Any], PartExtras]]
) -> tuple[list[dict[str, Any]], dict[str, PartExtras]]:
    """Write parts with a dialect's writer; returns them and what must go into the extras."""
    written = [write(part) for part in parts]
    lacking = {str(at): extra for at, (_, extra) in enumerate(written) if extra != _NO_PART}
    return [part for part, _ in written], lacking


def read_all(
    wire: Sequence[AnyPart], where: str, extras: Extras, restore: Callable[[Part, AnyPart, PartExtras], Part]
) -> tuple[Part, ...]:
    """Read parts and let a dialect restore those that have extras."""
    parts = read_parts(wire, where)
    if not extras.parts:
        return parts
    return tuple(
        restore(part, stated, extras.parts[str(at)]) if str(at) in extras.parts else part
        for at, (part, stated) in enumerate(zip(parts, wire, strict=True))
    )


def join_texts(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    """Return the chunks of a streamed text as one part, and the length of each; other parts stay as they are."""
    if len(parts) < 2 or any(part.text is None or part != Part(text=part.text) for part in parts):
        return parts, ()
    texts = [part.text or "" for part in parts]
    return (Part(text="".join(texts)),), tuple(map(len, texts))


def split_text(parts: tuple[Part, ...], lengths: tuple[int, ...]) -> tuple[Part, ...]:
    """Return the chunks that `join_texts` joined; lengths that do not fit the text are ignored."""
    text = parts[0].text if len(parts) == 1 else None
    if text is None or min(lengths, default=-1) < 0 or sum(lengths) != len(text):
        return parts
    ends = list(accumulate(lengths))
    return tuple(Part(text=text[end - length : end]) for end, length in zip(ends, lengths, strict=True))


# --- roles and times ----------------------------------------------------------------------------------------------


def finer_role(message: Message) -> str | None:
    """Return `system` or `tool` if that is who speaks."""
    found = (message.metadata or {}).get(keys.ROLE)
    return found if isinstance(found, str) and found in FINER_ROLES else None


def known_time(time: str | None) -> str | None:
    """Return a time unless it is the one that stands for none."""
    return None if time == UNKNOWN_TIME else time


def take_created(task: Task, updated: str | None) -> tuple[str | None, Metadata | None]:
    """Return when a task was created, and its metadata without that time where `give_created` will restore it.

    `updated` is the time of the status as a reader will see it.
    """
    created, metadata = task.created_at, task.metadata
    stated = (metadata or {}).get(keys.CREATED_AT)
    if stated != created or created == UNKNOWN_TIME or created == _derived(task, updated):
        return created, metadata
    return created, without(metadata, keys.CREATED_AT)


def give_created(task: Task, created: str | None) -> Task:
    """Return a task that says when it was created, stating it only if nothing else tells."""
    if created is None or created == task.created_at:
        return task
    return replace(task, metadata=(task.metadata or {}) | {keys.CREATED_AT: created})


def _derived(task: Task, updated: str | None) -> str | None:
    return replace(task, metadata=None, status=TaskStatus(state=task.status.state, timestamp=updated)).created_at
