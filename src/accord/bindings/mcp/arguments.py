"""From the arguments of a tool call to a message for its agent.

Pure reading, which refuses what makes no sense in words that a model can act on; `calls` stands above.
"""

from typing import Any
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct, UnsetType

from accord.model import Message, Part, Role

OCTETS = "application/octet-stream"

SKILL = "skill"
"""The metadata of a message that names the skill that is wanted."""


class BadArguments(ValueError):
    """The arguments make no sense; the text says why."""


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, by its content or its address."""

    name: str | None = None
    media_type: str | None = None
    content: bytes | None = None
    url: str | None = None


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool may be called with."""

    message: str | None = None
    data: Any | UnsetType = UNSET
    files: tuple[File, ...] = ()
    task_id: str | None = None
    context_id: str | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether there is nothing to send."""
        return not self.message and self.data is UNSET and not self.files


def read(given: dict[str, Any] | None) -> Arguments:
    """Return the arguments of a call."""
    try:
        found = msgspec.convert(given or {}, Arguments)
    except msgspec.ValidationError as error:
        raise BadArguments(f"These arguments are not understood: {error}") from None
    if found.says_nothing and not found.task_id:
        raise BadArguments("Say something: a message, data or files; or name the task_id of a task to look at")
    return found


def message_of(arguments: Arguments, skill: str | None = None) -> Message:
    """Return what a call says."""
    parts: list[Part] = []
    if arguments.message:
        parts.append(Part(text=arguments.message))
    if arguments.data is not UNSET:
        parts.append(Part(data=arguments.data, media_type="application/json"))
    parts += [_part(file) for file in arguments.files]
    return Message(
        message_id=uuid4().hex,
        role=Role.USER,
        parts=tuple(parts),
        task_id=arguments.task_id or None,
        context_id=arguments.context_id or None,
        metadata=None if skill is None else {SKILL: skill},
    )


def _part(file: File) -> Part:
    if (file.content is None) is (file.url is None):
        raise BadArguments("A file needs its content, as base64, or else its url")
    media_type = file.media_type or (None if file.content is None else OCTETS)
    return Part(raw=file.content, url=file.url, filename=file.name, media_type=media_type)
